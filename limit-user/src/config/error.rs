//! What can be wrong with a configuration: one variant per kind, each naming field, value and way out.

use thiserror::Error;

use super::text::{TextError, unsigned};
use crate::error::Exit;

/// A configuration that is not valid; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Text that is not of the form its field has.
    #[error("{subject}{field} {value:?} is not {expected}")]
    Malformed {
        /// The policy, as `policy web: `, or nothing.
        subject: String,
        /// The field.
        field: &'static str,
        /// The text.
        value: String,
        /// The form.
        expected: &'static str,
    },
    /// A file that is not TOML.
    #[error("{origin} is not TOML: {message}")]
    NotToml {
        /// The file.
        origin: String,
        /// What the parser says, with the line.
        message: String,
    },
    /// A file that is TOML, with a field that we do not know, that is absent, or of another type.
    #[error("{origin}: {message}")]
    Field {
        /// The file.
        origin: String,
        /// What is wrong, with the line.
        message: String,
        /// Kebab-case kind.
        code: &'static str,
        /// The field, if the parser names it.
        field: Option<String>,
    },
    /// A number outside its range.
    #[error("{subject}{field} {value} is outside {range}")]
    OutOfRange {
        /// The policy, as `policy web: `, or nothing.
        subject: String,
        /// The field.
        field: &'static str,
        /// The number as typed.
        value: String,
        /// The range.
        range: String,
    },
    /// Two fields of one policy that do not fit together.
    #[error("{subject}{field} {reason}")]
    Conflict {
        /// The policy, as `policy web: `, or nothing.
        subject: String,
        /// The field to change.
        field: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// A field that must be given.
    #[error("{subject}{field} is missing: {hint}")]
    Missing {
        /// The policy or file, as `policy web: `, or nothing.
        subject: String,
        /// The field.
        field: &'static str,
        /// What to write.
        hint: &'static str,
    },
    /// A name with other characters or another length than names have.
    #[error(
        "policy name {name:?} is not 1 to 32 ASCII letters, digits, '-', '_' and '.' \
         that begin with a letter or digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The name of the built-in policy.
    #[error(
        "policy name \"fragments\" is reserved for the built-in policy: choose another name \
         (`limitctl set --policy fragments` changes its numbers)"
    )]
    ReservedName,
    /// Two policies of one name.
    #[error("two policies are named {name:?}; names are unique")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two policies that claim one port of one protocol.
    #[error("policies {first:?} and {second:?} both claim {what}; one of them must give it up")]
    Overlap {
        /// The earlier policy.
        first: String,
        /// The later policy.
        second: String,
        /// The port and protocol.
        what: String,
    },
    /// More policies than the record holds.
    #[error(
        "{wanted} policies are more than the {} that a filter holds{}",
        limit_common::config::MAX_POLICIES,
        if *.retired > 0 {
            format!(
                " ({} removed ones keep their numbers while buckets and counters refer to them; \
                 detach every interface and attach again to start anew)",
                .retired
            )
        } else {
            String::new()
        }
    )]
    TooMany {
        /// Policies asked for.
        wanted: usize,
        /// Rows taken by policies that were removed.
        retired: usize,
    },
}

impl ConfigError {
    /// A number outside `range`.
    pub(super) fn out_of_range(
        subject: &str,
        field: &'static str,
        value: &str,
        range: String,
    ) -> Self {
        Self::OutOfRange {
            subject: subject.to_owned(),
            field,
            value: value.to_owned(),
            range,
        }
    }

    /// A field that does not fit the others.
    pub(super) fn conflict(subject: &str, field: &'static str, reason: &str) -> Self {
        Self::Conflict {
            subject: subject.to_owned(),
            field,
            reason: reason.to_owned(),
        }
    }

    /// The kind, in kebab case; stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed-value",
            Self::NotToml { .. } => "not-toml",
            Self::Field { code, .. } => code,
            Self::OutOfRange { .. } => "out-of-range",
            Self::Conflict { .. } => "conflict",
            Self::Missing { .. } => "missing-field",
            Self::BadName { .. } => "bad-name",
            Self::ReservedName => "reserved-name",
            Self::DuplicateName { .. } => "duplicate-name",
            Self::Overlap { .. } => "ports-claimed-twice",
            Self::TooMany { .. } => "too-many-policies",
        }
    }

    /// The field to blame, as in the file.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Malformed { field, .. }
            | Self::OutOfRange { field, .. }
            | Self::Conflict { field, .. }
            | Self::Missing { field, .. } => Some(field),
            Self::Field { field, .. } => field.as_deref(),
            Self::BadName { .. } | Self::ReservedName | Self::DuplicateName { .. } => {
                Some("policy.name")
            }
            Self::Overlap { .. } => Some("policy.ports"),
            Self::TooMany { .. } => Some("policy"),
            Self::NotToml { .. } => None,
        }
    }

    /// Unreadable text ends the program with 2, a meaning that is not valid with 1.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Malformed { .. } | Self::NotToml { .. } => Exit::Failed,
            Self::Field { .. }
            | Self::OutOfRange { .. }
            | Self::Conflict { .. }
            | Self::Missing { .. }
            | Self::BadName { .. }
            | Self::ReservedName
            | Self::DuplicateName { .. }
            | Self::Overlap { .. }
            | Self::TooMany { .. } => Exit::Invalid,
        }
    }
}

/// The number of an option that takes 1 to `most`.
///
/// # Errors
///
/// [`ConfigError::Malformed`] when the text is no whole number, [`ConfigError::OutOfRange`] when the
/// number is another.
pub fn number_up_to(most: u32, field: &'static str, text: &str) -> Result<u32, ConfigError> {
    let (subject, value) = (String::new(), text.to_owned());
    let digits = text.strip_prefix('-').unwrap_or(text);
    if unsigned(digits) == Err(TextError::Malformed) {
        let expected = "a whole number";
        return Err(ConfigError::Malformed {
            subject,
            field,
            value,
            expected,
        });
    }
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(ConfigError::OutOfRange {
            subject,
            field,
            value,
            range: format!("1..={most}"),
        }),
    }
}
