//! Policy flags: durations, rates, ports, numbers, and what does not fit together.

use crate::program::Place;

/// Runs `attach lo` with each row's flags; exit, code and field must be the row's.
fn refuses(rows: &[(&str, i32, &str, &str)]) {
    let place = Place::new();
    for (flags, exit, code, field) in rows {
        let outcome = place.run(&format!("attach lo --json {flags}"));
        assert_eq!(outcome.code, Some(*exit), "{flags}: {outcome:?}");
        assert_eq!(
            (outcome.failure().as_str(), outcome.field().as_str()),
            (*code, *field),
            "{flags}"
        );
        assert!(!place.path().join("pins").exists(), "{flags}");
    }
}

#[test]
fn refuses_durations() {
    refuses(&[
        ("--interval 0s", 1, "out-of-range", "policy.interval"),
        ("--interval 0ms", 1, "out-of-range", "policy.interval"),
        ("--interval -1s", 1, "out-of-range", "policy.interval"),
        ("--interval 366d", 1, "out-of-range", "policy.interval"),
        (
            "--interval 99999999999999999999d",
            1,
            "out-of-range",
            "policy.interval",
        ),
        ("--interval 1", 2, "malformed-value", "policy.interval"),
        ("--interval 1.5s", 2, "malformed-value", "policy.interval"),
        ("--interval 1us", 2, "malformed-value", "policy.interval"),
        ("--interval soon", 2, "malformed-value", "policy.interval"),
        ("--timeout 0s", 1, "out-of-range", "timeout"),
        ("--timeout soon", 2, "malformed-value", "timeout"),
    ]);
}

#[test]
fn refuses_rates() {
    refuses(&[
        ("--rate 0/s", 1, "out-of-range", "policy.rate"),
        ("--rate 1/0s", 1, "out-of-range", "policy.rate"),
        ("--rate 4294967296/s", 1, "out-of-range", "policy.rate"),
        (
            "--rate 99999999999999999999/s",
            1,
            "out-of-range",
            "policy.rate",
        ),
        ("--rate 100", 2, "malformed-value", "policy.rate"),
        ("--rate 1.5/s", 2, "malformed-value", "policy.rate"),
        ("--rate -1/s", 1, "out-of-range", "policy.rate"),
        ("--rate 100/fortnight", 2, "malformed-value", "policy.rate"),
        ("--rate 1/s --burst 0", 1, "out-of-range", "policy.burst"),
    ]);
}

#[test]
fn refuses_ports() {
    refuses(&[
        ("--ports 0", 1, "out-of-range", "policy.ports"),
        ("--ports 65536", 1, "out-of-range", "policy.ports"),
        ("--ports 90-80", 1, "out-of-range", "policy.ports"),
        ("--ports http", 2, "malformed-value", "policy.ports"),
        ("--ports 80,,81", 2, "malformed-value", "policy.ports"),
        ("--ports -80", 2, "malformed-value", "policy.ports"),
    ]);
}

#[test]
fn refuses_zero_and_huge_numbers() {
    refuses(&[
        ("--capacity 0", 1, "out-of-range", "policy.capacity"),
        ("--cap 0", 1, "out-of-range", "policy.capacity"),
        ("--capacity -1", 1, "out-of-range", "policy.capacity"),
        (
            "--capacity 4294967296",
            1,
            "out-of-range",
            "policy.capacity",
        ),
        (
            "--capacity 99999999999999999999999999",
            1,
            "out-of-range",
            "policy.capacity",
        ),
        ("--capacity many", 2, "malformed-value", "policy.capacity"),
        ("--capacity 1.0", 2, "malformed-value", "policy.capacity"),
        ("--capacity 1e3", 2, "malformed-value", "policy.capacity"),
        ("--refill 0", 1, "out-of-range", "policy.refill"),
        ("--refill 4294967296", 1, "out-of-range", "policy.refill"),
        (
            "--max-in-flight 0",
            1,
            "out-of-range",
            "policy.max_in_flight",
        ),
        (
            "--max-in-flight-per-source 0",
            1,
            "out-of-range",
            "policy.max_in_flight_per_source",
        ),
        ("--max-sources 0", 1, "out-of-range", "max_sources"),
        (
            "--max-sources 99999999999",
            1,
            "out-of-range",
            "max_sources",
        ),
        ("--max-sources lots", 2, "malformed-value", "max_sources"),
        (
            "--capacity 4294967295 --refill 1 --interval 365d",
            1,
            "out-of-range",
            "policy.capacity",
        ),
    ]);
}

#[test]
fn refuses_flags_that_do_not_fit_together() {
    refuses(&[
        ("--rate 1/s --capacity 9", 1, "conflict", "policy.capacity"),
        ("--rate 1/s --refill 9", 1, "conflict", "policy.refill"),
        ("--rate 1/s --interval 1s", 1, "conflict", "policy.interval"),
        ("--monitor --enforce", 1, "conflict", "policy.monitor"),
        (
            "--protocol udp --unit connection",
            1,
            "conflict",
            "policy.unit",
        ),
        ("--protocol icmp --ports 80", 1, "conflict", "policy.ports"),
        (
            "--unit packet --on-limit 503",
            1,
            "conflict",
            "policy.on_limit",
        ),
        (
            "--protocol udp --on-limit reset",
            1,
            "conflict",
            "policy.on_limit",
        ),
        (
            "--on-limit drop --status 429",
            1,
            "conflict",
            "policy.status",
        ),
        (
            "--max-in-flight 4 --max-in-flight-per-source 5",
            1,
            "out-of-range",
            "policy.max_in_flight_per_source",
        ),
        (
            "--unit byte --capacity 1500",
            1,
            "out-of-range",
            "policy.capacity",
        ),
        (
            "--policy fragments --capacity 9",
            1,
            "reserved-name",
            "policy.name",
        ),
        ("--policy a/b --capacity 9", 1, "bad-name", "policy.name"),
        ("--config x.toml --capacity 9", 1, "conflict", "config"),
    ]);
}

#[test]
fn names_value_range_and_policy_in_a_range_error() {
    let outcome = Place::new().run("attach lo --policy web --capacity 0");
    assert_eq!(
        outcome.stderr,
        "error: policy web: policy.capacity 0 is outside 1..=4294967295\n"
    );
}

#[test]
fn refuses_in_set_what_is_structure_or_nothing() {
    let place = Place::new();
    for flag in [
        "--protocol udp",
        "--ports 22",
        "--unit packet",
        "--on-limit drop",
        "--status 429",
    ] {
        let outcome = place.run(&format!("set lo --json {flag}"));
        assert_eq!(
            (outcome.code, outcome.failure().as_str()),
            (Some(1), "structural-flag"),
            "{flag}"
        );
    }
    let outcome = place.run("set --json --policy web");
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(2), "usage")
    );
    let outcome = place.run("set --json --interval 0s");
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(1), "out-of-range")
    );
}
