//! Installs Debian packages, and only when asked: says which and why before it does.

use std::process::Command;

use anyhow::{Result, bail};

use crate::machine;
use crate::steps::{output, run, shown};

/// A Debian package and the reason that it is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: &'static str,
    /// The program that it is needed for, which another package may bring as well.
    pub(crate) program: Option<&'static str>,
    /// What needs it.
    pub(crate) why: &'static str,
}

impl Package {
    fn is_missing(&self) -> bool {
        match self.program {
            Some(program) => machine::find_program(program).is_none(),
            None => !is_installed(self.name),
        }
    }
}

/// The packages that this machine lacks.
pub(crate) fn missing(packages: &[Package]) -> Vec<Package> {
    packages
        .iter()
        .copied()
        .filter(Package::is_missing)
        .collect()
}

/// The command that installs `packages` by hand.
pub(crate) fn by_hand(packages: &[Package]) -> String {
    shown(&install_command(packages))
}

/// Installs what is missing of `packages`; touches nothing if nothing is.
///
/// # Errors
///
/// No root, no apt-get, or apt-get failed.
pub(crate) fn install(packages: &[Package]) -> Result<()> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    if machine::find_program("apt-get").is_none() {
        let names: Vec<_> = missing.iter().map(|package| package.name).collect();
        bail!(
            "apt-get not found; install what these Debian packages hold: {}",
            names.join(" ")
        );
    }
    if !machine::is_root()? {
        bail!("installing needs root; as root: {}", by_hand(&missing));
    }
    for package in &missing {
        println!("installing {}: {}", package.name, package.why);
    }
    run(Command::new("apt-get").args(["update", "-q"]))?;
    run(install_command(&missing).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn install_command(packages: &[Package]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args([
            "install",
            "-y",
            "-q",
            "--no-install-recommends",
            "--no-remove",
        ])
        .args(packages.iter().map(|package| package.name));
    command
}

fn is_installed(name: &str) -> bool {
    output(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Abbrev}", name]))
        .is_ok_and(|status| status.starts_with("ii"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: Package = Package {
        name: "no-such-package",
        program: Some("no-such-program"),
        why: "a test",
    };
    const PRESENT: Package = Package {
        name: "coreutils",
        program: Some("ls"),
        why: "a test",
    };

    #[test]
    fn only_what_is_absent_is_missing() {
        let missing = missing(&[PRESENT, ABSENT]);
        assert_eq!(
            missing
                .iter()
                .map(|package| package.name)
                .collect::<Vec<_>>(),
            [ABSENT.name]
        );
    }

    #[test]
    fn nothing_is_done_when_nothing_is_missing() {
        assert!(install(&[PRESENT]).is_ok());
    }

    #[test]
    fn the_command_by_hand_names_every_package() {
        assert!(by_hand(&[PRESENT, ABSENT]).ends_with(" coreutils no-such-package"));
    }
}
