//! The quantities of a policy: counts, intervals, rates, and what they make together.
//!
//! Unit byte needs a capacity of at least 65,535, the largest frame the stack builds (segmentation
//! offload included): the rule depends on no device, so it holds for interfaces that join later.

use core::num::{NonZeroU32, NonZeroU64};

use limit_common::{
    bucket::{
        range::{Field, MAX_INTERVAL_NS, MIN_INTERVAL_NS},
        step::Step,
    },
    config::Unit,
    layout::MAX_FRAME_BYTES,
};

use super::super::{
    ConfigError, DEFAULT_CAPACITY, DEFAULT_INTERVAL_NS, DEFAULT_REFILL, FRAGMENTS_CAPACITY,
    FRAGMENTS_REFILL, InFlight, Keys, Numbers, RawFragments, RawKeys, RawPolicy,
    raw::Number,
    text::{self, TextError},
};

/// The prefix lengths of keys.
pub(super) fn keys(raw: &RawKeys) -> Result<Keys, ConfigError> {
    let prefix = |field, number: &Option<Number>, default, most: u8| match number {
        None => Ok(default),
        Some(number) => match number.0.parse::<u8>() {
            Ok(length) if length <= most => Ok(length),
            _ => Err(ConfigError::out_of_range(
                "",
                field,
                &number.0,
                format!("0..={most}"),
            )),
        },
    };
    Ok(Keys {
        ipv4_prefix: prefix("keys.ipv4_prefix", &raw.ipv4_prefix, 32, 32)?,
        ipv6_prefix: prefix("keys.ipv6_prefix", &raw.ipv6_prefix, 64, 128)?,
    })
}

/// The numbers of the built-in policy `fragments`.
pub(super) fn fragments(raw: &RawFragments) -> Result<Numbers, ConfigError> {
    let tokens = |field, number: &Option<Number>, default| {
        count(
            "",
            field,
            number.as_ref().map(|number| number.0.as_str()),
            default,
        )
    };
    let numbers = Numbers {
        capacity: tokens("fragments.capacity", &raw.capacity, FRAGMENTS_CAPACITY)?,
        refill: tokens("fragments.refill", &raw.refill, FRAGMENTS_REFILL)?,
        interval: interval("", "fragments.interval", raw.interval.as_deref())?,
    };
    bounded("", "fragments.capacity", numbers)
}

/// The numbers of a policy, from a rate or one by one.
pub(super) fn numbers(subject: &str, unit: Unit, raw: &RawPolicy) -> Result<Numbers, ConfigError> {
    let numbers = match &raw.rate {
        Some(rate) => rated(subject, rate, raw)?,
        None => plain(subject, raw)?,
    };
    let field = if raw.rate.is_some() {
        "policy.burst"
    } else {
        "policy.capacity"
    };
    if unit == Unit::Byte && numbers.capacity.get() < MAX_FRAME_BYTES {
        return Err(ConfigError::OutOfRange {
            subject: subject.to_owned(),
            field,
            value: numbers.capacity.to_string(),
            range: format!(
                "{MAX_FRAME_BYTES}..={}: unit byte needs room for the largest frame",
                u32::MAX
            ),
        });
    }
    bounded(subject, field, numbers)
}

/// Refuses numbers with which the time from empty to full would wrap within ten years.
fn bounded(subject: &str, field: &'static str, numbers: Numbers) -> Result<Numbers, ConfigError> {
    let Numbers {
        capacity,
        refill,
        interval,
    } = numbers;
    match Step::validate_kernel(capacity.get().into(), refill.get().into(), interval.get()) {
        Ok(_) => Ok(numbers),
        Err(error) => Err(ConfigError::OutOfRange {
            subject: subject.to_owned(),
            field,
            value: capacity.to_string(),
            range: match error.field {
                Field::FillNs => format!(
                    "what fills within {} years at {refill} each {}",
                    error.greatest / YEAR_NS,
                    text::format_duration(interval.get())
                ),
                Field::Capacity
                | Field::Refill
                | Field::Interval
                | Field::IntervalNs
                | Field::Product => error.to_string(),
            },
        }),
    }
}

fn plain(subject: &str, raw: &RawPolicy) -> Result<Numbers, ConfigError> {
    if raw.burst.is_some() {
        let reason = "goes with rate; give rate too, or capacity alone";
        return Err(ConfigError::conflict(subject, "policy.burst", reason));
    }
    let digits = |number: &'_ Option<Number>| number.as_ref().map(|number| number.0.clone());
    let (capacity, refill) = (digits(&raw.capacity), digits(&raw.refill));
    Ok(Numbers {
        capacity: count(
            subject,
            "policy.capacity",
            capacity.as_deref(),
            DEFAULT_CAPACITY,
        )?,
        refill: count(subject, "policy.refill", refill.as_deref(), DEFAULT_REFILL)?,
        interval: interval(subject, "policy.interval", raw.interval.as_deref())?,
    })
}

fn rated(subject: &str, rate: &str, raw: &RawPolicy) -> Result<Numbers, ConfigError> {
    let clash = [
        (
            raw.capacity.is_some(),
            "policy.capacity",
            "does not go with rate; use burst",
        ),
        (
            raw.refill.is_some(),
            "policy.refill",
            "does not go with rate, which gives it",
        ),
        (
            raw.interval.is_some(),
            "policy.interval",
            "does not go with rate, which gives it",
        ),
    ];
    for (given, field, reason) in clash {
        if given {
            return Err(ConfigError::conflict(subject, field, reason));
        }
    }
    let field = "policy.rate";
    let (refill, interval_ns) =
        text::rate(rate.strip_prefix('-').unwrap_or(rate)).map_err(|error| match error {
            TextError::Malformed => ConfigError::Malformed {
                subject: subject.to_owned(),
                field,
                value: rate.to_owned(),
                expected: "a rate such as 100/s, 5/m or 10/500ms",
            },
            TextError::TooLarge => ConfigError::out_of_range(subject, field, rate, rate_range()),
        })?;
    let refill = u32::try_from(refill)
        .ok()
        .filter(|_| !rate.starts_with('-'))
        .and_then(NonZeroU32::new);
    let (Some(refill), Some(interval)) = (refill, interval_in_range(interval_ns)) else {
        return Err(ConfigError::out_of_range(
            subject,
            field,
            rate,
            rate_range(),
        ));
    };
    let burst = raw.burst.as_ref().map(|number| number.0.as_str());
    let capacity = count(subject, "policy.burst", burst, refill.get())?;
    Ok(Numbers {
        capacity,
        refill,
        interval,
    })
}

/// The gate of a policy.
pub(super) fn in_flight(subject: &str, raw: &RawPolicy) -> Result<Option<InFlight>, ConfigError> {
    let per_source_field = "policy.max_in_flight_per_source";
    let total = match raw.max_in_flight.as_ref().map(|text| text.0.as_str()) {
        None | Some("none") => {
            return match raw.max_in_flight_per_source {
                None => Ok(None),
                Some(_) => Err(ConfigError::conflict(
                    subject,
                    per_source_field,
                    "needs max_in_flight",
                )),
            };
        }
        Some(number) => count(subject, "policy.max_in_flight", Some(number), 1)?,
    };
    let quarter = (total.get() / 4).max(1);
    let written = raw
        .max_in_flight_per_source
        .as_ref()
        .map(|number| number.0.as_str());
    let per_source = count(subject, per_source_field, written, quarter)?;
    if per_source > total {
        return Err(ConfigError::out_of_range(
            subject,
            per_source_field,
            &per_source.to_string(),
            format!("1..={total}: it cannot be above max_in_flight"),
        ));
    }
    Ok(Some(InFlight { total, per_source }))
}

/// A count of 1..=2^32-1.
fn count(
    subject: &str,
    field: &'static str,
    written: Option<&str>,
    default: u32,
) -> Result<NonZeroU32, ConfigError> {
    let number = match written {
        None => NonZeroU32::new(default),
        Some(digits) => digits.parse().ok(),
    };
    number.ok_or_else(|| match written {
        Some(word) if !is_integer(word) => ConfigError::Malformed {
            subject: subject.to_owned(),
            field,
            value: word.to_owned(),
            expected: "a whole number",
        },
        Some(_) | None => ConfigError::out_of_range(
            subject,
            field,
            written.unwrap_or("0"),
            format!("1..={}", u32::MAX),
        ),
    })
}

fn is_integer(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn interval(
    subject: &str,
    field: &'static str,
    written: Option<&str>,
) -> Result<NonZeroU64, ConfigError> {
    let Some(written) = written else {
        return interval_in_range(DEFAULT_INTERVAL_NS)
            .ok_or_else(|| ConfigError::out_of_range(subject, field, "1s", interval_range()));
    };
    match text::duration_ns(written.strip_prefix('-').unwrap_or(written)) {
        Ok(ns) if !written.starts_with('-') => interval_in_range(ns)
            .ok_or_else(|| ConfigError::out_of_range(subject, field, written, interval_range())),
        Ok(_) | Err(TextError::TooLarge) => Err(ConfigError::out_of_range(
            subject,
            field,
            written,
            interval_range(),
        )),
        Err(TextError::Malformed) => Err(ConfigError::Malformed {
            subject: subject.to_owned(),
            field,
            value: written.to_owned(),
            expected: "a duration such as 500ms, 1s, 5m, 1h or 1d",
        }),
    }
}

fn interval_in_range(ns: u64) -> Option<NonZeroU64> {
    NonZeroU64::new(ns).filter(|ns| (MIN_INTERVAL_NS..=MAX_INTERVAL_NS).contains(&ns.get()))
}

fn interval_range() -> String {
    format!(
        "{}..={}",
        text::format_duration(MIN_INTERVAL_NS),
        text::format_duration(MAX_INTERVAL_NS)
    )
}

fn rate_range() -> String {
    format!("1..={} tokens per {}", u32::MAX, interval_range())
}

const YEAR_NS: u64 = 365 * 86_400 * text::NS_PER_S;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RawConfig, Text};

    fn policy(raw: &RawPolicy) -> crate::config::Policy {
        Config::from_policy(raw).unwrap().policies.remove(0)
    }

    #[test]
    fn takes_a_rate_for_the_three_numbers() {
        let numbers = |rate: &str, burst: Option<u64>| {
            let raw = RawPolicy {
                rate: Some(rate.to_owned()),
                burst: burst.map(Number::from),
                ..RawPolicy::named("web")
            };
            policy(&raw).numbers
        };
        let with_burst = numbers("5/m", Some(20));
        assert_eq!(
            (with_burst.capacity.get(), with_burst.refill.get()),
            (20, 5)
        );
        assert_eq!(with_burst.interval.get(), 60 * text::NS_PER_S);
        assert_eq!(numbers("7/500ms", None).capacity.get(), 7);
    }

    #[test]
    fn refuses_numbers_at_both_ends_and_takes_their_neighbours() {
        let check = |field: &str, value: &str| {
            let file = format!("[[policy]]\nname = 'web'\n{field} = {value}");
            RawConfig::from_toml(&file, "f").and_then(|raw| raw.validate())
        };
        for field in ["capacity", "refill", "max_in_flight"] {
            for value in ["0", "-1", "4294967296", "9223372036854775807"] {
                let error = check(field, value).unwrap_err();
                assert_eq!(error.code(), "out-of-range", "{field} = {value}");
                assert!(
                    error
                        .to_string()
                        .contains(&format!("{value} is outside 1..=4294967295"))
                );
            }
            assert!(check(field, "1").is_ok() && check(field, "4294967295").is_ok());
        }
        for value in [
            "'0s'",
            "'0ms'",
            "'366d'",
            "'-1s'",
            "'99999999999999999999s'",
        ] {
            assert_eq!(
                check("interval", value).unwrap_err().code(),
                "out-of-range",
                "{value}"
            );
        }
        assert!(check("interval", "'1ms'").is_ok() && check("interval", "'365d'").is_ok());
        for value in ["'0/s'", "'1/0s'", "'4294967296/s'", "'1/366d'"] {
            assert_eq!(
                check("rate", value).unwrap_err().code(),
                "out-of-range",
                "{value}"
            );
        }
        let slow = "1\ninterval = '365d'\ncapacity = 293";
        assert_eq!(
            check("refill", slow).unwrap_err().field(),
            Some("policy.capacity")
        );
        for value in ["'soon'", "'1'", "''"] {
            assert_eq!(
                check("interval", value).unwrap_err().code(),
                "malformed-value",
                "{value}"
            );
        }
    }

    #[test]
    fn gives_one_source_a_quarter_of_the_permits() {
        for (total, quarter) in [(1, 1), (3, 1), (4, 1), (8, 2), (100, 25)] {
            let raw = RawPolicy {
                max_in_flight: Some(Text(total.to_string())),
                ..RawPolicy::named("a")
            };
            assert_eq!(policy(&raw).in_flight.unwrap().per_source.get(), quarter);
        }
    }
}
