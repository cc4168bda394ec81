//! From a [`Config`] to the record the kernel reads.
//!
//! A policy keeps its number for as long as the filter lives: a name that was there before has its
//! row again, a removed one leaves its row behind as [`RETIRED`], because buckets and counters still
//! refer to it. A change of capacity, refill or interval makes a generation; nothing else does.

use limit_common::{
    bucket::generation::remember,
    config::{
        HISTORY, MAX_POLICIES, NAME_BYTES, Numbers as Record, OnLimit, POLICY_ROWS, PORTS, Past,
        PolicyRecord, PolicySet, Protocol, Unit,
    },
    units::{Instant, PolicyId},
};

use super::{
    Config, ConfigError, FRAGMENTS_POLICY, Keys, Mode, Numbers, Policy, decompile::name_of,
};

/// What the record carries besides the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Sources the bucket map holds.
    pub max_sources: u32,
    /// Cookie of the network namespace, or 0.
    pub namespace_cookie: u64,
}

/// In place of a protocol, in the row of a policy that was removed.
pub const RETIRED: u8 = u8::MAX;

/// The record that follows `previous`, or the first, with `config` in force from `now` on.
///
/// # Errors
///
/// [`ConfigError::TooMany`] when no row is free for a new policy.
pub fn compile(
    config: &Config,
    previous: Option<&PolicySet>,
    now: Instant,
    facts: Facts,
) -> Result<Box<PolicySet>, ConfigError> {
    let mut set = match previous {
        Some(previous) => Box::new(*previous),
        None => empty(),
    };
    set.revision = set.revision.saturating_add(1);
    set.namespace_cookie = facts.namespace_cookie;
    set.max_sources = facts.max_sources;
    for row in set
        .policies
        .iter_mut()
        .filter(|row| row.current.generation > 0)
    {
        row.protocol = RETIRED;
    }

    let rows = assign_rows(config, &set)?;
    let enforces = config
        .policies
        .iter()
        .any(|policy| policy.mode == Mode::Enforce);
    for (policy, row) in config.policies.iter().zip(&rows) {
        set.policies[*row] = record(policy, config.keys, &set.policies[*row], now);
    }
    let fragments = &mut set.policies[PolicyId::FRAGMENTS.index()];
    *fragments = fragments_record(config, fragments, enforces, now);
    set.drop_undecidable = u8::from(enforces);
    write_tables(&mut set, config, &rows);
    Ok(set)
}

/// The row of each policy: the one its name has, else the lowest that was never used.
fn assign_rows(config: &Config, set: &PolicySet) -> Result<Vec<usize>, ConfigError> {
    let operators = &set.policies[..MAX_POLICIES];
    let used = |row: usize| operators[row].current.generation > 0;
    let mut unused = (0..MAX_POLICIES).filter(|row| !used(*row));
    let named = |policy: &Policy| {
        (0..MAX_POLICIES).find(|row| used(*row) && name_of(&operators[*row]) == policy.name)
    };
    let known = config
        .policies
        .iter()
        .filter(|policy| named(policy).is_some())
        .count();
    config
        .policies
        .iter()
        .map(|policy| {
            named(policy)
                .or_else(|| unused.next())
                .ok_or_else(|| ConfigError::TooMany {
                    wanted: config.policies.len(),
                    retired: (0..MAX_POLICIES).filter(|row| used(*row)).count() - known,
                })
        })
        .collect()
}

fn record(policy: &Policy, keys: Keys, previous: &PolicyRecord, now: Instant) -> PolicyRecord {
    let (current, history) = generations(policy.numbers, previous, now);
    PolicyRecord {
        current,
        history,
        least_capacity: least_capacity(previous, &current),
        reserved: 0,
        max_in_flight: policy.in_flight.map_or(0, |gate| gate.total.get()),
        max_in_flight_per_source: policy.in_flight.map_or(0, |gate| gate.per_source.get()),
        unit: policy.unit as u8,
        on_limit: policy.on_limit as u8,
        monitor: u8::from(policy.mode == Mode::Monitor),
        ipv4_prefix: keys.ipv4_prefix,
        ipv6_prefix: keys.ipv6_prefix,
        protocol: policy.protocol as u8,
        status: policy.status,
        name: padded(&policy.name),
    }
}

/// The built-in policy: enforces when any policy of the operator does.
fn fragments_record(
    config: &Config,
    previous: &PolicyRecord,
    enforces: bool,
    now: Instant,
) -> PolicyRecord {
    let (current, history) = generations(config.fragments, previous, now);
    PolicyRecord {
        current,
        history,
        least_capacity: least_capacity(previous, &current),
        unit: Unit::Packet as u8,
        on_limit: OnLimit::Drop as u8,
        monitor: u8::from(!enforces),
        ipv4_prefix: config.keys.ipv4_prefix,
        ipv6_prefix: config.keys.ipv6_prefix,
        protocol: Protocol::Any as u8,
        status: 503,
        name: padded(FRAGMENTS_POLICY),
        ..UNUSED
    }
}

/// The smallest capacity that the policy ever had, `current` included.
fn least_capacity(previous: &PolicyRecord, current: &Record) -> u32 {
    if previous.current.generation == 0 {
        return current.capacity;
    }
    previous.least_capacity.min(current.capacity)
}

/// The numbers in force and the ones before them.
///
/// The epoch stays while the interval does, so that refills keep their phase.
fn generations(
    numbers: Numbers,
    previous: &PolicyRecord,
    now: Instant,
) -> (Record, [Past; HISTORY]) {
    let last = previous.current;
    let next = Record {
        generation: last.generation.saturating_add(1),
        since_ns: now.as_ns().max(last.since_ns),
        epoch_ns: now.as_ns().max(last.since_ns),
        interval_ns: numbers.interval.get(),
        capacity: numbers.capacity.get(),
        refill: numbers.refill.get(),
    };
    if last.generation == 0 {
        return (next, [Past::UNUSED; HISTORY]);
    }
    let same_interval = last.interval_ns == next.interval_ns;
    if same_interval && last.capacity == next.capacity && last.refill == next.refill {
        return (last, previous.history);
    }
    let epoch_ns = if same_interval {
        last.epoch_ns
    } else {
        next.epoch_ns
    };
    let next = Record { epoch_ns, ..next };
    (next, remember(&previous.history, &last, &next))
}

/// Resolves which policy each port meets: its own, else its protocol's, else that of any protocol.
fn write_tables(set: &mut PolicySet, config: &Config, rows: &[usize]) {
    let portless = |protocol: Protocol| {
        config
            .policies
            .iter()
            .zip(rows)
            .find(|(policy, _)| policy.protocol == protocol && policy.is_portless())
            .map(|(_, row)| entry(*row))
    };
    let any = portless(Protocol::Any).unwrap_or(0);
    set.other = any;
    set.icmp = portless(Protocol::Icmp).unwrap_or(any);
    set.tcp_ports.fill(portless(Protocol::Tcp).unwrap_or(any));
    set.udp_ports.fill(portless(Protocol::Udp).unwrap_or(any));
    for (policy, row) in config.policies.iter().zip(rows) {
        let table = match policy.protocol {
            Protocol::Tcp => &mut set.tcp_ports,
            Protocol::Udp => &mut set.udp_ports,
            Protocol::Icmp | Protocol::Any => continue,
        };
        for (first, last) in &policy.ports {
            table[usize::from(*first)..=usize::from(*last)].fill(entry(*row));
        }
    }
}

/// A row as it stands in the tables: its number plus one.
fn entry(row: usize) -> u8 {
    u8::try_from(row + 1).unwrap_or(0)
}

fn padded(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    bytes
}

fn empty() -> Box<PolicySet> {
    Box::new(PolicySet {
        revision: 0,
        namespace_cookie: 0,
        max_sources: 0,
        drop_undecidable: 0,
        icmp: 0,
        other: 0,
        reserved: 0,
        policies: [UNUSED; POLICY_ROWS],
        tcp_ports: [0; PORTS],
        udp_ports: [0; PORTS],
    })
}

/// A row that no policy ever had.
const UNUSED: PolicyRecord = PolicyRecord {
    current: Record::UNUSED,
    history: [Past::UNUSED; HISTORY],
    least_capacity: 0,
    reserved: 0,
    max_in_flight: 0,
    max_in_flight_per_source: 0,
    unit: 0,
    on_limit: 0,
    monitor: 0,
    ipv4_prefix: 0,
    ipv6_prefix: 0,
    protocol: 0,
    status: 0,
    name: [0; NAME_BYTES],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RawConfig, RawPolicy, Text, decompile, raw::Number};

    const FACTS: Facts = Facts {
        max_sources: 1024,
        namespace_cookie: 7,
    };

    fn config(toml: &str) -> Config {
        RawConfig::from_toml(toml, "test")
            .unwrap()
            .validate()
            .unwrap()
    }

    fn first(config: &Config) -> Box<PolicySet> {
        compile(config, None, Instant::from_ns(100), FACTS).unwrap()
    }

    fn then(config: &Config, previous: &PolicySet, now: u64) -> Box<PolicySet> {
        compile(config, Some(previous), Instant::from_ns(now), FACTS).unwrap()
    }

    fn capacity(set: &PolicySet, capacity: u64) -> Config {
        let change = RawPolicy {
            capacity: Some(Number::from(capacity)),
            ..RawPolicy::named("default")
        };
        decompile(set).unwrap().with_policy(&change).unwrap()
    }

    #[test]
    fn starts_with_generation_one_whose_epoch_is_now() {
        let set = first(&Config::built_in().unwrap());
        let numbers = set.policies[0].current;
        assert_eq!(
            (numbers.generation, numbers.since_ns, numbers.epoch_ns),
            (1, 100, 100)
        );
        assert_eq!(
            (set.revision, set.max_sources, set.namespace_cookie),
            (1, 1024, 7)
        );
        assert_eq!(set.policies[0].history, [Past::UNUSED; HISTORY]);
    }

    #[test]
    fn makes_a_generation_only_when_the_numbers_change() {
        let set = first(&Config::built_in().unwrap());
        let mut enforcing = Config::built_in().unwrap();
        enforcing.policies[0].mode = Mode::Enforce;
        let next = then(&enforcing, &set, 200);
        assert_eq!(next.policies[0].current, set.policies[0].current);
        assert_eq!((next.revision, next.policies[0].monitor), (2, 0));

        let next = then(&capacity(&next, 9), &next, 300);
        let numbers = next.policies[0].current;
        assert_eq!(
            (numbers.generation, numbers.since_ns, numbers.epoch_ns),
            (2, 300, 100)
        );
        assert_eq!(next.policies[0].history[0].numbers, set.policies[0].current);
        let wider = then(&capacity(&next, 50), &next, 400);
        assert_eq!(
            wider.policies[0].least_capacity,
            9.min(set.policies[0].current.capacity)
        );
    }

    #[test]
    fn starts_an_epoch_with_a_new_interval() {
        let set = first(&config("[[policy]]\nname = 'a'\ninterval = '1s'"));
        let next = then(
            &config("[[policy]]\nname = 'a'\ninterval = '2s'"),
            &set,
            300,
        );
        assert_eq!(
            (
                next.policies[0].current.since_ns,
                next.policies[0].current.epoch_ns
            ),
            (300, 300)
        );
    }

    #[test]
    fn never_dates_a_generation_before_the_last() {
        let set = first(&Config::built_in().unwrap());
        assert_eq!(
            then(&capacity(&set, 9), &set, 50).policies[0]
                .current
                .since_ns,
            100
        );
    }

    #[test]
    fn remembers_the_newest_generations_first() {
        let mut set = first(&Config::built_in().unwrap());
        for n in 1..=20 {
            set = then(&capacity(&set, n), &set, 100 + n);
        }
        let record = &set.policies[0];
        assert_eq!(record.current.generation, 21);
        let remembered: Vec<u64> = record
            .history
            .iter()
            .map(|entry| entry.numbers.generation)
            .collect();
        assert_eq!(remembered, (5..=20).rev().collect::<Vec<u64>>());
    }

    #[test]
    fn keeps_the_number_of_a_name_and_gives_away_no_used_one() {
        let set = first(&config(
            "[[policy]]\nname = 'a'\nports = 1\n[[policy]]\nname = 'b'\nports = 2",
        ));
        let set = then(
            &config("[[policy]]\nname = 'c'\nports = 3\n[[policy]]\nname = 'b'\nports = 2"),
            &set,
            200,
        );
        assert_eq!(
            (set.tcp_ports[1], set.tcp_ports[2], set.tcp_ports[3]),
            (0, 2, 3)
        );
        assert_eq!(set.policies[0].protocol, RETIRED);
        assert_eq!(decompile(&set).unwrap().policies.len(), 2);

        let set = then(
            &config("[[policy]]\nname = 'a'\nports = 1\ncapacity = 5"),
            &set,
            300,
        );
        assert_eq!(
            (set.tcp_ports[1], set.policies[0].current.generation),
            (1, 2)
        );
        assert_eq!(set.policies[0].protocol, Protocol::Tcp as u8);
    }

    #[test]
    fn refuses_a_policy_when_every_row_was_used() {
        let many = |from: usize| {
            let policies = (from..from + 40).map(|n| RawPolicy {
                ports: Some(Text((n + 1).to_string())),
                ..RawPolicy::named(&format!("p{n}"))
            });
            RawConfig {
                policy: policies.collect(),
                ..RawConfig::default()
            }
            .validate()
            .unwrap()
        };
        let set = first(&many(0));
        let error = compile(&many(30), Some(&set), Instant::from_ns(1), FACTS).unwrap_err();
        assert_eq!(
            error,
            ConfigError::TooMany {
                wanted: 40,
                retired: 30
            }
        );
        assert!(compile(&many(20), Some(&set), Instant::from_ns(1), FACTS).is_ok());
    }

    #[test]
    fn resolves_port_then_protocol_then_any() {
        let set = first(&config(
            "[[policy]]\nname = 'web'\nports = '80,8000-8010'\n\
             [[policy]]\nname = 'tcp'\n\
             [[policy]]\nname = 'dns'\nprotocol = 'udp'\nports = 53\n\
             [[policy]]\nname = 'rest'\nprotocol = 'any'",
        ));
        let tcp = |port: usize| set.tcp_ports[port];
        assert_eq!(
            (tcp(80), tcp(8000), tcp(8010), tcp(8011), tcp(0)),
            (1, 1, 1, 2, 2)
        );
        assert_eq!((set.udp_ports[53], set.udp_ports[54]), (3, 4));
        assert_eq!((set.icmp, set.other), (4, 4));
        let set = first(&config("[[policy]]\nname = 'ping'\nprotocol = 'icmp'"));
        assert_eq!((set.icmp, set.other, set.tcp_ports[80]), (1, 0, 0));
    }

    #[test]
    fn lets_fragments_and_the_undecidable_follow_the_policies() {
        let monitor = first(&Config::built_in().unwrap());
        let row = PolicyId::FRAGMENTS.index();
        assert_eq!(
            (monitor.drop_undecidable, monitor.policies[row].monitor),
            (0, 1)
        );
        let enforce = then(
            &config("[[policy]]\nname = 'default'\nports = 80"),
            &monitor,
            200,
        );
        assert_eq!(
            (enforce.drop_undecidable, enforce.policies[row].monitor),
            (1, 0)
        );
        assert_eq!(enforce.policies[row].unit, Unit::Packet as u8);
        assert_eq!(enforce.policies[row].current.capacity, 1_000);
    }
}
