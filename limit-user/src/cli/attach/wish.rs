//! What is asked of the policies: nothing, one of them, or all.

use std::{fs::File, path::Path};

use anyhow::Context as _;
use limit_common::layout::{MAX_MAX_SOURCES, MIN_MAX_SOURCES};

use super::AttachArgs;
use crate::{
    bounded,
    config::{Config, ConfigError, FRAGMENTS_POLICY, RawConfig, RawPolicy, text},
    error::Refusal,
};

/// What is asked of the policies.
#[derive(Debug)]
pub(super) enum Wish {
    /// Nothing: a new filter gets the default policy, one that exists keeps its own.
    Nothing,
    /// Exactly these.
    All(Config),
    /// This one, changed or added; a name alone changes nothing about a policy that exists.
    One {
        raw: Box<RawPolicy>,
        is_name_alone: bool,
    },
}

impl Wish {
    pub(super) fn from_args(args: &AttachArgs) -> anyhow::Result<Self> {
        let flags = &args.policy;
        if let Some(path) = &args.config {
            if !flags.is_empty() || flags.policy.is_some() {
                let reason = "does not go with policy flags: write them in the file";
                return Err(Refusal::invalid("conflict", format!("--config {reason}"))
                    .on("config")
                    .into());
            }
            return Ok(Self::All(read_config(path)?));
        }
        if flags.is_empty() && flags.policy.is_none() {
            return Ok(Self::Nothing);
        }
        let mut raw = flags.to_raw()?;
        if flags.name() == FRAGMENTS_POLICY {
            return Err(ConfigError::ReservedName.into());
        }
        // Any policy flag enforces; a name alone is none.
        raw.monitor = raw.monitor.or(Some(flags.is_empty()));
        raw.refuse_impossible()?;
        Ok(Self::One {
            raw: Box::new(raw),
            is_name_alone: flags.is_empty(),
        })
    }

    /// The policies of a new filter.
    pub(super) fn for_new(&self) -> Result<Config, ConfigError> {
        match self {
            Self::Nothing => Config::built_in(),
            Self::All(config) => Ok(config.clone()),
            Self::One { raw, .. } => Config::from_policy(raw),
        }
    }

    /// The policies of a filter that has some.
    pub(super) fn over(&self, current: &Config) -> Result<Config, ConfigError> {
        match self {
            Self::Nothing => Ok(current.clone()),
            Self::All(config) => Ok(config.clone()),
            Self::One { raw, is_name_alone } => {
                let name = raw.name.as_deref().unwrap_or_default();
                if *is_name_alone && current.policy(name).is_some() {
                    return Ok(current.clone());
                }
                current.with_policy(raw)
            }
        }
    }
}

fn read_config(path: &Path) -> anyhow::Result<Config> {
    let read = File::open(path).and_then(|file| bounded::read(file, CONFIG_MOST));
    let bytes = read.map_err(|error| {
        Refusal::failed(
            "unreadable-file",
            format!("read {}: {error}", path.display()),
        )
        .on("config")
    })?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Refusal::failed("not-utf8", format!("{} is not UTF-8 text", path.display())).on("config")
    })?;
    let raw = RawConfig::from_toml(&text, &path.display().to_string())?;
    if raw.policy.is_empty() {
        return Err(ConfigError::Missing {
            subject: format!("{}: ", path.display()),
            field: "policy",
            hint: "write at least one [[policy]]",
        }
        .into());
    }
    raw.validate().with_context(|| path.display().to_string())
}

pub(super) fn max_sources(text: &str) -> Result<u32, ConfigError> {
    let (subject, field, value) = (String::new(), "max_sources", text.to_owned());
    let range = format!("{MIN_MAX_SOURCES}..={MAX_MAX_SOURCES}");
    let digits = text.strip_prefix('-').unwrap_or(text);
    match text::unsigned(digits) {
        Err(text::TextError::Malformed) => Err(ConfigError::Malformed {
            subject,
            field,
            value,
            expected: "a whole number",
        }),
        Ok(_) | Err(text::TextError::TooLarge) => match text.parse() {
            Ok(number) if (MIN_MAX_SOURCES..=MAX_MAX_SOURCES).contains(&number) => Ok(number),
            _ => Err(ConfigError::OutOfRange {
                subject,
                field,
                value,
                range,
            }),
        },
    }
}

/// Bytes of a configuration file: what the largest one needs, many times over.
const CONFIG_MOST: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{config::Mode as PolicyMode, error::Report};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        attach: AttachArgs,
    }

    fn wish(flags: &str) -> anyhow::Result<Wish> {
        let words = ["attach", "eth0"]
            .into_iter()
            .chain(flags.split_whitespace());
        Wish::from_args(&Line::parse_from(words).attach)
    }

    fn new(flags: &str) -> Config {
        wish(flags).unwrap().for_new().unwrap()
    }

    #[test]
    fn monitors_without_policy_flags_and_enforces_with_any() {
        assert_eq!(new("").policies[0].mode, PolicyMode::Monitor);
        assert_eq!(new("--policy web").policies[0].mode, PolicyMode::Monitor);
        assert_eq!(
            new("--monitor --capacity 9").policies[0].mode,
            PolicyMode::Monitor
        );
        for flags in [
            "--enforce",
            "--capacity 9",
            "--cap 9",
            "--rate 5/m",
            "--ports 22",
        ] {
            assert_eq!(new(flags).policies[0].mode, PolicyMode::Enforce, "{flags}");
        }
    }

    #[test]
    fn keeps_the_policies_of_a_filter_unless_told() {
        let current = new("--capacity 9 --ports 22");
        assert_eq!(wish("").unwrap().over(&current).unwrap(), current);
        let changed = wish("--refill 3").unwrap().over(&current).unwrap();
        assert_eq!(changed.policies[0].numbers.capacity.get(), 9);
        assert_eq!(changed.policies[0].numbers.refill.get(), 3);
        assert_eq!(
            wish("--policy default").unwrap().over(&current).unwrap(),
            current
        );
        let added = wish("--policy dns --protocol udp --ports 53")
            .unwrap()
            .over(&current)
            .unwrap();
        assert_eq!(added.policies.len(), 2);
    }

    #[test]
    fn takes_a_burst_alone_over_a_policy_only() {
        let burst = wish("--burst 9").unwrap();
        assert_eq!(burst.for_new().unwrap_err().field(), Some("policy.burst"));
        let changed = burst.over(&new("--rate 5/m")).unwrap();
        assert_eq!(changed.policies[0].numbers.capacity.get(), 9);
        assert_eq!(changed.policies[0].numbers.refill.get(), 5);
    }

    #[test]
    fn refuses_what_does_not_fit_before_touching_anything() {
        for flags in [
            "--capacity 9 --rate 5/m --ports 80",
            "--monitor --enforce",
            "--config f.toml --capacity 9",
            "--protocol udp --unit connection",
        ] {
            assert_eq!(
                Report::new(&wish(flags).unwrap_err()).code,
                "conflict",
                "{flags}"
            );
        }
        let reserved = Report::new(&wish("--policy fragments --capacity 9").unwrap_err());
        assert_eq!(reserved.code, "reserved-name");
    }

    #[test]
    fn takes_a_number_of_sources_in_range_only() {
        assert_eq!(max_sources("64").unwrap(), 64);
        for bad in ["0", "63", "16777217", "-5", "99999999999999999999"] {
            assert_eq!(
                max_sources(bad).unwrap_err().code(),
                "out-of-range",
                "{bad}"
            );
        }
        assert_eq!(max_sources("many").unwrap_err().code(), "malformed-value");
    }
}
