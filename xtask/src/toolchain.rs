//! Finds, or installs when asked, a Rust toolchain and a linker that can build for BPF.
//!
//! Two kinds do: a rustup nightly with `rust-src`, and Debian's rustc with the sources of `core`.
//! Invariant: the tools that built the committed object go first, so that its bytes can be compared.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::steps::output;
use crate::workspace::Workspace;

mod install;

/// The exact tools: equal ones give equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Versions {
    /// What `rustc --version` says.
    pub(crate) rustc: String,
    /// The LLVM in rustc.
    pub(crate) rustc_llvm: String,
    /// The version of bpf-linker.
    pub(crate) bpf_linker: String,
    /// The LLVM that bpf-linker calls, which generates the code.
    pub(crate) bpf_linker_llvm: String,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rustc,
            rustc_llvm,
            bpf_linker,
            bpf_linker_llvm,
        } = self;
        write!(
            f,
            "{rustc}, LLVM {rustc_llvm}, bpf-linker {bpf_linker}, LLVM {bpf_linker_llvm}"
        )
    }
}

/// A toolchain that can build for BPF.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// Its name for people.
    pub(crate) name: &'static str,
    /// cargo.
    pub(crate) cargo: PathBuf,
    /// rustc.
    pub(crate) rustc: PathBuf,
    /// The sources of the Rust libraries, as rustc names them and with links resolved.
    pub(crate) sources: Vec<PathBuf>,
    /// bpf-linker.
    pub(crate) linker: PathBuf,
    /// What they are exactly.
    pub(crate) versions: Versions,
}

/// Finds a toolchain, the one that is `recorded` before all others; with `install`, installs the
/// Debian one where the recorded one, or any, is missing.
///
/// # Errors
///
/// There is none, with the commands that would change that; or installing failed.
pub(crate) fn find(
    workspace: &Workspace,
    recorded: Option<&Versions>,
    install: bool,
) -> Result<Toolchain> {
    let found = choose(candidates(workspace), recorded);
    if matches!(found, Ok((_, true))) || !install || !install::is_possible()? {
        return take(found);
    }
    let installed = install::debian_packages(workspace);
    match (choose(candidates(workspace), recorded), installed) {
        (Err(_), Err(error)) => Err(error),
        (found, Ok(())) => take(found),
        (found, Err(error)) => {
            eprintln!("warning: the recorded toolchain could not be installed: {error:#}");
            take(found)
        }
    }
}

fn take(found: Choice) -> Result<Toolchain> {
    match found {
        Ok((toolchain, _)) => Ok(toolchain),
        Err(reasons) => bail!("{}", install::advice(&reasons)),
    }
}

/// A toolchain and whether no other could be better; or why there is none.
type Choice = std::result::Result<(Toolchain, bool), Vec<String>>;

/// Takes the recorded toolchain or else the first.
fn choose(candidates: [Result<Toolchain>; 2], recorded: Option<&Versions>) -> Choice {
    let mut found = Vec::new();
    let mut reasons = Vec::new();
    for candidate in candidates {
        match candidate {
            Ok(toolchain) => found.push(toolchain),
            Err(error) => reasons.push(format!("{error:#}")),
        }
    }
    let exact = found
        .iter()
        .position(|toolchain| Some(&toolchain.versions) == recorded);
    let best = exact.is_some() || recorded.is_none() || reasons.is_empty();
    if found.is_empty() {
        return Err(reasons);
    }
    Ok((found.swap_remove(exact.unwrap_or(0)), best))
}

fn candidates(workspace: &Workspace) -> [Result<Toolchain>; 2] {
    [
        rustup(workspace).context("rustup nightly"),
        debian(workspace).context("Debian packages"),
    ]
}

fn rustup(workspace: &Workspace) -> Result<Toolchain> {
    let rustup = machine::find_program("rustup").context("rustup not found")?;
    let mut command = Command::new(rustup);
    for name in ["RUSTUP_TOOLCHAIN", "RUSTC", "CARGO"] {
        command.env_remove(name);
    }
    command.args(["run", "nightly", "rustc", "--print", "sysroot"]);
    let sysroot = PathBuf::from(output(&mut command).context("no nightly toolchain")?);
    let linker = linkers(workspace)
        .into_iter()
        .next()
        .context("bpf-linker not found")?;
    Toolchain::new(
        "rustup nightly",
        &sysroot,
        &sysroot.join("lib/rustlib/src/rust"),
        linker,
    )
}

fn debian(workspace: &Workspace) -> Result<Toolchain> {
    let sysroot = Path::new("/usr");
    let linker = linkers(workspace)
        .into_iter()
        .find(|linker| {
            linker_version(linker).is_ok_and(|version| version == install::LINKER_VERSION)
        })
        .with_context(|| format!("bpf-linker {} not found", install::LINKER_VERSION))?;
    Toolchain::new(
        "Debian packages",
        sysroot,
        &sysroot.join("lib/rustlib/src/rust"),
        linker,
    )
}

impl Toolchain {
    fn new(name: &'static str, sysroot: &Path, sources: &Path, linker: PathBuf) -> Result<Self> {
        let (cargo, rustc) = (sysroot.join("bin/cargo"), sysroot.join("bin/rustc"));
        for program in [&cargo, &rustc] {
            if !program.is_file() {
                bail!("{} not found", program.display());
            }
        }
        if !sources.join("library/core/Cargo.toml").is_file() {
            bail!("no sources of core under {}", sources.display());
        }
        let resolved = sources
            .join("library")
            .canonicalize()
            .with_context(|| format!("resolve {}", sources.display()))?;
        let mut folders = vec![sources.to_path_buf()];
        folders.extend(resolved.parent().map(Path::to_path_buf));
        folders.dedup();
        let versions = versions(&rustc, &linker)?;
        if !reads_bitcode(&versions) {
            let Versions {
                rustc_llvm,
                bpf_linker_llvm,
                ..
            } = &versions;
            bail!("rustc has LLVM {rustc_llvm}, bpf-linker the older {bpf_linker_llvm}");
        }
        Ok(Self {
            name,
            cargo,
            rustc,
            sources: folders,
            linker,
            versions,
        })
    }
}

fn versions(rustc: &Path, linker: &Path) -> Result<Versions> {
    let text = output(Command::new(rustc).env_remove("LD_LIBRARY_PATH").arg("-vV"))?;
    let llvm = text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "));
    Ok(Versions {
        rustc: text.lines().next().unwrap_or_default().to_owned(),
        rustc_llvm: llvm
            .context("rustc does not say its LLVM version")?
            .to_owned(),
        bpf_linker: linker_version(linker)?,
        bpf_linker_llvm: linker_llvm(linker)?,
    })
}

/// LLVM reads bitcode of its own and of older major versions. A linker that holds its LLVM inside
/// does not say which it is, so it gets its chance.
fn reads_bitcode(versions: &Versions) -> bool {
    let major = |version: &str| {
        version
            .split('.')
            .next()
            .and_then(|text| text.parse::<u32>().ok())
    };
    match (
        major(&versions.rustc_llvm),
        major(&versions.bpf_linker_llvm),
    ) {
        (Some(compiler), Some(linker)) => compiler <= linker,
        (_, None) | (None, _) => true,
    }
}

/// Every bpf-linker: on PATH, where cargo installs, where `--install` puts it.
fn linkers(workspace: &Workspace) -> Vec<PathBuf> {
    let mut linkers: Vec<_> = machine::find_program("bpf-linker").into_iter().collect();
    linkers.extend(machine::cargo_home().map(|home| home.join("bin/bpf-linker")));
    linkers.push(workspace.tools().join("bin/bpf-linker"));
    linkers.retain(|linker| linker.is_file());
    linkers.dedup();
    linkers
}

fn linker_version(linker: &Path) -> Result<String> {
    let text = output(
        Command::new(linker)
            .env_remove("LD_LIBRARY_PATH")
            .arg("--version"),
    )?;
    Ok(text.trim_start_matches("bpf-linker").trim().to_owned())
}

/// The version of the shared LLVM that the linker loads, or `static`.
fn linker_llvm(linker: &Path) -> Result<String> {
    let libraries = output(
        Command::new("ldd")
            .env_remove("LD_LIBRARY_PATH")
            .arg(linker),
    );
    let Some(library) = libraries.ok().as_deref().and_then(llvm_library) else {
        return Ok("static".to_owned());
    };
    let prefix = library.ancestors().nth(2).unwrap_or(Path::new("/usr"));
    output(Command::new(prefix.join("bin/llvm-config")).arg("--version"))
        .with_context(|| format!("read the version of {}", library.display()))
}

/// `libLLVM.so.22.1 => /usr/lib/llvm-22/lib/libLLVM.so.22.1 (0x…)`
fn llvm_library(ldd: &str) -> Option<PathBuf> {
    let line = ldd
        .lines()
        .find(|line| line.trim_start().starts_with("libLLVM"))?;
    let path = line.split("=>").nth(1)?.split_whitespace().next()?;
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_toolchain_goes_first() {
        let recorded = versions("b");
        let (chosen, best) =
            choose([Ok(toolchain("a")), Ok(toolchain("b"))], Some(&recorded)).unwrap();
        assert_eq!((chosen.versions, best), (recorded, true));
    }

    #[test]
    fn without_a_record_the_first_is_as_good_as_any() {
        let (chosen, best) = choose([Ok(toolchain("a")), Ok(toolchain("b"))], None).unwrap();
        assert_eq!((chosen.versions, best), (versions("a"), true));
    }

    #[test]
    fn another_than_the_recorded_one_may_be_bettered_while_one_is_missing() {
        let missing = || Err(anyhow::anyhow!("not there"));
        let (_, best) = choose([Ok(toolchain("a")), missing()], Some(&versions("b"))).unwrap();
        assert!(!best);
        assert_eq!(choose([missing(), missing()], None).unwrap_err().len(), 2);
    }

    #[test]
    fn an_older_llvm_does_not_read_newer_bitcode() {
        let pair = |rustc: &str, linker: &str| Versions {
            rustc_llvm: rustc.to_owned(),
            bpf_linker_llvm: linker.to_owned(),
            ..versions("a")
        };
        assert!(reads_bitcode(&pair("22.1.8", "22.1.2")));
        assert!(reads_bitcode(&pair("22.1.8", "23.1.0")));
        assert!(reads_bitcode(&pair("22.1.8", "static")));
        assert!(!reads_bitcode(&pair("23.1.0", "22.1.8")));
    }

    #[test]
    fn finds_the_llvm_that_a_linker_loads() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibLLVM.so.22.1 => /a/lib/libLLVM.so.22.1 (0x2)\n";
        assert_eq!(
            llvm_library(text),
            Some(PathBuf::from("/a/lib/libLLVM.so.22.1"))
        );
        assert_eq!(llvm_library("\tlibc.so.6 => /lib/libc.so.6 (0x3)\n"), None);
    }

    fn toolchain(name: &str) -> Toolchain {
        Toolchain {
            name: "test",
            cargo: PathBuf::new(),
            rustc: PathBuf::new(),
            sources: Vec::new(),
            linker: PathBuf::new(),
            versions: versions(name),
        }
    }

    fn versions(name: &str) -> Versions {
        Versions {
            rustc: name.to_owned(),
            rustc_llvm: "22.1.8".to_owned(),
            bpf_linker: "0.13.0".to_owned(),
            bpf_linker_llvm: "22.1.8".to_owned(),
        }
    }
}
