//! The token bucket with step refill: tokens arrive at whole intervals, and the rest is kept.
//!
//! ```text
//! n = max(0, floor((now - last) / interval))
//! tokens' = min(capacity, tokens + n * refill)
//! last' = last + n * interval
//! retry_after = last' + ceil((cost - tokens') / refill) * interval - now
//! ```
//!
//! Time is in ticks of no fixed length. No operation wraps, for any numbers and any instants, and a
//! clock that goes back adds nothing.

use core::num::{NonZeroU32, NonZeroU64};

use crate::bucket::Outcome;

/// The numbers of a token bucket with step refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Most tokens the bucket holds.
    pub capacity: NonZeroU32,
    /// Tokens gained at each whole interval.
    pub refill: NonZeroU32,
    /// Ticks between refills.
    pub interval: NonZeroU64,
}

/// Tokens in a bucket, and the refill they include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Level {
    /// Tokens held, at most the capacity.
    pub tokens: u32,
    /// The tick of the last refill that `tokens` includes.
    pub last: u64,
}

impl Step {
    /// A full bucket whose refills fall on `last` and whole intervals after it.
    #[must_use]
    #[inline(always)]
    pub const fn full(&self, last: u64) -> Level {
        Level {
            tokens: self.capacity.get(),
            last,
        }
    }

    /// Brings `level` up to `now`.
    ///
    /// # Rounding
    /// The gain rounds down to whole intervals; the rest of an interval stays in `last`.
    #[must_use]
    #[inline(always)]
    pub const fn advance(&self, level: Level, now: u64) -> Level {
        let steps = self.steps(level.last, now);
        Level {
            tokens: self.gain(level.tokens, steps),
            // `steps * interval <= now - last`, so neither operation can wrap.
            last: level
                .last
                .wrapping_add(steps.wrapping_mul(self.interval.get())),
        }
    }

    /// Advances `level` to `now` and takes `cost` from it if it holds that much.
    ///
    /// tokens'' = tokens' - cost if cost <= tokens', else tokens'
    ///
    /// A refusal keeps the advanced level.
    #[must_use]
    #[inline(always)]
    pub const fn charge(&self, level: Level, now: u64, cost: u32) -> (Level, Outcome) {
        let level = self.advance(level, now);
        let (tokens, outcome) = self.pay(level.tokens, cost);
        (
            Level {
                tokens,
                last: level.last,
            },
            outcome,
        )
    }

    /// The shortest wait after `now` at which `cost` would be paid, if nobody else pays.
    ///
    /// `retry_after = last' + ceil((cost - tokens') / refill) * interval - now`
    ///
    /// `level` may be the one before the refused charge or after it, and `last` may lie after `now`.
    /// 0 if the cost would be paid at once; `None` if no tick is late enough: the cost is above the
    /// capacity, or the refill that would pay it lies past the last tick.
    #[must_use]
    #[inline(always)]
    pub const fn retry_after(&self, level: Level, now: u64, cost: u32) -> Option<u64> {
        if cost > self.capacity.get() {
            return None;
        }
        let Level { tokens, last } = self.advance(level, now);
        let missing = cost.saturating_sub(tokens);
        if missing == 0 {
            return Some(0);
        }
        let steps = missing.div_ceil(self.refill.get()) as u64;
        // Compared by a division: BPF has no 128-bit product.
        if steps > quotient(u64::MAX.wrapping_sub(last), self.interval) {
            return None;
        }
        // No wrap: checked above, and `last + interval > now` after the advance.
        let paid_at = last.wrapping_add(steps.wrapping_mul(self.interval.get()));
        Some(paid_at.wrapping_sub(now))
    }

    /// The wait in proportion to what is missing, as if refill were continuous.
    ///
    /// ceil((cost - tokens') * interval / refill)
    ///
    /// 0 if the cost would be paid at once; `None` if the cost is above the capacity or the wait
    /// does not fit. For the host: the product takes 128 bits.
    #[must_use]
    #[inline]
    pub const fn retry_after_proportional(&self, level: Level, now: u64, cost: u32) -> Option<u64> {
        if cost > self.capacity.get() {
            return None;
        }
        let missing = cost.saturating_sub(self.advance(level, now).tokens);
        // 32 bits times 64 bits fit 96.
        let product = (missing as u128).wrapping_mul(self.interval.get() as u128);
        let wait = product.div_ceil(self.refill.get() as u128);
        if wait > u64::MAX as u128 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "compared with u64::MAX above"
        )]
        Some(wait as u64)
    }

    /// Ticks from `now` until the bucket is full if nobody pays; `u64::MAX` if that is past the last
    /// tick.
    #[must_use]
    #[inline(always)]
    pub const fn until_full(&self, level: Level, now: u64) -> u64 {
        match self.retry_after(level, now, self.capacity.get()) {
            Some(wait) => wait,
            None => u64::MAX,
        }
    }

    /// Whole intervals from `last` to `now`, 0 if `now` is the earlier one.
    ///
    /// The division is skipped within an interval, where most packets fall.
    #[inline(always)]
    pub(crate) const fn steps(&self, last: u64, now: u64) -> u64 {
        let elapsed = now.saturating_sub(last);
        if elapsed < self.interval.get() {
            0
        } else {
            quotient(elapsed, self.interval)
        }
    }

    /// min(capacity, tokens + steps * refill), without a product that could wrap.
    #[inline(always)]
    pub(crate) const fn gain(&self, tokens: u32, steps: u64) -> u32 {
        let capacity = self.capacity.get();
        let missing = capacity.saturating_sub(tokens);
        if missing == 0 {
            return capacity;
        }
        if steps == 0 {
            return tokens;
        }
        if steps >= missing.div_ceil(self.refill.get()) as u64 {
            return capacity;
        }
        // `steps < ceil(missing / refill)`, so `steps * refill < missing <= u32::MAX`.
        #[expect(clippy::cast_possible_truncation, reason = "steps < missing, a u32")]
        let gained = (steps as u32).wrapping_mul(self.refill.get());
        tokens.wrapping_add(gained)
    }

    /// Takes `cost` from `tokens` if they suffice.
    #[inline(always)]
    pub(crate) const fn pay(&self, tokens: u32, cost: u32) -> (u32, Outcome) {
        if cost > self.capacity.get() {
            return (tokens, Outcome::CostExceedsCapacity { remaining: tokens });
        }
        match tokens.checked_sub(cost) {
            Some(remaining) => (remaining, Outcome::Admit { remaining }),
            None => (tokens, Outcome::Limit { remaining: tokens }),
        }
    }
}

/// floor(dividend / divisor)
#[inline(always)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the divisor is not zero by its type"
)]
pub(crate) const fn quotient(dividend: u64, divisor: NonZeroU64) -> u64 {
    dividend / divisor.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Step = Step {
        capacity: NonZeroU32::new(4).unwrap(),
        refill: NonZeroU32::new(1).unwrap(),
        interval: NonZeroU64::new(1000).unwrap(),
    };

    #[test]
    fn denies_when_the_level_is_below_the_cost() {
        let level = Level { tokens: 1, last: 0 };
        let (after, outcome) = STEP.charge(level, 999, 2);
        assert_eq!(after, level);
        assert_eq!(outcome, Outcome::Limit { remaining: 1 });
    }

    #[test]
    fn keeps_the_advanced_level_on_refusal() {
        let (after, outcome) = STEP.charge(Level { tokens: 0, last: 0 }, 2999, 3);
        assert_eq!(
            after,
            Level {
                tokens: 2,
                last: 2000
            }
        );
        assert_eq!(outcome, Outcome::Limit { remaining: 2 });
    }

    #[test]
    fn tells_a_cost_above_the_capacity_from_a_low_level() {
        let (after, outcome) = STEP.charge(STEP.full(0), 0, 5);
        assert_eq!(after, STEP.full(0));
        assert_eq!(outcome, Outcome::CostExceedsCapacity { remaining: 4 });
        assert_eq!(STEP.retry_after(after, 0, 5), None);
    }

    #[test]
    fn waits_from_a_refill_that_lies_ahead() {
        assert_eq!(
            STEP.retry_after(
                Level {
                    tokens: 0,
                    last: 5000
                },
                4000,
                2
            ),
            Some(3000)
        );
    }

    #[test]
    fn has_no_wait_for_a_refill_past_the_last_tick() {
        let level = Level {
            tokens: 0,
            last: u64::MAX - 1999,
        };
        assert_eq!(STEP.retry_after(level, u64::MAX - 1999, 1), Some(1000));
        assert_eq!(STEP.retry_after(level, u64::MAX - 1999, 2), None);
        assert_eq!(STEP.until_full(level, u64::MAX - 1999), u64::MAX);
    }

    #[test]
    fn is_proportional_only_where_asked() {
        let step = Step {
            refill: NonZeroU32::new(3).unwrap(),
            ..STEP
        };
        let level = Level { tokens: 0, last: 0 };
        assert_eq!(step.retry_after(level, 400, 1), Some(600));
        assert_eq!(step.retry_after_proportional(level, 400, 1), Some(334));
    }
}
