//! The allow list and the deny list, edited while traffic is on.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use aya::maps::{Array, Map, MapData};
use limit_common::layout::{ListSizes, maps};
use limit_user::kernel::Filter;
use serde_json::json;

use super::{
    tcp::{Echo, V4, connect},
    traffic::{Receiver, Sender, send},
    world::{World, number, says},
};
use crate::netns::{eventually, server_address};

#[test]
#[ignore = "needs CAP_BPF"]
fn stops_what_is_under_way_while_its_source_is_denied() {
    let world = attached("--capacity 100000");
    let receiver = Receiver::new(&world.cable.server, PORT);
    let sender = Sender::new(&world.cable.client, CLIENT, TARGET, PAUSE);
    let _server = Echo::new(&world.cable.server);
    let mut connection = connect(&world.cable.client, V4).unwrap();
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = [0; 6];
    connection.write_all(b"before").unwrap();
    connection.read_exact(&mut answer).unwrap();
    eventually("datagrams come through", || receiver.received() > 50);

    world.done("deny add 198.51.100.0/24");
    let blocked = || total(&world, "blocked");
    eventually("datagrams are blocked", || blocked() > 50);
    let admitted = world.judged("test");
    receiver.await_received(admitted);
    connection.write_all(b"during").unwrap();
    let then = blocked();
    eventually("more is blocked", || blocked() > then + 100);
    assert_eq!(
        (world.judged("test"), receiver.received()),
        (admitted, admitted)
    );
    connection.set_nonblocking(true).unwrap();
    let error = connection.read(&mut answer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");

    // The allow list goes first: what the client sends again comes through, unjudged.
    world.done("allow add 198.51.100.2");
    connection.set_nonblocking(false).unwrap();
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"during");
    eventually("datagrams come through", || {
        receiver.received() > admitted + 50
    });
    assert_eq!(world.judged("test"), admitted);
    let found = world.done("buckets --source 198.51.100.2");
    assert_eq!(found["allowed_by"], "198.51.100.2/32");
    assert_eq!(found["denied_by"], "198.51.100.0/24");

    world.done("deny replace 203.0.113.0/24");
    world.done("allow remove 198.51.100.2");
    eventually("datagrams are judged", || world.judged("test") > admitted);
    sender.stop();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn lets_an_allowed_source_through_at_any_rate_and_charges_it_nothing() {
    let world = attached("--capacity 10");
    let receiver = Receiver::new(&world.cable.server, PORT);
    world.done("allow add 198.51.100.2");
    send(&world.cable.client, CLIENT, TARGET, 50);
    receiver.await_received(50);
    assert_eq!(world.judged("test"), 0);
    assert_eq!(world.tokens("test", "198.51.100.2"), 10);
    world.done("allow remove 198.51.100.2");
    send(&world.cable.client, CLIENT, TARGET, 50);
    world.await_judged("test", 50);
    receiver.await_received(60);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn reads_a_whole_list_from_stdin_and_costs_nothing_once_it_is_empty() {
    let world = attached("--capacity 10");
    assert_eq!(sizes(&world), [0; 4]);
    let lines =
        "# scanners\n203.0.113.0/24\n\n  2001:db8:bad::/48  # a whole site\n198.51.100.77\n";
    let replaced = world.run_with("deny replace - --json", lines).data();
    assert_eq!(
        (&replaced["added"], &replaced["entries"]),
        (&json!(3), &json!(3))
    );
    let listed = world.done("deny list");
    assert_eq!(
        listed["entries"],
        json!(["198.51.100.77/32", "203.0.113.0/24", "2001:db8:bad::/48"])
    );
    assert_eq!(sizes(&world), [0, 0, 2, 1]);
    world.done("allow add ::1 10.0.0.0/8");
    assert_eq!(sizes(&world), [1, 1, 2, 1]);
    let replaced = world
        .run_with("deny replace - --json", "203.0.113.0/24")
        .data();
    assert_eq!(
        (&replaced["added"], &replaced["removed"]),
        (&json!(0), &json!(2))
    );

    world.done("deny remove 203.0.113.0/24 192.0.2.1");
    // A feed that failed empties nothing.
    let error = world.run_with("allow replace - --json", "").error(1);
    assert_eq!(error["code"], "empty-list");
    assert_eq!(sizes(&world), [1, 1, 0, 0]);
    let emptied = world.run_with("allow replace --empty - --json", "").data();
    assert_eq!(emptied["entries"], 0);
    assert_eq!(sizes(&world), [0; 4]);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn changes_nothing_when_a_prefix_is_wrong() {
    let world = attached("--capacity 10");
    world.done("deny add 203.0.113.0/24");
    for (words, code, field) in [
        ("deny add 198.51.100.0/24 198.51.100.0/33", 1, "cidr"),
        ("deny add 198.51.100.0/24 198.51.100.1/24", 1, "cidr"),
        ("deny replace 198.51.100.0/24 everyone", 2, "cidr"),
        ("deny remove 203.0.113.0/24 2001:db8::/129", 1, "cidr"),
    ] {
        let error = world.refused(words, code);
        assert_eq!(error["field"], field, "{words}");
    }
    let error = world
        .run_with("deny replace - --json", "198.51.100.0/24\n198.51.100.300\n")
        .error(2);
    assert!(says(&error, "line 2"), "{error}");
    assert_eq!(
        world.done("deny list")["entries"],
        json!(["203.0.113.0/24"])
    );
    assert_eq!(sizes(&world), [0, 0, 1, 0]);
    let receiver = Receiver::new(&world.cable.server, PORT);
    send(&world.cable.client, CLIENT, TARGET, 1);
    receiver.await_received(1);
}

/// An attached server with one policy for datagrams.
fn attached(capacity: &str) -> World {
    let world = World::new();
    world.done(&format!(
        "attach server0 --policy test --protocol udp --ports 9 {capacity} --refill 1 --interval 1d"
    ));
    world
}

fn total(world: &World, name: &str) -> u64 {
    number(&world.done("counters")["totals"][name])
}

/// How many entries the program believes there are: allowed IPv4 and IPv6, denied IPv4 and IPv6.
fn sizes(world: &World) -> [u32; 4] {
    let folder = world.cable.server.run(|| {
        let filter = Filter::open(world.sandbox.root()).unwrap().unwrap();
        filter.folder()
    });
    let data = MapData::from_pin(folder.join(maps::LIST_SIZES)).unwrap();
    let map = Map::from_map_data(data).unwrap();
    let sizes: Array<MapData, ListSizes> = map.try_into().unwrap();
    let sizes = sizes.get(&0, 0).unwrap();
    [
        sizes.allowed_v4,
        sizes.allowed_v6,
        sizes.blocked_v4,
        sizes.blocked_v6,
    ]
}

/// The client's address on the first cable.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));
const TARGET: SocketAddr = SocketAddr::new(server_address(), PORT);
const PORT: u16 = 9;

const PAUSE: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(20);
