//! `limitctl` killed at any moment, and run with few capabilities: what stays, and what it says.

use std::{
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use limit_common::counters::Counter;
use limit_user::{
    config::{Mode, decompile},
    kernel::{Filter, Presence},
};

use crate::netns::{Cable, Sandbox, eventually};

#[test]
#[ignore = "needs CAP_BPF"]
fn keeps_judging_when_it_is_killed_during_a_replacement() {
    let world = World::new();
    let whole = world.duration_of_attach();
    for kill in 0..KILLS {
        world.kill_after(&["attach", "server0"], whole * kill / (KILLS - 6));
        assert!(world.is_judged(), "killed {kill}: not attached");
        world.assert_complete();
    }
    world.assert_done(&["attach", "server0"]);
    world.assert_complete();
    world.assert_done(&["detach", "--all"]);
    world.assert_nothing();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn judges_in_full_or_not_at_all_when_it_is_killed_during_a_first_attach() {
    let world = World::new();
    let whole = world.duration_of_attach();
    let mut judged = 0;
    for kill in 0..KILLS {
        world.assert_done(&["detach", "--all"]);
        world.assert_nothing();
        world.kill_after(&["attach", "server0"], whole * kill / (KILLS - 6));
        if world.is_judged() {
            world.assert_complete();
            judged += 1;
        }
        world.assert_done(&["attach", "server0"]);
        world.assert_complete();
    }
    assert!(judged < KILLS, "no kill came before the attach was done");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn never_revives_the_policies_of_an_attach_that_was_killed() {
    let world = World::new();
    let whole = world.duration_of_attach();
    for kill in 0..KILLS {
        world.assert_done(&["detach", "--all"]);
        world.kill_after(
            &["attach", "server0", "--capacity", "1"],
            whole * kill / (KILLS - 6),
        );
        let complete = (1, Mode::Enforce);
        let expected = if world.is_judged() {
            complete
        } else {
            (100, Mode::Monitor)
        };
        world.assert_done(&["attach", "server0"]);
        assert_eq!(world.policy(), expected, "killed {kill}");
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn leaves_nothing_or_all_when_it_is_killed_during_a_detach() {
    let world = World::new();
    let whole = world.duration_of_attach();
    for kill in 0..KILLS {
        world.assert_done(&["attach", "server0"]);
        world.kill_after(&["detach", "server0"], whole * kill / KILLS / 4);
        if world.is_judged() {
            world.assert_complete();
        }
        world.assert_done(&["detach", "--all"]);
        world.assert_nothing();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn starts_with_the_capabilities_that_it_names_and_no_other() {
    let world = World::new();
    let output = world.run_with("+bpf,+net_admin,+perfmon", &["attach", "server0"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(world.is_judged());
    world.assert_complete();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn lives_from_attach_to_detach_with_the_capabilities_that_it_names() {
    let world = World::new();
    let json = |arguments: &[&str]| {
        let output = world.run_with("+bpf,+net_admin,+perfmon", arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    };
    json(&["attach", "server0", "--capacity", "7", "--json"]);
    json(&["set", "--capacity", "9", "--json"]);
    json(&["set", "--capacity", "8", "--json"]);
    assert!(json(&["show", "--json"]).contains("\"capacity\":8"));
    json(&["counters", "--json"]);
    json(&["buckets", "--json"]);
    json(&["deny", "add", "203.0.113.7", "--json"]);
    json(&["attach", "server0", "--json"]);
    json(&["detach", "server0", "--json"]);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_the_capability_that_is_missing() {
    let world = World::new();
    for (have, missing) in [
        ("+bpf,+perfmon", "CAP_NET_ADMIN"),
        ("+net_admin,+perfmon", "CAP_BPF"),
        ("+bpf,+net_admin", "CAP_PERFMON"),
    ] {
        let output = world.run_with(have, &["attach", "server0"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(missing), "{text}");
        world.assert_nothing();
    }
}

/// A sandbox with a cable, and `limitctl` on its server's side.
struct World {
    sandbox: Sandbox,
    cable: Cable,
}

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::enter();
        Self {
            sandbox,
            cable: Cable::new(),
        }
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env("LIMIT_PIN_ROOT", self.sandbox.root().path())
            .stdin(Stdio::null());
        command
    }

    fn limitctl(&self, words: &[&str]) -> Output {
        self.cable
            .server
            .run(|| self.command(LIMITCTL, words).output().unwrap())
    }

    /// Runs `limitctl` as root with no capabilities but these.
    fn run_with(&self, capabilities: &str, words: &[&str]) -> Output {
        let bounding = format!("--bounding-set=-all,{capabilities}");
        let mut all = vec![bounding.as_str(), "--inh-caps=-all", LIMITCTL];
        all.extend(words);
        self.cable
            .server
            .run(|| self.command("setpriv", &all).output().unwrap())
    }

    fn assert_done(&self, words: &[&str]) {
        let output = self.limitctl(words);
        assert!(
            output.status.success(),
            "limitctl {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Starts `limitctl` and kills it so much later, or finds that it was done by then.
    fn kill_after(&self, words: &[&str], delay: Duration) {
        let mut child: Child = self.cable.server.run(|| {
            let mut command = self.command(LIMITCTL, words);
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        thread::sleep(delay);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn duration_of_attach(&self) -> Duration {
        let start = Instant::now();
        self.assert_done(&["attach", "server0"]);
        start.elapsed()
    }

    /// Whether the interface has an XDP program; a link dies some time after its last descriptor.
    fn is_judged(&self) -> bool {
        let pinned = self.link_is_pinned();
        eventually("the link and its pin agree", || {
            self.has_program() == pinned
        });
        pinned
    }

    fn link_is_pinned(&self) -> bool {
        self.cable
            .server
            .run(|| match Filter::presence(self.sandbox.root()).unwrap() {
                Presence::Here(filter) => filter
                    .interfaces()
                    .unwrap()
                    .iter()
                    .any(|one| one.name.is_some() && one.cut_off().is_none()),
                Presence::None | Presence::Incomplete => false,
                other => panic!("{other:?}"),
            })
    }

    fn has_program(&self) -> bool {
        !self.cable.server.interface("server0").programs.is_empty()
    }

    /// The filter is whole, and counts.
    fn assert_complete(&self) {
        let before = self.packets();
        self.cable.send(PORT, 1, Duration::ZERO);
        eventually("a packet is counted", || self.packets() > before);
    }

    fn packets(&self) -> u64 {
        let index = self.cable.server.interface("server0").index;
        self.cable.server.run(|| {
            let filter = Filter::open(self.sandbox.root()).unwrap().unwrap();
            assert!(filter.policy_set().unwrap().is_some());
            filter.counters(index).unwrap()[0].values[Counter::Packets.index()]
        })
    }

    /// Capacity and mode of the first policy in force.
    fn policy(&self) -> (u32, Mode) {
        let set = self.cable.server.run(|| {
            let filter = Filter::open(self.sandbox.root()).unwrap().unwrap();
            filter.policy_set().unwrap().unwrap()
        });
        let policy = decompile(&set).unwrap().policies.remove(0);
        (policy.numbers.capacity.get(), policy.mode)
    }

    fn assert_nothing(&self) {
        assert!(!self.sandbox.root().path().exists(), "pins are left");
        eventually("no program is left", || !self.has_program());
    }
}

const LIMITCTL: &str = env!("CARGO_BIN_EXE_limitctl");

/// Kills spread over the duration of the work, and past its end.
const KILLS: u32 = 24;

/// A port that no policy names.
const PORT: u16 = 9;
