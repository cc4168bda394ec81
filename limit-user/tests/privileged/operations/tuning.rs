//! Numbers and modes that change while packets are judged by them.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use limit_common::config::Numbers;

use super::{
    traffic::{Receiver, Sender, send},
    world::{World, number},
};
use crate::netns::{eventually, server_address};

#[test]
#[ignore = "needs CAP_BPF"]
fn tops_nothing_up_when_the_capacity_falls_and_rises() {
    let (world, receiver) = limited("--capacity 100 --refill 1 --interval 1d");
    burst(&world, 20);
    receiver.await_received(20);
    assert_eq!(world.tokens(POLICY, CLIENT), 80);

    world.done("set --policy test --capacity 10");
    burst(&world, 1);
    receiver.await_received(21);
    assert_eq!(world.tokens(POLICY, CLIENT), 9);

    world.done("set --policy test --capacity 100");
    assert_eq!(world.tokens(POLICY, CLIENT), 9);
    burst(&world, 20);
    world.await_judged(POLICY, 41);
    receiver.await_received(30);
    assert_eq!(number(&world.counted(POLICY)["dropped"]), 11);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn delivers_what_the_numbers_of_each_moment_give() {
    let (world, receiver) = limited("--capacity 1000 --refill 1 --interval 1d");
    let sender = steady(&world, Duration::from_micros(500));
    eventually("the bucket is empty", || {
        number(&world.counted(POLICY)["limited"]) > 0
    });
    assert_eq!(number(&world.counted(POLICY)["admitted"]), 1_000);

    let slow = world.changed("--refill 5 --interval 100ms");
    eventually("the slow rate comes through", || {
        receiver.received() >= 1_025
    });
    let fast = world.changed("--refill 40");
    assert_eq!(fast.numbers.epoch_ns, slow.numbers.epoch_ns);
    let before = receiver.received();
    eventually("the fast rate comes through", || {
        receiver.received() >= before + 400
    });
    let none = world.changed("--interval 1d");
    let sent = sender.stop();

    world.await_judged(POLICY, sent);
    let admitted = number(&world.counted(POLICY)["admitted"]);
    receiver.await_received(admitted);
    // A change happens at some instant between two readings of the filter's clock; of the refills in
    // between it is open which numbers they follow.
    let refills = |now_ns: u64| (now_ns - slow.numbers.epoch_ns) / slow.numbers.interval_ns;
    let gained = |at_fast: u64, at_none: u64| {
        5 * refills(at_fast) + 40 * (refills(at_none) - refills(at_fast))
    };
    let least = 1_000 + gained(fast.after_ns, none.before_ns);
    let most = 1_000 + gained(fast.before_ns, none.after_ns);
    let spent = admitted + world.tokens(POLICY, CLIENT);
    assert!((least..=most).contains(&spent), "{least} {spent} {most}");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refills_nothing_when_a_monitor_begins_to_enforce() {
    let (world, receiver) = limited("--capacity 4 --refill 1 --interval 1d --monitor");
    let program = world.done("show")["interfaces"][0]["program_id"].clone();
    let links = || world.cable.server.interface("server0").programs;
    let attached = links();
    burst(&world, 10);
    receiver.await_received(10);
    world.await_judged(POLICY, 10);
    let seen = |world: &World| {
        let counted = world.counted(POLICY);
        ["admitted", "limited", "monitored", "dropped"].map(|name| number(&counted[name]))
    };
    assert_eq!(seen(&world), [4, 6, 6, 0]);

    world.done("set --policy test --enforce");
    assert_eq!(world.tokens(POLICY, CLIENT), 0);
    burst(&world, 5);
    world.await_judged(POLICY, 15);
    assert_eq!(seen(&world), [4, 11, 6, 5]);

    world.done("set --policy test --monitor");
    burst(&world, 3);
    receiver.await_received(13);
    assert_eq!(seen(&world), [4, 14, 9, 5]);
    assert_eq!(world.done("show")["interfaces"][0]["program_id"], program);
    assert_eq!(links(), attached);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn admits_no_more_than_the_numbers_allow_through_512_changes() {
    let (world, receiver) = limited("--capacity 60 --refill 1 --interval 1d");
    let sender = steady(&world, Duration::from_micros(200));
    let mut allowed = 60;
    let mut last: Option<Changed> = None;
    let mut change = |flags: &str| {
        let changed = world.changed(flags);
        if let Some(last) = &last {
            allowed += last.most_gained_until(changed.after_ns);
        }
        last = Some(changed);
    };
    for turn in 0..512_usize {
        change(NUMBERS[turn % NUMBERS.len()]);
    }
    // None of them is held against the source once they are over.
    change("--capacity 60 --refill 10 --interval 20ms");
    let before = receiver.received();
    eventually("the rate in force comes through", || {
        receiver.received() >= before + 100
    });
    change("--capacity 40 --refill 1 --interval 1d");
    let sent = sender.stop();
    world.await_judged(POLICY, sent);
    let admitted = number(&world.counted(POLICY)["admitted"]);
    receiver.await_received(admitted);
    assert!(
        (160..=allowed).contains(&admitted),
        "{admitted} admitted, {allowed} allowed"
    );

    let bystander = "198.51.100.77";
    world
        .cable
        .client
        .ip("addr add 198.51.100.77/24 dev client0");
    send(&world.cable.client, bystander.parse().unwrap(), port(), 50);
    world.await_judged(POLICY, sent + 50);
    assert_eq!(world.tokens(POLICY, bystander), 0);
    receiver.await_received(admitted + 40);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn changes_nothing_when_a_number_is_wrong() {
    let (world, _receiver) = limited("--capacity 7 --refill 1 --interval 1d");
    burst(&world, 3);
    world.await_judged(POLICY, 3);
    let before = world.done("show");
    for (words, code) in [
        ("set --policy test --capacity 0", 1),
        ("set --policy test --interval 0s", 1),
        ("set --policy test --capacity 99999999999", 1),
        ("set --policy test --capacity many", 2),
        ("set --policy test --ports 10", 1),
        ("set --policy tset --capacity 9", 1),
        ("set server9 --policy test --capacity 9", 2),
    ] {
        world.refused(words, code);
    }
    assert_eq!(world.done("show"), before);
    assert_eq!(world.tokens(POLICY, CLIENT), 4);
    let same = world.done("set --policy test --capacity 7");
    assert_eq!(same["changed"], false);
    assert_eq!(world.done("show"), before);
}

/// A change of numbers, and readings of the filter's clock around it.
struct Changed {
    before_ns: u64,
    after_ns: u64,
    numbers: Numbers,
}

impl Changed {
    /// Most tokens that a bucket gained under these numbers if they were replaced by then.
    fn most_gained_until(&self, end_ns: u64) -> u64 {
        let refills = (end_ns - self.numbers.since_ns) / self.numbers.interval_ns;
        refills * u64::from(self.numbers.refill)
    }
}

impl World {
    fn changed(&self, flags: &str) -> Changed {
        let before_ns = self.now_ns();
        self.done(&format!("set --policy test {flags}"));
        let (now, set) = self.in_force();
        Changed {
            before_ns,
            after_ns: now.as_ns(),
            numbers: set.policies[0].current,
        }
    }
}

/// An attached server with one policy for the datagrams of the client, and who receives them.
fn limited(numbers: &str) -> (World, Receiver) {
    let world = World::new();
    world.done(&format!(
        "attach server0 --policy test --protocol udp --ports 9 {numbers}"
    ));
    let receiver = Receiver::new(&world.cable.server, PORT);
    (world, receiver)
}

fn burst(world: &World, datagrams: u32) {
    send(&world.cable.client, client(), port(), datagrams);
}

fn steady(world: &World, pause: Duration) -> Sender {
    Sender::new(&world.cable.client, client(), port(), pause)
}

fn client() -> IpAddr {
    CLIENT.parse().unwrap()
}

fn port() -> SocketAddr {
    SocketAddr::new(server_address(), PORT)
}

/// Numbers that fall and rise in every field, each with an interval that differs from the one before.
const NUMBERS: [&str; 4] = [
    "--capacity 1000 --refill 3 --interval 5ms",
    "--capacity 10 --refill 1 --interval 1d",
    "--capacity 4000 --refill 900 --interval 2d",
    "--capacity 50 --refill 1 --interval 3ms",
];

const POLICY: &str = "test";
const CLIENT: &str = "198.51.100.2";
const PORT: u16 = 9;
