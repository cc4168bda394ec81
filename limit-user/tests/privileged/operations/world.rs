//! A sandbox with a cable, the binary on its server's side, and what the binary says.

use std::{
    io::Write as _,
    process::{Child, Command, Output, Stdio},
};

use limit_common::{config::PolicySet, units::Instant};
use limit_user::kernel::Filter;
use serde_json::Value;

use crate::netns::{Cable, Namespace, Sandbox, eventually};

/// A sandbox with a cable.
#[derive(Debug)]
pub(super) struct World {
    pub(super) sandbox: Sandbox,
    pub(super) cable: Cable,
}

/// What a run left.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl World {
    pub(super) fn new() -> Self {
        let sandbox = Sandbox::enter();
        Self {
            sandbox,
            cable: Cable::new(),
        }
    }

    /// `limitctl` with these words, about to start where the thread that starts it is.
    ///
    /// An attach that says nothing else makes a small filter, which comes and goes faster.
    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(LIMITCTL);
        command.args(words.split_whitespace());
        if words.starts_with("attach") && !words.contains("--max-sources") {
            command.args(["--max-sources", MAX_SOURCES]);
        }
        command
            .env("LIMIT_PIN_ROOT", self.sandbox.root().path())
            .env_remove("SSH_CONNECTION")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts `limitctl` on the server's side.
    pub(super) fn start(&self, words: &str) -> Child {
        let mut command = self.command(words);
        self.cable.server.run(|| command.spawn().unwrap())
    }

    /// Runs `limitctl` on the server's side.
    pub(super) fn run(&self, words: &str) -> Outcome {
        Outcome::of(self.start(words).wait_with_output().unwrap())
    }

    /// Runs `limitctl` in this namespace.
    pub(super) fn run_in(&self, namespace: &Namespace, words: &str) -> Outcome {
        let mut command = self.command(words);
        Outcome::of(namespace.run(|| command.output().unwrap()))
    }

    /// Runs `limitctl` on the server's side with this on stdin.
    pub(super) fn run_with(&self, words: &str, stdin: &str) -> Outcome {
        let mut command = self.command(words);
        command.stdin(Stdio::piped());
        let mut child = self.cable.server.run(|| command.spawn().unwrap());
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(stdin.as_bytes()).unwrap();
        drop(pipe);
        Outcome::of(child.wait_with_output().unwrap())
    }

    /// Runs `limitctl` with `--json` on the server's side and gives what it printed.
    pub(super) fn done(&self, words: &str) -> Value {
        self.run(&format!("{words} --json")).data()
    }

    /// Runs `limitctl` with `--json` on the server's side, which is to end with this exit code, and
    /// gives the error that it printed.
    pub(super) fn refused(&self, words: &str, code: i32) -> Value {
        self.run(&format!("{words} --json")).error(code)
    }

    /// What the counters say of a policy, summed over the interfaces.
    pub(super) fn counted(&self, policy: &str) -> Value {
        let counters = self.done("counters");
        of_policy(&counters["policies"], policy).clone()
    }

    /// Packets that a policy judged.
    pub(super) fn judged(&self, policy: &str) -> u64 {
        let counted = self.counted(policy);
        ["admitted", "limited", "shed"]
            .map(|decision| number(&counted[decision]))
            .iter()
            .sum()
    }

    /// Waits until a policy judged so many packets.
    pub(super) fn await_judged(&self, policy: &str, packets: u64) {
        eventually("every packet is judged", || self.judged(policy) >= packets);
        assert_eq!(self.judged(policy), packets);
    }

    /// What a policy's bucket of this source holds.
    pub(super) fn tokens(&self, policy: &str, source: &str) -> u64 {
        let buckets = self.done(&format!("buckets --source {source}"));
        number(&of_policy(&buckets["buckets"], policy)["tokens"])
    }

    /// The filter's clock and the set in force, from the kernel itself.
    pub(super) fn in_force(&self) -> (Instant, Box<PolicySet>) {
        self.cable.server.run(|| {
            let filter = Filter::open(self.sandbox.root()).unwrap().unwrap();
            (filter.now().unwrap(), filter.policy_set().unwrap().unwrap())
        })
    }

    /// The filter's clock, as a number to compare with.
    pub(super) fn now_ns(&self) -> u64 {
        self.in_force().0.as_ns()
    }

    pub(super) fn assert_nothing_is_left(&self) {
        assert!(!self.sandbox.root().path().exists(), "pins are left");
    }
}

impl Outcome {
    pub(super) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The object of a run that was done.
    pub(super) fn data(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let data = self.object();
        assert_eq!(data["ok"], true, "{self:?}");
        data
    }

    /// The error of a run that ended with `code`.
    pub(super) fn error(&self, code: i32) -> Value {
        assert_eq!(self.code, Some(code), "{self:?}");
        let object = self.object();
        assert_eq!(object["ok"], false, "{self:?}");
        assert!(!self.stderr.is_empty(), "{self:?}");
        object["error"].clone()
    }

    fn object(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The entry of a policy in a list of counters or buckets.
pub(super) fn of_policy<'a>(list: &'a Value, policy: &str) -> &'a Value {
    let entries = list.as_array().unwrap();
    let is_it = |entry: &&Value| entry["name"] == policy || entry["policy"] == policy;
    entries
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {policy} in {list}"))
}

pub(super) fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Whether an error's message has these words.
pub(super) fn says(error: &Value, words: &str) -> bool {
    error["message"].as_str().unwrap().contains(words)
}

/// Sources that a test's filter has room for.
pub(super) const MAX_SOURCES: &str = "1000";

const LIMITCTL: &str = env!("CARGO_BIN_EXE_limitctl");
