//! Who has how many tokens left: one source, or those that were refused most.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use super::{
    traffic::send,
    world::{World, number, of_policy},
};
use crate::netns::server_address;

#[test]
#[ignore = "needs CAP_BPF"]
fn answers_for_a_source_with_a_bucket_and_for_one_without() {
    let world = attached();
    send_from(&world, "198.51.100.2", 30);
    world.await_judged("test", 30);
    let of = |source: &str| {
        let found = world.done(&format!("buckets --source {source}"));
        assert_eq!(found["source"], source);
        of_policy(&found["buckets"], "test").clone()
    };
    let bucket = of("198.51.100.2");
    assert_eq!(
        (&bucket["bucket"], &bucket["tokens"]),
        (&json!(true), &json!(70))
    );
    assert_eq!(bucket["capacity"], 100);
    let full_in = number(&bucket["full_in_ms"]);
    // Three refills of ten, the next one within a day.
    assert!((2 * DAY..=3 * DAY).contains(&full_in), "{full_in}");

    let none = of("198.51.100.3");
    assert_eq!(
        (&none["bucket"], &none["tokens"]),
        (&json!(false), &json!(100))
    );
    assert_eq!(number(&none["full_in_ms"]), 0);
    let all = world.done("buckets");
    assert_eq!(
        (&all["used"], all["buckets"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    let text = world.run("buckets --source 198.51.100.3").stdout;
    assert!(text.contains("full, no bucket"), "{text}");

    // IPv6 sources of one network have one bucket.
    let six = of("2001:db8:5::77");
    assert_eq!(six["source"], "2001:db8:5::/64");
    assert_eq!(
        world.refused("buckets --source nobody", 2)["field"],
        "source"
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn shows_those_that_were_refused_most_first() {
    let world = attached();
    let quiet = "198.51.100.2";
    let (loud, louder) = ("198.51.100.11", "198.51.100.12");
    for address in [loud, louder] {
        world
            .cable
            .client
            .ip(&format!("addr add {address}/24 dev client0"));
    }
    send_from(&world, quiet, 5);
    send_from(&world, loud, 4_000);
    send_from(&world, louder, 40_000);
    world.await_judged("test", 44_005);
    let sources = |words: &str| -> Vec<Value> {
        let shown = world.done(words);
        assert_eq!(shown["used"], 3);
        let rows = shown["buckets"].as_array().unwrap();
        rows.iter().map(|row| row["source"].clone()).collect()
    };
    assert_eq!(sources("buckets"), [louder, loud, quiet]);
    assert_eq!(sources("buckets --top 1"), [louder]);
    assert_eq!(sources("buckets server0 --top 2"), [louder, loud]);

    let shown = world.done("buckets");
    let row = |position: usize| &shown["buckets"][position];
    let tokens = [0, 1, 2].map(|position| number(&row(position)["tokens"]));
    assert_eq!(tokens, [0, 0, 95]);
    // Samples of 39,900 and 3,900 refusals.
    let (most, fewer) = (number(&row(0)["refusals"]), number(&row(1)["refusals"]));
    assert!((20_000..80_000).contains(&most), "{most}");
    assert!((1_900..8_000).contains(&fewer), "{fewer}");
    assert_eq!(number(&row(2)["refusals"]), 0);
    assert!(world.run("buckets").stdout.contains('≈'));
}

/// An attached server with one policy for datagrams.
fn attached() -> World {
    let world = World::new();
    world.done(
        "attach server0 --policy test --protocol udp --ports 9 --capacity 100 --refill 10 --interval 1d",
    );
    world
}

fn send_from(world: &World, source: &str, datagrams: u32) {
    let source: IpAddr = source.parse().unwrap();
    // Nobody listens: the client's stack tells a connected socket only.
    send(
        &world.cable.client,
        source,
        SocketAddr::new(server_address(), 9),
        datagrams,
    );
}

const DAY: u64 = 86_400_000;
