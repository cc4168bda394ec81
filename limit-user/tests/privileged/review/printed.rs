//! What an attach, the counters and the buckets print.

use std::{fs, time::Duration};

use super::stand::Stand;
use crate::{
    attach::{PORT, open},
    netns::eventually,
};
use aya::maps::{HashMap, Map, MapData};
use limit_common::{
    bucket::slot,
    key::{Address, Key},
    layout::{BucketSlot, maps},
    units::PolicyId,
};

#[test]
#[ignore = "needs CAP_BPF"]
fn says_memory_mode_and_why_native_was_refused() {
    let stand = Stand::new();
    stand.cable.server.ip("link add bridge0 type bridge");
    let attached = stand.json("attach server0 bridge0 --max-sources 1000", 0);
    let memory = attached["memory_bytes"].as_u64().unwrap();
    assert!(memory > 0, "{attached}");
    let [native, generic] = [0, 1].map(|position| &attached["interfaces"][position]);
    assert_eq!(native["xdp_mode"], "native");
    assert_eq!(native["native_refused"], serde_json::Value::Null);
    assert_eq!(generic["xdp_mode"], "generic");
    let reason = generic["native_refused"].as_str().unwrap();
    assert!(reason.contains("no native XDP"), "{reason}");

    stand.text("detach bridge0");
    let text = stand.text("attach server0 bridge0");
    assert!(
        text.contains("server0: program replaced in place in native mode\n"),
        "{text}"
    );
    assert!(
        text.contains(&format!("bridge0: attached in generic mode ({reason})\n")),
        "{text}"
    );
    let line = text.lines().find(|line| line.starts_with("filter: "));
    let (_, memory) = line.unwrap().split_once("1,000 sources, ").unwrap();
    assert!(
        memory.starts_with(|c: char| ('1'..='9').contains(&c))
            && memory.ends_with("of kernel memory"),
        "{memory}"
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_an_object_that_is_missing_or_garbage_and_changes_nothing() {
    let stand = Stand::new();
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.o");
    fs::write(&garbage, b"no object at all").unwrap();
    for path in [folder.path().join("missing.o"), garbage] {
        let mut command = stand.command("attach server0");
        command.env("LIMIT_BPF_OBJECT", &path);
        let output = stand.start(command).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&path.display().to_string()), "{text}");
        let root = stand.sandbox.root().path();
        assert!(!root.exists(), "pins are left");
        assert!(stand.cable.server.interface("server0").programs.is_empty());
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn watches_rates_in_place() {
    let stand = Stand::new();
    stand.text(&format!(
        "attach server0 --max-sources 1000 --protocol udp --ports {PORT}"
    ));
    let limitctl = env!("CARGO_BIN_EXE_limitctl");
    let watch = format!("{limitctl} counters --watch --timeout 2500ms");
    let mut command = stand.command_of("script");
    command.args(["-q", "-e", "-c", &watch, "/dev/null"]);
    let child = stand.start(command);
    stand.cable.send(PORT, 400, Duration::from_millis(5));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    // Back over every line of the first print, then the second one.
    let (first, second) = text.split_once("\x1b[J").unwrap();
    let (first, back) = first.rsplit_once("\x1b[").unwrap();
    assert_eq!(back, format!("{}A", first.lines().count()));
    assert!(!first.contains("a second"), "{first}");
    assert!(second.starts_with("server0 (native)"), "{second}");
    let rates = second.lines().find(|line| line.starts_with("  a second"));
    let rates = rates.expect("a row of rates");
    assert!(
        rates.split_whitespace().nth(2).unwrap() != "0",
        "nothing was admitted: {text}"
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn never_takes_a_changing_bucket_for_a_full_one() {
    let stand = Stand::new();
    stand.text("attach server0 --max-sources 1000");
    let server = &stand.cable.server;
    let policy = PolicyId::new(0).unwrap();
    let key = Key::from_source(&Address::V4([203, 0, 113, 7]), policy, 32, 64);
    let (folder, set, now) = server.run(|| {
        let filter = open(stand.sandbox.root());
        let set = filter.policy_set().unwrap().unwrap();
        (filter.folder(), set, filter.now().unwrap())
    });
    let owner = slot::Owner::from_key(&key);
    let whole = slot::newborn(owner, &set.policies[0], now, 0, 100).0;
    let stranger = Key::from_source(&Address::V4([203, 0, 113, 8]), policy, 32, 64);
    let recycled = slot::newborn(
        slot::Owner::from_key(&stranger),
        &set.policies[0],
        now,
        0,
        1,
    );
    let busy = BucketSlot {
        state: whole.state | 254 << 32,
        ..whole
    };
    let data = MapData::from_pin(folder.join(maps::BUCKETS)).unwrap();
    let mut buckets: HashMap<_, Key, BucketSlot> =
        Map::from_map_data(data).unwrap().try_into().unwrap();
    for slot in [busy, recycled.0] {
        buckets.insert(key, slot, 0).unwrap();
        let shown = stand.json("buckets --source 203.0.113.7", 0);
        let bucket = &shown["buckets"][0];
        assert_eq!(bucket["policy"], "default");
        assert_eq!(bucket["tokens"], serde_json::Value::Null, "{shown}");
        assert_eq!(bucket["bucket"], true);
        let text = stand.text("buckets --source 203.0.113.7");
        assert!(text.contains("changing, ask again"), "{text}");
    }
    buckets.insert(key, whole, 0).unwrap();
    eventually("a bucket that is whole shows", || {
        let shown = stand.json("buckets --source 203.0.113.7", 0);
        shown["buckets"][0]["tokens"].is_u64()
    });
    buckets.remove(&key).unwrap();
    let text = stand.text("buckets --source 203.0.113.7");
    assert!(text.contains("full, no bucket"), "{text}");
}
