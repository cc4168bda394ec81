//! The same schedule through the library's arithmetic and through the loaded program: the same
//! decisions and, after each, the same bucket.
//!
//! Schedules are drawn from fixed seeds. Time mostly goes on by parts of an interval, stands still,
//! leaps over hundreds of intervals, and goes back.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use limit_common::{
    bucket::{Outcome, step::Level},
    config::{Numbers, PolicySet, Unit},
    key::Key,
    units::{Instant, PolicyId},
    verdict::Reason,
};
use limit_user::kernel::object::Variant;

use crate::{
    agreement::Agreement,
    frames::{Frame, transport::udp},
    loaded::{EPOCH, compiled, key, shared},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn ten_thousand_decisions_are_those_of_the_step_arithmetic() {
    for (variant, seed) in [(Variant::Plain, 0x5eed), (Variant::Frags, 0x0dd)] {
        let set = odd_policies();
        let mut kernel = shared(variant, &set);
        let mut random = Random(seed);
        let mut levels = HashMap::new();
        let mut met = HashMap::new();
        let mut now = EPOCH;
        for number in 0..decisions() {
            let event = Event::draw(&mut random, number, &set, now);
            now = event.now;
            kernel.at(now);
            let reason = kernel.judge(&event.frame.bytes()).reason();
            let expected = event.charge(&set, &mut levels);
            assert_eq!(reason, expected, "decision {number}: {event:?}");
            let (found, level) = (kernel.level(&event.key), levels.get(&event.key));
            assert_eq!(found.as_ref(), level, "after decision {number}: {event:?}");
            *met.entry(reason).or_insert(0) += 1;
        }
        for reason in [Reason::Paid, Reason::Rate, Reason::CostExceedsCapacity] {
            let times = met.get(&reason).copied().unwrap_or(0);
            assert!(times > DECISIONS / 50, "{reason:?} {times} times");
        }
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn ten_thousand_decisions_are_alike_while_the_numbers_change() {
    let mut random = Random(0xc0de);
    let mut policies = [(4, 1, 1000), (7, 3, 997), (2, 2, 1)];
    let mut filter = Agreement::on(&described(&policies));
    let mut latest = EPOCH;
    let mut met = HashMap::new();
    for number in 0..decisions() {
        let event = Event::draw(&mut random, number, filter.set(), filter.now());
        filter.at(event.now);
        let reason = filter.judge(&event.frame.bytes()).reason();
        *met.entry(reason).or_insert(0) += 1;
        latest = latest.max(event.now);
        if number % 20 == 0 {
            filter.levels();
        }
        if number % 50 == 49 {
            // Whoever changes the numbers read a clock that is not behind those of the CPUs.
            filter.at(latest);
            let changed = &mut policies[random.below(3) as usize];
            let capacity = 1 + random.below(12);
            let interval_ms = [1, 3, 997, 1000, 60_000][random.below(5) as usize];
            *changed = (capacity, 1 + random.below(5), interval_ms);
            filter.change(&described(&policies));
        }
    }
    for reason in [Reason::Paid, Reason::Rate, Reason::Contended] {
        let times = met.get(&reason).copied().unwrap_or(0);
        assert!(times > DECISIONS / 100, "{reason:?} {times} times");
    }
}

/// One frame at one time.
#[derive(Debug)]
struct Event {
    now: Instant,
    policy: PolicyId,
    key: Key,
    frame: Frame,
}

impl Event {
    /// One policy has its turn for [`TURN`] events, so that time goes by on the scale of its numbers.
    fn draw(random: &mut Random, number: u32, set: &PolicySet, now: Instant) -> Self {
        let policies = (0..)
            .take_while(|policy| set.policy(*policy).is_some())
            .count();
        let turn = (number / TURN) as usize % policies;
        let policy = PolicyId::new(u8::try_from(turn).unwrap()).unwrap();
        let interval = set.policies[policy.index()].current.interval_ns;
        let (forward, back) = match random.below(100) {
            0..=39 => (0, 0),
            40..=69 => (random.below(interval / 2 + 1), 0),
            70..=81 => (random.below(3 * interval), 0),
            82..=85 => (interval, 0),
            86..=92 => (0, random.below(3 * interval)),
            93..=95 => (0, interval),
            96..=98 => ((250 + random.below(10)) * interval, 0),
            _ => (random.below(DAY_NS), 0),
        };
        let now = Instant::from_ns((now.as_ns() + forward).saturating_sub(back));
        let source: IpAddr = if random.below(2) == 0 {
            Ipv4Addr::new(198, 51, 100, 7).into()
        } else {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 7, 0, 0, 1).into()
        };
        let transport = udp(FIRST_PORT + u16::from(policy.number()));
        let frame = match source {
            IpAddr::V4(_) => Frame::ipv4(transport),
            IpAddr::V6(_) => Frame::ipv6(transport),
        };
        let padding = usize::try_from(random.below(1400)).unwrap();
        Self {
            now,
            policy,
            key: key(source, policy),
            frame: frame.sent_by(source).padded(padding),
        }
    }

    /// Charges the bucket of the event by the library's arithmetic alone.
    fn charge(&self, set: &PolicySet, levels: &mut HashMap<Key, Level>) -> Reason {
        let policy = &set.policies[self.policy.index()];
        let step = policy.current.step().unwrap();
        let now = self.now.as_ns();
        let cost = match Unit::from_number(policy.unit).unwrap() {
            Unit::Byte => u32::try_from(self.frame.bytes().len()).unwrap(),
            Unit::Connection | Unit::Packet => 1,
        };
        let level = levels
            .entry(self.key)
            .or_insert_with(|| step.full(last_refill(&policy.current, now)));
        let (after, outcome) = step.charge(*level, now, cost);
        *level = after;
        match outcome {
            Outcome::Admit { .. } => Reason::Paid,
            Outcome::Limit { .. } => Reason::Rate,
            Outcome::CostExceedsCapacity { .. } => Reason::CostExceedsCapacity,
        }
    }
}

/// The last refill at or before `now`, or the epoch.
fn last_refill(numbers: &Numbers, now: u64) -> u64 {
    let elapsed = now.saturating_sub(numbers.epoch_ns);
    numbers.epoch_ns + elapsed - elapsed % numbers.interval_ns
}

/// Policies whose numbers have no common measure; two count bytes, of one of which a large frame
/// takes more than it ever holds.
fn odd_policies() -> Box<PolicySet> {
    let mut set = compiled(&described(&[
        (4, 1, 1000),
        (7, 3, 1),
        (1, 1, 1),
        (9, 1, 1),
        (9, 1, 1),
    ]));
    let numbers = [
        (4, 1, 1_000_000_000),
        (7, 3, 1_234_567),
        (1, 1, 1_000_000),
        (10_007, 997, 3_000_017),
        (1_009, 65_521, 999_999_937),
    ];
    for (policy, (capacity, refill, interval_ns)) in set.policies.iter_mut().zip(numbers) {
        policy.current = Numbers {
            capacity,
            refill,
            interval_ns,
            ..policy.current
        };
    }
    for policy in &mut set.policies[3..5] {
        policy.unit = Unit::Byte as u8;
    }
    set
}

/// One policy for each (capacity, refill, interval in milliseconds), on a UDP port each.
fn described(policies: &[(u64, u64, u64)]) -> String {
    let described = (FIRST_PORT..).zip(policies).map(|(port, numbers)| {
        let (capacity, refill, interval_ms) = numbers;
        format!(
            "{{ name = 'p{port}', protocol = 'udp', ports = '{port}', capacity = {capacity}, \
             refill = {refill}, interval = '{interval_ms}ms' }}"
        )
    });
    format!("policy = [{}]", described.collect::<Vec<_>>().join(", "))
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const DECISIONS: u32 = 10_000;

/// Decisions of one test: ten times as many with `LIMIT_TEST_FULL`.
fn decisions() -> u32 {
    let full = std::env::var_os("LIMIT_TEST_FULL").is_some();
    if full { 10 * DECISIONS } else { DECISIONS }
}
const TURN: u32 = 64;
const FIRST_PORT: u16 = 1;
const DAY_NS: u64 = 86_400_000_000_000;
