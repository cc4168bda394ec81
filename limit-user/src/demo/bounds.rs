//! What limit-common's arithmetic says of connections, each judged between two known instants.
//!
//! A decision depends on its instant only through the refills before it. So all that can happen is
//! found by trying, for each connection, every refill that may have come before it, over every level
//! that the bucket may have by then; mostly that is one refill and one level.

use std::collections::{HashMap, HashSet};

use limit_common::{
    bucket::step::{Level, Step},
    config::Numbers,
    units::Instant,
};

/// One connection of a source, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// A reading of the filter's clock before it was judged.
    pub(super) before: Instant,
    /// A reading after it was judged, not later than the next one's `before`.
    pub(super) after: Instant,
    /// What was decided, if it is known.
    pub(super) admitted: Option<bool>,
}

/// What may come of the connections of a source that is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Fewest that are admitted.
    pub(super) least: u64,
    /// Most that are admitted.
    pub(super) most: u64,
    /// The first decision, by position, that no instant between its readings explains.
    pub(super) unexplained: Option<usize>,
}

/// Follows the bucket of a new source under `numbers` through everything that may have happened; `None`
/// if the numbers are those of an unused row.
pub(super) fn bounds(numbers: &Numbers, judged: &[Judged]) -> Option<Bounds> {
    let step = numbers.step()?;
    let Some(first) = judged.first() else {
        return Some(Bounds::default());
    };
    let full = step.full(refill_at(numbers, first.before.as_ns()));
    let mut levels = HashMap::from([(full, (0, 0))]);
    let mut explained = HashSet::from([full]);
    let mut unexplained = None;
    for (position, one) in judged.iter().enumerate() {
        let instants = instants(numbers, one);
        levels = follow(&step, &levels, &instants);
        explained = explain(&step, &explained, &instants, one.admitted);
        if explained.is_empty() && unexplained.is_none() {
            unexplained = Some(position);
        }
    }
    Some(Bounds {
        least: levels.values().map(|(least, _)| *least).min()?,
        most: levels.values().map(|(_, most)| *most).max()?,
        unexplained,
    })
}

/// Every level after one more connection, with the fewest and the most admitted on the way to it.
fn follow(
    step: &Step,
    levels: &HashMap<Level, (u64, u64)>,
    instants: &[u64],
) -> HashMap<Level, (u64, u64)> {
    let mut next = HashMap::new();
    for (level, (least, most)) in levels {
        for now in instants {
            let (after, outcome) = step.charge(*level, *now, 1);
            let paid = u64::from(outcome.is_admitted());
            let (least, most) = (least + paid, most + paid);
            next.entry(after)
                .and_modify(|range: &mut (u64, u64)| {
                    *range = (range.0.min(least), range.1.max(most));
                })
                .or_insert((least, most));
        }
    }
    next
}

/// Every level after one more connection that leads to what was decided.
fn explain(
    step: &Step,
    levels: &HashSet<Level>,
    instants: &[u64],
    admitted: Option<bool>,
) -> HashSet<Level> {
    let charges = levels
        .iter()
        .flat_map(|level| instants.iter().map(|now| step.charge(*level, *now, 1)));
    charges
        .filter(|(_, outcome)| admitted.is_none_or(|admitted| admitted == outcome.is_admitted()))
        .map(|(level, _)| level)
        .collect()
}

/// The instants between the two readings that differ in their refills: the first, and each refill.
fn instants(numbers: &Numbers, one: &Judged) -> Vec<u64> {
    let (before, after) = (one.before.as_ns(), one.after.as_ns());
    let next = |refill: &u64| refill.checked_add(numbers.interval_ns);
    let refills = std::iter::successors(next(&refill_at(numbers, before)), next);
    std::iter::once(before)
        .chain(refills.take_while(|refill| *refill <= after))
        .collect()
}

/// The last refill that is not after `now`; the epoch, if `now` is before it.
fn refill_at(numbers: &Numbers, now: u64) -> u64 {
    let since = now.saturating_sub(numbers.epoch_ns);
    let part = since.checked_rem(numbers.interval_ns).unwrap_or(0);
    numbers.epoch_ns.saturating_add(since - part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        generation: 1,
        since_ns: 100,
        epoch_ns: 100,
        interval_ns: 50,
        capacity: 2,
        refill: 1,
    };

    fn known(times: &[(u64, u64)]) -> Vec<Judged> {
        let one = |(before, after): &(u64, u64)| Judged {
            before: Instant::from_ns(*before),
            after: Instant::from_ns(*after),
            admitted: None,
        };
        times.iter().map(one).collect()
    }

    fn decided(times: &[(u64, u64)], decisions: &[bool]) -> Bounds {
        let mut judged = known(times);
        for (one, decision) in judged.iter_mut().zip(decisions) {
            one.admitted = Some(*decision);
        }
        bounds(&NUMBERS, &judged).unwrap()
    }

    #[test]
    fn meet_where_no_refill_is_in_doubt() {
        let bounds = decided(
            &[(110, 111), (112, 113), (114, 115), (160, 161)],
            &[true, true, false, true],
        );
        assert_eq!((bounds.least, bounds.most), (3, 3));
        assert_eq!(bounds.unexplained, None);
    }

    #[test]
    fn part_where_a_refill_may_have_come_before_or_after() {
        let times = [(110, 111), (112, 113), (149, 151)];
        for decision in [true, false] {
            let bounds = decided(&times, &[true, true, decision]);
            assert_eq!((bounds.least, bounds.most), (2, 3));
            assert_eq!(bounds.unexplained, None);
        }
    }

    #[test]
    fn name_the_first_decision_that_no_instant_explains() {
        let times = [(110, 111), (112, 113), (149, 151), (152, 153), (154, 155)];
        // One token came; whoever of the two was paid, both were not.
        assert_eq!(
            decided(&times, &[true, true, true, true, false]).unexplained,
            Some(3)
        );
        assert_eq!(
            decided(&times, &[true, true, true, false, false]).unexplained,
            None
        );
        assert_eq!(
            decided(&times, &[true, true, false, true, false]).unexplained,
            None
        );
        assert_eq!(
            decided(&times, &[false, true, true, false, false]).unexplained,
            Some(0)
        );
    }

    #[test]
    fn are_those_of_trying_every_instant() {
        let times = [(100, 149), (149, 151), (152, 155), (199, 251), (251, 252)];
        let step = NUMBERS.step().unwrap();
        let mut paths = vec![(step.full(100), 0_u64)];
        for (before, after) in times {
            paths = paths
                .iter()
                .flat_map(|(level, paid)| {
                    (before..=after).map(move |now| {
                        let (next, outcome) = step.charge(*level, now, 1);
                        (next, paid + u64::from(outcome.is_admitted()))
                    })
                })
                .collect::<HashSet<_>>()
                .into_iter()
                .collect();
        }
        let found = bounds(&NUMBERS, &known(&times)).unwrap();
        let admitted = || paths.iter().map(|(_, paid)| *paid);
        assert_eq!(Some(found.least), admitted().min());
        assert_eq!(Some(found.most), admitted().max());
        assert!(found.least < found.most);
    }

    #[test]
    fn are_nothing_of_nothing() {
        assert_eq!(bounds(&NUMBERS, &[]), Some(Bounds::default()));
        assert_eq!(bounds(&Numbers::UNUSED, &[]), None);
    }
}
