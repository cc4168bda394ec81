//! Signals and `--timeout` while the program waits for something that never comes.

use std::{
    fs,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::program::{Outcome, Place};

#[test]
fn ends_with_seven_when_the_timeout_passes() {
    let place = Place::new();
    // Its stdin stays open, so the prefixes never end.
    let child = waiting(&place, "deny add - --json --timeout 50ms");
    let outcome = end_of(child);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert_eq!(outcome.failure(), "timeout");
}

#[test]
fn ends_with_eight_on_a_signal() {
    let place = Place::new();
    for (signal, name) in [(Signal::SIGINT, "SIGINT"), (Signal::SIGTERM, "SIGTERM")] {
        let child = waiting(&place, "deny add - --json --timeout 1h");
        until_it_waits_for_signals(&child);
        kill(pid(&child), signal).unwrap();
        let outcome = end_of(child);
        assert_eq!(outcome.code, Some(8), "{name}: {outcome:?}");
        assert_eq!(outcome.failure(), "interrupted");
        assert!(outcome.stderr.contains(name), "{}", outcome.stderr);
    }
}

/// Starts the program with a stdin that stays open.
fn waiting(place: &Place, line: &str) -> Child {
    place.command(line).stdin(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end without closing stdin, which `wait_with_output` would do.
fn end_of(mut child: Child) -> Outcome {
    let stdin = child.stdin.take();
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    drop(stdin);
    outcome
}

/// Polls until the program catches both signals.
fn until_it_waits_for_signals(child: &Child) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        let both = bit(Signal::SIGINT) | bit(Signal::SIGTERM);
        if caught & both == both {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the program caught no signals in 30 s");
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u64 - 1)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}
