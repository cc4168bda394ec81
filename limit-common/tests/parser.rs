//! The parser: what it makes of each kind of frame, and what holds for every string of bytes.

#[path = "support/frames.rs"]
mod frames;
#[path = "support/table.rs"]
mod table;

use limit_common::{
    key::Address,
    packet::{Packet, ParseError, Payload},
    verdict::Reason,
};
use proptest::{collection::vec, prelude::*, sample::select};

use frames::{
    Extension, Frame, MORE, SOURCE_V4, SOURCE_V6,
    transport::{SYN, Tcp, Transport, Udp, icmp, icmpv6, tcp, udp},
};
use table::table;

#[test]
fn reads_every_row_of_the_table() {
    for row in table() {
        assert_eq!(
            parse(&row.frame.bytes()),
            row.expected,
            "{}",
            row.description
        );
    }
}

#[test]
fn errs_at_every_truncation_of_a_good_frame() {
    for row in table().into_iter().filter(|row| row.expected.is_ok()) {
        let bytes = row.frame.bytes();
        for length in 0..bytes.len() - row.frame.padding {
            let parsed = parse(&bytes[..length]);
            assert!(
                parsed.is_err(),
                "{} cut to {length}: {parsed:?}",
                row.description
            );
        }
    }
}

#[test]
fn reads_no_transport_header_that_the_packet_cuts() {
    let options = Tcp {
        options: vec![1; 12],
        data: vec![0; 9],
        ..Tcp::new(80, SYN)
    };
    let short = Udp {
        length: Some(8),
        ..Udp::new(53)
    };
    for (frame, header) in [
        (Frame::ipv4(tcp(80, SYN)), 20),
        (Frame::ipv6(tcp(80, SYN)), 20),
        (Frame::ipv4(Transport::Tcp(options.clone())), 32),
        (Frame::ipv6(Transport::Tcp(options)), 32),
        (Frame::ipv4(Transport::Udp(short.clone())), 8),
        (Frame::ipv6(Transport::Udp(short)), 8),
        (Frame::ipv4(icmp(3, 4)), 8),
        (Frame::ipv6(icmpv6(2, 0)), 8),
    ] {
        assert_cut_to_headers(&frame, header);
    }
}

#[test]
fn reads_the_port_past_ipv4_options_of_every_length() {
    for words in 0..=10 {
        let frame = Frame::ipv4(tcp(443, SYN))
            .with_ipv4(|packet| packet.options = [0, 80].repeat(2 * words));
        let expected = Ok(Payload::Tcp {
            port: 443,
            opens: true,
        });
        assert_eq!(
            payload(&frame.bytes()),
            expected,
            "{words} words of options"
        );
    }
}

#[test]
fn never_takes_a_later_fragment_for_a_segment() {
    let bytes = [0, 80].repeat(20);
    for units in 1..=0x1fff {
        for more in [0, MORE] {
            let frame = Frame::ipv4(Transport::Raw(6, bytes.clone()))
                .with_ipv4(|packet| packet.fragment = units | more);
            assert_eq!(
                payload(&frame.bytes()),
                Ok(Payload::LaterFragment),
                "offset {units}"
            );
        }
        let frame = Frame::ipv6(Transport::Raw(6, bytes.clone()))
            .extended(vec![Extension::Fragment(units, units % 2 == 0, 7)]);
        assert_eq!(
            payload(&frame.bytes()),
            Ok(Payload::LaterFragment),
            "offset {units}"
        );
    }
}

#[test]
fn reads_a_syn_behind_eight_extension_headers_and_never_passes_one_behind_more() {
    let destination = Extension::Destination(vec![1, 4]);
    let every = vec![
        Extension::Routing(4, 1, vec![0; 20]),
        Extension::Authentication(12),
        Extension::HopByHop(vec![1, 4]),
        destination.clone(),
    ];
    let longest = Extension::Destination(vec![1; 2046]);
    for (kinds, most) in [(vec![destination], 100), (every, 100), (vec![longest], 31)] {
        for count in 0..=most {
            let chain = kinds.iter().cycle().take(count).cloned().collect();
            let frame = Frame::ipv6(tcp(80, SYN)).extended(chain);
            let expected = if count <= 8 {
                Payload::Tcp {
                    port: 80,
                    opens: true,
                }
            } else {
                Payload::Unknown(Reason::ExtensionChain)
            };
            assert_eq!(
                payload(&frame.bytes()),
                Ok(expected),
                "{count} of {kinds:?}"
            );
        }
    }
}

#[test]
fn takes_every_protocol_that_it_does_not_read_for_other() {
    for number in 0..=255 {
        let transport = Transport::Raw(number, vec![0; 40]);
        if ![1, 6, 17].contains(&number) {
            let frame = Frame::ipv4(transport.clone());
            assert_eq!(
                payload(&frame.bytes()),
                Ok(Payload::Other),
                "IPv4 protocol {number}"
            );
        }
        if ![0, 6, 17, 43, 44, 51, 58, 60].contains(&number) {
            let frame = Frame::ipv6(transport);
            assert_eq!(
                payload(&frame.bytes()),
                Ok(Payload::Other),
                "IPv6 protocol {number}"
            );
        }
    }
}

#[test]
fn takes_the_length_of_the_frame_where_a_packet_is_too_large_to_state_its_own() {
    let large = Transport::Tcp(Tcp {
        data: vec![0; 70_000],
        ..Tcp::new(80, SYN)
    });
    let expected = Ok(Payload::Tcp {
        port: 80,
        opens: true,
    });
    let over_ipv4 = Frame::ipv4(large.clone()).with_ipv4(|packet| packet.total_length = Some(0));
    assert_eq!(payload(&over_ipv4.bytes()), expected);
    let over_ipv6 = Frame::ipv6(large).with_ipv6(|packet| packet.payload_length = Some(0));
    assert_eq!(payload(&over_ipv6.bytes()), expected);
}

#[test]
fn says_unreadable_where_the_driver_hides_a_header_that_the_frame_holds() {
    let over_ipv4 = Frame::ipv4(tcp(80, SYN)).bytes();
    let over_ipv6 = Frame::ipv6(udp(53))
        .extended(vec![Extension::Destination(vec![1, 4])])
        .bytes();
    let unknown = Payload::Unknown(Reason::Unreadable);
    let from_v4 = Ok(Packet {
        source: Address::V4(SOURCE_V4),
        payload: unknown,
    });
    let from_v6 = Ok(Packet {
        source: Address::V6(SOURCE_V6),
        payload: unknown,
    });
    for (bytes, readable, expected) in [
        (&over_ipv4, 13, Err(ParseError::Unreadable)),
        (&over_ipv4, 33, Err(ParseError::Unreadable)),
        (&over_ipv4, 34, from_v4),
        (&over_ipv4, 53, from_v4),
        (&over_ipv4, 54, parse(&over_ipv4)),
        (&over_ipv6, 37, Err(ParseError::Unreadable)),
        (&over_ipv6, 54, from_v6),
        (&over_ipv6, 62, from_v6),
        (&over_ipv6, 69, from_v6),
        (&over_ipv6, 70, parse(&over_ipv6)),
    ] {
        assert_eq!(
            Packet::parse(&Linear { bytes, readable }),
            expected,
            "{readable} readable"
        );
    }
}

#[test]
fn gives_every_error_the_reason_of_its_name() {
    for (error, reason) in [
        (ParseError::NotIp, Reason::NotIp),
        (ParseError::TagStack, Reason::TagStack),
        (ParseError::Unreadable, Reason::Unreadable),
        (ParseError::NetworkHeader, Reason::NetworkHeader),
        (ParseError::TransportHeader, Reason::TransportHeader),
    ] {
        assert_eq!(error.reason(), reason);
    }
}

#[test]
fn takes_neighbour_discovery_for_control_at_hop_limit_255_only() {
    for hop_limit in 0..=255 {
        let frame = Frame::ipv6(icmpv6(135, 0)).with_ipv6(|packet| packet.hop_limit = hop_limit);
        let expected = if hop_limit == 255 {
            Payload::Control
        } else {
            Payload::Icmp
        };
        assert_eq!(
            payload(&frame.bytes()),
            Ok(expected),
            "hop limit {hop_limit}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn returns_for_every_string_of_bytes(bytes in vec(any::<u8>(), 0..300)) {
        assert_laws(&bytes)?;
    }

    #[test]
    fn keeps_its_laws_for_every_mutation_of_a_good_frame(bytes in mutated_frames()) {
        assert_laws(&bytes)?;
    }

    #[test]
    fn keeps_its_laws_for_every_chain_of_extension_headers(bytes in chained_frames()) {
        assert_laws(&bytes)?;
    }
}

/// What holds for every string of bytes, beyond that the parser returns.
fn assert_laws(bytes: &[u8]) -> Result<(), TestCaseError> {
    let whole = parse(bytes);

    for length in 0..bytes.len() {
        let cut = parse(&bytes[..length]);
        prop_assert!(
            cut.is_err() || cut == whole,
            "cut to {length} bytes: {cut:?}, whole: {whole:?}"
        );

        let hidden = Packet::parse(&Linear {
            bytes,
            readable: length,
        });
        let unreadable = match whole {
            Ok(Packet { source, .. }) => {
                hidden
                    == Ok(Packet {
                        source,
                        payload: Payload::Unknown(Reason::Unreadable),
                    })
            }
            Err(_) => matches!(
                hidden,
                Ok(Packet {
                    payload: Payload::Unknown(Reason::Unreadable),
                    ..
                })
            ),
        };
        prop_assert!(
            hidden == whole || hidden == Err(ParseError::Unreadable) || unreadable,
            "{length} readable bytes: {hidden:?}, whole: {whole:?}"
        );
    }

    if bytes.len() >= 14 && !matches!(bytes[12..14], [0x81, 0] | [0x88, 0xa8]) {
        let mut tagged = bytes.to_vec();
        for tag in [
            [0x81, 0, 0, 100],
            [0x88, 0xa8, 0, 200],
            [0x81, 0, 0, 0],
            [0x88, 0xa8, 0xff, 0xff],
        ] {
            tagged.splice(12..12, tag);
            prop_assert_eq!(parse(&tagged), whole, "tagged");
        }
        tagged.splice(12..12, [0x81, 0, 0, 0]);
        prop_assert_eq!(parse(&tagged), Err(ParseError::TagStack));
    }

    match whole.map(|packet| packet.payload) {
        Ok(Payload::Tcp { port, .. } | Payload::Udp { port }) => prop_assert!(
            bytes[14..]
                .windows(2)
                .any(|pair| pair == port.to_be_bytes()),
            "port {port} stands nowhere in the packet"
        ),
        Ok(Payload::Unknown(reason)) => prop_assert!(
            matches!(reason, Reason::ExtensionChain | Reason::FragmentHeader),
            "{reason:?} though every byte is readable"
        ),
        Ok(Payload::Icmp | Payload::Other | Payload::LaterFragment | Payload::Control) => {}
        Err(error) => prop_assert_ne!(error, ParseError::Unreadable),
    }
    Ok(())
}

/// A row of the table with bytes of its headers changed, and cut or lengthened.
fn mutated_frames() -> impl Strategy<Value = Vec<u8>> {
    let small: Vec<Vec<u8>> = table()
        .iter()
        .map(|row| row.frame.bytes())
        .filter(|bytes| bytes.len() < 300)
        .collect();
    let changes = vec((0usize..100, any::<u8>()), 0..4);
    (select(small), changes, 0usize..20, 0usize..4).prop_map(|(mut bytes, changes, more, cut)| {
        for (position, value) in changes {
            if let Some(byte) = bytes.get_mut(position) {
                *byte = value;
            }
        }
        bytes.resize(bytes.len() + more, 0);
        if cut == 0 {
            bytes.truncate(bytes.len().saturating_sub(2 * more));
        }
        bytes
    })
}

/// IPv6 frames with up to ten extension headers of any kind, whole or cut.
fn chained_frames() -> impl Strategy<Value = Vec<u8>> {
    let extension = prop_oneof![
        (0usize..20).prop_map(|length| Extension::HopByHop(vec![1; length])),
        (0usize..20).prop_map(|length| Extension::Destination(vec![1; length])),
        (any::<u8>(), any::<u8>()).prop_map(|(kind, left)| Extension::Routing(
            kind,
            left,
            vec![0; 4]
        )),
        (0u16..3, any::<bool>()).prop_map(|(units, more)| Extension::Fragment(units, more, 7)),
        (0usize..4).prop_map(|words| Extension::Authentication(4 + 8 * words)),
        (select(vec![0, 43, 44, 51, 60]), vec(any::<u8>(), 0..16))
            .prop_map(|(number, rest)| Extension::Raw(number, rest)),
    ];
    let transport = select(vec![
        tcp(80, SYN),
        udp(53),
        icmpv6(135, 0),
        Transport::Raw(59, Vec::new()),
    ]);
    (vec(extension, 0..10), transport, 0usize..40).prop_map(|(extensions, transport, length)| {
        Frame::ipv6(transport)
            .extended(extensions)
            .with_ipv6(|packet| packet.hop_limit = 255)
            .part(0, Some(length))
            .bytes()
    })
}

/// Cuts the transport header to every length; the IP header always states what is there.
fn assert_cut_to_headers(frame: &Frame, header: usize) {
    let good = payload(&frame.bytes());
    for length in 0..=header {
        let whole = frame.clone().part(0, Some(length)).bytes();
        let first = frame.clone().first_fragment(length).bytes();
        if length < header {
            assert_eq!(
                parse(&whole),
                Err(ParseError::TransportHeader),
                "{length} of {frame:?}"
            );
            let unknown = Ok(Payload::Unknown(Reason::FragmentHeader));
            assert_eq!(payload(&first), unknown, "first {length} of {frame:?}");
        } else {
            assert_eq!(payload(&whole), good, "{length} of {frame:?}");
            assert_eq!(payload(&first), good, "first {length} of {frame:?}");
        }
    }
}

/// A frame of which only the first bytes can be read, as with drivers that split frames.
struct Linear<'a> {
    bytes: &'a [u8],
    readable: usize,
}

impl limit_common::frame::Frame for Linear<'_> {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes[..self.readable.min(self.bytes.len())].read(offset)
    }

    fn length(&self) -> u32 {
        self.bytes.length()
    }
}

fn parse(bytes: &[u8]) -> Result<Packet, ParseError> {
    Packet::parse(bytes)
}

fn payload(bytes: &[u8]) -> Result<Payload, ParseError> {
    parse(bytes).map(|packet| packet.payload)
}
