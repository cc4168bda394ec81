//! The rules of a bucket through changes of its numbers, plainly, for tests of the slot protocol.

use limit_common::{
    bucket::{Outcome, step::Level},
    config::{HISTORY, Numbers},
};

/// The rules of generations in 128 bits, with instants where the slot has numbers of intervals.
pub(crate) struct Plain {
    tokens: i128,
    last: i128,
    generation: usize,
}

impl Plain {
    pub(crate) fn full(numbers: &Numbers, now: u64) -> Self {
        let born = born(numbers, now);
        Self {
            tokens: born.tokens.into(),
            last: born.last.into(),
            generation: 0,
        }
    }

    /// Refills up to `now` under `numbers`.
    fn advance(&mut self, numbers: &Numbers, now: u64) {
        let steps = 0.max((i128::from(now) - self.last).div_euclid(numbers.interval_ns.into()));
        self.last += steps * i128::from(numbers.interval_ns);
        self.tokens += steps * i128::from(numbers.refill);
        self.tokens = self.tokens.min(numbers.capacity.into());
    }

    /// Takes the bucket to the last of `generations`, unless these came into force after `now`.
    fn bring(&mut self, generations: &[Numbers], now: u64) -> Option<()> {
        let current = generations.len() - 1;
        if self.generation < current && now < generations[current].since_ns {
            return None;
        }
        if self.generation + HISTORY < current {
            let numbers = &generations[current];
            let least = generations.iter().map(|numbers| numbers.capacity).min();
            self.tokens = self.tokens.min(least.unwrap().into());
            self.last = born(numbers, numbers.since_ns).last.into();
            self.generation = current;
        }
        for later in self.generation + 1..=current {
            let (from, to) = (&generations[later - 1], &generations[later]);
            self.advance(from, to.since_ns);
            self.tokens = self.tokens.min(to.capacity.into());
            if from.interval_ns != to.interval_ns {
                self.last = to.since_ns.into();
            }
        }
        self.generation = current;
        Some(())
    }

    /// The outcome, or `None` from a clock that is behind the numbers.
    pub(crate) fn charge(
        &mut self,
        generations: &[Numbers],
        now: u64,
        cost: u32,
    ) -> Option<Outcome> {
        self.bring(generations, now)?;
        let numbers = generations.last().unwrap();
        self.advance(numbers, now);
        let remaining = u32::try_from(self.tokens).unwrap();
        Some(if cost > numbers.capacity {
            Outcome::CostExceedsCapacity { remaining }
        } else if cost > remaining {
            Outcome::Limit { remaining }
        } else {
            self.tokens -= i128::from(cost);
            Outcome::Admit {
                remaining: remaining - cost,
            }
        })
    }

    pub(crate) fn level(&self, generations: &[Numbers], now: u64) -> Option<Level> {
        let mut copy = Self { ..*self };
        copy.bring(generations, now)?;
        copy.advance(generations.last().unwrap(), now);
        let tokens = copy.tokens.try_into().unwrap();
        Some(Level {
            tokens,
            last: copy.last.try_into().unwrap(),
        })
    }

    /// Whether the bucket is full with every refill behind it.
    pub(crate) fn is_settled(&self, generations: &[Numbers], now: u64) -> bool {
        let capacity = generations.last().unwrap().capacity;
        self.level(generations, now)
            .is_some_and(|level| level.tokens == capacity && level.last <= now)
    }
}

/// A full bucket that begins at `now`.
pub(crate) fn born(numbers: &Numbers, now: u64) -> Level {
    let intervals = now.saturating_sub(numbers.epoch_ns) / numbers.interval_ns;
    let step = numbers.step().unwrap();
    step.full(numbers.epoch_ns + intervals * numbers.interval_ns)
}
