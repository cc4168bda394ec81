//! A bucket in words that several CPUs share, changed by compare-and-swap alone, with no lock.
//!
//! ```text
//! state    sequence:24 | intervals:8 | tokens:32   intervals since `base`; 254 busy, 255 dead
//! base     sequence:24 | intervals:40              intervals since the policy's epoch
//! meaning  sequence:24 | generation:40             whose numbers the words are in
//! owner    sequence:24 | source:40                 who pays from this slot
//! ```
//!
//! A decision reads four words, and counts only if their sequences agree; then it swaps `state`.
//! Within one sequence `state` never takes the same value twice: tokens only fall while `intervals`
//! stays, and `intervals` only rises. So a swap that succeeds proves that the other three words were
//! those of the decision. Whoever must change them swaps `state` to busy under the next sequence,
//! which is an exclusive claim, writes them, and swaps `state` to its new value.
//!
//! A bucket that is full holds nothing worth keeping and may be retired: `state` is swapped to dead,
//! which nothing leaves, before its memory passes to another source. A CPU that still points to the
//! memory meets dead, or sequences that differ, or another owner, and charges nobody.
//!
//! No order of loads is needed. A plain store of `base`, `meaning` or `owner` follows a swap that
//! succeeded and precedes another; a swap is a full barrier in the kernel.

use crate::{
    bucket::{
        Outcome,
        generation::{Credit, refill_ns, translate},
        step::Level,
    },
    config::PolicyRecord,
    key::{Key, halves},
    layout::BucketSlot,
    units::{Instant, PolicyId},
};

/// The shared memory of one slot.
///
/// Loads and stores need no order of their own; every word is whole, and no value appears that was
/// never written. `swap` is a full barrier where it succeeds.
pub trait Words {
    /// The value of `word`.
    fn load(&self, word: Word) -> u64;

    /// Writes `word`, which is never [`Word::State`].
    fn store(&self, word: Word, value: u64);

    /// Replaces [`Word::State`] if it is `expected`, and tells whether it did.
    fn swap(&self, expected: u64, new: u64) -> bool;
}

/// The words of the protocol, by the names of their fields in [`BucketSlot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// `state`
    State,
    /// `base`
    Base,
    /// `meaning`
    Meaning,
    /// `owner`
    Owner,
}

/// Who pays from a slot: a key in 40 bits.
///
/// Exact for IPv4. IPv6 keys are mixed, so two may share a value; it is only looked at after the map
/// was searched for the whole key, to tell that the memory passed to another source meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// The owner of the bucket of `key`.
    #[must_use]
    #[inline(always)]
    pub const fn from_key(key: &Key) -> Self {
        // Read as little-endian, the first bytes are the lower half.
        let [low, high] = halves(u128::from_le_bytes(key.prefix));
        let policy = (key.policy as u64) << 32;
        if key.family != 6 {
            return Self(high & u32::MAX as u64 | policy);
        }
        let mixed = high.wrapping_mul(SPREAD) ^ low ^ policy;
        Self((mixed ^ (mixed >> 32)).wrapping_mul(SPREAD) >> 25 | V6_OWNER)
    }

    /// The owner of the overflow bucket of `policy`, which many keys share; no key has it.
    #[must_use]
    #[inline(always)]
    pub const fn from_policy(policy: PolicyId) -> Self {
        Self(OVERFLOW_OWNER | policy.number() as u64)
    }
}

/// What came of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// The bucket decided.
    Done(Outcome),
    /// Another CPU is changing the slot, or changed it first, or this CPU's numbers or clock are behind
    /// the last change of the numbers. The same slot may be tried again.
    Again,
    /// The slot is dead or another source's: the key must be looked up again.
    Dead,
}

/// Charges `cost` at `now` to the bucket of `owner` in `words`, once.
///
/// The decision is [`Step::charge`](crate::bucket::step::Step::charge) under the policy's current
/// numbers. A refusal writes only when whole intervals have passed, or once after a change of the
/// numbers. A slot of zeros was never used: it begins full and becomes `owner`'s.
///
/// # Concurrency
/// Any number of CPUs may charge and retire one slot. A CPU whose `policy` is older than the slot
/// gets [`Attempt::Again`]: it does not have the numbers that would tell what the tokens mean, and a
/// refusal mints nothing. It lasts for the packets that found the older set, no longer.
#[inline(always)]
pub fn try_charge<W: Words>(
    words: &W,
    owner: Owner,
    policy: &PolicyRecord,
    now: Instant,
    cost: u32,
) -> Attempt {
    let seen = Seen::load(words);
    if seen.delta() == DEAD {
        return Attempt::Dead;
    }
    if seen.delta() == BUSY || !seen.is_whole() {
        return Attempt::Again;
    }
    if seen.is_of_another(owner) {
        return Attempt::Dead;
    }
    let numbers = &policy.current;
    let Some(step) = numbers.step() else {
        return Attempt::Done(Outcome::CostExceedsCapacity { remaining: 0 });
    };
    let Some(credit) = seen.credit(policy, now) else {
        return Attempt::Again;
    };

    let steps = step.steps(refill_ns(numbers, credit.intervals), now.as_ns());
    let (tokens, outcome) = step.pay(step.gain(credit.tokens, steps), cost);
    let intervals = credit.intervals.wrapping_add(steps);

    let delta = intervals.wrapping_sub(seen.base & LOW_40);
    if seen.generation() == numbers.generation && delta <= MAX_DELTA {
        if steps == 0 && !outcome.is_admitted() {
            return Attempt::Done(outcome);
        }
        let state = pack_state(seen.sequence(), delta, tokens);
        return if words.swap(seen.state, state) {
            Attempt::Done(outcome)
        } else {
            Attempt::Again
        };
    }

    let sequence = seen.sequence().wrapping_add(1) & SEQUENCES;
    let busy = pack_state(sequence, BUSY, 0);
    if !words.swap(seen.state, busy) {
        return Attempt::Again;
    }
    words.store(Word::Base, pack(sequence, intervals));
    words.store(Word::Meaning, pack(sequence, numbers.generation));
    words.store(Word::Owner, pack(sequence, owner.0));
    // Nobody else leaves busy, so this succeeds; it is a swap for its barrier.
    if words.swap(busy, pack_state(sequence, 0, tokens)) {
        Attempt::Done(outcome)
    } else {
        Attempt::Again
    }
}

/// Makes the slot dead if it is `owner`'s and its bucket is full at `now` under the current numbers.
///
/// After `true` nobody charges the slot any more, and only the caller may remove it from its map. A
/// bucket made anew for the same source is as full as this one was.
///
/// # Concurrency
/// Another CPU may make the bucket anew at once. For the refill at `now` not to count twice, it reads
/// its clock for `newborn` after the look-up that missed.
#[must_use]
#[inline(always)]
pub fn try_retire<W: Words>(words: &W, owner: Owner, policy: &PolicyRecord, now: Instant) -> bool {
    let seen = Seen::load(words);
    if seen.delta() > MAX_DELTA
        || !seen.is_whole()
        || seen.is_fresh()
        || seen.owner & LOW_40 != owner.0
    {
        return false;
    }
    let Some(step) = policy.current.step() else {
        return false;
    };
    let Some(credit) = seen.credit(policy, now) else {
        return false;
    };
    let last = refill_ns(&policy.current, credit.intervals);
    // A refill ahead of this clock is in the tokens already; a new bucket would gain it again.
    if last > now.as_ns() {
        return false;
    }
    let steps = step.steps(last, now.as_ns());
    if step.gain(credit.tokens, steps) < step.capacity.get() {
        return false;
    }
    words.swap(seen.state, pack_state(seen.sequence(), DEAD, 0))
}

/// Whether the slot is `owner`'s and dead: retired, and not removed from its map yet.
///
/// # Concurrency
/// It tells nothing about who retired it; only who may remove the slot alone may act on it.
#[must_use]
#[inline(always)]
pub fn is_dead<W: Words>(words: &W, owner: Owner) -> bool {
    let seen = Seen::load(words);
    seen.delta() == DEAD && seen.is_whole() && seen.owner & LOW_40 == owner.0
}

/// A full bucket for `owner`, made at `now` and charged with `cost`.
///
/// last = epoch + floor((now - epoch) / interval) * interval, or the epoch if `now` lies before it
///
/// `sequence` tells the lives of one memory apart; any counter will do.
#[must_use]
#[inline(always)]
pub fn newborn(
    owner: Owner,
    policy: &PolicyRecord,
    now: Instant,
    sequence: u64,
    cost: u32,
) -> (BucketSlot, Outcome) {
    let numbers = &policy.current;
    let Some(step) = numbers.step() else {
        return (
            BucketSlot::default(),
            Outcome::CostExceedsCapacity { remaining: 0 },
        );
    };
    // Spread, because a rebase also counts sequences up by one.
    let sequence = sequence.wrapping_mul(SPREAD) & SEQUENCES;
    let (tokens, outcome) = step.pay(step.capacity.get(), cost);
    let slot = BucketSlot {
        state: pack_state(sequence, 0, tokens),
        base: pack(sequence, step.steps(numbers.epoch_ns, now.as_ns())),
        meaning: pack(sequence, numbers.generation),
        owner: pack(sequence, owner.0),
        refusals: 0,
    };
    (slot, outcome)
}

/// The level at `now` of `owner`'s slot that was copied out of its map, or `None` if it is dead, busy,
/// torn, another source's, or in later numbers than `policy` knows.
#[must_use]
pub fn read(slot: &BucketSlot, owner: Owner, policy: &PolicyRecord, now: Instant) -> Option<Level> {
    let seen = Seen {
        state: slot.state,
        base: slot.base,
        meaning: slot.meaning,
        owner: slot.owner,
    };
    if seen.delta() > MAX_DELTA || !seen.is_whole() || seen.is_of_another(owner) {
        return None;
    }
    let step = policy.current.step()?;
    let Credit { tokens, intervals } = seen.credit(policy, now)?;
    let last = refill_ns(&policy.current, intervals);
    Some(step.advance(Level { tokens, last }, now.as_ns()))
}

/// The four words as one CPU saw them.
struct Seen {
    state: u64,
    base: u64,
    meaning: u64,
    owner: u64,
}

impl Seen {
    #[inline(always)]
    fn load<W: Words>(words: &W) -> Self {
        Self {
            state: words.load(Word::State),
            base: words.load(Word::Base),
            meaning: words.load(Word::Meaning),
            owner: words.load(Word::Owner),
        }
    }

    /// Whether the words are of one sequence.
    #[inline(always)]
    const fn is_whole(&self) -> bool {
        ((self.state ^ self.base) | (self.state ^ self.meaning) | (self.state ^ self.owner)) >> 40
            == 0
    }

    /// Whether the slot was never used.
    #[inline(always)]
    const fn is_fresh(&self) -> bool {
        self.generation() == 0
    }

    /// Whether the slot is in use by another source than `owner`.
    #[inline(always)]
    const fn is_of_another(&self, owner: Owner) -> bool {
        !self.is_fresh() && self.owner & LOW_40 != owner.0
    }

    #[inline(always)]
    const fn sequence(&self) -> u64 {
        self.state >> 40
    }

    #[inline(always)]
    const fn delta(&self) -> u64 {
        (self.state >> 32) & 0xff
    }

    #[inline(always)]
    const fn generation(&self) -> u64 {
        self.meaning & LOW_40
    }

    /// The bucket in the current numbers of `policy`, or `None` if the slot is in later ones or they are
    /// later than `now`.
    #[inline(always)]
    fn credit(&self, policy: &PolicyRecord, now: Instant) -> Option<Credit> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "tokens are the low 32 bits"
        )]
        let tokens = self.state as u32;
        let credit = Credit {
            tokens,
            intervals: (self.base & LOW_40).wrapping_add(self.delta()),
        };
        let numbers = &policy.current;
        if self.generation() == numbers.generation {
            return Some(credit);
        }
        if self.is_fresh() {
            let intervals = numbers.step()?.steps(numbers.epoch_ns, now.as_ns());
            return Some(Credit {
                tokens: numbers.capacity,
                intervals,
            });
        }
        if self.generation() > numbers.generation {
            return None;
        }
        translate(policy, self.generation(), credit, now)
    }
}

#[inline(always)]
const fn pack_state(sequence: u64, delta: u64, tokens: u32) -> u64 {
    (sequence << 40) | (delta << 32) | tokens as u64
}

#[inline(always)]
const fn pack(sequence: u64, low: u64) -> u64 {
    (sequence << 40) | (low & LOW_40)
}

/// Most intervals that `state` counts from `base`.
const MAX_DELTA: u64 = 253;

/// In place of the intervals: a CPU is changing the slot.
const BUSY: u64 = 254;

/// In place of the intervals: the slot is out of use.
const DEAD: u64 = 255;

/// The largest sequence; the next one is 0.
const SEQUENCES: u64 = (1 << 24) - 1;

/// What `base`, `meaning` and `owner` hold beside the sequence.
const LOW_40: u64 = (1 << 40) - 1;

/// Set in the owner of an IPv6 key, never in that of an IPv4 key: policies stay below 128.
const V6_OWNER: u64 = 1 << 39;

/// Set in the owner of an overflow bucket: where keys have their policy, one that no policy has.
const OVERFLOW_OWNER: u64 = 0x7f << 32;

/// 2^64 divided by the golden ratio, to an odd number.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
