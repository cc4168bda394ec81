//! Rows about TCP, UDP, ICMP and what travels beside them.

use limit_common::packet::Payload;

use super::{
    super::frames::{
        Extension, Frame,
        transport::{
            ACK, CWR, ECE, FIN, Icmp, PSH, RST, SYN, Tcp, Transport, URG, Udp, icmp, icmpv6, tcp,
            udp,
        },
    },
    OPENS, Row, SEGMENT, TRANSPORT, UDP, destination, error, syn, v4, v6,
};

pub(crate) fn tcp_segments() -> Vec<Row> {
    let with = |change: fn(&mut Tcp)| {
        let mut segment = Tcp::new(80, SYN);
        change(&mut segment);
        Transport::Tcp(segment)
    };
    vec![
        v4("SYN", Frame::ipv4(syn()), OPENS),
        v6("SYN over IPv6", Frame::ipv6(syn()), OPENS),
        v4(
            "SYN, ECE and CWR",
            Frame::ipv4(tcp(80, SYN | ECE | CWR)),
            OPENS,
        ),
        v4(
            "SYN, FIN, PSH and URG",
            Frame::ipv4(tcp(80, SYN | FIN | PSH | URG)),
            OPENS,
        ),
        v4("SYN and ACK", Frame::ipv4(tcp(80, SYN | ACK)), SEGMENT),
        v4("SYN and RST", Frame::ipv4(tcp(80, SYN | RST)), SEGMENT),
        v6("ACK", Frame::ipv6(tcp(80, ACK)), SEGMENT),
        v4("no flag at all", Frame::ipv4(tcp(80, 0)), SEGMENT),
        v4(
            "SYN with 40 bytes of options",
            Frame::ipv4(with(|t| t.options = vec![1; 40])),
            OPENS,
        ),
        v4(
            "SYN with data",
            Frame::ipv4(with(|t| t.data = vec![0x47; 100])),
            OPENS,
        ),
        v4(
            "SYN to port 65535",
            Frame::ipv4(tcp(65_535, SYN)),
            Payload::Tcp {
                port: 65_535,
                opens: true,
            },
        ),
        v4(
            "SYN with a wrong checksum",
            Frame::ipv4(with(|t| t.checksum = Some(0xbad))),
            OPENS,
        ),
        error(
            "data offset 4",
            Frame::ipv4(with(|t| t.words = Some(4))),
            TRANSPORT,
        ),
        error(
            "data offset 0 over IPv6",
            Frame::ipv6(with(|t| t.words = Some(0))),
            TRANSPORT,
        ),
        error(
            "data offset past the packet",
            Frame::ipv4(with(|t| t.words = Some(6))),
            TRANSPORT,
        ),
        error(
            "data offset past the packet, into the padding",
            Frame::ipv4(with(|t| t.words = Some(15))).padded(40),
            TRANSPORT,
        ),
        error(
            "19 bytes of TCP",
            Frame::ipv4(syn()).part(0, Some(19)),
            TRANSPORT,
        ),
        error(
            "no byte of TCP over IPv6",
            Frame::ipv6(syn()).part(0, Some(0)),
            TRANSPORT,
        ),
        error(
            "8 bytes of TCP, the rest in the padding",
            Frame::ipv4(syn()).part(0, Some(8)).padded(40),
            TRANSPORT,
        ),
    ]
}

pub(crate) fn others() -> Vec<Row> {
    let with_length = |length| {
        Transport::Udp(Udp {
            length: Some(length),
            ..Udp::new(53)
        })
    };
    let short_icmp = |rest| Icmp {
        rest: vec![0; rest],
        ..Icmp::new(8, 0)
    };
    vec![
        v4("UDP", Frame::ipv4(udp(53)), UDP),
        v6("UDP over IPv6", Frame::ipv6(udp(53)), UDP),
        v4(
            "UDP without data",
            Frame::ipv4(Transport::Udp(Udp {
                data: Vec::new(),
                ..Udp::new(53)
            })),
            UDP,
        ),
        v4(
            "UDP that states less than it has",
            Frame::ipv4(with_length(8)),
            UDP,
        ),
        v6(
            "UDP that states 0 bytes over IPv6",
            Frame::ipv6(with_length(0)),
            UDP,
        ),
        error(
            "UDP that states 7 bytes",
            Frame::ipv4(with_length(7)),
            TRANSPORT,
        ),
        error(
            "UDP that states more than there is",
            Frame::ipv6(with_length(21)),
            TRANSPORT,
        ),
        error(
            "7 bytes of UDP",
            Frame::ipv4(udp(53)).part(0, Some(7)),
            TRANSPORT,
        ),
        v4("echo request", Frame::ipv4(icmp(8, 0)), Payload::Icmp),
        v6(
            "echo request over IPv6",
            Frame::ipv6(icmpv6(128, 0)),
            Payload::Icmp,
        ),
        error(
            "7 bytes of ICMP",
            Frame::ipv4(Transport::Icmp(short_icmp(3))),
            TRANSPORT,
        ),
        error(
            "7 bytes of ICMPv6",
            Frame::ipv6(Transport::Icmpv6(short_icmp(3))),
            TRANSPORT,
        ),
        v4(
            "ICMPv6 over IPv4",
            Frame::ipv4(icmpv6(135, 0)),
            Payload::Other,
        ),
        v6("ICMP over IPv6", Frame::ipv6(icmp(8, 0)), Payload::Other),
        v4(
            "SCTP",
            Frame::ipv4(Transport::Raw(132, vec![0, 80, 0, 80])),
            Payload::Other,
        ),
        v4(
            "GRE without a byte",
            Frame::ipv4(Transport::Raw(47, Vec::new())),
            Payload::Other,
        ),
        v4(
            "hop-by-hop options over IPv4",
            Frame::ipv4(Transport::Raw(0, vec![0; 8])),
            Payload::Other,
        ),
        v6(
            "ESP",
            Frame::ipv6(Transport::Raw(50, vec![0; 32])),
            Payload::Other,
        ),
        v6(
            "no next header",
            Frame::ipv6(Transport::Raw(59, Vec::new())),
            Payload::Other,
        ),
        v6(
            "no next header, with bytes",
            Frame::ipv6(Transport::Raw(59, vec![0; 40])),
            Payload::Other,
        ),
    ]
}

pub(crate) fn control() -> Vec<Row> {
    let on_link = |transport| Frame::ipv6(transport).with_ipv6(|p| p.hop_limit = 255);
    let mut rows = vec![
        v6(
            "packet too big",
            Frame::ipv6(icmpv6(2, 0)),
            Payload::Control,
        ),
        v6(
            "packet too big with a code",
            Frame::ipv6(icmpv6(2, 9)),
            Payload::Control,
        ),
        v6(
            "first fragment of packet too big",
            Frame::ipv6(icmpv6(2, 0)).first_fragment(16),
            Payload::Control,
        ),
        v4(
            "fragmentation needed",
            Frame::ipv4(icmp(3, 4)),
            Payload::Control,
        ),
        v4(
            "first fragment of fragmentation needed",
            Frame::ipv4(icmp(3, 4)).first_fragment(8),
            Payload::Control,
        ),
        v4("port unreachable", Frame::ipv4(icmp(3, 3)), Payload::Icmp),
        v4("type 2 over IPv4", Frame::ipv4(icmp(2, 0)), Payload::Icmp),
        v6(
            "type 3, code 4 over IPv6",
            Frame::ipv6(icmpv6(3, 4)),
            Payload::Icmp,
        ),
        v6(
            "neighbour solicitation through a router",
            Frame::ipv6(icmpv6(135, 0)).with_ipv6(|p| p.hop_limit = 254),
            Payload::Icmp,
        ),
        v6(
            "neighbour solicitation with a code",
            on_link(icmpv6(135, 1)),
            Payload::Icmp,
        ),
        v6(
            "neighbour solicitation behind options",
            on_link(icmpv6(135, 0)).extended(vec![destination()]),
            Payload::Control,
        ),
        v6(
            "neighbour solicitation in an atomic fragment",
            on_link(icmpv6(135, 0)).extended(vec![Extension::Fragment(0, false, 7)]),
            Payload::Icmp,
        ),
        v6(
            "neighbour solicitation in a first fragment",
            on_link(icmpv6(135, 0)).first_fragment(16),
            Payload::Icmp,
        ),
        v6(
            "multicast listener query",
            on_link(icmpv6(130, 0)),
            Payload::Icmp,
        ),
        v6("type 132", on_link(icmpv6(132, 0)), Payload::Icmp),
        v6("type 138", on_link(icmpv6(138, 0)), Payload::Icmp),
    ];
    for (kind, description) in [
        (133, "router solicitation"),
        (134, "router advertisement"),
        (135, "neighbour solicitation"),
        (136, "neighbour advertisement"),
        (137, "redirect"),
    ] {
        rows.push(v6(description, on_link(icmpv6(kind, 0)), Payload::Control));
    }
    rows
}
