//! What this machine and this process can do: programs on PATH, root, capabilities, CI.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace::read_text;

/// Whether this is a CI run: `CI` is set, and not to `false` or nothing.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// The program of this name on PATH or in the folders of the system's administration.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> Result<bool> {
    let status = read_text("/proc/self/status".as_ref())?;
    let ids = field(&status, "Uid:").context("no Uid in /proc/self/status")?;
    Ok(ids.split_whitespace().nth(1) == Some("0"))
}

/// The capabilities that the privileged tests need and this process lacks.
pub(crate) fn missing_capabilities() -> Result<Vec<&'static str>> {
    let status = read_text("/proc/self/status".as_ref())?;
    let text = field(&status, "CapEff:").context("no CapEff in /proc/self/status")?;
    let effective = u64::from_str_radix(text.trim(), 16).context("read CapEff")?;
    Ok(lacking(effective))
}

/// Where cargo keeps what it downloads and installs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let chosen = env::var_os("CARGO_HOME")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    chosen.or_else(|| Some(env::home_dir()?.join(".cargo")))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn lacking(effective: u64) -> Vec<&'static str> {
    CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect()
}

/// Numbers from `linux/capability.h`.
const CAPABILITIES: [(u32, &str); 3] = [
    (12, "CAP_NET_ADMIN"),
    (21, "CAP_SYS_ADMIN"),
    (39, "CAP_BPF"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_capability_that_is_missing() {
        assert_eq!(lacking(1 << 39), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert!(lacking(u64::MAX).is_empty());
    }

    #[test]
    fn reads_a_field_of_the_status() {
        assert_eq!(field("Name:\tx\nUid:\t0\t7\n", "Uid:"), Some("\t0\t7"));
        assert_eq!(field("Name:\tx\n", "Uid:"), None);
    }
}
