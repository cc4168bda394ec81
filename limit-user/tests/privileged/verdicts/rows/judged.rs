//! Frames that a policy's bucket is asked about: by connection, packet and byte, by protocol, port and
//! prefix.

use limit_common::{
    counters::Effect,
    key::{Address, Key},
    verdict::Reason,
};

use super::{super::Row, NUMBERS, V6, options, row, sctp, syn, web};
use crate::{
    frames::{
        CUSTOMER_TAG, Frame, SERVICE_TAG, SOURCE_V4, SOURCE_V6,
        transport::{ACK, SYN, icmp, icmpv6, tcp, udp},
    },
    loaded::{FIRST, SECOND_POLICY, Xdp},
};

pub(super) fn connections() -> Vec<Row> {
    let drops = || web("on_limit = 'drop'");
    vec![
        row("first SYN", syn(), drops()).pays(FIRST, 3),
        row("fourth SYN", syn(), drops()).already(3).pays(FIRST, 0),
        row("fifth SYN, dropped", syn(), drops())
            .already(4)
            .refused(Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row("fifth SYN, reset", syn(), web("on_limit = 'reset'"))
            .already(4)
            .refused(Reason::Rate, FIRST, Xdp::Tx, Effect::Reset),
        row("fifth SYN, 503", syn(), web("on_limit = '503'"))
            .already(4)
            .refused(Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row(
            "fifth SYN, monitored",
            syn(),
            web("on_limit = 'drop', monitor = true"),
        )
        .already(4)
        .refused(Reason::Rate, FIRST, Xdp::Pass, Effect::Monitored),
        row(
            "fifth SYN, reset but monitored",
            syn(),
            web("on_limit = 'reset', monitor = true"),
        )
        .already(4)
        .refused(Reason::Rate, FIRST, Xdp::Pass, Effect::Monitored),
        row("SYN over IPv6", Frame::ipv6(tcp(80, SYN)), drops()).pays_from(V6, FIRST, 3),
        row(
            "fifth SYN over IPv6, reset",
            Frame::ipv6(tcp(80, SYN)),
            web("on_limit = 'reset'"),
        )
        .already(4)
        .refused_from(V6, Reason::Rate, FIRST, Xdp::Tx, Effect::Reset),
        row(
            "fifth SYN behind options, which no reset answers",
            Frame::ipv6(tcp(80, SYN)).extended(vec![options()]),
            web("on_limit = 'reset'"),
        )
        .already(4)
        .refused_from(V6, Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row(
            "fifth SYN to a multicast address, which no reset answers",
            syn().sent_to([224, 0, 0, 1]),
            web("on_limit = 'reset'"),
        )
        .already(4)
        .refused(Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row("ACK of a connection", Frame::ipv4(tcp(80, ACK)), drops())
            .already(4)
            .unjudged(Reason::OpensNothing, Some(FIRST), Xdp::Pass, None),
        row("SYN and ACK", Frame::ipv4(tcp(80, SYN | ACK)), drops()).unjudged(
            Reason::OpensNothing,
            Some(FIRST),
            Xdp::Pass,
            None,
        ),
        row(
            "SYN under one tag",
            syn().tagged(&[(CUSTOMER_TAG, 100)]),
            drops(),
        )
        .pays(FIRST, 3),
        row(
            "fifth SYN under two tags, reset",
            syn().tagged(&[(SERVICE_TAG, 100), (CUSTOMER_TAG, 200)]),
            web("on_limit = 'reset'"),
        )
        .already(4)
        .refused(Reason::Rate, FIRST, Xdp::Tx, Effect::Reset),
    ]
}

pub(super) fn packets_and_bytes() -> Vec<Row> {
    let packets = || web("unit = 'packet'");
    // The frame has 54 bytes.
    let bytes = || web("unit = 'byte'").replace("capacity = 4", "capacity = 65535");
    vec![
        row("ACK by packet", Frame::ipv4(tcp(80, ACK)), packets()).pays(FIRST, 3),
        row("fifth ACK by packet", Frame::ipv4(tcp(80, ACK)), packets())
            .already(4)
            .refused(Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row("SYN by byte", syn(), bytes()).pays(FIRST, 65_535 - 54),
        row(
            "tagged SYN by byte, the tag included",
            syn().tagged(&[(CUSTOMER_TAG, 1)]),
            bytes(),
        )
        .pays(FIRST, 65_535 - 58),
        row(
            "padded SYN by byte, the padding included",
            syn().padded(6),
            bytes(),
        )
        .pays(FIRST, 65_535 - 60),
        row("SYN that takes the last byte", syn(), bytes())
            .of(54)
            .pays(FIRST, 0),
        row("second SYN of 54 bytes in 100", syn(), bytes())
            .of(100)
            .already(1)
            .refused_with(46, Reason::Rate, FIRST, Xdp::Drop, Effect::Dropped),
        row("SYN of 54 bytes in 53", syn(), bytes())
            .of(53)
            .refused_with(
                53,
                Reason::CostExceedsCapacity,
                FIRST,
                Xdp::Drop,
                Effect::Dropped,
            ),
        row(
            "SYN of 54 bytes in 53, monitored",
            syn(),
            bytes().replace("unit", "monitor = true, unit"),
        )
        .of(53)
        .refused_with(
            53,
            Reason::CostExceedsCapacity,
            FIRST,
            Xdp::Pass,
            Effect::Monitored,
        ),
    ]
}

pub(super) fn policies() -> Vec<Row> {
    let any = || format!("policy = [{{ name = 'any', protocol = 'any', {NUMBERS} }}]");
    let two = |first: &str, second: &str| {
        format!(
            "policy = [{{ name = 'a', {first}, {NUMBERS} }}, {{ name = 'b', {second}, {NUMBERS} }}]"
        )
    };
    let none = |description, frame, config| {
        row(description, frame, config).unjudged(Reason::NoPolicy, None, Xdp::Pass, None)
    };
    let mut rows = vec![
        none("SYN to another port", Frame::ipv4(tcp(81, SYN)), web("")),
        none(
            "UDP to the port of a TCP policy",
            Frame::ipv4(udp(80)),
            web(""),
        ),
        none(
            "echo request without a policy",
            Frame::ipv4(icmp(8, 0)),
            web(""),
        ),
        none("SCTP without a policy", Frame::ipv4(sctp()), web("")),
        row(
            "SYN to the last port of a range",
            Frame::ipv4(tcp(8010, SYN)),
            two("ports = '80'", "ports = '8000-8010'"),
        )
        .pays(SECOND_POLICY, 3),
        row(
            "SYN to a port that only the portless policy takes",
            Frame::ipv4(tcp(65_535, SYN)),
            two("ports = '80'", "protocol = 'tcp'"),
        )
        .pays(SECOND_POLICY, 3),
        row(
            "SYN to a port before the portless policy",
            syn(),
            two("protocol = 'tcp'", "ports = '80'"),
        )
        .pays(SECOND_POLICY, 3),
        row(
            "echo request before any protocol",
            Frame::ipv4(icmp(8, 0)),
            two("protocol = 'any'", "protocol = 'icmp'"),
        )
        .pays(SECOND_POLICY, 3),
        row(
            "echo request over IPv6",
            Frame::ipv6(icmpv6(128, 0)),
            two("protocol = 'any'", "protocol = 'icmp'"),
        )
        .pays_from(V6, SECOND_POLICY, 3),
        row(
            "UDP to a port of UDP",
            Frame::ipv4(udp(53)),
            two("protocol = 'any'", "protocol = 'udp', ports = '53'"),
        )
        .pays(SECOND_POLICY, 3),
    ];
    for (description, transport) in [
        ("SYN under any protocol", tcp(80, SYN)),
        ("ACK under any protocol", tcp(80, ACK)),
        ("UDP under any protocol", udp(53)),
        ("echo request under any protocol", icmp(8, 0)),
        ("SCTP under any protocol", sctp()),
    ] {
        rows.push(row(description, Frame::ipv4(transport), any()).pays(FIRST, 3));
    }
    // What no configuration makes of a port.
    for (description, entry) in [
        ("a port that names an unused row", 9),
        ("a port that names no row", 66),
        ("a port that names the largest number", 255),
    ] {
        rows.push(Row {
            entry: Some(entry),
            ..none(description, syn(), web(""))
        });
    }
    rows
}

pub(super) fn prefixes() -> Vec<Row> {
    let of = |keys: &str| format!("keys = {{ {keys} }}\n{}", web("on_limit = 'drop'"));
    let v4 = |length| Key::from_source(&Address::V4(SOURCE_V4), FIRST, length, 0);
    let v6 = |length| Key::from_source(&Address::V6(SOURCE_V6), FIRST, 0, length);
    let mut rows = Vec::new();
    for (description, keys, key) in [
        ("IPv4 /24", "ipv4_prefix = 24", v4(24)),
        ("IPv4 /31", "ipv4_prefix = 31", v4(31)),
        ("all of IPv4 together", "ipv4_prefix = 0", v4(0)),
    ] {
        rows.push(row(description, syn(), of(keys)).pays_as(key, 3));
    }
    for (description, keys, key) in [
        ("IPv6 /48", "ipv6_prefix = 48", v6(48)),
        ("IPv6 /63", "ipv6_prefix = 63", v6(63)),
        ("IPv6 /65", "ipv6_prefix = 65", v6(65)),
        ("IPv6 /128", "ipv6_prefix = 128", v6(128)),
        ("all of IPv6 together", "ipv6_prefix = 0", v6(0)),
    ] {
        rows.push(row(description, Frame::ipv6(tcp(80, SYN)), of(keys)).pays_as(key, 3));
    }
    assert_eq!(v4(24).prefix[..5], [198, 51, 100, 0, 0]);
    assert_eq!(v6(48).prefix[..9], [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0]);
    rows
}
