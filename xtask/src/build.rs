//! `build-ebpf`: the one recipe that turns limit-ebpf into the kernel object.
//!
//! Invariant: with equal tools and equal sources the bytes are equal, whatever folder, user or
//! configuration they are built in.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

use crate::record::{self, Record};
use crate::steps::run as run_command;
use crate::toolchain::{self, Toolchain};
use crate::workspace::Workspace;
use crate::{elf, machine};

/// Options of `build-ebpf`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install the tools that are missing (Debian, as root).
    #[arg(long)]
    install: bool,
    /// Fail unless the committed object has the same bytes.
    #[arg(long)]
    check: bool,
    /// Make the result the committed object and write its record.
    #[arg(long, conflicts_with = "check")]
    update: bool,
}

/// What was built, and with what.
#[derive(Debug)]
pub(crate) struct Built {
    bytes: Vec<u8>,
    toolchain: Toolchain,
}

/// Builds the object into the target folder; with `--update`, into version control as well.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let built = build(workspace, find_toolchain(workspace, args.install)?)?;
    if args.check {
        built.compare(workspace)?;
        println!("the committed object has the same bytes");
    }
    if args.update {
        let record = Record {
            sources: record::sources(workspace)?,
            object: record::sha256(&built.bytes),
            bytes: built.bytes.len(),
            tools: built.toolchain.versions,
        };
        let object = workspace.committed_object();
        write(&object, &built.bytes)?;
        record.write(&workspace.record())?;
        println!("wrote {} and its record", object.display());
    }
    Ok(())
}

/// Finds the toolchain to build with.
pub(crate) fn find_toolchain(workspace: &Workspace, install: bool) -> Result<Toolchain> {
    let recorded = Record::read(&workspace.record())?.map(|record| record.tools);
    toolchain::find(workspace, recorded.as_ref(), install)
}

/// Builds the object into the target folder.
pub(crate) fn build(workspace: &Workspace, toolchain: Toolchain) -> Result<Built> {
    println!("building with {}: {}", toolchain.name, toolchain.versions);

    let mut fetch = command(workspace, &toolchain);
    run_command(fetch.args(["fetch", "--locked", "--quiet"]))?;
    let mut build = command(workspace, &toolchain);
    build.args(ARGUMENTS);
    for setting in PROFILE {
        build.args(["--config", &format!("profile.release.{setting}")]);
    }
    build.arg("--target-dir").arg(workspace.bpf_target());
    run_command(build.env("CARGO_ENCODED_RUSTFLAGS", flags(workspace, &toolchain)?))?;

    let linked = workspace.bpf_target().join(LINKED);
    let bytes = fs::read(&linked).with_context(|| format!("read {}", linked.display()))?;
    let bytes = elf::without_debug_sections(&bytes).context("strip the kernel object")?;
    let object = workspace.built_object();
    write(&object, &bytes)?;
    println!(
        "{}: {} bytes, sha256 {}",
        object.display(),
        bytes.len(),
        record::sha256(&bytes)
    );
    Ok(Built { bytes, toolchain })
}

impl Built {
    /// Whether the tools are those that the committed object was built with.
    pub(crate) fn has_tools_of(&self, record: &Record) -> bool {
        self.toolchain.versions == record.tools
    }

    /// Compares the result with the committed object.
    ///
    /// # Errors
    ///
    /// The bytes differ, or there is no committed object; the error says whether the tools differ.
    pub(crate) fn compare(&self, workspace: &Workspace) -> Result<()> {
        let path = workspace.committed_object();
        let committed = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        if committed == self.bytes {
            return Ok(());
        }
        match Record::read(&workspace.record())? {
            Some(record) if self.has_tools_of(&record) => {
                bail!(
                    "{} differs from what its sources and its tools give",
                    path.display()
                )
            }
            Some(record) => bail!(
                "{} differs, and so do the tools: it was built with {}",
                path.display(),
                record.tools
            ),
            None => bail!("{} differs and has no record", path.display()),
        }
    }
}

/// What of the recipe changes the bytes, for the hash of the sources.
pub(crate) fn recipe() -> String {
    [ARGUMENTS.as_slice(), PROFILE.as_slice(), FLAGS.as_slice()]
        .concat()
        .join("\n")
}

/// A cargo command of that toolchain, in the workspace, free of everybody else's settings.
fn command(workspace: &Workspace, toolchain: &Toolchain) -> Command {
    let mut command = Command::new(&toolchain.cargo);
    for (name, _) in env::vars_os().filter(|(name, _)| is_tool_setting(name)) {
        command.env_remove(name);
    }
    let mut folders = vec![
        toolchain
            .linker
            .parent()
            .unwrap_or(Path::new("/"))
            .to_path_buf(),
    ];
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    if let Ok(path) = env::join_paths(folders) {
        command.env("PATH", path);
    }
    command
        .current_dir(workspace.root())
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
        // A released compiler builds `core` and takes -Z options only with this; a nightly does
        // so anyway.
        .env("RUSTC_BOOTSTRAP", "1")
        // aya-ebpf's bindings follow the host's architecture unless told; XDP has nothing of it.
        .env("AYA_BPF_TARGET_ARCH", "x86_64");
    command
}

/// The environment variables that would change what cargo or rustc do.
fn is_tool_setting(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    let kept = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR"];
    let dropped = ["CARGO", "RUST", "AYA_", "LD_LIBRARY_PATH"];
    dropped.iter().any(|prefix| name.starts_with(prefix))
        && !kept.iter().any(|prefix| name.starts_with(prefix))
}

/// The compiler's flags. File names get into BTF and panic messages, so folders of this machine are
/// named alike everywhere; the last match wins.
fn flags(workspace: &Workspace, toolchain: &Toolchain) -> Result<String> {
    let mut names = vec![
        (workspace.root().to_path_buf(), "/limit.build/workspace"),
        (workspace.bpf_target(), "/limit.build/target"),
    ];
    if let Some(home) = machine::cargo_home() {
        let indices = home.join("registry/src");
        names.push((home, "/limit.build/cargo"));
        // One folder per registry, named by the hash of its address, which a mirror changes.
        for entry in fs::read_dir(&indices).into_iter().flatten() {
            let entry = entry.with_context(|| format!("list {}", indices.display()))?;
            names.push((entry.path(), "/limit.build/registry"));
        }
    }
    for sources in &toolchain.sources {
        names.push((sources.clone(), "/limit.build/rust"));
    }
    let mut flags: Vec<_> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    for (path, name) in names {
        let path = path
            .to_str()
            .with_context(|| format!("{} is not UTF-8", path.display()))?;
        flags.push(format!("--remap-path-prefix={path}={name}"));
    }
    Ok(flags.join("\u{1f}"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

const ARGUMENTS: [&str; 8] = [
    "build",
    "--locked",
    "--release",
    "-Zbuild-std=core",
    "--target",
    "bpfel-unknown-none",
    "--package",
    "limit-ebpf",
];

/// The whole profile, so that the one of the host's programs can change without changing the object.
const PROFILE: [&str; 8] = [
    "opt-level=3",
    "codegen-units=1",
    "lto=\"thin\"",
    "debug=2",
    "strip=\"none\"",
    "incremental=false",
    "debug-assertions=false",
    "overflow-checks=false",
];

/// BTF is made of debug information, hence `debuginfo`; the third processor version has atomics
/// whose result is used.
const FLAGS: [&str; 3] = ["-Cdebuginfo=2", "-Clink-arg=--btf", "-Ctarget-cpu=v3"];

const LINKED: &str = "bpfel-unknown-none/release/limit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_settings_of_the_tools_and_keeps_those_of_the_network() {
        let names = [
            "RUSTUP_TOOLCHAIN",
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTC_WRAPPER",
        ];
        assert!(names.iter().all(|name| is_tool_setting(OsStr::new(name))));
        let names = ["CARGO_HOME", "CARGO_HTTP_PROXY", "PATH", "HOME"];
        assert!(!names.iter().any(|name| is_tool_setting(OsStr::new(name))));
    }
}
