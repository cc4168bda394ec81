//! `limitctl`: parses arguments, runs the command, ends with its exit code.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    limit_user::cli::main(env::args_os())
}
