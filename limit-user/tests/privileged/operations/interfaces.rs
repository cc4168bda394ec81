//! Several interfaces of one namespace: one filter, one rate, and interfaces that go away.

use std::{fs, net::SocketAddr, thread};

use super::{
    traffic::{Receiver, send},
    world::{World, number, of_policy, says},
};
use crate::netns::{Namespace, eventually};

#[test]
#[ignore = "needs CAP_BPF"]
fn has_one_rate_for_a_source_on_two_interfaces() {
    let world = two_cables();
    world.done(&format!("attach server0 server1 {POLICY}"));
    let receiver = Receiver::new(&world.cable.server, PORT);
    let client = &world.cable.client;
    thread::scope(|scope| {
        for to in TARGETS {
            scope.spawn(move || send_from_client(client, to, 150));
        }
    });
    world.await_judged("test", 300);
    receiver.await_received(100);
    let counted = |interface: &str| {
        let counters = world.done(&format!("counters {interface}"));
        let policy = of_policy(&counters["policies"], "test");
        [number(&policy["admitted"]), number(&policy["dropped"])]
    };
    let (first, second) = (counted("server0"), counted("server1"));
    assert_eq!([first, second].map(|both| both[0] + both[1]), [150, 150]);
    assert_eq!([0, 1].map(|of| first[of] + second[of]), [100, 200]);
    let sum = world.counted("test");
    assert_eq!(
        (number(&sum["admitted"]), number(&sum["dropped"])),
        (100, 200)
    );

    // An interface that leaves and comes again brings nothing with it.
    let left = world.done("detach server1");
    assert_eq!(left["filter_removed"], false);
    world.done("attach server1");
    send_from_client(client, TARGETS[1], 10);
    eventually("the packets are judged", || counted("server1") == [0, 10]);
    assert_eq!(receiver.received(), 100);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn attaches_every_interface_or_none() {
    let world = two_cables();
    world.cable.server.ip("tuntap add dev tun0 mode tun");
    for (last, code) in [
        ("nowhere0", "interface-not-found"),
        ("tun0", "unsuitable-interface"),
    ] {
        let error = world.refused(&format!("attach server0 server1 {last} {POLICY}"), 2);
        assert_eq!(error["code"], code);
        assert!(says(&error, last), "{error}");
        world.assert_nothing_is_left();
    }
    world.done(&format!("attach server0 {POLICY}"));
    let before = world.done("show");
    world.refused("attach server1 tun0 --policy more --protocol icmp", 2);
    assert_eq!(world.done("show"), before);
    assert!(world.cable.server.interface("server1").programs.is_empty());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn goes_on_without_an_interface_that_was_deleted() {
    let world = two_cables();
    world.done(&format!("attach server0 server1 {POLICY}"));
    let receiver = Receiver::new(&world.cable.server, PORT);
    send_from_client(&world.cable.client, TARGETS[0], 30);
    world.await_judged("test", 30);
    world.cable.server.ip("link del server0");

    let shown = world.done("show");
    let names: Vec<_> = shown["interfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["interface"].as_str())
        .collect();
    assert_eq!(names, [None, Some("server1")]);
    assert!(world.run("show").stdout.contains("is gone"));
    // What it counted counts as long as it is not forgotten.
    assert_eq!(world.judged("test"), 30);
    for words in [
        "counters server0",
        "detach server0",
        "set server0 --capacity 1",
    ] {
        let error = world.refused(words, 2);
        assert_eq!(error["code"], "interface-not-found", "{words}");
    }

    world.done("set --policy test --capacity 90");
    // The client's address went with the cable.
    world.cable.client.ip("addr add 198.51.100.2/32 dev lo");
    send_from_client(&world.cable.client, TARGETS[1], 100);
    eventually("the other goes on", || receiver.received() >= 100);
    receiver.await_received(100);
    // The next attach forgets it.
    world.done("attach server1");
    let shown = world.done("show");
    assert_eq!(shown["interfaces"].as_array().unwrap().len(), 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn detaches_all_when_the_only_interface_is_gone() {
    for detach in ["detach --all", "detach server1"] {
        let world = two_cables();
        world.done(&format!("attach server0 server1 {POLICY}"));
        world.cable.server.ip("link del server0");
        if detach == "detach --all" {
            world.cable.server.ip("link del server1");
        }
        assert_eq!(world.run("counters").code, Some(0));
        let left = world.done(detach);
        assert_eq!(left["filter_removed"], true, "{detach}");
        world.assert_nothing_is_left();
        assert_eq!(world.refused("show", 2)["code"], "no-filter");
        assert_eq!(world.done("detach --all")["filter_removed"], false);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn tells_a_device_of_the_same_name_from_the_one_that_was_attached() {
    let world = two_cables();
    world.done(&format!("attach server0 {POLICY}"));
    world.cable.server.ip("link del server0");
    world
        .cable
        .server
        .ip("link add server0 type veth peer name another0");
    for words in ["counters server0", "detach server0"] {
        assert_eq!(world.refused(words, 2)["code"], "not-attached", "{words}");
    }
    let attached = world.done("attach server0");
    assert_eq!(attached["interfaces"][0]["replaced"], false);
    assert_eq!(attached["created"], false);
    let shown = world.done("show");
    assert_eq!(shown["interfaces"].as_array().unwrap().len(), 1);
    assert_eq!(shown["policies"][0]["name"], "test");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn says_that_a_device_whose_link_is_dead_is_not_filtered_any_more() {
    let world = two_cables();
    world.done(&format!("attach server0 server1 {POLICY}"));
    let server = &world.cable.server;
    let index = server.interface("server0").index;
    server.ip("link del server0");
    // A link that somebody detached looks the same: dead, and its device here.
    server.ip(&format!(
        "link add server0 index {index} type veth peer name another0"
    ));

    let told = "server0 is not filtered any more: `limitctl attach server0`";
    let shown = world.run("show");
    assert!(shown.stdout.contains(told), "{shown:?}");
    assert!(!shown.stdout.contains("is gone"), "{shown:?}");
    let counted = world.run("counters server0");
    assert!(counted.stderr.contains(told), "{counted:?}");
    let found = world.run("doctor server0");
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(
        found.stdout.contains("server0 is not filtered any more"),
        "{found:?}"
    );
    // Another attach keeps what tells of it.
    let joined = world.run("attach server1");
    assert!(joined.stderr.contains(told), "{joined:?}");
    assert!(world.run("show").stdout.contains(told));

    assert_eq!(world.done("detach server0")["filter_removed"], false);
    let shown = world.run("show");
    assert!(!shown.stdout.contains("server0"), "{shown:?}");
    assert_eq!(world.refused("detach server0", 2)["code"], "not-attached");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn keeps_an_interface_that_was_moved_to_another_namespace() {
    let world = two_cables();
    world.done(&format!("attach server0 server1 {POLICY}"));
    let server = &world.cable.server;
    let other = Namespace::new();
    let index = server.interface("server0").index;
    server.ip(&format!("link set server0 netns {}", other.path()));
    let judged = || !other.interface("server0").programs.is_empty();
    assert!(judged());

    let told = format!("interface {index} is in another network namespace");
    let shown = world.run("show");
    assert!(shown.stdout.contains(&told), "{shown:?}");
    let joined = world.run("attach server1");
    assert_eq!(joined.code, Some(0), "{joined:?}");
    assert!(joined.stderr.contains(&told), "{joined:?}");
    assert!(judged());
    assert!(world.run("show").stdout.contains(&told));

    // Whoever lets the last one here go leaves the one that is judged elsewhere.
    assert_eq!(world.done("detach server1")["filter_removed"], false);
    assert!(judged());
    assert_eq!(world.done("detach --all")["filter_removed"], true);
    eventually("the program is gone", || !judged());
    world.assert_nothing_is_left();
}

fn two_cables() -> World {
    let world = World::new();
    world.cable.add(1);
    // The client's first address comes in through the second cable too.
    world.cable.server.run(|| {
        for device in ["all", "server0", "server1"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{device}/rp_filter"), "0").unwrap();
        }
    });
    world
}

/// Sends from the address of the first cable, whichever cable leads to the target.
fn send_from_client(client: &Namespace, to: [u8; 4], datagrams: u32) {
    let source = "198.51.100.2".parse().unwrap();
    send(client, source, SocketAddr::from((to, PORT)), datagrams);
}

const TARGETS: [[u8; 4]; 2] = [[198, 51, 100, 1], [198, 51, 101, 1]];
const POLICY: &str =
    "--policy test --protocol udp --ports 9 --capacity 100 --refill 1 --interval 1d";
const PORT: u16 = 9;
