//! Runs `limitctl` and looks at what came of it.

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// A place for one test: a pin root, files, and a copy of the binary that anyone may run.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file and gives its path as text.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }

    /// A run that is about to start, with the words of `line` and no stdin.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.of(Path::new(env!("CARGO_BIN_EXE_limitctl")), line)
    }

    /// The same without any privilege, whoever runs the test.
    pub(crate) fn command_as_nobody(&self, line: &str) -> Command {
        if !nix::unistd::geteuid().is_root() {
            return self.command(line);
        }
        let mut command = self.of(&self.copy(), line);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    }

    pub(crate) fn run(&self, line: &str) -> Outcome {
        Outcome::of(self.command(line).output().unwrap())
    }

    pub(crate) fn run_as_nobody(&self, line: &str) -> Outcome {
        Outcome::of(self.command_as_nobody(line).output().unwrap())
    }

    pub(crate) fn run_with_stdin(&self, line: &str, stdin: &str) -> Outcome {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        Outcome::of(child.wait_with_output().unwrap())
    }

    fn of(&self, binary: &Path, line: &str) -> Command {
        let mut command = Command::new(binary);
        command
            .args(line.split_whitespace())
            .env("LIMIT_PIN_ROOT", self.path().join("pins"))
            .env_remove("SSH_CONNECTION")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The binary where nobody can reach it: the build folder may be closed to others.
    fn copy(&self) -> PathBuf {
        let copy = self.path().join("limitctl");
        if !copy.exists() {
            // By another process: were the copy open for writing here while another test starts a
            // program, that one would hold it open and this one could not be run.
            let binary = env!("CARGO_BIN_EXE_limitctl");
            assert!(
                Command::new("cp")
                    .arg(binary)
                    .arg(&copy)
                    .status()
                    .unwrap()
                    .success()
            );
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        }
        copy
    }
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one JSON object on stdout.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The code of the failure object, after checking its shape.
    pub(crate) fn failure(&self) -> String {
        let object = self.json();
        assert_eq!(object["ok"], false, "{object}");
        let message = object["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty(), "{object}");
        if object["error"]["code"] != "usage" {
            assert!(!message.ends_with('.'), "{message}");
            assert!(self.stderr.contains(message), "{self:?}");
        }
        object["error"]["code"].as_str().unwrap().to_owned()
    }

    /// The field that the failure object blames, or nothing.
    pub(crate) fn field(&self) -> String {
        self.json()["error"]["field"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// The user and group of nobody.
const NOBODY: u32 = 65_534;
