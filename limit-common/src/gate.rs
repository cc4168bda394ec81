//! May we at all: in-flight permits, judged before any bucket.
//!
//! A shed request leaves the bucket as it was, and a limited one takes no permit.

use core::num::NonZeroU32;

use crate::bucket::{
    Outcome,
    step::{Level, Step},
};

/// Permits that are out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permits(u32);

impl Permits {
    /// No permit is out.
    pub const NONE: Self = Self(0);

    /// How many are out.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Takes one permit more.
    ///
    /// out + 1 <= max
    ///
    /// # Errors
    /// [`Shed`] if `max` permits are out; the count is unchanged.
    pub const fn acquire(self, max: NonZeroU32) -> Result<Self, Shed> {
        if has_room(self.0, max.get()) {
            Ok(Self(self.0.saturating_add(1)))
        } else {
            Err(Shed)
        }
    }

    /// Gives one permit back; none is out below 0.
    #[must_use]
    pub const fn release(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// Too much work is in flight, whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shed;

/// What the gate and then the bucket said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The gate is closed; no bucket was asked.
    Shed,
    /// The gate has room, and the bucket decided.
    Judged(Outcome),
}

/// Whether one more may come in while `out` permits are out; a `max` of 0 is no gate.
#[must_use]
#[inline(always)]
pub const fn has_room(out: u32, max: u32) -> bool {
    max == 0 || out < max
}

/// Gate first, then bucket: a shed request costs no token, a limited one takes no permit.
///
/// Without a `max` there is no gate, and the permits are still counted.
#[must_use]
pub const fn enter(
    permits: Permits,
    max: Option<NonZeroU32>,
    step: &Step,
    level: Level,
    now: u64,
    cost: u32,
) -> (Permits, Level, Entry) {
    let entered = match max {
        None => Permits(permits.0.saturating_add(1)),
        Some(max) => match permits.acquire(max) {
            Ok(entered) => entered,
            Err(Shed) => return (permits, level, Entry::Shed),
        },
    };
    let (level, outcome) = step.charge(level, now, cost);
    let permits = if outcome.is_admitted() {
        entered
    } else {
        permits
    };
    (permits, level, Entry::Judged(outcome))
}
