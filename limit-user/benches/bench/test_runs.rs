//! Nanoseconds of one run of the program, by `BPF_PROG_TEST_RUN`.
//!
//! Each case runs beside an empty program in every round, and is checked to do what its name says.
//! The kernel tells whole nanoseconds, rounded down, so that a ratio errs upwards, by 3% at most
//! where an empty program takes 30.

mod cases;

use anyhow::Result;

use crate::{
    Effort,
    assembly::{PASS, answer},
    statistics::Summary,
};

/// One case, measured.
#[derive(Debug, serde::Serialize)]
pub(crate) struct TestRun {
    pub(crate) case: &'static str,
    /// Nanoseconds of one run.
    pub(crate) nanoseconds: f64,
    /// In runs of the empty program.
    pub(crate) ratio: Summary,
}

/// Measures every case; the first is the empty program itself.
pub(crate) fn measure(effort: Effort) -> Result<Vec<TestRun>> {
    let empty = answer(PASS)?;
    let mut cases = cases::all()?;
    for case in &mut cases {
        case.check()?;
    }
    let mut bases = Vec::new();
    let mut samples: Vec<Vec<(f64, f64)>> = cases.iter().map(|_| Vec::new()).collect();
    let mut frame = [0; 64];
    for _ in 0..effort.rounds {
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            let base = f64::from(empty.run(&mut frame, effort.repeat)?.nanoseconds);
            let nanoseconds = case.run(effort.repeat, base)?;
            bases.push(base);
            samples.push((nanoseconds, nanoseconds / base));
        }
    }
    let base = Summary::of(bases.iter().copied()).median;
    let mut runs = vec![TestRun {
        case: "empty program",
        nanoseconds: base,
        ratio: Summary::of(bases.iter().map(|one| one / base)),
    }];
    runs.extend(cases.iter().zip(&samples).map(|(case, samples)| TestRun {
        case: case.name,
        nanoseconds: Summary::of(samples.iter().map(|(nanoseconds, _)| *nanoseconds)).median,
        ratio: Summary::of(samples.iter().map(|(_, ratio)| *ratio)),
    }));
    Ok(runs)
}

/// What a hot source that is admitted costs, in empty programs: the dearer of the two families.
pub(crate) fn hot_ratio(runs: &[TestRun]) -> f64 {
    runs.iter()
        .filter(|run| cases::HOT.contains(&run.case))
        .map(|run| run.ratio.median)
        .fold(0.0, f64::max)
}
