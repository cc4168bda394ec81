//! Errors that cross modules: what the program ends with, and the one report that every error becomes.

use core::fmt;

use thiserror::Error;

use crate::{config::ConfigError, interrupt::Stopped, kernel::KernelError};

/// What the program ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The input was understood and is invalid, or a requested check failed.
    Invalid = 1,
    /// Usage, unreadable or malformed input, or a failure at run time.
    Failed = 2,
    /// The timeout passed.
    TimedOut = 7,
    /// A signal came before the work was done.
    Interrupted = 8,
}

impl Exit {
    /// The number that the shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// An input that is well-formed and does not fit what is there, or that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// What the program ends with.
    pub exit: Exit,
    /// The kind, in kebab case; stable.
    pub code: &'static str,
    /// The field to blame.
    pub field: Option<&'static str>,
    /// What is wrong and what to do, lower case, no full stop.
    pub message: String,
}

impl Refusal {
    /// An input that was understood and is invalid.
    #[must_use]
    pub fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Invalid,
            code,
            field: None,
            message: message.into(),
        }
    }

    /// An input that cannot be read, or a failure at run time.
    #[must_use]
    pub fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            ..Self::invalid(code, message)
        }
    }

    /// The same, with the field to blame.
    #[must_use]
    pub fn on(self, field: &'static str) -> Self {
        Self {
            field: Some(field),
            ..self
        }
    }
}

/// An error as people and machines see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the program ends with.
    pub exit: Exit,
    /// The kind, in kebab case; stable.
    pub code: String,
    /// What happened and what to do.
    pub message: String,
    /// The field to blame.
    pub field: Option<String>,
}

impl Report {
    /// The report of an error of any kind; the innermost error that we know decides.
    #[must_use]
    pub fn new(error: &anyhow::Error) -> Self {
        let message = Chain(error).to_string();
        let (exit, code, field) =
            error
                .chain()
                .find_map(known)
                .unwrap_or((Exit::Failed, RUNTIME.to_owned(), None));
        Self {
            exit,
            code,
            message,
            field,
        }
    }
}

impl From<&Stopped> for Report {
    fn from(stopped: &Stopped) -> Self {
        Self {
            exit: stopped.exit(),
            code: stopped.code().to_owned(),
            message: stopped.to_string(),
            field: None,
        }
    }
}

type Known = (Exit, String, Option<String>);

fn known(error: &(dyn core::error::Error + 'static)) -> Option<Known> {
    let of = |exit, code: &str, field: Option<&str>| {
        Some((exit, code.to_owned(), field.map(str::to_owned)))
    };
    if let Some(error) = error.downcast_ref::<ConfigError>() {
        return of(error.exit(), error.code(), error.field());
    }
    if let Some(error) = error.downcast_ref::<Refusal>() {
        return of(error.exit, error.code, error.field);
    }
    if let Some(stopped) = error.downcast_ref::<Stopped>() {
        return of(stopped.exit(), stopped.code(), None);
    }
    match error.downcast_ref::<KernelError>()? {
        KernelError::Stopped(stopped) => of(stopped.exit(), stopped.code(), None),
        error => of(Exit::Failed, error.code(), None),
    }
}

/// An error and its causes, each once: many errors show their source already.
struct Chain<'a>(&'a anyhow::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = String::new();
        for cause in self.0.chain() {
            let text = cause.to_string();
            if last.is_empty() {
                f.write_str(&text)?;
            } else if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
        }
        Ok(())
    }
}

/// The code of an error of no known kind.
const RUNTIME: &str = "runtime-failure";

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn finds_the_known_error_under_its_context() {
        let error = anyhow::Error::new(Refusal::invalid("no-such-policy", "policy x").on("policy"))
            .context("set");
        let report = Report::new(&error);
        assert_eq!(
            (report.exit, report.code.as_str()),
            (Exit::Invalid, "no-such-policy")
        );
        assert_eq!(report.message, "set: policy x");
        assert_eq!(report.field.as_deref(), Some("policy"));
    }

    #[test]
    fn reports_the_unknown_as_a_failure_at_run_time() {
        let error = std::fs::read("/nonexistent/file").context("read /nonexistent/file");
        let report = Report::new(&error.unwrap_err());
        assert_eq!((report.exit, report.code.as_str()), (Exit::Failed, RUNTIME));
    }

    #[test]
    fn ends_with_seven_and_eight_when_stopped() {
        let timeout = KernelError::Stopped(Stopped::Timeout { ns: 1_000_000_000 });
        assert_eq!(Report::new(&timeout.into()).exit, Exit::TimedOut);
        assert_eq!(
            Report::new(&Stopped::Signal("SIGINT").into()).exit,
            Exit::Interrupted
        );
    }
}
