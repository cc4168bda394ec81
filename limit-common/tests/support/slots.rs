//! Policies by their numbers, for tests of the slot protocol.

use limit_common::{
    bucket::{generation::remember, slot::Owner},
    config::{HISTORY, Numbers, Past, PolicyRecord},
    key::Key,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// A policy that had these numbers in turn; what does not matter to a bucket is zero.
pub(crate) fn record(generations: &[Numbers]) -> PolicyRecord {
    let mut history = [Past::UNUSED; HISTORY];
    for change in generations.windows(2) {
        history = remember(&history, &change[0], &change[1]);
    }
    PolicyRecord {
        current: *generations.last().expect("a policy has numbers"),
        history,
        least_capacity: generations
            .iter()
            .map(|numbers| numbers.capacity)
            .min()
            .unwrap_or(0),
        reserved: 0,
        max_in_flight: 0,
        max_in_flight_per_source: 0,
        unit: 0,
        on_limit: 0,
        monitor: 0,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        protocol: 0,
        status: 503,
        name: [0; 32],
    }
}

/// The first generation of a policy, with refills on whole intervals from 0.
pub(crate) fn first(capacity: u32, refill: u32, interval_ns: u64) -> Numbers {
    Numbers {
        generation: 1,
        since_ns: 0,
        epoch_ns: 0,
        interval_ns,
        capacity,
        refill,
    }
}

/// The numbers that follow `before` from `since_ns` on.
pub(crate) fn next(
    before: &Numbers,
    since_ns: u64,
    capacity: u32,
    refill: u32,
    interval_ns: u64,
) -> Numbers {
    let epoch_ns = if interval_ns == before.interval_ns {
        before.epoch_ns
    } else {
        since_ns
    };
    let generation = before.generation + 1;
    Numbers {
        generation,
        since_ns,
        epoch_ns,
        interval_ns,
        capacity,
        refill,
    }
}

/// The owner of the bucket of an IPv4 source.
pub(crate) fn owner(address: [u8; 4]) -> Owner {
    let mut key = Key {
        family: 4,
        ..Key::default()
    };
    key.prefix[..4].copy_from_slice(&address);
    Owner::from_key(&key)
}
