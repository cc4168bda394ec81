//! The reset that answers a refused SYN, byte by byte, as the program leaves it in the frame.
//!
//! Every permit is out, so that each SYN is refused.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::MutexGuard,
};

use limit_common::counters::{Counter, Effect};
use limit_user::kernel::object::Variant;

use crate::{
    frames::{
        Body, CUSTOMER_TAG, Extension, Frame, SERVICE_TAG, SOURCE_V4, SOURCE_V6,
        transport::{ACK, RST, SYN, Tcp, Transport, tcp},
    },
    loaded::{FIRST, Kernel, Xdp, compiled, shared},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn answers_a_syn_with_the_reset_of_its_connection() {
    for variant in VARIANTS {
        let mut kernel = refusing(variant);
        for (description, syn) in answered() {
            let request = syn.bytes();
            let run = kernel.loaded.run(&request, 1).unwrap();
            assert_eq!(Xdp::from(run.action), Xdp::Tx, "{description}");
            assert_eq!(run.frame, reset_of(&syn).bytes(), "{description}");
            assert!(run.frame.len() <= request.len(), "{description}");
            assert_checksums_hold(&run.frame, syn.tags.len());
            let observed = kernel.judge(&request);
            assert_eq!(observed.times(Counter::Effect(Effect::Reset)), 2);
            assert_eq!(observed.times(Counter::Effect(Effect::Dropped)), 0);
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn answers_a_syn_in_several_buffers_with_one_short_frame() {
    let kernel = refusing(Variant::Frags);
    let syn = Frame::ipv4(tcp(80, SYN)).padded(8_946);
    let run = kernel.loaded.run(&syn.bytes(), 1).unwrap();
    assert_eq!(Xdp::from(run.action), Xdp::Tx);
    assert_eq!(run.frame, reset_of(&syn).bytes());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn answers_no_group_and_not_itself() {
    let v4 = || Frame::ipv4(tcp(80, SYN));
    let v6 = || Frame::ipv6(tcp(80, SYN));
    let mut unanswered = vec![
        v6().extended(vec![Extension::Destination(vec![1, 4])]),
        v4().sent_to(SOURCE_V4),
        v6().sent_to(SOURCE_V6),
    ];
    for destination in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]] {
        unanswered.extend([v4(), v6()].map(|syn| Frame { destination, ..syn }));
    }
    for odd in [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(240, 0, 0, 1),
        Ipv4Addr::BROADCAST,
    ] {
        unanswered.extend([v4().sent_by(odd), v4().sent_to(odd)]);
    }
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    for odd in [Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, all_nodes] {
        unanswered.extend([v6().sent_by(odd), v6().sent_to(odd)]);
    }
    for variant in VARIANTS {
        let mut kernel = refusing(variant);
        for syn in &unanswered {
            let observed = kernel.judge(&syn.bytes());
            assert_eq!(observed.action, Xdp::Drop, "{syn:?}");
            assert_eq!(observed.times(Counter::Effect(Effect::Dropped)), 1);
            assert_eq!(observed.times(Counter::Effect(Effect::Reset)), 0);
        }
    }
}

/// SYNs that get a reset.
fn answered() -> Vec<(&'static str, Frame)> {
    let with = |change: fn(&mut Tcp)| {
        let mut segment = Tcp::new(80, SYN);
        change(&mut segment);
        Transport::Tcp(segment)
    };
    let tag = (CUSTOMER_TAG, 0x2064);
    vec![
        ("IPv4", Frame::ipv4(tcp(80, SYN))),
        ("IPv6", Frame::ipv6(tcp(80, SYN))),
        ("one tag", Frame::ipv4(tcp(80, SYN)).tagged(&[tag])),
        (
            "two tags over IPv6",
            Frame::ipv6(tcp(80, SYN)).tagged(&[(SERVICE_TAG, 100), tag]),
        ),
        ("four tags", Frame::ipv4(tcp(80, SYN)).tagged(&[tag; 4])),
        (
            "IPv4 options",
            Frame::ipv4(tcp(80, SYN)).with_ipv4(|packet| packet.options = vec![1; 40]),
        ),
        ("data", Frame::ipv4(with(|tcp| tcp.data = vec![0x47; 1400]))),
        (
            "odd data over IPv6",
            Frame::ipv6(with(|tcp| tcp.data = vec![0x47; 7])),
        ),
        (
            "TCP options",
            Frame::ipv4(with(|tcp| tcp.options = vec![1; 40])),
        ),
        ("padding", Frame::ipv4(tcp(80, SYN)).padded(6)),
        (
            "the largest sequence number",
            Frame::ipv4(with(|tcp| tcp.sequence = u32::MAX)),
        ),
        (
            "other ports and flags",
            Frame::ipv6(with(|tcp| {
                tcp.source_port = 65_535;
                tcp.flags = 0xea;
                tcp.acknowledgement = 0xffff_ffff;
            })),
        ),
        (
            "addresses whose sum carries",
            Frame::ipv4(tcp(80, SYN))
                .sent_by([223, 255, 255, 255])
                .sent_to([203, 255, 255, 254]),
        ),
        (
            "a link-local source",
            Frame::ipv6(tcp(80, SYN)).sent_by(Ipv6Addr::new(
                0xfe80, 0, 0, 0, 0xffff, 0xffff, 0xffff, 0xffff,
            )),
        ),
        (
            "a first fragment",
            Frame::ipv4(tcp(80, SYN)).first_fragment(20),
        ),
    ]
}

/// The whole answer: turned round, the tags kept, no options, no data, no padding.
fn reset_of(syn: &Frame) -> Frame {
    let segment = |transport: &Transport| {
        let Transport::Tcp(request) = transport else {
            panic!("{syn:?}")
        };
        Transport::Tcp(Tcp {
            source_port: request.destination_port,
            destination_port: request.source_port,
            sequence: 0,
            acknowledgement: request.sequence.wrapping_add(1),
            window: 0,
            ..Tcp::new(0, RST | ACK)
        })
    };
    let answer = match &syn.body {
        Body::Ipv4(packet) => Frame::ipv4(segment(&packet.transport))
            .sent_by(packet.destination)
            .sent_to(packet.source)
            .with_ipv4(|answer| {
                answer.identification = 0;
                answer.fragment = 0x4000;
            }),
        Body::Ipv6(packet) => Frame::ipv6(segment(&packet.transport))
            .sent_by(packet.destination)
            .sent_to(packet.source),
        Body::Arp(_) | Body::Raw(..) => panic!("{syn:?}"),
    };
    Frame {
        destination: syn.source,
        source: syn.destination,
        ..answer.tagged(&syn.tags)
    }
}

/// Adds up the headers of a reset word by word: with a right checksum the sum is all ones.
fn assert_checksums_hold(frame: &[u8], tags: usize) {
    let packet = &frame[14 + 4 * tags..];
    let (pseudo, segment) = if packet[0] == 0x45 {
        assert_eq!(sum(&packet[..20]), 0xffff, "IPv4 header");
        (&packet[12..20], &packet[20..])
    } else {
        (&packet[8..40], &packet[40..])
    };
    assert_eq!(segment.len(), 20);
    let all = [pseudo, &[0, 6, 0, 20], segment].concat();
    assert_eq!(sum(&all), 0xffff, "TCP header");
}

/// The one's complement sum of big-endian words.
fn sum(bytes: &[u8]) -> u16 {
    bytes.chunks_exact(2).fold(0, |sum, word| {
        let (sum, carry) = u16::from_be_bytes([word[0], word[1]]).overflowing_add(sum);
        sum + u16::from(carry)
    })
}

fn refusing(variant: Variant) -> MutexGuard<'static, Kernel> {
    let set = compiled(
        "policy = [{ name = 'web', ports = '80', on_limit = 'reset', max_in_flight = 1 }]",
    );
    let mut kernel = shared(variant, &set);
    kernel.set_in_flight(FIRST, 1);
    kernel
}

const VARIANTS: [Variant; 2] = [Variant::Plain, Variant::Frags];
