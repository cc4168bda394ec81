//! `limitctl demo`: what it shows holds, and nothing of it stays, however it ends.

use std::{
    collections::HashSet,
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use aya::maps::loaded_maps;
use limit_user::kernel::Interface;
use nix::{
    mount::{MsFlags, mount, umount},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::netns::{Namespace, Sandbox, eventually};

#[test]
#[ignore = "needs CAP_BPF"]
fn shows_that_every_source_gets_what_is_configured() {
    let host = Host::new();
    let output = host.demo(&["--json", "--seconds", "2"]).output().unwrap();
    let shown = json(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert_eq!(shown["ok"], true, "{shown}");
    for check in shown["checks"].as_array().unwrap() {
        assert_eq!(check["ok"], true, "{check}");
    }
    let parts = shown["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    for (part, is_exact) in parts.iter().zip([true, false]) {
        let capacity = number(&part["capacity"]);
        for source in part["sources"].as_array().unwrap() {
            let [sent, delivered, refused, least, most] =
                ["sent", "delivered", "refused", "least", "most"].map(|name| number(&source[name]));
            assert!((least..=most).contains(&delivered), "{source}");
            assert_eq!(delivered + refused, sent, "{source}");
            if is_exact {
                assert_eq!(delivered, sent.min(capacity), "{source}");
            }
        }
    }
    host.assert_nothing_left();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn leaves_nothing_when_it_is_killed_at_any_point() {
    let host = Host::new();
    for line in ["Two", "1.", "2."] {
        let mut running = host.start(&[], line);
        let maps = running.maps();
        assert!(!maps.is_empty(), "{line}: no map of the filter is open");
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        eventually("the filter's maps are gone", || {
            maps.is_disjoint(&all_maps())
        });
        host.assert_nothing_left();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn ends_with_eight_on_a_signal_and_leaves_nothing() {
    let host = Host::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut running = host.start(&["--seconds", "60"], "2.");
        let maps = running.maps();
        let id = Pid::from_raw(running.child.id().try_into().unwrap());
        kill(id, signal).unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(8), "{signal}");
        eventually("the filter's maps are gone", || {
            maps.is_disjoint(&all_maps())
        });
        host.assert_nothing_left();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn ends_with_seven_when_the_timeout_passes() {
    let host = Host::new();
    let words = ["--seconds", "60", "--timeout", "1s", "--json"];
    let output = host.demo(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(json(&output)["error"]["code"], "timeout");
    host.assert_nothing_left();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_cap_sys_admin_when_it_is_missing() {
    let host = Host::new();
    let mut command = Command::new("setpriv");
    command
        .arg("--bounding-set=-all,+bpf,+net_admin,+perfmon")
        .args(["--inh-caps=-all", LIMITCTL, "demo", "--json"]);
    let output = host.namespace.run(|| command.output().unwrap());
    let shown = json(&output);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert_eq!(shown["error"]["code"], "missing-capability");
    let message = shown["error"]["message"].as_str().unwrap();
    assert!(message.contains("CAP_SYS_ADMIN"), "{message}");
}

/// A host without bpffs whose mounts are shared with every namespace made from it, as on most.
struct Host {
    sandbox: Sandbox,
    namespace: Namespace,
    before: Traces,
}

/// What a process could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    mounts: String,
    folders: Vec<String>,
    interfaces: Vec<String>,
}

impl Host {
    fn new() -> Self {
        let sandbox = Sandbox::enter();
        // The sandbox's own, then whatever was there.
        umount(BPFFS).unwrap();
        while umount(BPFFS).is_ok() {}
        let shared = MsFlags::MS_REC | MsFlags::MS_SHARED;
        mount(None::<&str>, "/", None::<&str>, shared, None::<&str>).unwrap();
        let namespace = Namespace::new();
        let before = Traces::here(&namespace);
        Self {
            sandbox,
            namespace,
            before,
        }
    }

    fn demo(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.namespace.path()))
            .args([LIMITCTL, "demo"])
            .args(words)
            .env("LIMIT_PIN_ROOT", self.sandbox.root().path())
            .stdin(Stdio::null());
        command
    }

    /// Starts the demo and waits for a line that begins so.
    fn start(&self, words: &[&str], line: &str) -> Running {
        let mut command = self.demo(words);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        while !shown.starts_with(line) {
            shown.clear();
            let length = stdout.read_line(&mut shown).unwrap();
            assert!(length > 0, "it ended before {line}");
        }
        Running {
            child,
            _stdout: stdout,
        }
    }

    fn assert_nothing_left(&self) {
        assert_eq!(Traces::here(&self.namespace), self.before);
    }
}

impl Traces {
    fn here(namespace: &Namespace) -> Self {
        let names = |folder: &str| {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().path().display().to_string())
                .collect();
            names.sort();
            names
        };
        Self {
            mounts: fs::read_to_string("/proc/thread-self/mountinfo").unwrap(),
            folders: ["/sys/fs/bpf", "/mnt"]
                .into_iter()
                .flat_map(names)
                .collect(),
            interfaces: namespace
                .run(|| Interface::all().unwrap())
                .into_iter()
                .map(|interface| interface.name)
                .collect(),
        }
    }
}

/// A demo that is under way, its output open.
struct Running {
    child: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Ids of the maps that it has open; the attached program has them too, and the kernel gives no id
    /// twice.
    fn maps(&self) -> HashSet<u32> {
        let folder = format!("/proc/{}/fdinfo", self.child.id());
        let files = fs::read_dir(folder).unwrap();
        // A descriptor may be closed meanwhile.
        let texts = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        texts
            .flat_map(|text| {
                let lines = text.lines();
                let ids = lines.filter_map(|line| line.strip_prefix("map_id:"));
                ids.map(|id| id.trim().parse().unwrap())
                    .collect::<Vec<u32>>()
            })
            .collect()
    }
}

fn all_maps() -> HashSet<u32> {
    // A map may go between the look at its id and the look at it.
    let maps = loaded_maps().filter_map(Result::ok);
    maps.map(|map| map.id()).collect()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

const LIMITCTL: &str = env!("CARGO_BIN_EXE_limitctl");
const BPFFS: &str = "/sys/fs/bpf";
