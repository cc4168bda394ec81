//! Rows about fragments of both families.

use limit_common::packet::Payload;

use super::{
    super::frames::{
        Extension, Frame, MORE,
        transport::{SYN, Tcp, Transport, icmp, udp},
    },
    CHAIN, CUT, LATER, NETWORK, OPENS, Row, TRANSPORT, UDP, destination, error, hop_by_hop, syn,
    v4, v6,
};

pub(crate) fn ipv4() -> Vec<Row> {
    let fragment = |field, bytes: &[u8]| {
        Frame::ipv4(Transport::Raw(6, bytes.to_vec())).with_ipv4(|p| p.fragment = field)
    };
    let with_options = Transport::Tcp(Tcp {
        options: vec![1; 40],
        ..Tcp::new(80, SYN)
    });
    let bad_offset = Transport::Tcp(Tcp {
        words: Some(4),
        ..Tcp::new(80, SYN)
    });
    let more = |transport| Frame::ipv4(transport).with_ipv4(|p| p.fragment = MORE);
    vec![
        v4(
            "later fragment that looks like port 80",
            fragment(0x00b9, &[0, 80, 0, 80]),
            LATER,
        ),
        v4(
            "later fragment, more to follow",
            fragment(MORE | 3, &[0; 24]),
            LATER,
        ),
        v4("later fragment without a byte", fragment(1, &[]), LATER),
        v4(
            "later fragment, don't fragment",
            fragment(0x4001, &[0; 8]),
            LATER,
        ),
        v4(
            "last fragment of a SYN",
            Frame::ipv4(syn()).last_fragment(1),
            LATER,
        ),
        v4(
            "later fragment of ICMP",
            Frame::ipv4(icmp(3, 4)).last_fragment(1),
            LATER,
        ),
        v4(
            "first fragment with all of TCP",
            Frame::ipv4(with_options.clone()).first_fragment(64),
            OPENS,
        ),
        v4(
            "first fragment with 8 bytes of TCP",
            Frame::ipv4(syn()).first_fragment(8),
            CUT,
        ),
        v4(
            "first fragment with 19 bytes of TCP",
            Frame::ipv4(syn()).first_fragment(19),
            CUT,
        ),
        v4(
            "first fragment that ends in TCP options",
            Frame::ipv4(with_options).first_fragment(24),
            CUT,
        ),
        v4(
            "first fragment without a byte",
            Frame::ipv4(syn()).first_fragment(0),
            CUT,
        ),
        error(
            "first fragment with data offset 4",
            more(bad_offset),
            TRANSPORT,
        ),
        v4(
            "first fragment with UDP",
            Frame::ipv4(udp(53)).first_fragment(8),
            UDP,
        ),
        v4(
            "first fragment with 7 bytes of UDP",
            Frame::ipv4(udp(53)).first_fragment(7),
            CUT,
        ),
        v4(
            "first fragment with ICMP",
            Frame::ipv4(icmp(8, 0)).first_fragment(8),
            Payload::Icmp,
        ),
        v4(
            "first fragment with 4 bytes of ICMP",
            Frame::ipv4(icmp(8, 0)).first_fragment(4),
            CUT,
        ),
        v4(
            "first fragment of a tunnel",
            more(Transport::Raw(47, vec![0; 8])),
            Payload::Other,
        ),
    ]
}

pub(crate) fn ipv6() -> Vec<Row> {
    let chain = |extensions| Frame::ipv6(syn()).extended(extensions);
    let atomic = Extension::Fragment(0, false, 7);
    let first = Extension::Fragment(0, true, 7);
    let later = Extension::Fragment(185, true, 7);
    let last = Extension::Fragment(1, false, 7);
    vec![
        v6(
            "atomic fragment, the reserved byte set",
            chain(vec![Extension::Raw(44, vec![1, 0, 0, 0, 0, 0, 7])]),
            OPENS,
        ),
        v6("atomic fragment", chain(vec![atomic.clone()]), OPENS),
        error(
            "atomic fragment with 19 bytes of TCP",
            chain(vec![atomic.clone()]).part(0, Some(19)),
            TRANSPORT,
        ),
        v6(
            "first fragment with all of TCP over IPv6",
            chain(vec![first.clone()]),
            OPENS,
        ),
        v6(
            "first fragment with 8 bytes of TCP over IPv6",
            Frame::ipv6(syn()).first_fragment(8),
            CUT,
        ),
        v6(
            "first fragment that ends before TCP",
            chain(vec![first.clone(), destination()]).part(0, Some(0)),
            CUT,
        ),
        v6(
            "first fragment that ends in an extension header",
            Frame::ipv6(Transport::Raw(60, vec![6, 4, 0, 0, 0, 0, 0, 0]))
                .extended(vec![first.clone()]),
            CUT,
        ),
        v6(
            "first fragment that ends before an extension header",
            Frame::ipv6(Transport::Raw(60, Vec::new())).extended(vec![first.clone()]),
            CUT,
        ),
        v6(
            "later fragment over IPv6",
            chain(vec![later.clone()]),
            LATER,
        ),
        v6(
            "last fragment over IPv6",
            Frame::ipv6(syn()).last_fragment(1),
            LATER,
        ),
        v6(
            "later fragment behind options",
            chain(vec![hop_by_hop(), destination(), last.clone()]),
            LATER,
        ),
        v6(
            "options behind an atomic fragment",
            chain(vec![atomic.clone(), destination()]),
            OPENS,
        ),
        v6(
            "fragment in an atomic fragment",
            chain(vec![atomic, last]),
            CHAIN,
        ),
        v6(
            "fragment in a first fragment",
            chain(vec![first.clone(), first]),
            CHAIN,
        ),
        error(
            "fragment header of 7 bytes",
            Frame::ipv6(Transport::Raw(44, vec![6, 0, 0, 0, 0, 0, 0])),
            NETWORK,
        ),
    ]
}
