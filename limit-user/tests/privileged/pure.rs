//! The pipeline over tables in this process's memory, for comparison with the loaded program.
//!
//! Headers, keys, gate and verdict are `limit_common::pipeline::judge` over the bytes; the tables below
//! it share nothing with the program: buckets are the plain rules in 128 bits, lists a search, and
//! counters are added up from the judgement.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::IpAddr,
};

use ipnet::IpNet;
use limit_common::{
    config::{Numbers, POLICY_ROWS, PolicyRecord, PolicySet},
    counters::{Counter, Effect, row},
    key::{Address, Key},
    pipeline::{self, Charge, Judgement, List as Listed, Tables},
    units::{Instant, PolicyId},
    verdict::Action,
};
use limit_user::kernel::List;

use crate::{
    loaded::{EPOCH, Levels, Observed, Rows, Xdp, no_rows, ordered, risen, rows_in_use},
    plain::Plain,
};

/// The filter without the kernel.
pub(crate) struct Pure {
    set: Box<PolicySet>,
    now: Cell<Instant>,
    lists: Vec<(List, IpNet)>,
    in_flights: [u64; POLICY_ROWS],
    /// The numbers that each policy had, oldest first.
    generations: Vec<Vec<Numbers>>,
    buckets: RefCell<HashMap<Key, Bucket>>,
    counters: Rows,
}

struct Bucket {
    plain: Plain,
    /// The generation that it was made in, as its position.
    made_in: usize,
}

impl Pure {
    /// The same beginning as that of a loaded filter.
    pub(crate) fn new(set: &PolicySet) -> Self {
        let mut pure = Self {
            set: Box::new(*set),
            now: Cell::new(EPOCH),
            lists: Vec::new(),
            in_flights: [0; POLICY_ROWS],
            generations: vec![Vec::new(); POLICY_ROWS],
            buckets: RefCell::default(),
            counters: no_rows(),
        };
        pure.publish(set);
        pure
    }

    pub(crate) fn publish(&mut self, set: &PolicySet) {
        for (policy, generations) in set.policies.iter().zip(&mut self.generations) {
            if generations.last() != Some(&policy.current) && policy.current.generation != 0 {
                generations.push(policy.current);
            }
        }
        *self.set = *set;
    }

    pub(crate) fn at(&mut self, now: Instant) {
        self.now.set(now);
    }

    pub(crate) fn list(&mut self, list: List, prefix: IpNet) {
        self.lists.push((list, prefix));
    }

    pub(crate) fn set_in_flight(&mut self, policy: PolicyId, permits: u64) {
        self.in_flights[policy.index()] = permits;
    }

    /// Judges `frame` and counts it.
    pub(crate) fn judge(&mut self, frame: &[u8]) -> Observed {
        let judgement = pipeline::judge(frame, &self.set, &*self);
        let before = self.counters.clone();
        let action = self.count(&judgement, frame);
        let rose = rows_in_use(&self.set)
            .flat_map(|row| risen(row, &before[row], &self.counters[row]))
            .collect();
        Observed { action, rose }
    }

    /// Every bucket, brought up to the present.
    pub(crate) fn levels(&self) -> Levels {
        let buckets = self.buckets.borrow();
        buckets
            .iter()
            .map(|(key, bucket)| {
                let generations = &self.generations[usize::from(key.policy)][bucket.made_in..];
                let level = bucket.plain.level(generations, self.now.get().as_ns());
                (ordered(key), level)
            })
            .collect()
    }

    fn count(&mut self, judgement: &Judgement, frame: &[u8]) -> Xdp {
        let bytes = frame.len() as u64;
        let judged = row(judgement.policy);
        self.add(row(None), Counter::Packets, 1);
        self.add(row(None), Counter::Bytes, bytes);
        self.add(judged, Counter::Reason(judgement.reason), 1);
        let (action, effect) = match judgement.action {
            Action::Pass => (Xdp::Pass, judgement.effect()),
            Action::Drop => (Xdp::Drop, judgement.effect()),
            Action::Reset if may_be_reset(frame) => (Xdp::Tx, Some(Effect::Reset)),
            // Where nothing can answer, the packet is dropped.
            Action::Reset | Action::Answer => (Xdp::Drop, Some(Effect::Dropped)),
        };
        if let Some(effect) = effect {
            self.add(judged, Counter::Effect(effect), 1);
        }
        action
    }

    fn add(&mut self, row: usize, counter: Counter, amount: u64) {
        self.counters[row].values[counter.index()] += amount;
    }
}

impl Tables for Pure {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn is_listed(&self, list: Listed, source: &Address) -> bool {
        let list = match list {
            Listed::Allow => List::Allow,
            Listed::Deny => List::Deny,
        };
        let source = match *source {
            Address::V4(octets) => IpAddr::from(octets),
            Address::V6(octets) => IpAddr::from(octets),
        };
        self.lists
            .iter()
            .any(|(other, prefix)| *other == list && prefix.contains(&source))
    }

    fn in_flight(&self, policy: PolicyId) -> u32 {
        u32::try_from(self.in_flights[policy.index()]).unwrap_or(u32::MAX)
    }

    fn charge(&self, key: &Key, policy: &PolicyRecord, now: Instant, cost: u32) -> Charge {
        let generations = &self.generations[usize::from(key.policy)];
        assert_eq!(generations.last(), Some(&policy.current));
        let mut buckets = self.buckets.borrow_mut();
        let bucket = buckets.entry(*key).or_insert_with(|| Bucket {
            plain: Plain::full(&policy.current, now.as_ns()),
            made_in: generations.len() - 1,
        });
        match bucket
            .plain
            .charge(&generations[bucket.made_in..], now.as_ns(), cost)
        {
            Some(outcome) => Charge::Decided(outcome),
            None => Charge::Contended,
        }
    }
}

/// Whether a refused SYN may be answered with a reset: it was sent to one host by another, straight
/// behind the IP header.
fn may_be_reset(frame: &[u8]) -> bool {
    let is_to_group = frame[0] & 1 != 0;
    let tags = frame[12..].chunks_exact(4);
    let tags = tags.take_while(|tag| matches!(tag[..2], [0x81, 0] | [0x88, 0xa8]));
    let packet = &frame[14 + 4 * tags.count()..];
    let (source, destination, is_next) = if packet[0] >> 4 == 4 {
        let address =
            |at: usize| IpAddr::from(packet[at..at + 4].first_chunk::<4>().copied().unwrap());
        (address(12), address(16), true)
    } else {
        let address =
            |at: usize| IpAddr::from(packet[at..at + 16].first_chunk::<16>().copied().unwrap());
        (address(8), address(24), packet[6] == 6)
    };
    !is_to_group && is_next && is_host(source) && is_host(destination) && source != destination
}

fn is_host(address: IpAddr) -> bool {
    let is_odd = match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.octets()[0] >= 224,
        IpAddr::V6(_) => false,
    };
    !is_odd && !address.is_loopback() && !address.is_multicast() && !address.is_unspecified()
}
