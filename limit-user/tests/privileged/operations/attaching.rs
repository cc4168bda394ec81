//! Attaching again, with other wishes, after a crash, beside others, and from a file that was shown.

use std::{fs, net::SocketAddr};

use super::{
    traffic::send,
    world::{MAX_SOURCES, World, number, says},
};
use crate::netns::{Namespace, server_address};

#[test]
#[ignore = "needs CAP_BPF"]
fn names_both_numbers_when_it_is_asked_for_another_room() {
    let world = World::new();
    world.done(&format!("attach server0 {POLICY}"));
    spend(&world, 3);
    let before = world.done("show");
    let error = world.refused("attach server0 --max-sources 2000 --capacity 77", 1);
    assert_eq!(error["code"], "max-sources-differ");
    assert!(says(&error, MAX_SOURCES) && says(&error, "2000"), "{error}");
    assert_eq!(world.done("show"), before);
    assert_eq!(before["max_sources"].to_string(), MAX_SOURCES);

    let same = world.done(&format!("attach server0 --max-sources {MAX_SOURCES}"));
    assert_eq!(same["interfaces"][0]["replaced"], true);
    assert_eq!(world.tokens("test", "198.51.100.2"), 7);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn adopts_what_a_killed_attach_left_and_keeps_its_buckets() {
    let world = World::new();
    world.done(&format!("attach server0 {POLICY}"));
    spend(&world, 3);
    let mut killed = world.start("attach server0 --policy more --protocol icmp");
    killed.kill().unwrap();
    killed.wait().unwrap();
    spend(&world, 2);
    let again = world.done("attach server0");
    assert_eq!(again["created"], false);
    assert_eq!(again["interfaces"][0]["replaced"], true);
    assert_eq!(again["policies"][0]["name"], "test");
    assert_eq!(world.tokens("test", "198.51.100.2"), 5);
    assert_eq!(number(&world.counted("test")["admitted"]), 5);
    world.done("detach server0");
    world.assert_nothing_is_left();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_the_program_of_another_and_leaves_it() {
    let world = World::new();
    world.done(&format!("attach server0 {POLICY}"));
    let id = world.done("show")["interfaces"][0]["program_id"].clone();
    let root = format!("{}-other", world.sandbox.root().path().display());
    let error = world.refused(&format!("attach server0 --pin-root {root}"), 2);
    assert_eq!(error["code"], "foreign-program");
    assert!(says(&error, &format!("id {id}")), "{error}");
    assert!(!fs::exists(&root).unwrap(), "pins are left");
    assert_eq!(world.done("show")["interfaces"][0]["program_id"], id);
    spend(&world, 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn gives_the_same_policies_from_the_file_that_it_shows() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let written = file("written.toml", WRITTEN);
    let attached = world
        .run(&format!("attach server0 --json --config {written}"))
        .data();
    assert_eq!(attached["policies"].as_array().unwrap().len(), 4);
    world.done("set --policy web --capacity 9");
    world.done("set --policy fragments --capacity 17");
    let shown = world.run("show --toml");
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let copy = file("copy.toml", &shown.stdout);

    let other = Namespace::new();
    other.ip("link add other0 type veth peer name another0");
    let attached = world.run_in(&other, &format!("attach other0 --json --config {copy}"));
    attached.data();
    let there = world.run_in(&other, "show --json").data();
    let here = world.done("show");
    for part in ["policies", "fragments", "keys"] {
        assert_eq!(there[part], here[part], "{part}");
    }
    assert_eq!(here["policies"][0]["capacity"], 9);
    assert_eq!(world.run_in(&other, "show --toml").stdout, shown.stdout);
    // The same file again changes nothing.
    assert_eq!(here["revision"], {
        world.done(&format!("attach server0 --config {copy}"));
        world.done("show")["revision"].clone()
    });

    let removed = world.run_in(&other, "detach other0");
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(world.done("show")["policies"], here["policies"]);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn changes_nothing_when_the_file_is_wrong() {
    let world = World::new();
    world.done(&format!("attach server0 {POLICY}"));
    let before = world.done("show");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    for (text, code) in [
        ("[[policy]]\nname = 'a'\ncapacity = 0", 1),
        (
            "[[policy]]\nname = 'a'\nports = 80\n[[policy]]\nname = 'b'\nports = 80",
            1,
        ),
        ("[[policy]]\nname = 'a'\nspeed = 3", 1),
        ("[[policy", 2),
    ] {
        fs::write(&path, text).unwrap();
        world.refused(&format!("attach server0 --config {}", path.display()), code);
    }
    world.refused("attach server0 --config /nonexistent/limit.toml", 2);
    assert_eq!(world.done("show"), before);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn warns_when_the_ssh_session_that_attaches_would_meet_a_policy() {
    let world = World::new();
    let warned = |words: &str| {
        let mut command = world.command(words);
        command.env("SSH_CONNECTION", "198.51.100.2 50000 198.51.100.1 22");
        let output = world.cable.server.run(|| command.output().unwrap());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{text}");
        text.contains("198.51.100.2")
    };
    assert!(!warned("attach server0"));
    assert!(warned("attach server0 --policy ssh --ports 22"));
    assert!(warned("deny add 198.51.100.0/24"));
    assert!(!warned("deny replace 203.0.113.0/24"));
    assert!(!warned("allow add 198.51.100.2"));
    assert!(!warned("attach server0 --policy ssh --ports 22"));
}

/// Has the client pay for so many datagrams.
fn spend(world: &World, datagrams: u32) {
    let before = world.judged("test");
    let client = "198.51.100.2".parse().unwrap();
    send(
        &world.cable.client,
        client,
        SocketAddr::new(server_address(), 9),
        datagrams,
    );
    world.await_judged("test", before + u64::from(datagrams));
}

const POLICY: &str =
    "--policy test --protocol udp --ports 9 --capacity 10 --refill 1 --interval 1d";

const WRITTEN: &str = "
[keys]
ipv4_prefix = 28
ipv6_prefix = 56

[fragments]
capacity = 12
interval = '3s'

[[policy]]
name = 'web'
ports = '80,443,8000-8010'
rate = '50/s'
burst = 200
status = 429
max_in_flight = 100
monitor = true

[[policy]]
name = 'ssh'
ports = 22
rate = '5/m'
on_limit = 'reset'

[[policy]]
name = 'dns'
protocol = 'udp'
ports = 53
unit = 'byte'
capacity = 100000
refill = 20000
interval = '500ms'

[[policy]]
name = 'rest'
protocol = 'any'
capacity = 4294967295
refill = 1
interval = '1ms'
";
