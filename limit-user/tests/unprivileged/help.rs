//! Help texts state unit and default.

use crate::program::Place;

#[test]
fn states_unit_and_default_of_every_policy_flag() {
    let place = Place::new();
    for command in ["attach", "set"] {
        let help = place.run(&format!("{command} --help")).stdout;
        for (flag, states) in [
            ("--capacity", "[new policy: 100]"),
            ("--refill", "[new policy: 100]"),
            ("--interval", "500ms, 1s, 5m, 1h or 1d [new policy: 1s]"),
            ("--rate", "100/s, 5/m or 10/500ms [new policy: 100/s]"),
            ("--burst", "[new policy: the tokens of the rate]"),
            ("--max-in-flight", "[new policy: none]"),
            (
                "--max-in-flight-per-source",
                "[default: a quarter of --max-in-flight whenever that is given, at least 1]",
            ),
            ("--protocol", "[new policy: tcp]"),
            (
                "--ports",
                "[new policy: 80,443 for the policy default, else all]",
            ),
            ("--unit", "[new policy: connection for tcp, else packet]"),
            (
                "--on-limit",
                "[new policy: 503 for unit connection, else drop]",
            ),
            ("--status", "[new policy: 503]"),
            ("--timeout", "500ms, 1s, 5m, 1h or 1d [default: never]"),
        ] {
            let text = entry(&help, flag);
            assert!(text.contains(states), "{command} {flag}: {text}");
        }
    }
    let help = place.run("attach --help").stdout;
    assert!(entry(&help, "--max-sources").contains("64 to 16777216 [default: 262144]"));
    assert!(help.contains("[alias: --cap]"));
}

/// What the help says about a flag, in one line.
fn entry(help: &str, flag: &str) -> String {
    let start = help
        .lines()
        .position(|line| line.trim_start().starts_with(flag) && is_whole(line.trim_start(), flag));
    let start = start.unwrap_or_else(|| panic!("{flag} is not in the help"));
    let lines = help.lines().skip(start + 1);
    let text: Vec<&str> = lines
        .map(str::trim)
        .take_while(|line| !line.starts_with("--"))
        .collect();
    text.join(" ")
}

fn is_whole(line: &str, flag: &str) -> bool {
    line[flag.len()..].starts_with([' ', '\n']) || line == flag
}
