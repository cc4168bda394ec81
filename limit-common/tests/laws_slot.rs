//! Laws of the slot protocol on one CPU: it decides like the plain bucket, whatever its words hold.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/memory.rs"]
mod memory;
#[path = "support/plain.rs"]
mod plain;
#[path = "support/schedule.rs"]
mod schedule;
#[path = "support/slots.rs"]
mod slots;

use limit_common::{
    bucket::{
        Outcome,
        slot::{Attempt, Owner, is_dead, newborn, read, try_charge, try_retire},
        step::{Level, Step},
    },
    config::{HISTORY, Numbers},
    key::Key,
    layout::BucketSlot,
    units::{Instant, PolicyId},
};
use memory::{Memory, Unwritten};
use plain::{Plain, born};
use proptest::{collection::vec, prelude::*};
use schedule::{Event, INTERVALS, events, pauses};
use slots::{MS, SECOND, first, next, owner, record};

const SOURCE: [u8; 4] = [203, 0, 113, 7];
const STRANGER: [u8; 4] = [203, 0, 113, 8];
const TEN_YEARS: u64 = 3_653 * 86_400 * SECOND;

proptest! {
    #[test]
    fn decides_like_the_step_arithmetic(
        numbers in (1..9_u32, 1..5_u32, 0..5_usize),
        epoch_ns in 0..3 * SECOND,
        start in 0..TEN_YEARS,
        sequence: u64,
        events in vec((pauses(), 1..10_u32), 1..60),
    ) {
        let (capacity, refill, interval) = numbers;
        let numbers = Numbers { epoch_ns, ..first(capacity, refill, INTERVALS[interval]) };
        let (policy, step) = (record(&[numbers]), numbers.step().unwrap());
        let mut now = start;
        let mut level = born(&numbers, now);
        let (slot, outcome) = newborn(owner(SOURCE), &policy, at(now), sequence, 1);
        prop_assert_eq!(outcome, charge(&step, &mut level, now, 1));
        let memory = Memory::from(slot);
        for (pause, cost) in events {
            now = pause.after(now, numbers.interval_ns);
            let expected = charge(&step, &mut level, now, cost);
            let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), cost);
            prop_assert_eq!(attempt, Attempt::Done(expected));
            prop_assert_eq!(read(&memory.slot(), owner(SOURCE), &policy, at(now)), Some(level));
        }
    }

    #[test]
    fn keeps_what_it_had_through_changes_of_the_numbers(
        numbers in (1..9_u32, 1..5_u32, 0..5_usize),
        events in vec(events(), 1..120),
    ) {
        let (capacity, refill, interval) = numbers;
        let mut generations = vec![first(capacity, refill, INTERVALS[interval])];
        let (mut now, mut latest) = (0, 0);
        let mut plain = Plain::full(&generations[0], now);
        let policy = record(&generations);
        let (slot, _) = newborn(owner(SOURCE), &policy, at(now), 0, 0);
        let memory = Memory::from(slot);
        for event in events {
            let current = *generations.last().unwrap();
            // Whoever changes the numbers read a clock that is not behind the CPUs'.
            latest = now.max(latest);
            match event {
                Event::Change { pause, capacity, refill, interval } => {
                    now = latest.max(pause.after(now, current.interval_ns));
                    let interval_ns = INTERVALS[interval];
                    generations.push(next(&current, now, capacity, refill, interval_ns));
                    continue;
                }
                Event::Charge { pause, cost } => {
                    now = pause.after(now, current.interval_ns);
                    let policy = record(&generations);
                    let expected = plain.charge(&generations, now, cost);
                    let expected = expected.map_or(Attempt::Again, Attempt::Done);
                    let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), cost);
                    prop_assert_eq!(attempt, expected);
                }
                Event::Retire { pause, cost } => {
                    now = pause.after(now, current.interval_ns);
                    let policy = record(&generations);
                    let retired = try_retire(&memory, owner(SOURCE), &policy, at(now));
                    prop_assert_eq!(retired, plain.is_settled(&generations, now));
                    if !retired {
                        continue;
                    }
                    let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), cost);
                    prop_assert_eq!(attempt, Attempt::Dead);
                    prop_assert_eq!(read(&memory.slot(), owner(SOURCE), &policy, at(now)), None);
                    // A bucket made anew decides like the one that was retired.
                    let (slot, outcome) = newborn(owner(SOURCE), &policy, at(now), now, cost);
                    prop_assert_eq!(Some(outcome), plain.charge(&generations, now, cost));
                    memory.overwrite(slot);
                }
            }
            let policy = record(&generations);
            let level = read(&memory.slot(), owner(SOURCE), &policy, at(now));
            prop_assert_eq!(level, plain.level(&generations, now));
        }
    }

    #[test]
    fn changes_of_the_numbers_never_mint(
        numbers in (1..9_u32, 1..5_u32),
        events in vec(events(), 1..120),
    ) {
        let mut generations = vec![first(numbers.0, numbers.1, SECOND)];
        let mut most = numbers.0;
        let (slot, _) = newborn(owner(SOURCE), &record(&generations), at(0), 0, 0);
        let memory = Memory::from(slot);
        let (mut now, mut paid, mut bound) = (0, 0_u64, u64::from(numbers.0));
        for event in events {
            let current = *generations.last().unwrap();
            let before = now;
            let (Event::Change { pause, .. }
            | Event::Charge { pause, .. }
            | Event::Retire { pause, .. }) = event;
            now = before.max(pause.after(now, current.interval_ns));
            let refills = |to: u64| (to - current.epoch_ns) / current.interval_ns;
            bound += (refills(now) - refills(before)) * u64::from(current.refill);
            match event {
                Event::Change { capacity, refill, interval, .. } => {
                    generations.push(next(&current, now, capacity, refill, INTERVALS[interval]));
                    most = capacity;
                }
                Event::Charge { cost, .. } | Event::Retire { cost, .. } => {
                    let policy = record(&generations);
                    let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), cost);
                    let Attempt::Done(outcome) = attempt else { panic!("{attempt:?}") };
                    prop_assert!(outcome.remaining() <= most);
                    paid += if outcome.is_admitted() { u64::from(cost) } else { 0 };
                    prop_assert!(paid <= bound);
                }
            }
        }
    }
}

#[test]
fn sequences_wrap() {
    let numbers = first(4, 1, MS);
    let (policy, step) = (record(&[numbers]), numbers.step().unwrap());
    let last = (1_u64 << 24) - 2;
    let memory = Memory::from(BucketSlot {
        state: last << 40 | 4,
        base: last << 40,
        meaning: last << 40 | 1,
        ..newborn(owner(SOURCE), &policy, at(0), 0, 0).0
    });
    memory.0[3].set(last << 40 | memory.0[3].get());
    let mut level = step.full(0);
    for (round, sequence) in (1..=4_u64).zip([last + 1, 0, 1, 2]) {
        let now = round * 300 * MS;
        let expected = charge(&step, &mut level, now, 3);
        let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), 3);
        assert_eq!(attempt, Attempt::Done(expected));
        assert_eq!(memory.slot().state >> 40, sequence);
    }
}

#[test]
fn nothing_wraps_in_ten_years_of_the_shortest_interval() {
    let numbers = first(u32::MAX, 1, MS);
    let (policy, step) = (record(&[numbers]), numbers.step().unwrap());
    let mut level = step.full(0);
    let memory = Memory::from(newborn(owner(SOURCE), &policy, at(0), 0, 0).0);
    for now in (0..=TEN_YEARS).step_by((TEN_YEARS / 10_007) as usize) {
        let expected = charge(&step, &mut level, now, u32::MAX / 3);
        let attempt = try_charge(&memory, owner(SOURCE), &policy, at(now), u32::MAX / 3);
        assert_eq!(attempt, Attempt::Done(expected));
    }
    assert!(level.last > TEN_YEARS - TEN_YEARS / 10_000);
}

#[test]
fn a_smaller_capacity_takes_tokens_and_a_larger_one_gives_none() {
    let generous = first(100, 1, 3600 * SECOND);
    let small = next(&generous, SECOND, 10, 1, 3600 * SECOND);
    let again = next(&small, 3 * SECOND, 100, 1, 3600 * SECOND);
    let memory = Memory::from(newborn(owner(SOURCE), &record(&[generous]), at(0), 0, 20).0);
    let charge = |generations: &[Numbers], now| {
        try_charge(&memory, owner(SOURCE), &record(generations), at(now), 1)
    };
    let after = |remaining| Attempt::Done(Outcome::Admit { remaining });
    assert_eq!(charge(&[generous, small], 2 * SECOND), after(9));
    assert_eq!(charge(&[generous, small, again], 4 * SECOND), after(8));
}

#[test]
fn keeps_what_every_capacity_leaves_when_it_slept_through_more_changes_than_are_remembered() {
    let mut generations = vec![first(8, 1, SECOND)];
    let memory = Memory::from(newborn(owner(SOURCE), &record(&generations), at(0), 0, 1).0);
    for change in 1..=HISTORY as u64 + 1 {
        let last = generations.last().unwrap();
        generations.push(next(last, change * MS, 9, 1 + change as u32 % 2, SECOND));
    }
    let level = |generations: &[Numbers], now| {
        read(&memory.slot(), owner(SOURCE), &record(generations), at(now))
            .unwrap()
            .tokens
    };
    let now = 20 * MS;
    assert_eq!(level(&generations, now), 7);
    assert_eq!(level(&generations, SECOND), 9);
    generations[3].capacity = 2;
    assert_eq!(level(&generations, now), 2);
    let policy = record(&generations);
    assert!(!try_retire(&memory, owner(SOURCE), &policy, at(now)));
    assert!(try_retire(
        &memory,
        owner(SOURCE),
        &policy,
        at(now + 9 * SECOND)
    ));
}

#[test]
fn starts_empty_when_its_generation_is_missing_from_the_history() {
    let old = first(8, 1, SECOND);
    let missing = next(&old, SECOND, 6, 1, SECOND);
    let new = Numbers {
        generation: 3,
        ..next(&old, 2 * SECOND, 8, 2, SECOND)
    };
    let memory = Memory::from(newborn(owner(SOURCE), &record(&[missing]), at(SECOND), 0, 0).0);
    let level = read(
        &memory.slot(),
        owner(SOURCE),
        &record(&[old, new]),
        at(3 * SECOND),
    );
    assert_eq!(
        level,
        Some(Level {
            tokens: 2,
            last: 3 * SECOND
        })
    );
}

#[test]
fn a_reader_of_older_numbers_changes_nothing() {
    let old = first(8, 1, SECOND);
    let new = next(&old, SECOND, 4, 1, SECOND);
    let memory = Memory::from(newborn(owner(SOURCE), &record(&[old, new]), at(SECOND), 0, 1).0);
    let before = memory.slot();
    let late = at(60 * SECOND);
    assert_eq!(
        try_charge(&memory, owner(SOURCE), &record(&[old]), late, 1),
        Attempt::Again
    );
    assert!(!try_retire(&memory, owner(SOURCE), &record(&[old]), late));
    assert_eq!(read(&before, owner(SOURCE), &record(&[old]), late), None);
    assert_eq!(memory.slot(), before);
}

#[test]
fn a_clock_behind_the_change_waits_for_it() {
    let old = first(8, 1, SECOND);
    let policy = record(&[old, next(&old, SECOND, 4, 1, SECOND)]);
    let memory = Memory::from(newborn(owner(SOURCE), &record(&[old]), at(0), 0, 1).0);
    let charge = |now| try_charge(&memory, owner(SOURCE), &policy, at(now), 1);
    assert_eq!(charge(SECOND - 1), Attempt::Again);
    assert_eq!(
        charge(SECOND),
        Attempt::Done(Outcome::Admit { remaining: 3 })
    );
}

#[test]
fn refills_that_old_numbers_gave_after_the_change_are_not_given_twice() {
    let old = first(8, 1, SECOND);
    let slower = next(&old, SECOND, 8, 8, 3 * SECOND);
    let later = next(&slower, 2 * SECOND, 8, 2, 3 * SECOND);
    let faster = next(&old, SECOND, 8, 2, SECOND);
    let level = |generations: &[Numbers], now| {
        let memory = Memory::from(newborn(owner(SOURCE), &record(&[old]), at(0), 0, 8).0);
        let late = try_charge(&memory, owner(SOURCE), &record(&[old]), at(2 * SECOND), 1);
        assert_eq!(late, Attempt::Done(Outcome::Admit { remaining: 1 }));
        read(&memory.slot(), owner(SOURCE), &record(generations), at(now)).unwrap()
    };
    let one = |last| Level { tokens: 1, last };
    assert_eq!(level(&[old, slower], 2 * SECOND), one(4 * SECOND));
    assert_eq!(level(&[old, slower], 7 * SECOND - 1), one(4 * SECOND));
    assert_eq!(level(&[old, slower], 7 * SECOND).tokens, 8);
    assert_eq!(level(&[old, slower, later], 3 * SECOND), one(SECOND));
    assert_eq!(level(&[old, faster], 2 * SECOND), one(2 * SECOND));
    assert_eq!(
        level(&[old, faster], 3 * SECOND),
        Level {
            tokens: 3,
            last: 3 * SECOND
        }
    );
}

#[test]
fn a_refill_that_a_bucket_goes_without_holds_nothing_back_once_the_numbers_change_again() {
    let old = first(8, 1, SECOND);
    let daily = next(&old, 1_500 * MS, 8, 1, 86_400 * SECOND);
    let back = next(&daily, 10 * SECOND, 8, 1, SECOND);
    let memory = Memory::from(newborn(owner(SOURCE), &record(&[old]), at(0), 0, 8).0);
    let charge = |generations: &[Numbers], now, cost| {
        try_charge(&memory, owner(SOURCE), &record(generations), at(now), cost)
    };
    let late = charge(&[old], 2 * SECOND, 2);
    assert_eq!(late, Attempt::Done(Outcome::Admit { remaining: 0 }));
    let waiting = charge(&[old, daily], 3 * SECOND, 1);
    assert_eq!(waiting, Attempt::Done(Outcome::Limit { remaining: 0 }));
    let three = Level {
        tokens: 3,
        last: 13 * SECOND,
    };
    let policy = record(&[old, daily, back]);
    assert_eq!(
        read(&memory.slot(), owner(SOURCE), &policy, at(13 * SECOND)),
        Some(three)
    );
    let paid = charge(&[old, daily, back], 13 * SECOND, 1);
    assert_eq!(paid, Attempt::Done(Outcome::Admit { remaining: 2 }));
}

#[test]
fn a_dead_slot_is_known_by_its_owner_and_retired_once() {
    let policy = record(&[first(4, 1, SECOND)]);
    let memory = Memory::from(newborn(owner(SOURCE), &policy, at(0), 0, 1).0);
    let full = at(SECOND);
    assert!(!is_dead(&memory, owner(SOURCE)));
    assert!(try_retire(&memory, owner(SOURCE), &policy, full));
    assert!(!try_retire(&memory, owner(SOURCE), &policy, full));
    assert!(is_dead(&memory, owner(SOURCE)));
    assert!(!is_dead(&memory, Owner::from_policy(PolicyId::FRAGMENTS)));
    let attempt = try_charge(&memory, owner(SOURCE), &policy, full, 1);
    assert_eq!(attempt, Attempt::Dead);
}

#[test]
fn a_stranger_neither_pays_nor_retires() {
    let policy = record(&[first(4, 1, SECOND)]);
    let memory = Memory::from(newborn(owner(STRANGER), &policy, at(0), 0, 0).0);
    let before = memory.slot();
    assert_eq!(
        try_charge(&memory, owner(SOURCE), &policy, at(0), 1),
        Attempt::Dead
    );
    assert!(!try_retire(&memory, owner(SOURCE), &policy, at(0)));
    assert_eq!(read(&memory.slot(), owner(SOURCE), &policy, at(0)), None);
    assert!(read(&memory.slot(), owner(STRANGER), &policy, at(0)).is_some());
    assert_eq!(memory.slot(), before);
}

#[test]
fn a_busy_slot_is_left_alone() {
    let policy = record(&[first(4, 1, SECOND)]);
    let whole = newborn(owner(SOURCE), &policy, at(0), 0, 0).0;
    let torn = BucketSlot {
        state: whole.state | 1 << 40,
        ..whole
    };
    for slot in [
        BucketSlot {
            state: whole.state | 254 << 32,
            ..whole
        },
        torn,
    ] {
        let memory = Memory::from(slot);
        assert_eq!(
            try_charge(&memory, owner(SOURCE), &policy, at(0), 1),
            Attempt::Again
        );
        assert!(!try_retire(&memory, owner(SOURCE), &policy, at(0)));
        assert_eq!(read(&slot, owner(SOURCE), &policy, at(0)), None);
        assert_eq!(memory.slot(), slot);
    }
}

#[test]
fn a_refusal_writes_only_when_whole_intervals_have_passed() {
    let policy = record(&[first(4, 1, SECOND)]);
    let memory = Memory::from(newborn(owner(SOURCE), &policy, at(0), 0, 4).0);
    let refused = |outcome: Attempt| {
        matches!(
            outcome,
            Attempt::Done(Outcome::Limit { .. } | Outcome::CostExceedsCapacity { .. })
        )
    };
    let unwritten = Unwritten(&memory);
    assert!(refused(try_charge(
        &unwritten,
        owner(SOURCE),
        &policy,
        at(SECOND - 1),
        1
    )));
    assert!(refused(try_charge(
        &unwritten,
        owner(SOURCE),
        &policy,
        at(0),
        5
    )));
    let before = memory.slot();
    assert!(refused(try_charge(
        &memory,
        owner(SOURCE),
        &policy,
        at(SECOND),
        2
    )));
    assert_ne!(memory.slot(), before);
}

#[test]
fn a_slot_of_zeros_begins_full_for_whoever_comes() {
    let policy = record(&[first(4, 1, SECOND)]);
    let overflow = Owner::from_policy(PolicyId::FRAGMENTS);
    let memory = Memory::from(BucketSlot::default());
    let now = at(1_500 * MS);
    assert_eq!(
        read(&memory.slot(), overflow, &policy, now),
        Some(Level {
            tokens: 4,
            last: SECOND
        })
    );
    let attempt = try_charge(&memory, overflow, &policy, now, 3);
    assert_eq!(attempt, Attempt::Done(Outcome::Admit { remaining: 1 }));
    assert_eq!(
        try_charge(&memory, owner(SOURCE), &policy, now, 1),
        Attempt::Dead
    );
}

#[test]
fn a_clock_before_the_epoch_waits_for_it() {
    let numbers = Numbers {
        epoch_ns: SECOND,
        since_ns: SECOND,
        ..first(4, 1, SECOND)
    };
    let policy = record(&[numbers]);
    let memory = Memory::from(newborn(owner(SOURCE), &policy, at(0), 0, 4).0);
    let level = |now| read(&memory.slot(), owner(SOURCE), &policy, at(now)).unwrap();
    assert_eq!(
        level(0),
        Level {
            tokens: 0,
            last: SECOND
        }
    );
    assert_eq!(
        level(2 * SECOND - 1),
        Level {
            tokens: 0,
            last: SECOND
        }
    );
    assert_eq!(
        level(2 * SECOND),
        Level {
            tokens: 1,
            last: 2 * SECOND
        }
    );
}

#[test]
fn owners_differ_where_any_part_of_the_key_does() {
    let key = |prefix: [u8; 8], family, policy| {
        let mut key = Key {
            family,
            policy,
            ..Key::default()
        };
        key.prefix[..8].copy_from_slice(&prefix);
        Owner::from_key(&key)
    };
    let mut owners = Vec::new();
    for policy in 0..=64 {
        owners.extend([
            key([0; 8], 4, policy),
            key([1, 0, 0, 0, 0, 0, 0, 0], 4, policy),
        ]);
        owners.extend(PolicyId::new(policy).map(Owner::from_policy));
        owners.extend((0..64).map(|bit| key((1_u64 << bit).to_be_bytes(), 6, policy)));
    }
    for (place, owner) in owners.iter().enumerate() {
        assert!(!owners[place + 1..].contains(owner));
    }
}

fn charge(step: &Step, level: &mut Level, now: u64, cost: u32) -> Outcome {
    let (after, outcome) = step.charge(*level, now, cost);
    *level = after;
    outcome
}

const fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}
