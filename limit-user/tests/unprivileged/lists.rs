//! Prefixes on the command line and on stdin: read whole before anything is written.

use crate::program::{Outcome, Place};

#[test]
fn refuses_what_is_no_prefix() {
    let place = Place::new();
    for (word, exit, code) in [
        ("203.0.113.7/24", 1, "bits-past-prefix"),
        ("2001:db8::1/64", 1, "bits-past-prefix"),
        ("203.0.113.0/33", 1, "out-of-range"),
        ("2001:db8::/129", 1, "out-of-range"),
        ("300.0.0.0/8", 2, "malformed-value"),
        ("203.0.113.0/", 2, "malformed-value"),
        ("example.org", 2, "malformed-value"),
    ] {
        for line in [
            "deny add",
            "allow lo remove",
            "deny lo replace 192.0.2.0/24",
        ] {
            let outcome = place.run(&format!("{line} --json {word}"));
            assert_eq!(outcome.code, Some(exit), "{line} {word}: {outcome:?}");
            assert_eq!(
                (outcome.failure().as_str(), outcome.field().as_str()),
                (code, "cidr")
            );
        }
    }
}

#[test]
fn names_the_line_of_a_bad_prefix_on_stdin() {
    let place = Place::new();
    let feed = "# feed\n203.0.113.0/24\nnonsense\n";
    let outcome = place.run_with_stdin("deny add --json -", feed);
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(2), "malformed-value")
    );
    assert!(
        outcome.stderr.contains("line 3: \"nonsense\""),
        "{}",
        outcome.stderr
    );
}

#[test]
fn empties_a_list_only_when_asked_to() {
    let place = Place::new();
    for (line, feed) in [
        ("deny replace --json -", ""),
        ("allow lo replace --json -", "# nothing today\n\n"),
        ("deny replace --json", "203.0.113.0/24\n"),
    ] {
        let outcome = place.run_with_stdin(line, feed);
        assert_eq!(outcome.code, Some(1), "{line}: {outcome:?}");
        assert_eq!(outcome.failure(), "empty-list", "{line}");
        assert!(outcome.stderr.contains("`--empty`"), "{outcome:?}");
    }
    for line in [
        "deny replace --empty --json -",
        "deny replace --json --empty",
    ] {
        let outcome = place.run_with_stdin(line, "");
        assert_ne!(outcome.failure(), "empty-list", "{line}");
    }
}

#[test]
fn reads_no_more_of_stdin_than_a_list_may_have() {
    let place = Place::new();
    let mut command = place.command("deny replace --json -");
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let outcome = Outcome::of(command.stdin(zeros).output().unwrap());
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(outcome.failure(), "unreadable-stdin");
    assert!(outcome.stderr.contains("more than 64 MiB"), "{outcome:?}");
}

#[test]
fn refuses_an_address_or_a_number_that_is_none() {
    let place = Place::new();
    for (line, exit, code, field) in [
        (
            "buckets --source example.org",
            2,
            "malformed-value",
            "source",
        ),
        (
            "buckets --source 203.0.113.0/24",
            2,
            "malformed-value",
            "source",
        ),
        ("buckets --top 0", 1, "out-of-range", "top"),
        ("buckets --top -3", 1, "out-of-range", "top"),
        ("buckets --top all", 2, "malformed-value", "top"),
    ] {
        let outcome = place.run(&format!("{line} --json"));
        assert_eq!(outcome.code, Some(exit), "{line}: {outcome:?}");
        assert_eq!(
            (outcome.failure().as_str(), outcome.field().as_str()),
            (code, field),
            "{line}"
        );
    }
}
