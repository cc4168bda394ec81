//! Which numbers a bucket takes: ranges in which no sum or product wraps.

use core::{
    fmt,
    num::{NonZeroU32, NonZeroU64},
};

use crate::bucket::step::Step;

/// Most tokens of a capacity or a refill.
pub const MAX_TOKENS: u64 = u32::MAX as u64;

/// Longest interval of a simulation, in ticks.
pub const MAX_INTERVAL: u64 = (1 << 53) - 1;

/// Shortest interval in the kernel: with it, interval numbers fit a slot for thirty-four years.
pub const MIN_INTERVAL_NS: u64 = 1_000_000;

/// Longest interval in the kernel: 365 days.
pub const MAX_INTERVAL_NS: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Greatest capacity * interval of a simulation, and longest time from empty to full in the kernel.
pub const MAX_SPAN: u64 = i64::MAX as u64;

/// A number outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNumber {
    /// The number that is to blame.
    pub field: Field,
    /// Its value.
    pub value: u128,
    /// The least value it may have.
    pub least: u64,
    /// The greatest value it may have.
    pub greatest: u64,
}

/// A number of a policy, or what two of them make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Most tokens a bucket holds.
    Capacity,
    /// Tokens gained at each whole interval.
    Refill,
    /// Ticks between refills.
    Interval,
    /// Nanoseconds between refills.
    IntervalNs,
    /// Capacity times interval.
    Product,
    /// Nanoseconds from empty to full: ceil(capacity / refill) * interval.
    FillNs,
}

impl Field {
    /// The field as a person writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Refill => "refill",
            Self::Interval => "interval",
            Self::IntervalNs => "interval_ns",
            Self::Product => "capacity * interval",
            Self::FillNs => "ceil(capacity / refill) * interval_ns",
        }
    }
}

impl fmt::Display for InvalidNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            least,
            greatest,
        } = self;
        write!(
            formatter,
            "{} {value} is outside {least}..={greatest}",
            field.name()
        )
    }
}

impl core::error::Error for InvalidNumber {}

impl Step {
    /// The step of a simulation, in ticks of no fixed length.
    ///
    /// # Errors
    /// Names the first number outside its range, then the product that is.
    pub const fn validate(
        capacity: u64,
        refill: u64,
        interval: u64,
    ) -> Result<Self, InvalidNumber> {
        let step = match numbers(capacity, refill, interval, Field::Interval, 1, MAX_INTERVAL) {
            Ok(step) => step,
            Err(error) => return Err(error),
        };
        // 32 bits times 64 bits fit 96.
        let product = (capacity as u128).wrapping_mul(interval as u128);
        at_most_a_span(step, Field::Product, product)
    }

    /// The step of a policy in the kernel, in ticks of 1 ns.
    ///
    /// Nothing wraps while the machine has been up for less than ten years: an interval number stays
    /// below 2^39, and the instant at which an empty bucket is full below 2^64 ns.
    ///
    /// # Errors
    /// Names the first number outside its range, then the time from empty to full if it is.
    pub const fn validate_kernel(
        capacity: u64,
        refill: u64,
        interval_ns: u64,
    ) -> Result<Self, InvalidNumber> {
        let step = match numbers(
            capacity,
            refill,
            interval_ns,
            Field::IntervalNs,
            MIN_INTERVAL_NS,
            MAX_INTERVAL_NS,
        ) {
            Ok(step) => step,
            Err(error) => return Err(error),
        };
        // 32 bits times 64 bits fit 96.
        let fill_ns =
            (capacity.div_ceil(step.refill.get() as u64) as u128).wrapping_mul(interval_ns as u128);
        at_most_a_span(step, Field::FillNs, fill_ns)
    }
}

/// The three numbers, each within its range.
const fn numbers(
    capacity: u64,
    refill: u64,
    interval: u64,
    interval_field: Field,
    least: u64,
    greatest: u64,
) -> Result<Step, InvalidNumber> {
    let capacity = match tokens(Field::Capacity, capacity) {
        Ok(capacity) => capacity,
        Err(error) => return Err(error),
    };
    let refill = match tokens(Field::Refill, refill) {
        Ok(refill) => refill,
        Err(error) => return Err(error),
    };
    match NonZeroU64::new(interval) {
        Some(ticks) if interval >= least && interval <= greatest => Ok(Step {
            capacity,
            refill,
            interval: ticks,
        }),
        Some(_) | None => Err(InvalidNumber {
            field: interval_field,
            value: interval as u128,
            least,
            greatest,
        }),
    }
}

/// A capacity or a refill within its range.
const fn tokens(field: Field, value: u64) -> Result<NonZeroU32, InvalidNumber> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "compared with the greatest u32"
    )]
    let tokens = NonZeroU32::new(value as u32);
    match tokens {
        Some(tokens) if value <= MAX_TOKENS => Ok(tokens),
        Some(_) | None => Err(InvalidNumber {
            field,
            value: value as u128,
            least: 1,
            greatest: MAX_TOKENS,
        }),
    }
}

/// `step`, unless `value`, which its numbers make together, is above [`MAX_SPAN`].
const fn at_most_a_span(step: Step, field: Field, value: u128) -> Result<Step, InvalidNumber> {
    if value <= MAX_SPAN as u128 {
        Ok(step)
    } else {
        Err(InvalidNumber {
            field,
            value,
            least: 1,
            greatest: MAX_SPAN,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn names_field_value_and_range() {
        let message = |result: Result<Step, InvalidNumber>| result.unwrap_err().to_string();
        assert_eq!(
            message(Step::validate(0, 1, 1)),
            "capacity 0 is outside 1..=4294967295"
        );
        assert_eq!(
            message(Step::validate(1, 1 << 32, 1)),
            "refill 4294967296 is outside 1..=4294967295"
        );
        assert_eq!(
            message(Step::validate(1, 1, 0)),
            "interval 0 is outside 1..=9007199254740991"
        );
        assert_eq!(
            message(Step::validate_kernel(1, 1, 999_999)),
            "interval_ns 999999 is outside 1000000..=31536000000000000"
        );
        assert_eq!(
            message(Step::validate(MAX_TOKENS, 1, 1 << 40)),
            "capacity * interval 4722366481770133585920 is outside 1..=9223372036854775807"
        );
    }

    #[test]
    fn takes_both_ends_of_every_range() {
        assert!(Step::validate(1, 1, 1).is_ok());
        assert!(Step::validate(MAX_TOKENS, MAX_TOKENS, 1).is_ok());
        assert!(Step::validate(1024, 1, MAX_INTERVAL).is_ok());
        assert!(Step::validate(1, 1, MAX_INTERVAL + 1).is_err());
        assert!(Step::validate_kernel(1, 1, MIN_INTERVAL_NS).is_ok());
        assert!(Step::validate_kernel(1, 1, MAX_INTERVAL_NS).is_ok());
        assert!(Step::validate_kernel(1, 1, MAX_INTERVAL_NS + 1).is_err());
    }

    #[test]
    fn bounds_the_time_from_empty_to_full_in_the_kernel() {
        assert!(Step::validate_kernel(292, 1, MAX_INTERVAL_NS).is_ok());
        let error = Step::validate_kernel(293, 1, MAX_INTERVAL_NS).unwrap_err();
        assert_eq!(error.field, Field::FillNs);
        assert!(Step::validate_kernel(293, 2, MAX_INTERVAL_NS).is_ok());
    }
}
