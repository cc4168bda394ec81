//! Two at once, timeouts and signals: who waits, who is refused, and what is left.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use limit_user::{interrupt::Interrupt, kernel::Lock};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::world::{Outcome, World, number, says};
use crate::netns::eventually;

#[test]
#[ignore = "needs CAP_BPF"]
fn names_the_holder_when_another_changes_the_filter() {
    let world = World::new();
    world.done("attach server0");
    let before = world.done("show");
    let held = lock(&world);
    let changes = [
        "set --capacity 9",
        "attach server0 --capacity 9",
        "deny add 203.0.113.0/24",
        "detach --all",
    ];
    let waiting = changes.map(|words| world.start(&format!("{words} --json")));
    for (words, child) in changes.into_iter().zip(waiting) {
        let error = of(child).error(2);
        assert_eq!(error["code"], "locked", "{words}");
        let holder = format!("process {}", std::process::id());
        assert!(says(&error, &holder), "{error}");
    }
    // Who only reads waits for nobody.
    assert_eq!(world.done("show"), before);
    assert_eq!(world.run("counters").code, Some(0));
    drop(held);
    world.done("set --capacity 9");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn waits_for_a_holder_that_ends_in_time() {
    let world = World::new();
    world.done("attach server0");
    let held = lock(&world);
    let waiting = world.start("set --capacity 9 --json");
    until_it_catches_signals(&waiting);
    drop(held);
    assert_eq!(of(waiting).data()["changed"], true);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn lets_changes_at_once_take_turns() {
    let world = World::new();
    world.done("attach server0");
    let first = revision(&world);
    let running: Vec<Child> = (10..18)
        .map(|capacity| world.start(&format!("set --capacity {capacity} --json")))
        .collect();
    for child in running {
        assert_eq!(of(child).data()["changed"], true);
    }
    assert_eq!(revision(&world), first + 8);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn ends_with_seven_when_its_time_is_over_and_with_eight_on_a_signal() {
    let world = World::new();
    world.done("attach server0");
    let before = world.done("show");
    let held = lock(&world);
    for words in [
        "set --capacity 9",
        "detach server0",
        "attach server0 --capacity 9",
    ] {
        let error = world.refused(&format!("{words} --timeout 100ms"), 7);
        assert_eq!(error["code"], "timeout", "{words}");
        for (signal, name) in [(Signal::SIGINT, "SIGINT"), (Signal::SIGTERM, "SIGTERM")] {
            let child = world.start(&format!("{words} --json"));
            until_it_catches_signals(&child);
            kill(pid(&child), signal).unwrap();
            let error = of(child).error(8);
            assert_eq!(error["code"], "interrupted", "{words}");
            assert!(says(&error, name), "{error}");
        }
    }
    drop(held);
    assert_eq!(world.done("show"), before);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn attaches_in_full_or_leaves_nothing_when_a_signal_comes() {
    let world = World::new();
    let start = Instant::now();
    world.done("attach server0");
    let whole = start.elapsed();
    world.done("detach --all");
    let mut interrupted = 0;
    for turn in 0..SIGNALS {
        let child = world.start("attach server0 --capacity 9 --json");
        until_it_catches_signals(&child);
        thread::sleep(whole * turn / SIGNALS);
        // It may have ended by then, and is not waited for yet, so its number is still its own.
        kill(pid(&child), Signal::SIGINT).unwrap();
        let outcome = of(child);
        if outcome.code == Some(0) {
            assert_eq!(outcome.data()["policies"][0]["capacity"], 9);
            world.done("detach --all");
        } else {
            assert_eq!(outcome.error(8)["code"], "interrupted");
            interrupted += 1;
        }
        world.assert_nothing_is_left();
        assert!(world.cable.server.interface("server0").programs.is_empty());
    }
    assert!(interrupted > 0, "every signal came too late");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn ends_a_watch_with_zero() {
    let world = World::new();
    world.done("attach server0");
    let mut watch = world.start("counters --watch --json");
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("\"totals\""), "{line}");
    kill(pid(&watch), Signal::SIGINT).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    let timed = world.run("counters --watch --timeout 100ms");
    assert_eq!(timed.code, Some(7), "{timed:?}");
}

fn lock(world: &World) -> Lock {
    let acquire = || Lock::acquire(world.sandbox.root(), Duration::ZERO, &Interrupt::default());
    world.cable.server.run(|| acquire().unwrap())
}

fn revision(world: &World) -> u64 {
    number(&world.done("show")["revision"])
}

fn of(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

/// Waits until a signal would not just kill it, or until it ended.
fn until_it_catches_signals(child: &Child) {
    eventually("it catches signals", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let caught = u64::from_str_radix(&field("SigCgt:"), 16).unwrap();
        let both = bit(Signal::SIGINT) | bit(Signal::SIGTERM);
        field("State:").starts_with('Z') || caught & both == both
    });
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u64 - 1)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// Signals spread over the duration of an attach.
const SIGNALS: u32 = 6;
