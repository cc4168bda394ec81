//! `limitctl completions`: a script for the shell.

use clap::{Args, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::{Cli, Context};

/// Flags of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete in
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
///
/// # Errors
///
/// When stdout cannot be written to.
pub fn run(args: &CompletionsArgs, ctx: &Context) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "limitctl", &mut script);
    ctx.interrupt.finish();
    ctx.output.text(&String::from_utf8_lossy(&script))?;
    Ok(())
}
