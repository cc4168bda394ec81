//! From the record the kernel reads back to the [`Config`], and from there to the file.
//!
//! Port 0 cannot be named, so a port table's entry 0 tells which policy takes every port of its
//! protocol, and the entries of any other policy are the ports it names.

use core::num::{NonZeroU32, NonZeroU64};

use limit_common::{
    config::{
        MAX_POLICIES, Numbers as Record, OnLimit, PORTS, PolicyRecord, PolicySet, Protocol, Unit,
    },
    units::PolicyId,
};

use super::{
    Config, InFlight, Keys, Mode, Numbers, Policy, RawConfig, RawFragments, RawKeys, RawPolicy,
    raw::{Number, Text},
    text,
    validate::protocol_word,
};

/// The configuration that `set` carries, or `None` if it is no record of ours.
#[must_use]
pub fn decompile(set: &PolicySet) -> Option<Config> {
    let fragments = &set.policies[PolicyId::FRAGMENTS.index()];
    let policies = policy_ids(set)
        .into_iter()
        .map(|id| policy(set, id))
        .collect::<Option<Vec<Policy>>>()?;
    Some(Config {
        keys: Keys {
            ipv4_prefix: fragments.ipv4_prefix,
            ipv6_prefix: fragments.ipv6_prefix,
        },
        fragments: numbers(&fragments.current)?,
        policies,
    })
}

/// The numbers of the operator's policies, rising.
#[must_use]
pub fn policy_ids(set: &PolicySet) -> Vec<PolicyId> {
    (0..MAX_POLICIES)
        .filter(|row| {
            let record = &set.policies[*row];
            record.current.generation > 0 && Protocol::from_number(record.protocol).is_some()
        })
        .filter_map(|row| PolicyId::new(u8::try_from(row).ok()?))
        .collect()
}

/// The name in a record; what is not UTF-8 is replaced.
#[must_use]
pub fn name_of(record: &PolicyRecord) -> String {
    let length = record
        .name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(record.name.len());
    String::from_utf8_lossy(&record.name[..length]).into_owned()
}

fn policy(set: &PolicySet, id: PolicyId) -> Option<Policy> {
    let record = &set.policies[id.index()];
    let protocol = Protocol::from_number(record.protocol)?;
    let gate = NonZeroU32::new(record.max_in_flight)
        .zip(NonZeroU32::new(record.max_in_flight_per_source))
        .map(|(total, per_source)| InFlight { total, per_source });
    Some(Policy {
        name: name_of(record),
        protocol,
        ports: match protocol {
            Protocol::Tcp => ports(&set.tcp_ports, id),
            Protocol::Udp => ports(&set.udp_ports, id),
            Protocol::Icmp | Protocol::Any => Vec::new(),
        },
        unit: Unit::from_number(record.unit)?,
        numbers: numbers(&record.current)?,
        in_flight: gate,
        on_limit: OnLimit::from_number(record.on_limit)?,
        status: record.status,
        mode: if record.monitor == 1 {
            Mode::Monitor
        } else {
            Mode::Enforce
        },
    })
}

fn numbers(record: &Record) -> Option<Numbers> {
    Some(Numbers {
        capacity: NonZeroU32::new(record.capacity)?,
        refill: NonZeroU32::new(record.refill)?,
        interval: NonZeroU64::new(record.interval_ns)?,
    })
}

/// The ranges that name a policy in a table, or none if it takes every port.
fn ports(table: &[u8; PORTS], id: PolicyId) -> Vec<(u16, u16)> {
    let entry = id.number().saturating_add(1);
    if table[0] == entry {
        return Vec::new();
    }
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for port in (0..=u16::MAX).filter(|port| table[usize::from(*port)] == entry) {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(port) => *last = port,
            Some(_) | None => ranges.push((port, port)),
        }
    }
    ranges
}

impl Config {
    /// This configuration as a file would have it, with every field that has a meaning.
    #[must_use]
    pub fn to_raw(&self) -> RawConfig {
        RawConfig {
            keys: RawKeys {
                ipv4_prefix: Some(Number::from(u64::from(self.keys.ipv4_prefix))),
                ipv6_prefix: Some(Number::from(u64::from(self.keys.ipv6_prefix))),
            },
            fragments: RawFragments {
                capacity: Some(Number::from(u64::from(self.fragments.capacity.get()))),
                refill: Some(Number::from(u64::from(self.fragments.refill.get()))),
                interval: Some(text::format_duration(self.fragments.interval.get())),
            },
            policy: self.policies.iter().map(Policy::to_raw).collect(),
        }
    }
}

impl Policy {
    /// This policy as a file would have it.
    #[must_use]
    pub fn to_raw(&self) -> RawPolicy {
        let numbers = &self.numbers;
        RawPolicy {
            name: Some(self.name.clone()),
            protocol: Some(self.protocol_word().to_owned()),
            ports: (!self.is_portless()).then(|| Text(text::format_ports(&self.ports))),
            unit: Some(self.unit_word().to_owned()),
            capacity: Some(Number::from(u64::from(numbers.capacity.get()))),
            refill: Some(Number::from(u64::from(numbers.refill.get()))),
            interval: Some(text::format_duration(numbers.interval.get())),
            rate: None,
            burst: None,
            max_in_flight: self.in_flight.map(|gate| Text(gate.total.to_string())),
            max_in_flight_per_source: self
                .in_flight
                .map(|gate| Number::from(u64::from(gate.per_source.get()))),
            on_limit: Some(Text(self.on_limit_word().to_owned())),
            status: (self.on_limit == OnLimit::Answer).then(|| Text(self.status.to_string())),
            monitor: Some(self.mode == Mode::Monitor),
        }
    }

    /// `tcp`, `udp`, `icmp` or `any`.
    #[must_use]
    pub fn protocol_word(&self) -> &'static str {
        protocol_word(self.protocol)
    }

    /// `connection`, `packet` or `byte`.
    #[must_use]
    pub fn unit_word(&self) -> &'static str {
        match self.unit {
            Unit::Connection => "connection",
            Unit::Packet => "packet",
            Unit::Byte => "byte",
        }
    }

    /// `503`, `reset` or `drop`.
    #[must_use]
    pub fn on_limit_word(&self) -> &'static str {
        match self.on_limit {
            OnLimit::Answer => "503",
            OnLimit::Reset => "reset",
            OnLimit::Drop => "drop",
        }
    }
}

#[cfg(test)]
mod tests {
    use limit_common::units::Instant;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{ConfigError, Facts, compile};

    const FACTS: Facts = Facts {
        max_sources: 1024,
        namespace_cookie: 0,
    };

    fn policies() -> impl Strategy<Value = Vec<RawPolicy>> {
        prop::collection::vec(policy(), 0..6).prop_map(|mut policies| {
            for (position, policy) in policies.iter_mut().enumerate() {
                policy.name = Some(format!("policy-{position}"));
            }
            policies
        })
    }

    fn policy() -> impl Strategy<Value = RawPolicy> {
        let protocols = prop::sample::select(vec!["tcp", "udp", "icmp", "any"]);
        let ranges = prop::collection::vec((1..=u16::MAX, 0..3_u16), 0..4);
        let numbers = (
            65_535..=u64::from(u32::MAX),
            1..=u64::from(u32::MAX),
            1..=9_999_999_u64,
        );
        let gate = prop::option::of((1..9_u64, 9..99_u64));
        let rest = (
            prop::sample::select(vec!["503", "reset", "drop"]),
            any::<bool>(),
            any::<bool>(),
        );
        (protocols, ranges, numbers, gate, rest).prop_map(
            |(protocol, ranges, (capacity, refill, ms), gate, (on_limit, byte, monitor))| {
                let ported = matches!(protocol, "tcp" | "udp") && !ranges.is_empty();
                let ranges: Vec<_> = ranges
                    .into_iter()
                    .map(|(first, more)| (first, first.saturating_add(more)))
                    .collect();
                let connection = protocol == "tcp" && !byte;
                let on_limit = if connection { on_limit } else { "drop" };
                RawPolicy {
                    protocol: Some(protocol.to_owned()),
                    ports: ported.then(|| Text(text::format_ports(&ranges))),
                    unit: byte.then(|| "byte".to_owned()),
                    capacity: Some(Number::from(capacity)),
                    refill: Some(Number::from(refill)),
                    interval: Some(format!("{ms}ms")),
                    max_in_flight: gate.map(|(_, total)| Text(total.to_string())),
                    max_in_flight_per_source: gate.map(|(per_source, _)| Number::from(per_source)),
                    on_limit: Some(Text(on_limit.to_owned())),
                    status: (on_limit == "503").then(|| Text("429".to_owned())),
                    monitor: Some(monitor),
                    ..RawPolicy::default()
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn reads_back_from_the_record_and_from_the_file(
            policy in policies(),
            (v4, v6) in (0..=32_u64, 0..=128_u64),
        ) {
            let keys = RawKeys {
                ipv4_prefix: Some(Number::from(v4)),
                ipv6_prefix: Some(Number::from(v6)),
            };
            let config = match (RawConfig { keys, policy, ..RawConfig::default() }).validate() {
                Ok(config) => config,
                Err(ConfigError::Overlap { .. }) => return Ok(()),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            let set = compile(&config, None, Instant::from_ns(1), FACTS).unwrap();
            let back = decompile(&set);
            prop_assert_eq!(back.as_ref(), Some(&config));
            let file = config.to_raw().to_toml().unwrap();
            let again = RawConfig::from_toml(&file, "f").unwrap().validate().unwrap();
            prop_assert_eq!(again, config);
        }
    }

    #[test]
    fn recovers_ports_up_to_the_last() {
        let raw = RawConfig::from_toml("[[policy]]\nname = 'a'\nports = '1-65535'", "f").unwrap();
        let config = raw.validate().unwrap();
        let set = compile(&config, None, Instant::from_ns(1), FACTS).unwrap();
        assert_eq!(decompile(&set).unwrap().policies[0].ports, [(1, 65_535)]);
    }

    #[test]
    fn reads_no_record_of_zeros() {
        let config = Config::built_in().unwrap();
        let mut set = compile(&config, None, Instant::from_ns(1), FACTS).unwrap();
        set.policies[PolicyId::FRAGMENTS.index()].current = Record::UNUSED;
        assert_eq!(decompile(&set), None);
    }
}
