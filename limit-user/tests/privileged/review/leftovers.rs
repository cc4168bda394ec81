//! Filters that were cut off: what an attach makes of them, and what the others say.

use std::fs;

use limit_common::layout::MIN_MAX_SOURCES;
use limit_user::kernel::{Filter, KernelError, ModeChoice, Options};

use super::stand::Stand;
use crate::{
    attach::{attach, lock, one_policy, open},
    netns::eventually,
};

#[test]
#[ignore = "needs CAP_BPF"]
fn makes_a_filter_without_interfaces_anew() {
    let stand = Stand::new();
    let root = stand.sandbox.root();
    stand.cable.server.run(|| {
        let lock = lock(root);
        let options = Options {
            max_sources: MIN_MAX_SOURCES,
        };
        let mut filter = Filter::create(&lock, &options).unwrap();
        let now = filter.now().unwrap();
        let set = one_policy(Filter::namespace_cookie().unwrap(), now);
        filter.publish(&lock, &set).unwrap();
    });
    for words in [
        "show",
        "counters",
        "buckets",
        "allow list",
        "set --capacity 7",
    ] {
        let error = &stand.json(words, 2)["error"];
        assert_eq!(error["code"], "filter-without-interface", "{words}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("limitctl attach"), "{message}");
        assert!(message.contains("limitctl detach --all"), "{message}");
    }
    let attached = stand.json("attach server0 --max-sources 1000", 0);
    assert_eq!(attached["created"], true);
    assert_eq!(attached["max_sources"], 1000);
    assert_eq!(attached["policies"].as_array().unwrap().len(), 1);
    assert_eq!(attached["policies"][0]["name"], "default");
    assert_eq!(attached["policies"][0]["mode"], "monitor");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn leaves_incomplete_pins_that_judge_an_interface_until_told() {
    let stand = Stand::new();
    let root = stand.sandbox.root();
    attach(&stand.cable.server, root, "server0", ModeChoice::Auto).unwrap();
    let programs = || stand.cable.server.interface("server0").programs;
    let before = programs();
    let folder = stand.cable.server.run(|| open(root).folder());
    fs::remove_file(folder.join("HANDS")).unwrap();

    for words in ["attach server0", "show", "set --capacity 7"] {
        let error = &stand.json(words, 2)["error"];
        assert_eq!(error["code"], "incomplete-filter-in-use", "{words}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("still judges server0"), "{message}");
        assert!(message.contains("limitctl detach --all"), "{message}");
    }
    let error = stand.cable.server.run(|| {
        let options = Options {
            max_sources: MIN_MAX_SOURCES,
        };
        Filter::create(&lock(root), &options).unwrap_err()
    });
    assert!(
        matches!(error, KernelError::IncompleteInUse { .. }),
        "{error}"
    );
    let found = stand.json("doctor server0", 1).to_string();
    assert!(found.contains("still judges server0"), "{found}");
    assert_eq!(programs(), before);

    let detached = stand.json("detach --all", 0);
    assert_eq!(detached["detached"][0], "server0");
    eventually("the program is gone", || programs().is_empty());
    assert!(!root.path().exists(), "pins are left");
}
