//! The results, for people and as JSON.

use std::{fmt, fs};

use anyhow::{Context as _, Result};
use limit_user::kernel::probe;
use serde::Serialize;

use crate::{cable::Dropping, statistics::Summary, test_runs::TestRun};

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Rounds of the test runs.
    pub(crate) rounds: u32,
    pub(crate) test_runs: Vec<TestRun>,
    /// `None` if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cable: Option<Vec<Dropping>>,
    pub(crate) marks: Vec<Mark>,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cpus: usize,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Result<Self> {
        let table = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
        let values = |wanted: &'static str| {
            table
                .lines()
                .filter_map(|line| line.split_once(':'))
                .filter(move |(name, _)| name.trim() == wanted)
                .map(|(_, value)| value.trim().to_owned())
        };
        // Virtual machines often hide the name, not the numbers.
        let cpu = ["model name", "cpu family", "model"]
            .iter()
            .filter_map(|name| values(name).next().map(|value| format!("{name} {value}")))
            .collect::<Vec<_>>()
            .join(", ");
        Ok(Self {
            kernel: probe::kernel_release()?,
            cpu,
            cpus: values("processor").count(),
        })
    }
}

/// A ratio that is not to be passed.
#[derive(Debug, Serialize)]
pub(crate) struct Mark {
    case: &'static str,
    ratio: f64,
    most: f64,
    reached: bool,
}

impl Mark {
    pub(crate) fn new(case: &'static str, ratio: f64, most: f64) -> Self {
        Self {
            case,
            ratio,
            most,
            reached: ratio <= most,
        }
    }

    pub(crate) const fn is_reached(&self) -> bool {
        self.reached
    }
}

impl Report {
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { kernel, cpu, cpus } = &self.machine;
        writeln!(f, "Linux {kernel}, {cpus} CPUs: {cpu}\n")?;
        writeln!(
            f,
            "one run of the program, beside an empty one in each of {} rounds",
            self.rounds
        )?;
        heading(f)?;
        for run in &self.test_runs {
            line(f, run.case, run.nanoseconds, run.ratio)?;
        }
        if let Some(cable) = &self.cable {
            writeln!(f, "\nreceiver's CPU for one packet dropped, through a veth")?;
            heading(f)?;
            for way in cable {
                match (&way.cost, &way.problem) {
                    (Some(cost), _) => line(f, way.case, cost.nanoseconds, cost.ratio)?,
                    (None, Some(problem)) => {
                        writeln!(f, "  {:<50} NOT measured: {problem}", way.case)?;
                    }
                    (None, None) => writeln!(f, "  {:<50} NOT measured", way.case)?,
                }
            }
        }
        writeln!(f)?;
        for mark in &self.marks {
            let reached = if mark.reached {
                "reached"
            } else {
                "NOT reached"
            };
            writeln!(
                f,
                "{} <= {}x empty: {reached} ({:.2}x)",
                mark.case, mark.most, mark.ratio
            )?;
        }
        Ok(())
    }
}

fn heading(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "  {:<50} {:>6} {:>8}  p10 - p90", "", "ns", "x empty")
}

fn line(f: &mut fmt::Formatter<'_>, case: &str, nanoseconds: f64, ratio: Summary) -> fmt::Result {
    writeln!(
        f,
        "  {case:<50} {nanoseconds:>6.0} {:>8.2}  {:.2} - {:.2}",
        ratio.median, ratio.p10, ratio.p90
    )
}
