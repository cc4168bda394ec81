//! Runs the steps of a command one after the other: all of them, timed, with a summary at the end.
//!
//! Invariant: the last lines name what failed and what did not run, and why.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::machine;

/// What ran, for how long, and what did not.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, bool)>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug)]
struct LeftOut {
    what: String,
    why: String,
    excused: bool,
}

impl Steps {
    /// Runs one step; a failure is printed and counted, and the next step still runs.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> bool {
        println!("\n==> {name}");
        let start = Instant::now();
        let result = step();
        let passed = result.is_ok();
        if let Err(error) = result {
            eprintln!("failed: {name}: {error:#}");
        }
        self.done.push((name.to_owned(), start.elapsed(), passed));
        passed
    }

    /// Notes that something could not run. In CI that fails the command.
    pub(crate) fn leave_out(&mut self, what: &str, why: &str) {
        self.note(what, why, false);
    }

    /// Notes that something had no ground to run here. That is no failure anywhere.
    pub(crate) fn not_due(&mut self, what: &str, why: &str) {
        self.note(what, why, true);
    }

    fn note(&mut self, what: &str, why: &str, excused: bool) {
        self.left_out.push(LeftOut {
            what: what.to_owned(),
            why: why.to_owned(),
            excused,
        });
    }

    /// Prints the summary; an error if a step failed, or if something could not run in CI.
    pub(crate) fn finish(self) -> Result<()> {
        println!();
        for (name, time, passed) in &self.done {
            let mark = if *passed { "ok" } else { "FAILED" };
            println!("{:>8.1} s  {mark:<6}  {name}", time.as_secs_f64());
        }
        let failed: Vec<_> = self
            .done
            .iter()
            .filter(|step| !step.2)
            .map(|step| step.0.as_str())
            .collect();
        if !failed.is_empty() {
            println!("failed: {}", failed.join(", "));
        }
        for LeftOut { what, why, .. } in &self.left_out {
            println!("did not run: {what}: {why}");
        }
        if !failed.is_empty() {
            bail!("{} of {} steps failed", failed.len(), self.done.len());
        }
        if machine::is_ci() && self.left_out.iter().any(|left_out| !left_out.excused) {
            bail!("in CI what cannot run is a failure");
        }
        Ok(())
    }
}

/// Runs a command to its end; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("start {}", shown(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command to its end and answers what it wrote to stdout, without the last line break.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("start {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", shown(command), output.status);
    }
    let text = String::from_utf8(output.stdout)
        .with_context(|| format!("read what {} wrote", shown(command)))?;
    Ok(text.trim_end().to_owned())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_whole_and_the_next_one_still_runs() {
        let mut steps = Steps::default();
        assert!(!steps.run("first", || bail!("no")));
        assert!(steps.run("second", || Ok(())));
        assert_eq!(
            steps.finish().unwrap_err().to_string(),
            "1 of 2 steps failed"
        );
    }

    #[test]
    fn what_has_no_ground_to_run_is_no_failure() {
        let mut steps = Steps::default();
        steps.run("first", || Ok(()));
        steps.not_due("second", "other tools");
        assert!(steps.finish().is_ok());
    }

    #[test]
    fn a_command_that_fails_is_an_error_that_names_it() {
        let error = run(Command::new("false").arg("x")).unwrap_err();
        assert!(
            error.to_string().starts_with("false x ended with"),
            "{error}"
        );
    }
}
