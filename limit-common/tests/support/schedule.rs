//! What happens to a bucket over time, for proptest: charges, changes of the numbers, pauses.

use proptest::prelude::*;

use crate::slots::{MS, SECOND};

/// Few, so that a change often keeps the interval.
pub(crate) const INTERVALS: [u64; 5] = [MS, 3 * MS, SECOND, 60 * SECOND, 86_400 * SECOND];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Charge {
        pause: Pause,
        cost: u32,
    },
    Change {
        pause: Pause,
        capacity: u32,
        refill: u32,
        interval: usize,
    },
    Retire {
        pause: Pause,
        cost: u32,
    },
}

pub(crate) fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (pauses(), 1..10_u32).prop_map(|(pause, cost)| Event::Charge { pause, cost }),
        3 => (pauses(), 1..12_u32, 1..5_u32, 0..5_usize).prop_map(
            |(pause, capacity, refill, interval)| Event::Change {
                pause,
                capacity,
                refill,
                interval,
            }
        ),
        1 => (pauses(), 1..10_u32).prop_map(|(pause, cost)| Event::Retire { pause, cost }),
    ]
}

/// Time between events in parts of the interval, so that every path is met often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    intervals: i64,
    ns: i64,
}

impl Pause {
    pub(crate) fn after(self, now: u64, interval_ns: u64) -> u64 {
        let pause = i128::from(self.intervals) * i128::from(interval_ns) + i128::from(self.ns);
        u64::try_from(i128::from(now) + pause)
            .unwrap_or(0)
            .min(TWENTY_YEARS)
    }
}

pub(crate) fn pauses() -> impl Strategy<Value = Pause> {
    let intervals = prop_oneof![
        8 => 0..4_i64,
        2 => -2..0_i64,
        1 => 240..260_i64,
        1 => 0..3_000_i64,
    ];
    let ns = prop_oneof![
        Just(0),
        Just(-1),
        0..1_000_000_i64,
        -1_000_000..1_000_000_000_i64
    ];
    (intervals, ns).prop_map(|(intervals, ns)| Pause { intervals, ns })
}

/// The schedule goes no further, so that interval numbers stay in range.
const TWENTY_YEARS: u64 = 2 * 3_653 * 86_400 * SECOND;
