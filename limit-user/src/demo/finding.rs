//! What came of one source: what it sent, what was delivered, and whether that is as it must be.

use std::net::IpAddr;

use limit_common::config::Numbers;
use serde::Serialize;

use super::{
    bounds::{Judged, bounds},
    sender::{Answer, Attempt, Pace, Plan, Sent},
};
use crate::config::text::format_number;

/// What came of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its address.
    pub source: IpAddr,
    /// Connections that it tried to open.
    pub sent: u64,
    /// Those that the application accepted.
    pub delivered: u64,
    /// Those that were answered with a reset.
    pub refused: u64,
    /// Those that were not answered.
    pub unanswered: u64,
    /// Fewest that the configuration lets through at the times measured.
    pub least: u64,
    /// Most that it lets through.
    pub most: u64,
    /// The first connection, counted from 1, whose decision does not follow from the configuration at
    /// any instant at which it can have been made.
    pub unexplained: Option<u64>,
    /// For how long it sent, in nanoseconds.
    pub took_ns: u64,
    /// Whether all is as it must be.
    pub ok: bool,
    /// What is not.
    pub faults: Vec<String>,
}

impl Finding {
    /// Judges what came of `plan`.
    pub(super) fn new(plan: &Plan, sent: &Sent, delivered: u64, numbers: &Numbers) -> Self {
        let judged: Vec<Judged> = sent.attempts.iter().map(Judged::from).collect();
        let bounds = bounds(numbers, &judged).unwrap_or_default();
        let count = |answer| {
            let alike = sent.attempts.iter().filter(|one| one.answer == answer);
            number(alike.count())
        };
        let mut found = Self {
            source: plan.source,
            sent: number(sent.attempts.len()),
            delivered,
            refused: count(Answer::Refused),
            unanswered: count(Answer::Silence),
            least: bounds.least,
            most: bounds.most,
            unexplained: bounds.unexplained.map(|position| number(position + 1)),
            took_ns: u64::try_from(sent.took.as_nanos()).unwrap_or(u64::MAX),
            ok: false,
            faults: Vec::new(),
        };
        found.faults = found.faults(plan.pace, count(Answer::Served), numbers);
        found.ok = found.faults.is_empty();
        found
    }

    fn faults(&self, pace: Pace, served: u64, numbers: &Numbers) -> Vec<String> {
        let Self {
            sent,
            delivered,
            refused,
            unanswered,
            least,
            most,
            ..
        } = *self;
        let mut faults = Vec::new();
        let mut fault = |is_so, text: String| {
            if is_so {
                faults.push(text);
            }
        };
        // Without a refill the arithmetic is plain; the general one has its say all the same.
        let (least, most) = match pace {
            Pace::AtOnce(_) => {
                let exact = sent.min(numbers.capacity.into());
                (exact.max(least), exact.min(most))
            }
            Pace::Apart { .. } | Pace::Every { .. } => (least, most),
        };
        fault(
            delivered < least || delivered > most,
            format!("{delivered} delivered, {} expected", range(least, most)),
        );
        match pace {
            Pace::Apart { .. } => fault(
                refused > 0,
                format!("{refused} refused of a source that is not above its rate"),
            ),
            Pace::AtOnce(_) | Pace::Every { .. } => {}
        }
        if let Some(nth) = self.unexplained {
            fault(
                true,
                format!("what was decided about connection {nth} does not follow from its time"),
            );
        }
        fault(unanswered > 0, format!("{unanswered} not answered"));
        fault(
            served != delivered,
            format!("the server accepted {delivered}, the source was served {served} times"),
        );
        faults
    }
}

impl From<&Attempt> for Judged {
    fn from(attempt: &Attempt) -> Self {
        Self {
            before: attempt.before,
            after: attempt.after,
            admitted: match attempt.answer {
                Answer::Served | Answer::Unserved => Some(true),
                Answer::Refused => Some(false),
                Answer::Silence => None,
            },
        }
    }
}

/// A number, or the two ends that it lies between.
#[must_use]
pub fn range(least: u64, most: u64) -> String {
    if least == most {
        format_number(least)
    } else {
        format!("{}-{}", format_number(least), format_number(most))
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use limit_common::units::Instant;

    use super::*;

    const NUMBERS: Numbers = Numbers {
        generation: 1,
        since_ns: 0,
        epoch_ns: 0,
        interval_ns: 1_000,
        capacity: 2,
        refill: 1,
    };
    const GAP: Duration = Duration::from_nanos(1_000);

    fn finding(pace: Pace, answers: &[Answer], delivered: u64) -> Finding {
        let attempts = answers.iter().zip(1..).map(|(answer, at)| Attempt {
            before: Instant::from_ns(at),
            after: Instant::from_ns(at),
            answer: *answer,
        });
        let plan = Plan {
            source: IpAddr::from([198, 51, 100, 2]),
            pace,
        };
        let sent = Sent {
            attempts: attempts.collect(),
            took: GAP,
        };
        Finding::new(&plan, &sent, delivered, &NUMBERS)
    }

    #[test]
    fn is_ok_when_delivered_is_what_the_bucket_holds() {
        use Answer::{Refused, Served};
        let found = finding(Pace::AtOnce(3), &[Served, Served, Refused], 2);
        assert_eq!((found.ok, found.least, found.most), (true, 2, 2));
        assert_eq!((found.sent, found.refused, found.unanswered), (3, 1, 0));
    }

    #[test]
    fn writes_a_range_only_where_there_is_one() {
        assert_eq!(
            (range(7, 7), range(999, 1_001)),
            ("7".into(), "999-1,001".into())
        );
    }

    #[test]
    fn says_what_is_wrong() {
        use Answer::{Refused, Served, Silence, Unserved};
        let apart = Pace::Apart {
            gap: GAP,
            lasts: GAP,
        };
        for (pace, answers, delivered, says) in [
            (
                Pace::AtOnce(3),
                [Served, Served, Served],
                3,
                "3 delivered, 2 expected",
            ),
            (
                apart,
                [Served, Served, Served],
                3,
                "3 delivered, 2 expected",
            ),
            (
                Pace::AtOnce(3),
                [Served, Refused, Served],
                2,
                "connection 2",
            ),
            (Pace::AtOnce(3), [Served, Unserved, Refused], 2, "served 1"),
            (
                Pace::AtOnce(3),
                [Served, Served, Silence],
                2,
                "1 not answered",
            ),
            (apart, [Served, Served, Refused], 2, "1 refused"),
        ] {
            let found = finding(pace, &answers, delivered);
            assert!(!found.ok);
            assert!(found.faults.join("; ").contains(says), "{found:?}");
        }
    }
}
