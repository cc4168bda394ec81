//! Builds, checks, tests and measures limit: `cargo xtask <command>`, one file per command.
//!
//! Invariants: depends on no crate of the workspace; runs no `unsafe`; installs nothing unless
//! `--install` is given.

#![forbid(unsafe_code)]

mod apt;
mod bench;
mod build;
mod ceilings;
mod check;
mod elf;
mod machine;
mod record;
mod steps;
mod test;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Builds, checks, tests and measures limit.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Builds the kernel object from source.
    BuildEbpf(build::Args),
    /// Checks formatting, lints, documentation, unprivileged tests, house rules and the object's record.
    Check,
    /// Runs `check`, builds the kernel object and runs the tests that need root.
    Test(test::Args),
    /// Measures the kernel program (needs root and a quiet machine).
    Bench(bench::Args),
    /// Checks the house rules that no other tool knows.
    Tidy,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = Workspace::find().and_then(|workspace| match cli.command {
        Command::BuildEbpf(args) => build::run(&workspace, &args),
        Command::Check => check::run(&workspace),
        Command::Test(args) => test::run(&workspace, &args),
        Command::Bench(args) => bench::run(&workspace, &args),
        Command::Tidy => tidy::run(&workspace),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
