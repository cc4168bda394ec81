//! Laws of the gate: permits are never above the maximum, and the gate comes before the bucket.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::{NonZeroU32, NonZeroU64};

use limit_common::{
    bucket::{
        Outcome,
        step::{Level, Step},
    },
    gate::{Entry, Permits, Shed, enter, has_room},
};
use proptest::{collection::vec, prelude::*};

proptest! {
    #[test]
    fn permits_stay_between_none_and_the_maximum(
        max in 1..5_u32,
        acquires in vec(any::<bool>(), 1..60),
    ) {
        let max = NonZeroU32::new(max).unwrap();
        let (mut permits, mut expected) = (Permits::NONE, 0_i64);
        for acquire in acquires {
            if acquire {
                match permits.acquire(max) {
                    Ok(more) => {
                        permits = more;
                        expected += 1;
                    }
                    Err(Shed) => prop_assert_eq!(expected, i64::from(max.get())),
                }
            } else {
                permits = permits.release();
                expected = 0.max(expected - 1);
            }
            prop_assert_eq!(i64::from(permits.count()), expected);
            prop_assert!(permits.count() <= max.get());
        }
    }

    #[test]
    fn the_gate_comes_before_the_bucket(
        out in 0..4_u32,
        max in 0..4_u32,
        tokens in 0..5_u32,
        now in 0..5_000_u64,
        cost in 1..7_u32,
    ) {
        let level = Level { tokens, last: 1_000 };
        let permits = taken(out);
        let (after, left, entry) = enter(permits, NonZeroU32::new(max), &STEP, level, now, cost);
        match entry {
            Entry::Shed => {
                prop_assert!(max != 0 && out >= max);
                prop_assert_eq!((after, left), (permits, level));
            }
            Entry::Judged(outcome) => {
                prop_assert!(max == 0 || out < max);
                prop_assert_eq!((left, outcome), STEP.charge(level, now, cost));
                let expected = if outcome.is_admitted() { out + 1 } else { out };
                prop_assert_eq!(after.count(), expected);
            }
        }
    }

    #[test]
    fn has_room_while_one_more_is_within_the_maximum(out: u32, max: u32) {
        let after = u64::from(out) + 1;
        prop_assert_eq!(has_room(out, max), max == 0 || after <= u64::from(max));
    }
}

#[test]
fn sheds_without_touching_an_empty_bucket() {
    let level = Level { tokens: 0, last: 0 };
    let (permits, left, entry) = enter(taken(2), NonZeroU32::new(2), &STEP, level, 10_000, 1);
    assert_eq!((permits.count(), left, entry), (2, level, Entry::Shed));
}

#[test]
fn a_limited_request_takes_no_permit() {
    let level = Level { tokens: 0, last: 0 };
    let (permits, _, entry) = enter(taken(1), NonZeroU32::new(2), &STEP, level, 999, 1);
    assert_eq!(permits.count(), 1);
    assert_eq!(entry, Entry::Judged(Outcome::Limit { remaining: 0 }));
}

const STEP: Step = Step {
    capacity: NonZeroU32::new(4).unwrap(),
    refill: NonZeroU32::new(1).unwrap(),
    interval: NonZeroU64::new(1000).unwrap(),
};

/// This many permits out.
fn taken(count: u32) -> Permits {
    let max = NonZeroU32::new(u32::MAX).unwrap();
    (0..count).fold(Permits::NONE, |permits, _| permits.acquire(max).unwrap())
}
