//! A sandbox with a cable, and `limitctl` on its server's side.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::netns::{Cable, Sandbox};

/// A sandbox with a cable.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) sandbox: Sandbox,
    pub(super) cable: Cable,
}

impl Stand {
    pub(super) fn new() -> Self {
        let sandbox = Sandbox::enter();
        Self {
            sandbox,
            cable: Cable::new(),
        }
    }

    /// `limitctl` with these words, about to start.
    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = self.command_of(env!("CARGO_BIN_EXE_limitctl"));
        command.args(words.split_whitespace());
        command
    }

    /// A program in the surroundings that `limitctl` gets.
    pub(super) fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LIMIT_PIN_ROOT", self.sandbox.root().path())
            .env_remove("SSH_CONNECTION")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts a command on the server's side.
    pub(super) fn start(&self, mut command: Command) -> Child {
        self.cable.server.run(|| command.spawn().unwrap())
    }

    /// Runs `limitctl` on the server's side.
    pub(super) fn run(&self, words: &str) -> Output {
        self.start(self.command(words)).wait_with_output().unwrap()
    }

    /// Runs `limitctl` on the server's side, which is to succeed, and gives what it printed.
    pub(super) fn text(&self, words: &str) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `limitctl --json` on the server's side, which is to end with this exit code, and gives the
    /// object that it printed.
    pub(super) fn json(&self, words: &str, code: i32) -> Value {
        let output = self.run(&format!("{words} --json"));
        assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}
