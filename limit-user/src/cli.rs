//! The command line: `main` -> [`Cli`] -> one file per command -> exit code.
//!
//! A command gets its flags and a [`Context`], prints its result through [`output`], and returns an
//! error that [`Report`] turns into an exit code, a line for people, and an object for machines.

use core::time::Duration;
use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::{self, ExitCode},
    sync::mpsc,
    thread,
};

use clap::{ArgAction, Args, Parser, Subcommand, error::ErrorKind};
use tracing::Level;

use crate::{
    config::{
        ConfigError,
        text::{self, TextError},
    },
    error::{Exit, Report},
    interrupt::{Interrupt, Stage, Stopped},
    kernel::PinRoot,
};

pub mod attach;
pub mod buckets;
#[cfg(feature = "completions")]
pub mod completions;
pub mod context;
pub mod counters;
pub mod demo;
pub mod detach;
pub mod doctor;
pub mod list;
pub mod output;
pub mod policy;
pub mod set;
pub mod show;
pub mod ssh;
pub mod version;

pub use context::Context;
use output::Output;

/// Limits new connections, packets or bytes per source address in XDP, before the network stack.
#[derive(Debug, Parser)]
#[command(name = "limitctl", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Print the result, or the failure, as one JSON object on stdout [default: text]
    #[arg(long, global = true)]
    json: bool,

    /// Give up after this long with exit code 7, as 500ms, 1s, 5m, 1h or 1d [default: never]
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        allow_hyphen_values = true
    )]
    timeout: Option<String>,

    /// Folder on bpffs that holds the filters, one for each network namespace
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        env = "LIMIT_PIN_ROOT",
        default_value = PinRoot::DEFAULT
    )]
    pin_root: PathBuf,

    /// Log more to stderr; twice for details [default: warnings]
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Attach the filter to interfaces; without policy flags or a file it only monitors
    Attach(attach::AttachArgs),
    /// Detach interfaces; the last one removes the filter
    Detach(detach::DetachArgs),
    /// Change the numbers of a policy, or whether it enforces, at run time; what is not given stays
    Set(set::SetArgs),
    /// Show what is in force, read back from the kernel
    Show(show::ShowArgs),
    /// Show what was decided and done
    Counters(counters::CountersArgs),
    /// Show the buckets of sources
    Buckets(buckets::BucketsArgs),
    /// Sources that are let through unexamined
    Allow(list::ListArgs),
    /// Sources that are blocked
    Deny(list::ListArgs),
    /// Check what this host offers the filter
    Doctor(doctor::DoctorArgs),
    /// Show the filter at work in namespaces of its own, and leave nothing behind
    Demo(demo::DemoArgs),
    /// Show the version
    Version,
    /// Print a completion script
    #[cfg(feature = "completions")]
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Whether a signal is how a person ends it.
    const fn ends_by_signal(&self) -> bool {
        matches!(self, Self::Counters(args) if args.is_watch())
    }
}

/// Runs the command line `args` and says what the process ends with.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let exit = match Cli::try_parse_from(&args) {
        Ok(cli) => run(cli),
        Err(error) => refuse(&error, wants_json(&args)),
    };
    ExitCode::from(exit.code())
}

fn run(cli: Cli) -> Exit {
    let output = Output::new(cli.global.json);
    log_to_stderr(cli.global.verbose);
    match execute(cli, output) {
        Ok(exit) => exit,
        Err(error) if is_closed_pipe(&error) => Exit::Done,
        Err(error) => {
            let report = Report::new(&error);
            output.failure(&report);
            report.exit
        }
    }
}

fn execute(cli: Cli, output: Output) -> anyhow::Result<Exit> {
    let Cli { global, command } = cli;
    let timeout_ns = global.timeout.as_deref().map(timeout_ns).transpose()?;
    let by_signal = command.ends_by_signal();
    let interrupt = Interrupt::watch(timeout_ns, move |stopped, stage| {
        let exit = match stopped {
            Stopped::Signal(_) if by_signal => Exit::Done,
            Stopped::Signal(_) | Stopped::Timeout { .. } => stopped.exit(),
        };
        if stage == Stage::Working && exit != Exit::Done {
            print_or_give_up(output, stopped);
        }
        process::exit(i32::from(exit.code()));
    })?;
    let ctx = Context::new(output, PinRoot::new(global.pin_root), interrupt);
    let outcome = dispatch(command, &ctx);
    ctx.interrupt.finish();
    outcome
}

fn dispatch(command: Command, ctx: &Context) -> anyhow::Result<Exit> {
    match command {
        Command::Attach(args) => attach::run(&args, ctx)?,
        Command::Detach(args) => detach::run(&args, ctx)?,
        Command::Set(args) => set::run(&args, ctx)?,
        Command::Show(args) => show::run(&args, ctx)?,
        Command::Counters(args) => counters::run(&args, ctx)?,
        Command::Buckets(args) => buckets::run(&args, ctx)?,
        Command::Allow(args) => list::run(&args, crate::kernel::List::Allow, ctx)?,
        Command::Deny(args) => list::run(&args, crate::kernel::List::Deny, ctx)?,
        Command::Doctor(args) => return doctor::run(&args, ctx),
        Command::Demo(args) => return demo::run(&args, ctx),
        Command::Version => version::run(ctx)?,
        #[cfg(feature = "completions")]
        Command::Completions(args) => completions::run(&args, ctx)?,
    }
    Ok(Exit::Done)
}

/// What clap refused, or the help that was asked for.
fn refuse(error: &clap::Error, json: bool) -> Exit {
    // Without a terminal there is nobody to tell.
    error.print().ok();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Done,
        _ => {
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let message = first.split_whitespace().collect::<Vec<_>>().join(" ");
            let report = Report {
                exit: Exit::Failed,
                code: "usage".to_owned(),
                message: message.trim_start_matches("error: ").to_owned(),
                field: None,
            };
            Output::new(json).failure_object(&report);
            report.exit
        }
    }
}

/// Whether `--json` was typed, for a command line that could not be parsed.
fn wants_json(args: &[OsString]) -> bool {
    args.iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--json")
}

fn timeout_ns(text: &str) -> Result<u64, ConfigError> {
    let (subject, field, value) = (String::new(), "timeout", text.to_owned());
    match text::duration_ns(text.strip_prefix('-').unwrap_or(text)) {
        Ok(ns) if ns > 0 && !text.starts_with('-') => Ok(ns),
        Ok(_) | Err(TextError::TooLarge) => Err(ConfigError::OutOfRange {
            subject,
            field,
            value,
            range: "1ms..=200000d".to_owned(),
        }),
        Err(TextError::Malformed) => Err(ConfigError::Malformed {
            subject,
            field,
            value,
            expected: "a duration such as 500ms, 1s, 5m, 1h or 1d",
        }),
    }
}

/// Prints a failure from beside the main thread, which may sit on the output with a full pipe.
fn print_or_give_up(output: Output, stopped: Stopped) {
    let (done, waited) = mpsc::sync_channel(1);
    thread::spawn(move || {
        output.failure(&Report::from(&stopped));
        done.send(()).ok();
    });
    waited.recv_timeout(Duration::from_secs(1)).ok();
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        2 => Level::DEBUG,
        _ => Level::TRACE,
    };
    // A second start in one process, as in tests, keeps the first.
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_target(false)
        .without_time()
        .try_init()
        .ok();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn declares_a_command_line_without_contradictions() {
        Cli::command().debug_assert();
    }

    #[test]
    fn states_a_default_or_a_unit_for_every_policy_flag() {
        let command = Cli::command();
        let attach = command.find_subcommand("attach").unwrap();
        for flag in attach
            .get_arguments()
            .filter(|arg| arg.get_help_heading() == Some("Policy"))
        {
            let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
            let states = help.contains("[default") || help.contains("[new policy");
            assert!(states, "--{}: {help}", flag.get_id());
        }
    }

    #[test]
    fn takes_a_timeout_in_range_only() {
        assert_eq!(timeout_ns("500ms").unwrap(), 500_000_000);
        assert_eq!(timeout_ns("0s").unwrap_err().exit(), Exit::Invalid);
        assert_eq!(timeout_ns("-1s").unwrap_err().exit(), Exit::Invalid);
        assert_eq!(timeout_ns("soon").unwrap_err().exit(), Exit::Failed);
    }

    #[test]
    fn looks_for_json_before_the_end_of_flags_only() {
        let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&args("limitctl counters --json")));
        assert!(!wants_json(&args("limitctl deny add -- --json")));
    }
}
