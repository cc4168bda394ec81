//! Installs Debian's BPF toolchain when asked, and says what to do where nobody asked.

use std::process::Command;

use anyhow::Result;

use crate::apt::{self, Package};
use crate::machine;
use crate::steps::run;
use crate::workspace::Workspace;

/// Whether this process may install Debian packages here.
pub(super) fn is_possible() -> Result<bool> {
    Ok(machine::find_program("apt-get").is_some() && machine::is_root()?)
}

/// Installs what is missing of Debian's compiler, and a linker for it into the target folder.
pub(super) fn debian_packages(workspace: &Workspace) -> Result<()> {
    apt::install(&PACKAGES)?;
    if super::debian(workspace).is_ok() {
        return Ok(());
    }
    println!("installing bpf-linker {LINKER_VERSION}: links the kernel object and writes its BTF");
    let mut command = Command::new("/usr/bin/cargo");
    command
        .args(LINKER_ARGUMENTS)
        .arg("--root")
        .arg(workspace.tools())
        .env("LLVM_PREFIX", LLVM_PREFIX)
        .env("RUSTC", "/usr/bin/rustc");
    for name in [
        "RUSTUP_TOOLCHAIN",
        "CARGO",
        "LD_LIBRARY_PATH",
        "RUSTFLAGS",
        "CARGO_TARGET_DIR",
    ] {
        command.env_remove(name);
    }
    run(&mut command)
}

/// The commands that bring a toolchain, after the reasons why there is none.
pub(super) fn advice(reasons: &[String]) -> String {
    let cargo_install = LINKER_ARGUMENTS.join(" ");
    format!(
        "no toolchain here can build for BPF\n  {}\n\
         either, with rustup:\n  \
         rustup toolchain install nightly --component rust-src\n  \
         cargo install cargo-binstall\n  cargo binstall bpf-linker\n\
         or, on Debian as root, `cargo xtask build-ebpf --install`, which runs:\n  \
         apt-get update\n  {}\n  \
         LLVM_PREFIX={LLVM_PREFIX} RUSTC=/usr/bin/rustc /usr/bin/cargo {cargo_install}",
        reasons.join("\n  "),
        apt::by_hand(&PACKAGES),
    )
}

/// The major version of LLVM is that of Debian's rustc-web.
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// The version of bpf-linker that the committed object is linked with.
pub(super) const LINKER_VERSION: &str = "0.13.0";

const LINKER_ARGUMENTS: [&str; 8] = [
    "install",
    "bpf-linker",
    "--version",
    LINKER_VERSION,
    "--locked",
    "--no-default-features",
    "--features",
    "llvm-22",
];

const PACKAGES: [Package; 8] = [
    Package {
        name: "rustc-web",
        program: None,
        why: "the compiler that builds the kernel object",
    },
    Package {
        name: "cargo-web",
        program: None,
        why: "the cargo that matches it",
    },
    Package {
        name: "rust-web-src",
        program: None,
        why: "core is compiled for BPF from source",
    },
    Package {
        name: "llvm-22-dev",
        program: None,
        why: "bpf-linker is built against LLVM",
    },
    Package {
        name: "libpolly-22-dev",
        program: None,
        why: "LLVM's link line names it",
    },
    Package {
        name: "libzstd-dev",
        program: None,
        why: "LLVM's link line names it",
    },
    Package {
        name: "zlib1g-dev",
        program: None,
        why: "LLVM's link line names it",
    },
    Package {
        name: "gcc",
        program: Some("cc"),
        why: "links the build programs of the crates",
    },
];
