//! Laws of the token bucket with step refill, against its equations written plainly in 128 bits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::{NonZeroU32, NonZeroU64};

use limit_common::bucket::{
    Outcome,
    step::{Level, Step},
};
use proptest::{collection::vec, prelude::*};

proptest! {
    #[test]
    fn decides_like_the_plain_form(
        step in steps(),
        level in levels(),
        events in vec((instants(), costs()), 1..60),
    ) {
        let mut level = within(&step, level);
        let mut plain = Plain::from(level);
        for (now, cost) in events {
            let (after, outcome) = step.charge(level, now, cost);
            let admitted = plain.charge(&step, now, cost);
            prop_assert_eq!(outcome.is_admitted(), admitted);
            prop_assert_eq!(Plain::from(after), plain);
            prop_assert_eq!(u128::from(outcome.remaining()), plain.tokens);
            prop_assert_eq!(
                matches!(outcome, Outcome::CostExceedsCapacity { .. }),
                cost > step.capacity.get()
            );
            level = after;
        }
    }

    #[test]
    fn retry_after_suffices_and_one_tick_less_does_not(
        step in steps(),
        level in levels(),
        now in instants(),
        cost in costs(),
    ) {
        let level = within(&step, level);
        let (after, outcome) = step.charge(level, now, cost);
        let wait = step.retry_after(level, now, cost);
        if outcome.is_admitted() {
            prop_assert_eq!(wait, Some(0));
            return Ok(());
        }
        prop_assert_eq!(step.retry_after(after, now, cost), wait);
        let admits_at = |at: u64| step.charge(after, at, cost).1.is_admitted();
        match wait {
            Some(wait) => {
                prop_assert!(wait > 0);
                prop_assert!(admits_at(now + wait));
                prop_assert!(!admits_at(now + wait - 1));
            }
            None => prop_assert!(!admits_at(u64::MAX)),
        }
    }

    #[test]
    fn is_proportional_by_the_equation(
        step in steps(),
        level in levels(),
        now in instants(),
        cost in costs(),
    ) {
        let level = within(&step, level);
        let mut plain = Plain::from(level);
        plain.advance(&step, now);
        let missing = u128::from(cost).saturating_sub(plain.tokens);
        let exact = (missing * u128::from(step.interval.get())).div_ceil(step.refill.get().into());
        let expected = if cost > step.capacity.get() { None } else { u64::try_from(exact).ok() };
        prop_assert_eq!(step.retry_after_proportional(level, now, cost), expected);
    }

    #[test]
    fn until_full_is_the_first_tick_at_which_it_is_full(
        step in steps(),
        level in levels(),
        now in instants(),
    ) {
        let level = within(&step, level);
        let wait = step.until_full(level, now);
        let is_full_at = |at: u64| step.advance(level, at).tokens == step.capacity.get();
        if wait == u64::MAX {
            prop_assert!(!is_full_at(u64::MAX - 1));
            return Ok(());
        }
        prop_assert!(is_full_at(now + wait));
        prop_assert!(wait == 0 || !is_full_at(now + wait - 1));
    }

    #[test]
    fn advancing_in_two_steps_equals_one(
        step in steps(),
        level in levels(),
        times in (instants(), instants()),
    ) {
        let level = within(&step, level);
        let (early, late) = (times.0.min(times.1), times.0.max(times.1));
        prop_assert_eq!(step.advance(step.advance(level, early), late), step.advance(level, late));
    }

    #[test]
    fn admits_in_any_window_at_most_the_capacity_and_what_was_refilled(
        step in small_steps(),
        start in 0..1_000_000_u64,
        events in vec((0..40_u64, 1..6_u32), 1..60),
    ) {
        let mut level = step.full(start);
        let mut now = start;
        let mut paid = Vec::new();
        for (pause, cost) in events {
            now += pause;
            let (after, outcome) = step.charge(level, now, cost);
            level = after;
            paid.push((now, if outcome.is_admitted() { u64::from(cost) } else { 0 }));
        }
        let refills = |at: u64| (at - start) / step.interval;
        for (first, &(from, _)) in paid.iter().enumerate() {
            let mut sum = 0;
            for &(to, cost) in &paid[first..] {
                sum += cost;
                let refilled = (refills(to) - refills(from)) * u64::from(step.refill.get());
                prop_assert!(sum <= u64::from(step.capacity.get()) + refilled);
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_never_mints(
        step in small_steps(),
        start in 0..200_u64,
        events in vec((0..400_u64, 1..6_u32), 1..80),
    ) {
        let mut level = step.full(start);
        let (mut sum, mut latest) = (0, start);
        for (now, cost) in events {
            let (after, outcome) = step.charge(level, now, cost);
            level = after;
            latest = latest.max(now);
            sum += if outcome.is_admitted() { u64::from(cost) } else { 0 };
            let refilled = (latest - start) / step.interval * u64::from(step.refill.get());
            prop_assert!(sum <= u64::from(step.capacity.get()) + refilled);
        }
    }
}

#[test]
fn nothing_wraps_at_the_last_tick() {
    let numbers = [1, 2, u32::MAX - 1, u32::MAX];
    let intervals = [1, 2, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let ticks = [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for (capacity, refill) in numbers.iter().flat_map(|&c| numbers.map(|r| (c, r))) {
        for (interval, last) in intervals.iter().flat_map(|&i| ticks.map(|l| (i, l))) {
            for (now, cost) in ticks.iter().flat_map(|&t| numbers.map(|c| (t, c))) {
                let step = step(capacity, refill, interval);
                let mut plain = Plain {
                    tokens: 0,
                    last: last.into(),
                };
                plain.charge(&step, now, cost);
                let (after, _) = step.charge(Level { tokens: 0, last }, now, cost);
                assert_eq!(Plain::from(after), plain);
                let wait = step.retry_after(after, now, cost);
                assert!(wait.is_none_or(|wait| now.checked_add(wait).is_some()));
            }
        }
    }
}

#[test]
fn keeps_the_remainder_of_an_interval() {
    let step = step(4, 1, 1000);
    let mut level = step.full(0);
    for _ in 0..4 {
        level = step.charge(level, 0, 1).0;
    }
    let admitted = [600, 1200, 1800, 2400, 3000].map(|now| {
        let (after, outcome) = step.charge(level, now, 1);
        level = after;
        outcome.is_admitted()
    });
    assert_eq!(admitted, [false, true, false, true, true]);
}

#[test]
fn admits_fifteen_in_ten_minutes_at_one_a_minute_with_a_burst_of_five() {
    let step = step(5, 1, 60_000);
    let mut level = step.full(0);
    let admitted = (0..=600_000_u64).step_by(10).filter(|&now| {
        let (after, outcome) = step.charge(level, now, 1);
        level = after;
        outcome.is_admitted()
    });
    assert_eq!(admitted.count(), 15);
}

/// Tokens and last refill in numbers that cannot wrap: the equations as they stand.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain {
    tokens: u128,
    last: u128,
}

impl Plain {
    fn advance(&mut self, step: &Step, now: u64) {
        let steps = u128::from(now).saturating_sub(self.last) / u128::from(step.interval.get());
        let gained = self.tokens + steps * u128::from(step.refill.get());
        self.tokens = gained.min(step.capacity.get().into());
        self.last += steps * u128::from(step.interval.get());
    }

    fn charge(&mut self, step: &Step, now: u64, cost: u32) -> bool {
        self.advance(step, now);
        let admitted = u128::from(cost) <= self.tokens;
        if admitted {
            self.tokens -= u128::from(cost);
        }
        admitted
    }
}

impl From<Level> for Plain {
    fn from(level: Level) -> Self {
        Self {
            tokens: level.tokens.into(),
            last: level.last.into(),
        }
    }
}

fn step(capacity: u32, refill: u32, interval: u64) -> Step {
    Step {
        capacity: NonZeroU32::new(capacity).unwrap(),
        refill: NonZeroU32::new(refill).unwrap(),
        interval: NonZeroU64::new(interval).unwrap(),
    }
}

/// Tokens above the capacity are not a state of the bucket.
fn within(step: &Step, level: Level) -> Level {
    Level {
        tokens: level.tokens.min(step.capacity.get()),
        ..level
    }
}

/// Every policy of integers, the small and the huge ones often.
fn steps() -> impl Strategy<Value = Step> {
    let intervals = prop_oneof![1..50_u64, 1..=u64::MAX, Just(u64::MAX)];
    (costs(), costs(), intervals)
        .prop_map(|(capacity, refill, interval)| step(capacity, refill, interval))
}

fn small_steps() -> impl Strategy<Value = Step> {
    (1..8_u32, 1..5_u32, 1..50_u64)
        .prop_map(|(capacity, refill, interval)| step(capacity, refill, interval))
}

fn levels() -> impl Strategy<Value = Level> {
    (prop_oneof![0..10_u32, any::<u32>()], instants())
        .prop_map(|(tokens, last)| Level { tokens, last })
}

fn instants() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_u64, any::<u64>(), u64::MAX - 300..=u64::MAX]
}

fn costs() -> impl Strategy<Value = u32> {
    prop_oneof![1..10_u32, 1..=u32::MAX, Just(u32::MAX)]
}
