//! Without privileges: the missing capability is named, and nothing is touched.

use crate::program::Place;

#[test]
fn names_the_missing_capability() {
    let place = Place::new();
    for line in [
        "attach lo",
        "attach lo --capacity 9",
        "detach lo",
        "detach --all",
        "set --capacity 9",
        "show",
        "show --toml",
        "counters",
        "counters lo --watch",
        "counters --prometheus",
        "buckets",
        "buckets --source 203.0.113.7",
        "allow list",
        "deny add 203.0.113.0/24",
        "demo",
    ] {
        let outcome = place.run_as_nobody(line);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(2), ""),
            "{line}: {outcome:?}"
        );
        assert!(
            outcome.stderr.contains("missing CAP_BPF"),
            "{line}: {}",
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains("run as root or grant CAP_BPF"),
            "{line}"
        );
    }
    for (line, action) in [
        ("show", "read"),
        ("detach lo", "change"),
        ("set --capacity 9", "change"),
    ] {
        let outcome = place.run_as_nobody(line);
        let told = format!("needed to {action} the filter");
        assert!(outcome.stderr.contains(&told), "{line}: {outcome:?}");
    }
    let outcome = place.run_as_nobody("attach lo --json");
    assert_eq!(outcome.failure(), "missing-capability");
    assert!(!place.path().join("pins").exists());
}

#[test]
fn names_an_interface_that_is_not_there() {
    let place = Place::new();
    for name in ["nosuch0", "a-name-that-is-far-too-long", "a/b"] {
        let outcome = place.run_as_nobody(&format!("attach {name} --json"));
        assert_eq!(
            (outcome.code, outcome.failure().as_str()),
            (Some(2), "interface-not-found")
        );
        assert!(outcome.stderr.contains(name), "{}", outcome.stderr);
    }
    let outcome = place.run_as_nobody("doctor nosuch0 --json");
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(2), "interface-not-found")
    );
}

#[test]
fn lets_the_doctor_say_what_is_missing_and_what_to_do() {
    let place = Place::new();
    let outcome = place.run_as_nobody("doctor lo");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for line in outcome
        .stdout
        .lines()
        .filter(|line| !line.starts_with("ok "))
    {
        assert!(line.contains("; "), "a line without what to do: {line}");
    }
    assert!(
        outcome
            .stdout
            .contains("fail  capabilities: CAP_BPF is missing")
    );

    let object = place.run_as_nobody("doctor lo --json").json();
    assert_eq!(object["ok"], false);
    let checks = object["checks"].as_array().unwrap();
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| check["state"] == "fail")
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["capabilities", "bpffs"]);
}
