//! Buckets in their map: look up, call the pure protocol, and find room for newcomers.
//!
//! Every bucket has a place in `PLACES`, so at most as many buckets exist as the map was made for. A
//! newcomer walks the hand over the next few places: an empty one it takes, one whose bucket is full
//! again it takes over, and where it finds neither it is charged to its policy's overflow bucket. It
//! is never unlimited, and no bucket that still owes tokens is forgotten.

use core::ptr;

use aya_ebpf::bindings::BPF_NOEXIST;
use limit_common::{
    bucket::{
        Outcome,
        slot::{Attempt, Owner, Word, Words, is_dead, newborn, try_charge, try_retire},
    },
    config::{PolicyRecord, PolicySet},
    counters::Effect,
    key::Key,
    layout::{BucketSlot, Place, REFUSAL_SAMPLE, place_state},
    pipeline::Charge,
    units::{Instant, PolicyId},
};

use crate::{
    atomic::{compare_and_swap, fetch_add},
    clock, counters,
    maps::{BUCKETS, HANDS, OVERFLOWS, PLACES},
};

/// Charges `cost` to the bucket of `key`, which is made full if there is none.
///
/// The usual case, a bucket that is there and that no other CPU changes, is decided in place. What is
/// left goes to [`charge_slowly`].
#[inline(always)]
pub(crate) fn charge(
    key: &Key,
    policy: &PolicyRecord,
    set: &PolicySet,
    now: Instant,
    cost: u32,
) -> Charge {
    let Some(id) = PolicyId::new(key.policy) else {
        return Charge::Contended;
    };
    let owner = Owner::from_key(key);
    let image = KeyImage::from_key(key);
    let key = image.as_key();
    if let Some(slot) = BUCKETS.get_ptr_mut(key) {
        let attempt = try_charge(&Slot(slot), owner, policy, now, cost);
        if let Attempt::Done(outcome) = attempt {
            note_refusal(slot, id, &outcome);
            return Charge::Decided(outcome);
        }
    }
    decode(charge_slowly(key, set, now.as_ns(), cost))
}

/// A key in memory, written as words.
///
/// The kernel hashes a key word by word; a CPU that reads as one word what was just written byte by
/// byte waits until all of it has left its store buffer.
#[repr(C)]
struct KeyImage {
    prefix: [u64; 2],
    family_and_policy: u32,
}

impl KeyImage {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    const fn from_key(key: &Key) -> Self {
        let prefix = u128::from_be_bytes(key.prefix);
        Self {
            prefix: [((prefix >> 64) as u64).to_be(), (prefix as u64).to_be()],
            family_and_policy: u32::from_ne_bytes([key.family, key.policy, 0, 0]),
        }
    }

    #[inline(always)]
    const fn as_key(&self) -> &Key {
        // SAFETY: the first 20 bytes are those of a key, which is made of integers alone, in the same
        // order, and has a smaller alignment.
        unsafe { &*ptr::from_ref(self).cast::<Key>() }
    }
}

/// Charges a bucket that is new, changing, or in the overflow; what came of it as [`encode`] has it.
///
/// One loop, each round of which is one attempt: to charge the bucket that is there, or to find a
/// place for one that is not. After [`LOOKS`] rounds a newcomer has had its looks and is charged to
/// the overflow bucket; after [`ATTEMPTS`] more the answer is a refusal.
///
/// A function of its own with global linkage, so that the verifier looks at it once and not for every
/// way that a packet can come here.
///
/// # Concurrency
/// Each charge is one compare-and-swap, and a lost one is a lost round.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_slowly(key: *const Key, set: *const PolicySet, now_ns: u64, cost: u32) -> u64 {
    // SAFETY: the one caller passes references; the verifier wants to see the test for null.
    let (Some(key), Some(set)) = (unsafe { key.as_ref() }, unsafe { set.as_ref() }) else {
        return CONTENDED;
    };
    let (Some(id), Some(policy)) = (PolicyId::new(key.policy), set.policy(key.policy)) else {
        return CONTENDED;
    };
    let now = Instant::from_ns(now_ns);
    for round in 0..LOOKS.wrapping_add(ATTEMPTS) {
        let (slot, owner, shared) = match BUCKETS.get_ptr_mut(key) {
            Some(slot) => (slot, Owner::from_key(key), false),
            None if round < LOOKS => match welcome(key, policy, set, cost) {
                Some(outcome) => return encode(outcome),
                None => continue,
            },
            None => match OVERFLOWS.get_ptr_mut(u32::from(key.policy)) {
                Some(slot) => (slot, Owner::from_policy(id), true),
                None => return CONTENDED,
            },
        };
        if let Attempt::Done(outcome) = try_charge(&Slot(slot), owner, policy, now, cost) {
            if shared {
                counters::record_effect(id, Effect::Overflow);
            }
            note_refusal(slot, id, &outcome);
            return encode(outcome);
        }
    }
    CONTENDED
}

/// An outcome as one word: its kind in the upper half, the tokens that remain in the lower.
#[inline(always)]
fn encode(outcome: Outcome) -> u64 {
    let kind = match outcome {
        Outcome::Admit { .. } => ADMIT,
        Outcome::Limit { .. } => LIMIT,
        Outcome::CostExceedsCapacity { .. } => COST_EXCEEDS_CAPACITY,
    };
    kind | u64::from(outcome.remaining())
}

/// The reverse of [`encode`].
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what remains"
)]
fn decode(word: u64) -> Charge {
    let remaining = word as u32;
    match word & !u64::from(u32::MAX) {
        ADMIT => Charge::Decided(Outcome::Admit { remaining }),
        LIMIT => Charge::Decided(Outcome::Limit { remaining }),
        COST_EXCEEDS_CAPACITY => Charge::Decided(Outcome::CostExceedsCapacity { remaining }),
        _ => Charge::Contended,
    }
}

/// A bucket slot in map memory, as the protocol's words.
struct Slot(*mut BucketSlot);

impl Slot {
    #[inline(always)]
    const fn word(&self, word: Word) -> *mut u64 {
        let first = self.0.cast::<u64>();
        match word {
            Word::State => first,
            Word::Base => first.wrapping_add(1),
            Word::Meaning => first.wrapping_add(2),
            Word::Owner => first.wrapping_add(3),
        }
    }
}

impl Words for Slot {
    #[inline(always)]
    fn load(&self, word: Word) -> u64 {
        // SAFETY: one of the first four words of a slot that the map look-up returned, which stays
        // mapped until the program ends; volatile, since other CPUs write it.
        unsafe { ptr::read_volatile(self.word(word)) }
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) {
        // SAFETY: as in `load`.
        unsafe { ptr::write_volatile(self.word(word), value) };
    }

    #[inline(always)]
    fn swap(&self, expected: u64, new: u64) -> bool {
        // SAFETY: as in `load`; map values are aligned to 8 bytes.
        unsafe { compare_and_swap(self.word(Word::State), expected, new) }
    }
}

/// Looks at the next place for a bucket of `key`; what came of its first charge if it has one now.
///
/// The clock is read anew: the bucket that `key` had may have been retired by a CPU whose reading was
/// later than that of the packet, and a bucket made at the earlier one would gain the refills between
/// the two a second time.
#[inline(always)]
fn welcome(key: &Key, policy: &PolicyRecord, set: &PolicySet, cost: u32) -> Option<Outcome> {
    let now = clock::now();
    let (place, sequence) = next_place()?;
    if !take(place, set, now) {
        return None;
    }
    let (slot, outcome) = newborn(Owner::from_key(key), policy, now, sequence, cost);
    if BUCKETS.insert(key, slot, u64::from(BPF_NOEXIST)).is_err() {
        // Another CPU made it meanwhile, and the next round will find it.
        release(place, place_state::EMPTY);
        return None;
    }
    // SAFETY: the place is busy, and this CPU made it so.
    unsafe { (*place).key = *key };
    release(place, place_state::HELD);
    Some(outcome)
}

/// Takes `place` if it is empty or its bucket is full again; it is then busy, and this CPU's to fill.
#[inline(always)]
fn take(place: *mut Place, set: &PolicySet, now: Instant) -> bool {
    let state = place.cast::<u64>();
    // SAFETY: the first word of a place that the map look-up returned; volatile, since other CPUs
    // write it.
    let found = unsafe { ptr::read_volatile(state) };
    // SAFETY: as above; map values are aligned to 8 bytes.
    if found == place_state::BUSY || !unsafe { compare_and_swap(state, found, place_state::BUSY) } {
        return false;
    }
    if found == place_state::EMPTY {
        return true;
    }
    // SAFETY: the place is busy, and this CPU made it so.
    let occupant = unsafe { (*place).key };
    if retire(&occupant, set, now) {
        return true;
    }
    release(place, place_state::HELD);
    false
}

/// Removes the bucket of `occupant`, whose place this CPU made busy, if it is full again.
#[inline(always)]
fn retire(occupant: &Key, set: &PolicySet, now: Instant) -> bool {
    let Some(slot) = BUCKETS.get_ptr_mut(occupant) else {
        return true;
    };
    let Some(policy) = set.policy(occupant.policy) else {
        return false;
    };
    let (slot, owner) = (Slot(slot), Owner::from_key(occupant));
    if !try_retire(&slot, owner, policy, now) && !is_dead(&slot, owner) {
        return false;
    }
    // The map may be busy. The bucket is dead then, and whoever looks at its place next tries again.
    if BUCKETS.remove(occupant).is_err() {
        return false;
    }
    if let Some(id) = PolicyId::new(occupant.policy) {
        counters::record_effect(id, Effect::Reclaimed);
    }
    true
}

/// Ends this CPU's hold on `place`.
#[inline(always)]
fn release(place: *mut Place, state: u64) {
    // SAFETY: the first word of a place that this CPU made busy; the swap is a full barrier, so that
    // the key is written before the state.
    let swapped = unsafe { compare_and_swap(place.cast::<u64>(), place_state::BUSY, state) };
    debug_assert!(swapped, "only the CPU that made a place busy releases it");
}

/// Moves the hand: the next place, and a number that no other look has.
#[inline(always)]
fn next_place() -> Option<(*mut Place, u64)> {
    let hand = HANDS.get_ptr_mut(0)?;
    // SAFETY: a word that the map look-up returned, aligned to 8 bytes.
    let look = unsafe { fetch_add(hand, 1) };
    // SAFETY: a static of type u32; the read is volatile because the loader changes its bytes.
    let places = unsafe { ptr::read_volatile(&raw const MAX_SOURCES) };
    let position = look.checked_rem(u64::from(places))?;
    let place = PLACES.get_ptr_mut(u32::try_from(position).ok()?)?;
    Some((place, look))
}

/// Writes one refusal in [`REFUSAL_SAMPLE`] to the slot, with that weight.
///
/// Which ones is spread over the count by a multiplication: every sixteenth would be the same source
/// each time if sources took turns.
#[inline(always)]
fn note_refusal(slot: *mut BucketSlot, policy: PolicyId, outcome: &Outcome) {
    if !matches!(outcome, Outcome::Limit { .. })
        || counters::limited_here(policy).wrapping_mul(SPREAD) >> 60 != 8
    {
        return;
    }
    // SAFETY: the last word of a slot that the map look-up returned, aligned to 8 bytes.
    let refusals = unsafe { &raw mut (*slot).refusals };
    // SAFETY: as above.
    unsafe { fetch_add(refusals, REFUSAL_SAMPLE) };
}

/// Number of places, the same as the capacity of the bucket map; set by the loader.
#[unsafe(no_mangle)]
static MAX_SOURCES: u32 = limit_common::layout::DEFAULT_MAX_SOURCES;

/// 2^64 divided by the golden ratio, to an odd number.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const _: () = assert!(
    REFUSAL_SAMPLE == 1 << (64 - 60),
    "the sampling takes one in sixteen"
);

/// Attempts to charge a bucket after the looks, before the answer is a refusal.
const ATTEMPTS: u32 = 3;

/// Places that one newcomer looks at.
const LOOKS: u32 = 8;

const ADMIT: u64 = 0;
const LIMIT: u64 = 1 << 32;
const COST_EXCEEDS_CAPACITY: u64 = 2 << 32;
const CONTENDED: u64 = 3 << 32;
