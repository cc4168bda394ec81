//! Frames that are decided before any bucket of an operator's policy: lists, permits, fragments, what
//! is not judged and what cannot be.

use limit_common::{counters::Effect, units::PolicyId, verdict::Reason};

use super::{super::Row, NUMBERS, V6, options, row, syn, web};
use crate::{
    frames::{
        Arp, Body, CUSTOMER_TAG, Frame, SOURCE_V4,
        transport::{ACK, SYN, icmp, icmpv6, tcp, udp},
    },
    loaded::{FIRST, Xdp},
};

pub(super) fn lists() -> Vec<Row> {
    let drops = || web("on_limit = 'drop'");
    let chain = || Frame::ipv6(tcp(80, SYN)).extended(vec![options(); 9]);
    let allowed = |description, frame, allowed| {
        Row {
            allowed,
            ..row(description, frame, drops())
        }
        .unjudged(Reason::Allowed, None, Xdp::Pass, None)
    };
    let denied = |description, frame, denied| {
        Row {
            denied,
            ..row(description, frame, drops())
        }
        .unjudged(Reason::Denied, None, Xdp::Drop, Some(Effect::Dropped))
    };
    vec![
        allowed("allowed address", syn(), &["198.51.100.7/32"]).already(9),
        allowed("allowed prefix", syn(), &["198.51.0.0/16", "10.0.0.0/8"]),
        allowed(
            "allowed IPv6 prefix",
            Frame::ipv6(udp(53)),
            &["2001:db8:1::/48"],
        ),
        allowed("all of IPv6 allowed", Frame::ipv6(udp(53)), &["::/0"]),
        allowed("allowed, undecidable", chain(), &["2001:db8:1:2::7/128"]),
        Row {
            denied: &["198.51.100.7/32"],
            ..allowed("allowed and denied", syn(), &["198.51.100.0/24"])
        },
        denied("denied address", syn(), &["198.51.100.7/32"]),
        denied(
            "denied prefix",
            Frame::ipv4(tcp(80, ACK)),
            &["198.51.100.6/31"],
        ),
        denied(
            "all of IPv4 denied",
            Frame::ipv4(icmp(8, 0)),
            &["0.0.0.0/0"],
        ),
        denied(
            "denied IPv6 address",
            Frame::ipv6(tcp(80, SYN)),
            &["2001:db8:1:2::7/128"],
        ),
        denied("denied, undecidable", chain(), &["2001:db8::/32"]),
        denied(
            "denied, a later fragment",
            syn().last_fragment(1),
            &["198.51.100.0/24"],
        ),
        Row {
            config: web("on_limit = 'drop', monitor = true"),
            ..denied(
                "denied though all policies monitor",
                syn(),
                &["198.51.100.7/32"],
            )
        },
        Row {
            allowed: &["198.51.100.8/32", "198.51.101.0/24", "::/0"],
            denied: &["198.51.100.6/32", "198.51.100.0/30", "::/0"],
            ..row("beside every prefix of both lists", syn(), drops())
        }
        .pays(FIRST, 3),
        Row {
            denied: &["2001:db8:1:2::7/128"],
            ..row(
                "neighbour solicitation from a denied source",
                Frame::ipv6(icmpv6(135, 0)).with_ipv6(|packet| packet.hop_limit = 255),
                drops(),
            )
        }
        .unjudged(Reason::Control, None, Xdp::Pass, None),
    ]
}

pub(super) fn in_flight() -> Vec<Row> {
    let gated = |fields: &str| web(&format!("max_in_flight = 2, {fields}"));
    let shed = |description, in_flight, fields, action, effect| {
        Row {
            in_flight,
            ..row(description, syn(), gated(fields))
        }
        .unjudged(Reason::InFlight, Some(FIRST), action, Some(effect))
    };
    let drops = "on_limit = 'drop'";
    vec![
        shed(
            "SYN while all permits are out",
            2,
            drops,
            Xdp::Drop,
            Effect::Dropped,
        ),
        shed(
            "SYN while more are out",
            3,
            drops,
            Xdp::Drop,
            Effect::Dropped,
        ),
        shed(
            "SYN while 2^32 are out",
            1 << 32,
            drops,
            Xdp::Drop,
            Effect::Dropped,
        ),
        shed(
            "shed, reset",
            2,
            "on_limit = 'reset'",
            Xdp::Tx,
            Effect::Reset,
        ),
        shed(
            "shed, 503",
            2,
            "on_limit = '503'",
            Xdp::Drop,
            Effect::Dropped,
        ),
        shed(
            "shed, monitored",
            2,
            "monitor = true",
            Xdp::Pass,
            Effect::Monitored,
        ),
        Row {
            in_flight: 1,
            ..row("SYN while one permit is left", syn(), gated(drops))
        }
        .pays(FIRST, 3),
        Row {
            in_flight: 9,
            ..row("SYN under a policy without a gate", syn(), web(drops))
        }
        .pays(FIRST, 3),
        Row {
            in_flight: 9,
            ..row(
                "ACK while all permits are out",
                Frame::ipv4(tcp(80, ACK)),
                gated(drops),
            )
        }
        .unjudged(Reason::OpensNothing, Some(FIRST), Xdp::Pass, None),
    ]
}

pub(super) fn fragments() -> Vec<Row> {
    const FRAGMENTS: PolicyId = PolicyId::FRAGMENTS;
    let two = |fields: &str| {
        format!(
            "fragments = {{ capacity = 2, refill = 1, interval = '1s' }}\n{}",
            web(fields)
        )
    };
    let cut = || syn().first_fragment(8);
    vec![
        row("later fragment", syn().last_fragment(1), two("")).pays(FRAGMENTS, 1),
        row("third later fragment", syn().last_fragment(1), two(""))
            .already(2)
            .refused(Reason::Rate, FRAGMENTS, Xdp::Drop, Effect::Dropped),
        row(
            "third later fragment over IPv6",
            Frame::ipv6(tcp(80, SYN)).last_fragment(1),
            two(""),
        )
        .already(2)
        .refused_from(V6, Reason::Rate, FRAGMENTS, Xdp::Drop, Effect::Dropped),
        row(
            "third later fragment while no policy enforces",
            syn().last_fragment(1),
            two("monitor = true"),
        )
        .already(2)
        .refused(Reason::Rate, FRAGMENTS, Xdp::Pass, Effect::Monitored),
        row(
            "first fragment with all of TCP",
            Frame::ipv4(tcp(80, SYN)).first_fragment(20),
            web(""),
        )
        .pays(FIRST, 3),
        row("first fragment with 8 bytes of TCP", cut(), web("")).unjudged(
            Reason::FragmentHeader,
            None,
            Xdp::Drop,
            Some(Effect::UndecidableDropped),
        ),
        row(
            "the same while no policy enforces",
            cut(),
            web("monitor = true"),
        )
        .unjudged(Reason::FragmentHeader, None, Xdp::Pass, None),
    ]
}

pub(super) fn unjudged() -> Vec<Row> {
    let any = || format!("policy = [{{ name = 'any', protocol = 'any', {NUMBERS} }}]");
    let on_link = |kind| Frame::ipv6(icmpv6(kind, 0)).with_ipv6(|packet| packet.hop_limit = 255);
    let arp = || {
        Frame::new(Body::Arp(Arp {
            operation: 1,
            sender: SOURCE_V4,
            target: [192, 0, 2, 1],
        }))
    };
    let passes = |description, frame, reason| {
        row(description, frame, any())
            .already(9)
            .unjudged(reason, None, Xdp::Pass, None)
    };
    let undecidable = |description, frame: Frame, reason| {
        [
            row(description, frame.clone(), any()).unjudged(
                reason,
                None,
                Xdp::Drop,
                Some(Effect::UndecidableDropped),
            ),
            row(
                description,
                frame,
                any().replace("protocol", "monitor = true, protocol"),
            )
            .unjudged(reason, None, Xdp::Pass, None),
        ]
    };
    let mut rows = vec![
        passes("ARP", arp(), Reason::NotIp),
        passes("router solicitation", on_link(133), Reason::Control),
        passes("neighbour solicitation", on_link(135), Reason::Control),
        passes("redirect", on_link(137), Reason::Control),
        passes("packet too big", Frame::ipv6(icmpv6(2, 0)), Reason::Control),
        passes(
            "fragmentation needed",
            Frame::ipv4(icmp(3, 4)),
            Reason::Control,
        ),
        row(
            "neighbour solicitation through a router",
            Frame::ipv6(icmpv6(135, 0)).with_ipv6(|packet| packet.hop_limit = 254),
            any(),
        )
        .pays_from(V6, FIRST, 3),
        passes(
            "IPv4 header of 4 words",
            syn().with_ipv4(|packet| packet.words = Some(4)),
            Reason::NetworkHeader,
        ),
        passes(
            "7 bytes of UDP",
            Frame::ipv4(udp(53)).part(0, Some(7)),
            Reason::TransportHeader,
        ),
    ];
    rows.extend(undecidable(
        "nine extension headers",
        Frame::ipv6(tcp(80, SYN)).extended(vec![options(); 9]),
        Reason::ExtensionChain,
    ));
    rows.extend(undecidable(
        "five tags",
        syn().tagged(&[(CUSTOMER_TAG, 0); 5]),
        Reason::TagStack,
    ));
    rows
}
