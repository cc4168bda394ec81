//! Rows about Ethernet, tags, and IP headers.

use limit_common::packet::{ParseError, Payload};

use super::{
    super::frames::{
        Arp, Body, CUSTOMER_TAG, Extension, Frame, SERVICE_TAG, SOURCE_V4,
        transport::{Transport, udp},
    },
    CHAIN, NETWORK, OPENS, Row, TRANSPORT, UDP, destination, error, hop_by_hop, syn, v4, v6,
};

pub(crate) fn ethernet() -> Vec<Row> {
    let tag = (CUSTOMER_TAG, 100);
    vec![
        v4("one customer tag", Frame::ipv4(syn()).tagged(&[tag]), OPENS),
        v6(
            "one service tag",
            Frame::ipv6(syn()).tagged(&[(SERVICE_TAG, 100)]),
            OPENS,
        ),
        v4(
            "service and customer tag",
            Frame::ipv4(udp(53)).tagged(&[(SERVICE_TAG, 100), (CUSTOMER_TAG, 200)]),
            UDP,
        ),
        v4("four tags", Frame::ipv4(syn()).tagged(&[tag; 4]), OPENS),
        error(
            "five tags",
            Frame::ipv4(syn()).tagged(&[tag; 5]),
            ParseError::TagStack,
        ),
        error(
            "frame of a single address",
            Frame::ipv4(syn()).cut(6),
            NETWORK,
        ),
        error("frame without a type", Frame::ipv4(syn()).cut(13), NETWORK),
        error(
            "tag without a type",
            Frame::ipv4(syn()).tagged(&[tag]).cut(17),
            NETWORK,
        ),
        error("ARP request", arp(), ParseError::NotIp),
        error(
            "ARP request under a tag",
            arp().tagged(&[tag]),
            ParseError::NotIp,
        ),
        error(
            "empty frame of an unknown type",
            Frame::new(Body::Raw(0x88b5, Vec::new())),
            ParseError::NotIp,
        ),
        error(
            "length and SNAP header before IPv4",
            snap(),
            ParseError::NotIp,
        ),
        v4(
            "frame padded to 60 bytes",
            Frame::ipv4(syn()).padded(6),
            OPENS,
        ),
    ]
}

pub(crate) fn ipv4() -> Vec<Row> {
    let options = |count: usize| Frame::ipv4(syn()).with_ipv4(|p| p.options = vec![1; count]);
    let words = |words| Frame::ipv4(syn()).with_ipv4(|p| p.words = Some(words));
    let total = |total| Frame::ipv4(syn()).with_ipv4(|p| p.total_length = Some(total));
    vec![
        v4("header of 15 words, all there", options(40), OPENS),
        v4("header of 6 words", options(4), OPENS),
        error("header of 4 words", words(4), NETWORK),
        error("header of 0 words", words(0), NETWORK),
        error(
            "header of 15 words in a frame of 54 bytes",
            words(15),
            NETWORK,
        ),
        error(
            "version 6 in an IPv4 frame",
            Frame::ipv4(syn()).with_ipv4(|p| p.version = 6),
            NETWORK,
        ),
        error(
            "version 0",
            Frame::ipv4(syn()).with_ipv4(|p| p.version = 0),
            NETWORK,
        ),
        error("total length 0", total(0), NETWORK),
        error("total length below the header", total(19), NETWORK),
        error("total length of the header alone", total(20), TRANSPORT),
        error("total length past the frame", total(41), NETWORK),
        error("total length 65535", total(65_535), NETWORK),
        error("19 bytes of IPv4", Frame::ipv4(syn()).cut(33), NETWORK),
        error(
            "IPv4 frame without a packet",
            Frame::ipv4(syn()).cut(14),
            NETWORK,
        ),
        v4(
            "wrong header checksum",
            Frame::ipv4(syn()).with_ipv4(|p| p.checksum = Some(0xbad)),
            OPENS,
        ),
        v4(
            "reserved flag and don't fragment",
            Frame::ipv4(syn()).with_ipv4(|p| p.fragment = 0xc000),
            OPENS,
        ),
    ]
}

pub(crate) fn ipv6() -> Vec<Row> {
    let length = |length| Frame::ipv6(syn()).with_ipv6(|p| p.payload_length = Some(length));
    let chain = |extensions| Frame::ipv6(syn()).extended(extensions);
    let jumbo = chain(vec![hop_by_hop()]).with_ipv6(|p| p.payload_length = Some(0));
    let long = Extension::Raw(60, vec![4; 7]);
    let every = vec![
        hop_by_hop(),
        destination(),
        Extension::Routing(0, 0, vec![0; 20]),
        Extension::Fragment(0, false, 7),
        Extension::Authentication(12),
        Extension::Authentication(20),
        Extension::Destination(vec![1; 2046]),
        Extension::HopByHop(vec![1; 14]),
    ];
    vec![
        v6("hop-by-hop options", chain(vec![hop_by_hop()]), OPENS),
        v6(
            "destination options of 2048 bytes",
            chain(vec![Extension::Destination(vec![1; 2046])]),
            OPENS,
        ),
        v6(
            "routing header",
            chain(vec![Extension::Routing(4, 1, vec![0; 20])]),
            OPENS,
        ),
        v6(
            "authentication header",
            chain(vec![Extension::Authentication(12)]),
            OPENS,
        ),
        v6("eight extension headers of every kind", chain(every), OPENS),
        v6(
            "nine extension headers",
            chain(vec![destination(); 9]),
            CHAIN,
        ),
        v6(
            "a hundred extension headers",
            chain(vec![destination(); 100]),
            CHAIN,
        ),
        v6(
            "eight extension headers before no next header",
            Frame::ipv6(Transport::Raw(59, Vec::new())).extended(vec![destination(); 8]),
            Payload::Other,
        ),
        error(
            "extension header past the packet",
            chain(vec![long]),
            NETWORK,
        ),
        error(
            "extension header without a byte",
            Frame::ipv6(Transport::Raw(60, Vec::new())),
            NETWORK,
        ),
        error(
            "extension header of 7 bytes",
            Frame::ipv6(Transport::Raw(60, vec![6; 7])),
            NETWORK,
        ),
        error(
            "authentication header past the packet",
            Frame::ipv6(Transport::Raw(51, vec![6, 4, 0, 0])),
            NETWORK,
        ),
        error(
            "version 4 in an IPv6 frame",
            Frame::ipv6(syn()).with_ipv6(|p| p.version = 4),
            NETWORK,
        ),
        error("39 bytes of IPv6", Frame::ipv6(syn()).cut(53), NETWORK),
        error("payload length past the frame", length(21), NETWORK),
        error("payload length 0 before TCP", length(0), TRANSPORT),
        error(
            "payload length within the TCP header",
            length(19),
            TRANSPORT,
        ),
        v6("payload length 0 before hop-by-hop options", jumbo, OPENS),
    ]
}

fn arp() -> Frame {
    Frame::new(Body::Arp(Arp {
        operation: 1,
        sender: SOURCE_V4,
        target: [192, 0, 2, 1],
    }))
}

/// An IPv4 packet as IEEE 802.2 frames carry it.
fn snap() -> Frame {
    let packet = Frame::ipv4(syn()).bytes().split_off(14);
    let payload = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &packet[..]].concat();
    Frame::new(Body::Raw(48, payload))
}
