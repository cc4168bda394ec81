//! Interleavings of CPUs on one slot, all of them up to a number of preemptions: totals are exact, and no
//! charge lands on a stranger.
//!
//! Loads and stores are relaxed, as the kernel's plain ones are, so that a CPU may see old words
//! beside new ones.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "support/slots.rs"]
mod slots;

use std::sync::Arc;

use limit_common::{
    bucket::{
        Outcome,
        slot::{Attempt, Word, Words, newborn, read, try_charge, try_retire},
        step::Level,
    },
    config::Numbers,
    layout::BucketSlot,
    units::Instant,
};
use loom::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};
use slots::{SECOND, first, next, owner, record};

#[test]
fn two_cpus_take_the_last_token_once() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 1));
        let answers = both(&memory, |memory| charge(memory, SOURCE, &[NUMBERS], 0));
        assert_eq!(admitted(&answers), 1);
        assert!(answers.contains(&Answer::Decided(Outcome::Limit { remaining: 0 })));
        assert_eq!(memory.level(&[NUMBERS], 0), Level { tokens: 0, last: 0 });
    });
}

#[test]
fn two_cpus_gain_a_refill_once() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 0));
        let answers = both(&memory, |memory| charge(memory, SOURCE, &[NUMBERS], SECOND));
        assert_eq!(admitted(&answers), 1);
        assert_eq!(
            memory.level(&[NUMBERS], SECOND),
            Level {
                tokens: 0,
                last: SECOND
            }
        );
    });
}

#[test]
fn a_clock_that_is_behind_takes_no_refill_twice() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 0));
        let ahead = memory.run(|memory| charge(memory, SOURCE, &[NUMBERS], 2 * SECOND));
        let behind = charge(&memory, SOURCE, &[NUMBERS], SECOND);
        let answers = [ahead.join().unwrap(), behind];
        let level = memory.level(&[NUMBERS], 2 * SECOND);
        assert_eq!(level.last, 2 * SECOND);
        assert_eq!(level.tokens + admitted(&answers), 2);
    });
}

#[test]
fn two_cpus_rebase_once() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 0));
        let late = 300 * SECOND;
        let answers = both(&memory, move |memory| {
            charge(memory, SOURCE, &[NUMBERS], late)
        });
        let level = memory.level(&[NUMBERS], late);
        assert_eq!(
            level,
            Level {
                tokens: 4 - admitted(&answers),
                last: late
            }
        );
        assert!(admitted(&answers) > 0);
    });
}

#[test]
fn a_charge_and_a_rebase_lose_nothing() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 3));
        let early = memory.run(|memory| charge(memory, SOURCE, &[NUMBERS], 0));
        let late = charge(&memory, SOURCE, &[NUMBERS], 300 * SECOND);
        let early = early.join().unwrap();
        let level = memory.level(&[NUMBERS], 300 * SECOND);
        // A charge before the rebase is repaid by the refills; one after it is not.
        assert_eq!(level.last, 300 * SECOND);
        let admitted_late = admitted(&[late]);
        let possible = [4 - admitted_late, 4 - admitted_late - admitted(&[early])];
        assert!(possible.contains(&level.tokens));
    });
}

#[test]
fn three_cpus_charge_and_rebase() {
    bounded(1, || {
        let memory = Memory::new(bucket(&NUMBERS, 0, 0));
        let late = 300 * SECOND;
        let act = move |memory: &Memory| attempt(memory, SOURCE, &[NUMBERS], late);
        let (first, second) = (memory.run(act), memory.run(act));
        let third = act(&memory);
        let answers = [first.join().unwrap(), second.join().unwrap(), third];
        assert_eq!(
            memory.level(&[NUMBERS], late),
            Level {
                tokens: 4 - admitted(&answers),
                last: late
            }
        );
    });
}

#[test]
fn cpus_with_old_and_new_numbers_mint_nothing() {
    model(|| {
        let small = next(&NUMBERS, SECOND, 2, 1, 3 * SECOND);
        let memory = Memory::new(bucket(&NUMBERS, 0, 4));
        let old = memory.run(|memory| charge(memory, SOURCE, &[NUMBERS], 0));
        let new = charge(&memory, SOURCE, &[NUMBERS, small], SECOND);
        let old = old.join().unwrap();
        assert_eq!(new, Answer::Decided(Outcome::Admit { remaining: 1 }));
        assert!(
            old == Answer::Contended || old == Answer::Decided(Outcome::Admit { remaining: 3 })
        );
        let level = memory.level(&[NUMBERS, small], SECOND);
        assert_eq!(
            level,
            Level {
                tokens: 1,
                last: SECOND
            }
        );
    });
}

#[test]
fn two_cpus_change_the_numbers_once() {
    model(|| {
        let small = next(&NUMBERS, SECOND, 2, 1, 3 * SECOND);
        let memory = Memory::new(bucket(&NUMBERS, 0, 4));
        let answers = both(&memory, move |memory| {
            charge(memory, SOURCE, &[NUMBERS, small], SECOND)
        });
        let level = memory.level(&[NUMBERS, small], SECOND);
        assert_eq!(
            level,
            Level {
                tokens: 2 - admitted(&answers),
                last: SECOND
            }
        );
    });
}

#[test]
fn two_cpus_begin_a_slot_of_zeros_once() {
    model(|| {
        let memory = Memory::new(BucketSlot::default());
        let answers = both(&memory, |memory| charge(memory, SOURCE, &[NUMBERS], SECOND));
        let level = memory.level(&[NUMBERS], SECOND);
        assert_eq!(
            level,
            Level {
                tokens: 4 - admitted(&answers),
                last: SECOND
            }
        );
    });
}

#[test]
fn a_charge_or_a_retirement_but_not_both() {
    for (numbers, generations) in meanings() {
        model(move || {
            let memory = Memory::new(bucket(&numbers, 0, 4));
            let generations = generations.clone();
            let policy = generations.clone();
            let charge = memory.run(move |memory| charge(memory, SOURCE, &policy, LATE));
            let is_retired = try_retire(&*memory, owner(SOURCE), &record(&generations), at(LATE));
            match charge.join().unwrap() {
                Answer::Decided(outcome) => assert!(outcome.is_admitted() && !is_retired),
                Answer::LookUp => assert!(is_retired),
                Answer::Contended => panic!("a retirement is tried once"),
            }
        });
    }
}

#[test]
fn a_charge_never_lands_on_a_stranger() {
    for (numbers, generations) in meanings() {
        model(move || {
            let memory = Memory::new(bucket(&numbers, 0, 4));
            let generations = generations.clone();
            let policy = generations.clone();
            let charge = memory.run(move |memory| charge(memory, SOURCE, &policy, LATE));
            let policy = record(&generations);
            let is_retired = try_retire(&*memory, owner(SOURCE), &policy, at(LATE));
            let (stranger, _) = newborn(owner(STRANGER), &policy, at(LATE), 7, 1);
            if is_retired {
                memory.overwrite(stranger);
            }
            let answer = charge.join().unwrap();
            if is_retired {
                assert_eq!(admitted(&[answer]), 0);
                assert_eq!(memory.slot(), stranger);
            } else {
                assert_eq!(admitted(&[answer]), 1);
                assert_eq!(memory.level(&generations, LATE).tokens, 3);
            }
        });
    }
}

#[test]
fn two_cpus_retire_once() {
    model(|| {
        let memory = Memory::new(bucket(&NUMBERS, 0, 4));
        let retire =
            |memory: &Memory| try_retire(memory, owner(SOURCE), &record(&[NUMBERS]), at(0));
        let other = memory.run(retire);
        assert_ne!(retire(&memory), other.join().unwrap());
    });
}

#[test]
fn a_copy_is_whole_or_nothing() {
    model(|| {
        let small = next(&NUMBERS, SECOND, 2, 1, 3 * SECOND);
        let policy = record(&[NUMBERS, small]);
        let memory = Memory::new(bucket(&NUMBERS, 0, 4));
        let rebase = memory.run(move |memory| charge(memory, SOURCE, &[NUMBERS, small], SECOND));
        let level = read(&memory.slot(), owner(SOURCE), &policy, at(SECOND));
        assert!(level.is_none_or(|level| level.last == SECOND && matches!(level.tokens, 1 | 2)));
        rebase.join().unwrap();
    });
}

const SOURCE: [u8; 4] = [203, 0, 113, 7];
const STRANGER: [u8; 4] = [203, 0, 113, 8];

/// When [`meanings`] make a bucket of 4 tokens full under each of their numbers.
const LATE: u64 = 300 * SECOND;

const NUMBERS: Numbers = Numbers {
    generation: 1,
    since_ns: 0,
    epoch_ns: 0,
    interval_ns: SECOND,
    capacity: 4,
    refill: 1,
};

/// What makes a charge at [`LATE`] a plain swap, a rebase, or a change of the numbers.
fn meanings() -> [(Numbers, Vec<Numbers>); 3] {
    let slow = first(4, 1, 30 * SECOND);
    let same = next(&NUMBERS, SECOND, 4, 2, 3 * SECOND);
    [
        (slow, vec![slow]),
        (NUMBERS, vec![NUMBERS]),
        (NUMBERS, vec![NUMBERS, same]),
    ]
}

/// What a packet learns from one slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Decided(Outcome),
    LookUp,
    Contended,
}

/// One attempt, and another on the same slot if that did not decide.
fn charge(memory: &Memory, source: [u8; 4], generations: &[Numbers], now: u64) -> Answer {
    match attempt(memory, source, generations, now) {
        Answer::Contended => attempt(memory, source, generations, now),
        answer @ (Answer::Decided(_) | Answer::LookUp) => answer,
    }
}

fn attempt(memory: &Memory, source: [u8; 4], generations: &[Numbers], now: u64) -> Answer {
    match try_charge(memory, owner(source), &record(generations), at(now), 1) {
        Attempt::Done(outcome) => Answer::Decided(outcome),
        Attempt::Dead => Answer::LookUp,
        Attempt::Again => Answer::Contended,
    }
}

fn admitted(answers: &[Answer]) -> u32 {
    let is_admitted =
        |answer: &&Answer| matches!(answer, Answer::Decided(outcome) if outcome.is_admitted());
    answers.iter().filter(is_admitted).count() as u32
}

/// A bucket of these numbers that holds `tokens` at `now`.
fn bucket(numbers: &Numbers, now: u64, tokens: u32) -> BucketSlot {
    newborn(
        owner(SOURCE),
        &record(&[*numbers]),
        at(now),
        1,
        numbers.capacity - tokens,
    )
    .0
}

/// Runs `act` on two CPUs.
fn both<F>(memory: &Arc<Memory>, act: F) -> [Answer; 2]
where
    F: Fn(&Memory) -> Answer + Copy + 'static,
{
    let other = memory.run(act);
    let here = act(memory);
    [here, other.join().unwrap()]
}

/// The slot's words in the order of its fields, shared by CPUs.
struct Memory([AtomicU64; 4]);

impl Memory {
    fn new(slot: BucketSlot) -> Arc<Self> {
        Arc::new(Self(
            [slot.state, slot.base, slot.meaning, slot.owner].map(AtomicU64::new),
        ))
    }

    fn run<T, F>(self: &Arc<Self>, act: F) -> thread::JoinHandle<T>
    where
        T: 'static,
        F: FnOnce(&Self) -> T + 'static,
    {
        let memory = Arc::clone(self);
        thread::spawn(move || act(&memory))
    }

    /// The words as somebody copies them who takes no part.
    fn slot(&self) -> BucketSlot {
        let [state, base, meaning, owner] =
            [Word::State, Word::Base, Word::Meaning, Word::Owner].map(|word| self.load(word));
        BucketSlot {
            state,
            base,
            meaning,
            owner,
            refusals: 0,
        }
    }

    fn level(&self, generations: &[Numbers], now: u64) -> Level {
        read(&self.slot(), owner(SOURCE), &record(generations), at(now))
            .expect("nobody is changing the slot")
    }

    /// What the map does when an element passes to another key.
    fn overwrite(&self, slot: BucketSlot) {
        for (word, value) in self
            .0
            .iter()
            .zip([slot.state, slot.base, slot.meaning, slot.owner])
        {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Words for Memory {
    fn load(&self, word: Word) -> u64 {
        self.0[word as usize].load(Ordering::Relaxed)
    }

    fn store(&self, word: Word, value: u64) {
        self.0[word as usize].store(value, Ordering::Relaxed);
    }

    fn swap(&self, expected: u64, new: u64) -> bool {
        self.0[0]
            .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

const fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// Every interleaving of two CPUs with two preemptions, and every value that a relaxed load may
/// return: one preemption lets a CPU be late with its swap, the other with its stores.
/// With `LIMIT_TEST_FULL` one preemption more, which takes minutes.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let full = std::env::var_os("LIMIT_TEST_FULL").is_some();
    bounded(if full { 3 } else { 2 }, check);
}

fn bounded(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}
