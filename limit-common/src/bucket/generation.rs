//! What becomes of a bucket when its policy's numbers change: it keeps what it had, nothing is minted.
//!
//! Each later generation applies in turn, at the instant from which it holds:
//!
//! ```text
//! tokens = min(tokens credited under the old numbers up to since, new capacity)
//! ```
//!
//! All of that but the first term is the same for every bucket of one generation, and of the form
//! `min(later_capacity, tokens + later_gain)`. [`remember`] works the two constants out when numbers
//! change, so that a packet which meets an old bucket does one step of arithmetic, however many
//! changes the bucket slept through.

use crate::{
    bucket::step::quotient,
    config::{HISTORY, Numbers, Past, PolicyRecord},
    units::Instant,
};

/// Tokens, and the refill they include as its number in the numbers of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credit {
    /// Tokens held.
    pub(crate) tokens: u32,
    /// Whole intervals from the epoch to the refill.
    pub(crate) intervals: u64,
}

/// The instant of refill number `intervals`, in nanoseconds.
///
/// It cannot wrap for numbers in range (`Step::validate_kernel`) in ten years of uptime.
#[inline(always)]
pub(crate) const fn refill_ns(numbers: &Numbers, intervals: u64) -> u64 {
    numbers
        .epoch_ns
        .wrapping_add(intervals.wrapping_mul(numbers.interval_ns))
}

/// The history of a policy whose numbers change from `current` to `next`: newest first, the oldest
/// entry falls off.
///
/// # Rounding     gains down, so that a bucket which slept has at most what one that was awake has
#[must_use]
pub fn remember(history: &[Past; HISTORY], current: &Numbers, next: &Numbers) -> [Past; HISTORY] {
    let gained = refills_between(current, next.since_ns);
    let mut later = *history;
    for past in later.iter_mut().filter(|past| past.numbers.generation != 0) {
        past.later_gain = past.later_gain.saturating_add(gained);
        past.later_capacity = past
            .later_capacity
            .saturating_add(gained)
            .min(current.capacity)
            .min(next.capacity);
    }
    later.rotate_right(1);
    if let Some(newest) = later.first_mut() {
        *newest = Past {
            numbers: *current,
            until_ns: next.since_ns,
            later_gain: 0,
            later_capacity: next.capacity,
        };
    }
    later
}

/// Takes `credit` from the numbers of `generation`, an earlier one, to the current ones of `policy`.
///
/// A bucket older than the history keeps of its tokens what every capacity since leaves, and gains
/// nothing for the time before the current numbers; a generation that is missing from the history counts
/// as an empty bucket. `None` if `now` lies before the current numbers came into force: such a clock
/// cannot tell what was gained since.
#[inline(always)]
pub(crate) fn translate(
    policy: &PolicyRecord,
    generation: u64,
    credit: Credit,
    now: Instant,
) -> Option<Credit> {
    let current = &policy.current;
    let since_ns = current.since_ns;
    if now.as_ns() < since_ns {
        return None;
    }
    let changes = current.generation.wrapping_sub(generation);
    let past = usize::try_from(changes.wrapping_sub(1))
        .ok()
        .and_then(|age| policy.history.get(age));
    let (tokens, credited_ns) = match past {
        Some(past) if past.numbers.generation == generation => brought_forward(past, credit)?,
        Some(_) => (0, since_ns),
        None => (credit.tokens.min(policy.least_capacity), since_ns),
    };
    // A refill that the tokens include may lie after the change, if a packet was judged by the old
    // numbers meanwhile; the new numbers then begin with their first refill after it.
    let (from_ns, round_up) = if credited_ns > since_ns {
        (credited_ns, current.interval_ns.wrapping_sub(1))
    } else {
        (since_ns, 0)
    };
    let elapsed = from_ns
        .saturating_sub(current.epoch_ns)
        .saturating_add(round_up);
    let intervals = quotient(elapsed, current.step()?.interval);
    Some(Credit { tokens, intervals })
}

/// The tokens that are left of `credit` under the current numbers when they came into force, and the
/// last refill that these include.
#[inline(always)]
fn brought_forward(past: &Past, credit: Credit) -> Option<(u32, u64)> {
    let step = past.numbers.step()?;
    let last_ns = refill_ns(&past.numbers, credit.intervals);
    let steps = step.steps(last_ns, past.until_ns);
    let tokens = step.gain(credit.tokens, steps);
    let ahead_ns = last_ns.saturating_sub(past.until_ns);
    if ahead_ns > 0 && ahead_ns <= OVERLAP_NS {
        // Some of the later gain may be in the tokens already.
        return Some((tokens.min(past.later_capacity), last_ns));
    }
    // Further ahead is only a refill that the bucket was still to go without when these numbers ended
    // (see `translate`): what it stood for lies before their end.
    let tokens = tokens
        .saturating_add(past.later_gain)
        .min(past.later_capacity);
    Some((tokens, past.until_ns))
}

/// Tokens that `numbers` refill after they came into force, up to `until_ns`.
fn refills_between(numbers: &Numbers, until_ns: u64) -> u32 {
    let Some(step) = numbers.step() else { return 0 };
    let refills =
        |instant_ns: u64| quotient(instant_ns.saturating_sub(numbers.epoch_ns), step.interval);
    let count = refills(until_ns).saturating_sub(refills(numbers.since_ns));
    let gained = count.saturating_mul(u64::from(numbers.refill));
    u32::try_from(gained).unwrap_or(u32::MAX)
}

/// Longest time for which packets are judged by numbers that were replaced: the instant from which new
/// ones hold is read just before they are published.
const OVERLAP_NS: u64 = 1_000_000_000;
