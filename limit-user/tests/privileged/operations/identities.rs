//! The counters at rest after traffic of every kind: nothing is counted twice, nothing is left out.

use std::{collections::BTreeMap, fs, os::fd::AsRawFd as _, os::fd::OwnedFd};

use nix::{
    ifaddrs::getifaddrs,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, bind, send, socket},
};
use serde_json::Value;

use super::world::{World, number, of_policy};
use crate::{
    frames::{
        Arp, Body, CUSTOMER_TAG, Extension, Frame, SERVICE_TAG,
        transport::{ACK, SYN, Transport, icmp, tcp, udp},
    },
    netns::{Namespace, eventually},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn adds_up_by_decision_and_by_action_after_traffic_of_every_kind() {
    let world = attached();
    let load = load();
    let (mut packets, mut bytes) = (0, 0);
    for (device, rounds) in [("client0", 1), ("client1", 2)] {
        let wire = Wire::new(&world.cable.client, device);
        for _ in 0..rounds {
            for (_, times, frame) in &load {
                (0..*times).for_each(|_| wire.send(frame));
                packets += times;
                bytes += times * frame.len() as u64;
            }
        }
    }
    let [first, second, sum] = at_rest(&world, packets);
    for view in [&first, &second, &sum] {
        assert_adds_up(view);
    }
    assert_eq!(first["xdp_mode"], "native");
    assert_eq!(second["xdp_mode"], "generic");
    assert_eq!(sum["xdp_mode"], Value::Null);
    assert_sum(&first["totals"], &second["totals"], &sum["totals"]);
    for policy in ["test", "web", "observe", "fragments"] {
        let of = |view: &'_ Value| of_policy(&view["policies"], policy).clone();
        assert_sum(&of(&first), &of(&second), &of(&sum));
    }

    // Listener reports that the client's stack sends are all that is there besides.
    let total = |name: &str| number(&sum["totals"][name]);
    let reason = |name: &str| number(&sum["totals"]["reasons"][name]);
    let reports = total("packets") - packets;
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, times, _) in &load {
        *expected.entry(reason).or_default() += 3 * times;
    }
    let judged = expected.remove("judged").unwrap();
    assert_eq!(reason("paid") + reason("rate"), judged);
    *expected.get_mut("no_policy").unwrap() += reports;
    for (name, packets) in expected {
        assert_eq!(reason(name), packets, "{name}");
    }
    let per_report = 60..=200;
    let least = bytes + reports * per_report.start();
    let most = bytes + reports * per_report.end();
    assert!(
        (least..=most).contains(&total("bytes")),
        "{least} {most} {sum}"
    );

    // Each source has one bucket, whatever the interface and the tags.
    let seen = |policy: &str| {
        let policy = of_policy(&sum["policies"], policy);
        ["admitted", "limited", "monitored", "dropped", "reset"].map(|name| number(&policy[name]))
    };
    assert_eq!(seen("test"), [20, 204 - 20, 0, 204 - 20, 0]);
    assert_eq!(seen("web"), [10, 36 - 10, 0, 0, 36 - 10]);
    assert_eq!(seen("observe"), [3, 18 - 3, 18 - 3, 0, 0]);
    assert_eq!(seen("fragments"), [24, 60 - 24, 0, 60 - 24, 0]);
}

/// What CONTRACT states of every view.
fn assert_adds_up(view: &Value) {
    let totals = &view["totals"];
    let sum =
        |of: &Value, names: &[&str]| -> u64 { names.iter().map(|name| number(&of[*name])).sum() };
    assert_eq!(
        sum(totals, &DECISIONS),
        number(&totals["packets"]),
        "{view}"
    );
    assert_eq!(sum(totals, &REFUSALS), sum(totals, &ACTIONS), "{view}");
    let reasons = totals["reasons"].as_object().unwrap();
    assert_eq!(
        reasons.values().map(number).sum::<u64>(),
        number(&totals["packets"])
    );
    let policies = view["policies"].as_array().unwrap();
    for name in ["admitted", "limited", "shed"] {
        let by_policy: u64 = policies.iter().map(|policy| number(&policy[name])).sum();
        assert_eq!(by_policy, number(&totals[name]), "{name}: {view}");
    }
    for policy in policies {
        let refused = sum(policy, &["limited", "shed"]);
        assert_eq!(
            refused,
            sum(policy, &["monitored", "dropped", "reset", "steered"]),
            "{policy}"
        );
    }
}

/// Every number of `both` is the sum of those of `first` and `second`.
fn assert_sum(first: &Value, second: &Value, both: &Value) {
    for (name, value) in both.as_object().unwrap() {
        if value.is_object() {
            assert_sum(&first[name], &second[name], value);
        } else if value.is_number() {
            assert_eq!(
                number(&first[name]) + number(&second[name]),
                number(value),
                "{name}"
            );
        }
    }
}

/// The counters of both interfaces and their sum once so many packets are in, at one moment.
fn at_rest(world: &World, packets: u64) -> [Value; 3] {
    let read =
        || ["counters server0", "counters server1", "counters"].map(|words| world.done(words));
    let mut last = read();
    eventually("the counters come to rest", || {
        let views = read();
        let same = views == last;
        last = views;
        same && number(&last[2]["totals"]["packets"]) >= packets
    });
    last
}

/// Frames of every kind: why each is counted (`judged` if a bucket pays or does not), and how many.
fn load() -> Vec<(&'static str, u64, Vec<u8>)> {
    let tag = (CUSTOMER_TAG, 0x0064);
    let v4 = || Frame::ipv4(udp(TEST));
    let v6 = || Frame::ipv6(udp(TEST));
    let options = Extension::Destination(vec![1, 4]);
    let mut short_segment = tcp(80, SYN);
    if let Transport::Tcp(segment) = &mut short_segment {
        segment.words = Some(4);
    }
    let arp = Arp {
        operation: 1,
        sender: [198, 51, 100, 7],
        target: [198, 51, 100, 1],
    };
    let frames = vec![
        ("judged", 20, v4()),
        ("judged", 10, v4().tagged(&[tag])),
        ("judged", 10, v4().tagged(&[(SERVICE_TAG, 0x0064), tag])),
        (
            "judged",
            3,
            v4().with_ipv4(|packet| packet.options = vec![1; 8]),
        ),
        ("judged", 12, v6()),
        ("judged", 5, v6().tagged(&[tag])),
        ("judged", 4, v6().extended(vec![options.clone()])),
        ("judged", 2, v4().first_fragment(16)),
        ("judged", 2, v6().first_fragment(16)),
        ("judged", 12, v4().last_fragment(1)),
        ("judged", 8, v6().last_fragment(1)),
        ("judged", 8, Frame::ipv4(tcp(80, SYN))),
        ("judged", 4, Frame::ipv6(tcp(80, SYN))),
        ("judged", 6, Frame::ipv4(udp(OBSERVED))),
        ("opens_nothing", 5, Frame::ipv4(tcp(80, ACK))),
        ("not_ip", 4, Frame::new(Body::Arp(arp))),
        ("control", 2, Frame::ipv4(icmp(3, 4))),
        ("no_policy", 5, Frame::ipv4(udp(4_444))),
        ("no_policy", 3, Frame::ipv6(tcp(22, SYN))),
        ("denied", 7, v4().sent_by([198, 51, 100, 9])),
        ("allowed", 6, v4().sent_by([198, 51, 100, 8])),
        ("tag_stack", 2, v4().tagged(&[tag; 6])),
        (
            "extension_chain",
            3,
            Frame::ipv6(tcp(80, SYN)).extended(vec![options; 24]),
        ),
        (
            "fragment_header",
            2,
            Frame::ipv4(tcp(80, SYN)).first_fragment(8),
        ),
        (
            "network_header",
            3,
            v4().with_ipv4(|packet| packet.words = Some(4)),
        ),
        ("transport_header", 2, Frame::ipv4(short_segment)),
    ];
    frames
        .into_iter()
        .map(|(reason, times, frame)| (reason, times, frame.bytes()))
        .collect()
}

/// A server with two interfaces, one native and one generic.
fn attached() -> World {
    let world = World::new();
    world.cable.add(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.toml");
    fs::write(&path, POLICIES).unwrap();
    world.done(&format!(
        "attach server0 --xdp-mode native --config {}",
        path.display()
    ));
    world.done("attach server1 --xdp-mode generic");
    world.done("deny add 198.51.100.9");
    world.done("allow add 198.51.100.8");
    world
}

/// Puts frames on a cable as they are.
struct Wire {
    socket: OwnedFd,
}

impl Wire {
    fn new(namespace: &Namespace, device: &str) -> Self {
        let socket = namespace.run(|| {
            let mut addresses = getifaddrs().unwrap();
            let address = addresses
                .find_map(|one| {
                    let address = one.address.filter(|_| one.interface_name == device)?;
                    address.as_link_addr().copied()
                })
                .unwrap();
            let family = AddressFamily::Packet;
            let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).unwrap();
            bind(socket.as_raw_fd(), &address).unwrap();
            socket
        });
        Self { socket }
    }

    fn send(&self, frame: &[u8]) {
        let sent = send(self.socket.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
    }
}

const DECISIONS: [&str; 8] = [
    "admitted",
    "limited",
    "shed",
    "blocked",
    "bypassed",
    "answering",
    "undecidable",
    "malformed",
];
const REFUSALS: [&str; 3] = ["limited", "shed", "blocked"];
const ACTIONS: [&str; 5] = ["monitored", "dropped", "reset", "steered", "syn_answered"];

const TEST: u16 = 9;
const OBSERVED: u16 = 7;
const POLICIES: &str = "
fragments = { capacity = 12, refill = 1, interval = '1d' }

[[policy]]
name = 'test'
protocol = 'udp'
ports = 9
capacity = 10
refill = 1
interval = '1d'

[[policy]]
name = 'web'
ports = 80
capacity = 5
refill = 1
interval = '1d'
on_limit = 'reset'

[[policy]]
name = 'observe'
protocol = 'udp'
ports = 7
capacity = 3
refill = 1
interval = '1d'
monitor = true
";
