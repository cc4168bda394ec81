//! What clap decides: help and version succeed, everything it refuses ends with 2.

use crate::program::Place;

#[test]
fn ends_with_two_on_usage_errors_and_says_so_as_an_object() {
    let place = Place::new();
    for line in [
        "",
        "attach",
        "detach",
        "frobnicate",
        "attach lo --frobnicate",
        "attach lo --unit bit",
        "attach lo --on-limit teapot",
        "attach lo --protocol sctp",
        "attach lo --xdp-mode fast",
        "deny add",
        "set",
        "allow",
    ] {
        let outcome = place.run(&format!("{line} --json"));
        assert_eq!(outcome.code, Some(2), "{line}: {outcome:?}");
        assert_eq!(outcome.failure(), "usage", "{line}");
        let outcome = place.run(line);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(2), ""),
            "{line}"
        );
        assert!(!outcome.stderr.is_empty(), "{line}");
    }
}

#[test]
fn ends_with_zero_on_help_and_version() {
    let place = Place::new();
    for line in [
        "--help",
        "help",
        "attach --help",
        "--version",
        "version",
        "completions bash",
    ] {
        let outcome = place.run(line);
        assert_eq!(
            (outcome.code, outcome.stderr.as_str()),
            (Some(0), ""),
            "{line}"
        );
        assert!(outcome.stdout.contains("limitctl"), "{line}");
    }
}

#[test]
fn says_its_version_and_layout_as_data() {
    let version = Place::new().run("version --json").json();
    assert_eq!(version["ok"], true);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["layout"], limit_common::layout::VERSION);
}

#[test]
fn takes_a_reader_that_closed_its_pipe_as_done() {
    let place = Place::new();
    let mut child = place.command("completions bash").spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn fails_when_the_result_cannot_be_written() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = place.command("version").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!output.stderr.is_empty());
}

#[test]
fn ends_with_one_on_flags_that_do_not_fit_together() {
    let place = Place::new();
    for (line, field) in [
        ("counters --watch --prometheus", "prometheus"),
        ("counters --prometheus", "prometheus"),
        ("buckets --top 3 --source 203.0.113.7", "top"),
        ("show --toml", "toml"),
    ] {
        let outcome = place.run(&format!("{line} --json"));
        assert_eq!(outcome.code, Some(1), "{line}: {outcome:?}");
        assert_eq!(
            (outcome.failure(), outcome.field()),
            ("conflict".into(), field.into()),
            "{line}"
        );
    }
    let outcome = place.run("counters --watch --prometheus");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
}

#[test]
fn refuses_interfaces_beside_all() {
    let outcome = Place::new().run("detach lo --all --json");
    assert_eq!(outcome.code, Some(1));
    assert_eq!(
        (outcome.failure(), outcome.field()),
        ("conflict".into(), "all".into())
    );
}
