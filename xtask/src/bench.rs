//! `bench`: measures the object that the sources give.

use anyhow::Result;

use crate::build;
use crate::steps::run as run_command;
use crate::workspace::Workspace;

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to pass on to the benchmark.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the object and runs the benchmark on it.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    build::build(workspace, build::find_toolchain(workspace, false)?)?;
    let mut command = workspace.cargo();
    command
        .args([
            "bench",
            "--locked",
            "-p",
            "limit-user",
            "--bench",
            "bench",
            "--",
        ])
        .args(&args.arguments)
        .env("LIMIT_BPF_OBJECT", workspace.built_object());
    run_command(&mut command)
}
