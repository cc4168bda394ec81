//! What a packet costs: the program alone, by test runs, and the receiver's CPU, through a veth.
//!
//! Every figure is a ratio to the least that XDP can do at that place, measured in the same round,
//! since nanoseconds differ from machine to machine and from minute to minute. It needs root, and a
//! quiet machine; what it makes lives in namespaces without a name and goes with the process.

mod assembly;
mod cable;
mod filter;
#[path = "../../../limit-common/tests/support/frames.rs"]
mod frames;
mod network;
mod report;
mod statistics;
mod test_runs;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use crate::report::{Machine, Mark, Report};

/// Measures what the filter costs, as ratios to an empty program.
#[derive(Debug, Parser)]
struct Args {
    /// Fewer rounds, about 15 seconds in all.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a mark is missed.
    #[arg(long)]
    check: bool,
    /// Only the test runs, nothing through a veth.
    #[arg(long)]
    test_runs: bool,
    /// Given by cargo to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds of test runs; every round runs every case once.
    rounds: u32,
    /// Runs of a case in one round.
    repeat: u32,
    /// Rounds through the veth.
    cable_rounds: u32,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let effort = if args.quick { QUICK } else { FULL };
    pin_to_cpu(CPU)?;
    let test_runs = test_runs::measure(effort)?;
    let cable = if args.test_runs {
        None
    } else {
        Some(cable::measure(effort, CPU)?)
    };
    let marks = vec![Mark::new(
        "hot source admitted",
        test_runs::hot_ratio(&test_runs),
        HOT_MARK,
    )];
    let missed = marks.iter().any(|mark| !mark.is_reached());
    let report = Report {
        machine: Machine::here()?,
        rounds: effort.rounds,
        test_runs,
        cable,
        marks,
    };
    if args.json {
        println!("{}", report.to_json()?);
    } else {
        print!("{report}");
    }
    Ok(ExitCode::from(u8::from(args.check && missed)))
}

/// Keeps this thread, and those that it starts, on one CPU: per-CPU memory and caches stay warm.
fn pin_to_cpu(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu).context("choose a CPU")?;
    sched_setaffinity(Pid::from_raw(0), &set).context("stay on one CPU")
}

/// Most that a hot source may cost, in empty programs.
const HOT_MARK: f64 = 3.5;

const CPU: usize = 0;

const QUICK: Effort = Effort {
    rounds: 11,
    repeat: 30_000,
    cable_rounds: 3,
};

const FULL: Effort = Effort {
    rounds: 61,
    repeat: 100_000,
    cable_rounds: 9,
};
