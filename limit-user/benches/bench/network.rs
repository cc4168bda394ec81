//! Two network namespaces without a name, a cable between them, and what the receiver drops with.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::AsRawFd as _,
    process::{self, Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, which goes with the process.
pub(crate) struct Namespace(File);

impl Namespace {
    fn new() -> Result<Self> {
        thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("a network namespace needs CAP_SYS_ADMIN")?;
            File::open("/proc/thread-self/ns/net").context("open the namespace")
        })
        .join()
        .map_err(|_| anyhow!("making a namespace panicked"))?
        .map(Self)
    }

    /// Runs `work` on a thread in this namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).context("enter the namespace")?;
                work()
            });
            work.join().map_err(|_| anyhow!("a thread panicked"))?
        })
    }

    /// Runs a command with these words in this namespace.
    pub(crate) fn command(&self, program: &str, words: &str) -> Result<()> {
        self.command_with_input(program, words, "")
    }

    /// Runs a command that reads `input`.
    pub(crate) fn command_with_input(&self, program: &str, words: &str, input: &str) -> Result<()> {
        self.run(|| {
            let mut child = Command::new(program)
                .args(words.split_whitespace())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .with_context(|| format!("start {program}"))?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            let output = child.wait_with_output()?;
            ensure!(
                output.status.success(),
                "{program} {words}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            Ok(())
        })
    }

    /// Packets that this interface received.
    pub(crate) fn received(&self, name: &str) -> Result<u64> {
        self.run(|| {
            let table = fs::read_to_string("/proc/thread-self/net/dev")?;
            for line in table.lines() {
                if let Some((found, figures)) = line.split_once(':')
                    && found.trim() == name
                {
                    let packets = figures.split_whitespace().nth(1).context("a short line")?;
                    return Ok(packets.parse()?);
                }
            }
            bail!("/proc/net/dev has no {name}")
        })
    }

    /// IPv4 packets that were delivered to this host.
    pub(crate) fn delivered(&self) -> Result<u64> {
        self.run(|| {
            let table = fs::read_to_string("/proc/thread-self/net/snmp")?;
            let mut lines = table.lines().filter(|line| line.starts_with("Ip:"));
            let names = lines.next().context("no line of names")?;
            let figures = lines.next().context("no line of figures")?;
            let (_, figure) = names
                .split_whitespace()
                .zip(figures.split_whitespace())
                .find(|(name, _)| *name == "InDelivers")
                .context("no InDelivers")?;
            Ok(figure.parse()?)
        })
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }
}

/// A sender and a receiver, joined by a veth.
pub(crate) struct Cable {
    pub(crate) sender: Namespace,
    pub(crate) receiver: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Result<Self> {
        let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
        let path = sender.path();
        receiver.command(
            "ip",
            &format!("link add {RECEIVER} type veth peer name {SENDER} netns {path}"),
        )?;
        // The address that the frames are for, so that what nothing drops is delivered.
        receiver.command(
            "ip",
            &format!("link set {RECEIVER} address 02:00:00:00:00:01"),
        )?;
        receiver.command("ip", &format!("link set {RECEIVER} up"))?;
        receiver.command("ip", &format!("addr add 192.0.2.1/24 dev {RECEIVER}"))?;
        receiver.command("ip", &format!("route add default dev {RECEIVER}"))?;
        sender.command("ip", &format!("link set {SENDER} up"))?;
        Ok(Self { sender, receiver })
    }
}

/// The receiver's end.
pub(crate) const RECEIVER: &str = "receiver0";
/// The sender's end.
pub(crate) const SENDER: &str = "sender0";
