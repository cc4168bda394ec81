//! Configuration files: what is wrong with one, where, and what the program ends with.

use crate::program::Place;

#[test]
fn tells_unreadable_from_invalid() {
    let place = Place::new();
    let rows: [(&[u8], i32, &str, &str); 13] = [
        (b"[[policy", 2, "not-toml", ""),
        (b"[keys]\n[keys]\n", 2, "not-toml", ""),
        (b"\xff\xfe", 2, "not-utf8", "config"),
        (b"", 1, "missing-field", "policy"),
        (
            b"[[policy]]\ncapacity = 9\n",
            1,
            "missing-field",
            "policy.name",
        ),
        (
            b"[[policy]]\nname = 'a'\ncapacty = 9\n",
            1,
            "unknown-field",
            "capacty",
        ),
        (b"[polices]\n", 1, "unknown-field", "polices"),
        (
            b"[[policy]]\nname = 'a'\ncapacity = '9'\n",
            1,
            "not-an-integer",
            "",
        ),
        (
            b"[[policy]]\nname = 'a'\ncapacity = 1.0\n",
            1,
            "not-an-integer",
            "",
        ),
        (
            b"[[policy]]\nname = 'a'\ninterval = '0s'\n",
            1,
            "out-of-range",
            "policy.interval",
        ),
        (
            b"[[policy]]\nname = 'a'\ninterval = 'x'\n",
            2,
            "malformed-value",
            "policy.interval",
        ),
        (
            b"[keys]\nipv4_prefix = 33\n[[policy]]\nname = 'a'\n",
            1,
            "out-of-range",
            "keys.ipv4_prefix",
        ),
        (
            b"[[policy]]\nname = 'fragments'\n",
            1,
            "reserved-name",
            "policy.name",
        ),
    ];
    for (bytes, exit, code, field) in rows {
        let text = String::from_utf8_lossy(bytes);
        let file = place.file("limit.toml", bytes);
        let outcome = place.run(&format!("attach lo --json --config {file}"));
        assert_eq!(outcome.code, Some(exit), "{text}: {outcome:?}");
        assert_eq!(
            (outcome.failure().as_str(), outcome.field().as_str()),
            (code, field),
            "{text}"
        );
    }
}

#[test]
fn names_a_file_that_is_not_there() {
    let place = Place::new();
    let path = place.path().join("absent.toml");
    let outcome = place.run(&format!("attach lo --json --config {}", path.display()));
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(2), "unreadable-file")
    );
    assert!(outcome.stderr.contains("absent.toml"));
}

#[test]
fn reads_no_more_than_a_configuration_may_have() {
    let place = Place::new();
    let outcome = place.run("attach lo --json --config /dev/zero");
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(2), "unreadable-file")
    );
    assert!(
        outcome
            .stderr
            .contains("/dev/zero: it has more than 16 MiB"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn names_the_file_and_the_line() {
    let place = Place::new();
    let file = place.file("limit.toml", b"[[policy]]\nname = 'a'\n\ncapacty = 9\n");
    let outcome = place.run(&format!("attach lo --config {file}"));
    assert!(
        outcome.stderr.contains(&format!("{file}: line 4: ")),
        "{}",
        outcome.stderr
    );
}

#[test]
fn names_both_policies_that_claim_one_port() {
    let place = Place::new();
    let text =
        b"[[policy]]\nname = 'web'\nports = '80,443'\n[[policy]]\nname = 'rest'\nports = '1-1024'";
    let file = place.file("limit.toml", text);
    let outcome = place.run(&format!("attach lo --json --config {file}"));
    assert_eq!(
        (outcome.code, outcome.failure().as_str()),
        (Some(1), "ports-claimed-twice")
    );
    for word in ["\"web\"", "\"rest\"", "tcp port 80"] {
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
}

#[test]
fn names_a_pin_root_that_is_a_file() {
    let place = Place::new();
    let file = place.file("pins", b"");
    let outcome = place.run("doctor lo");
    let told = format!("use {file} as the pin root failed: it is not a folder");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains(&told), "{outcome:?}");
}
