//! From the configuration as written to the one that cannot be wrong.
//!
//! This file decides what a policy is for and how it answers; [`numbers`] its quantities, [`ports`]
//! which packets it claims.

use limit_common::{
    config::{MAX_POLICIES, NAME_BYTES, OnLimit, Protocol, Unit},
    layout::MAX_FRAME_BYTES,
};

use super::{
    Config, ConfigError, FRAGMENTS_POLICY, Mode, Policy, RawConfig, RawPolicy,
    raw::{Number, Text},
};

mod numbers;
mod ports;

impl RawConfig {
    /// What this configuration means.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] naming the first field that is wrong.
    pub fn validate(&self) -> Result<Config, ConfigError> {
        if self.policy.len() > MAX_POLICIES {
            return Err(ConfigError::TooMany {
                wanted: self.policy.len(),
                retired: 0,
            });
        }
        let keys = numbers::keys(&self.keys)?;
        let fragments = numbers::fragments(&self.fragments)?;
        let policies = self
            .policy
            .iter()
            .map(policy)
            .collect::<Result<Vec<_>, _>>()?;
        for (position, second) in policies.iter().enumerate() {
            for first in &policies[..position] {
                ports::keep_apart(first, second)?;
            }
        }
        Ok(Config {
            keys,
            fragments,
            policies,
        })
    }
}

impl RawPolicy {
    /// Refuses what no policy could be, whatever it is laid over; for a change whose base is not
    /// known yet. What is not given is taken to be as good as it can be.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] naming the first field that is wrong.
    pub fn refuse_impossible(&self) -> Result<(), ConfigError> {
        let mut lenient = self.clone();
        let least = if lenient.unit.as_deref() == Some("byte") {
            MAX_FRAME_BYTES
        } else {
            1
        };
        let number = |number: u32| Some(Number::from(u64::from(number)));
        lenient.spread_burst();
        if lenient.rate.is_some() {
            lenient.burst = lenient.burst.or_else(|| number(least));
        } else {
            lenient.capacity = lenient.capacity.or_else(|| number(least));
            lenient.refill = lenient.refill.or_else(|| number(u32::MAX));
            lenient.interval.get_or_insert_with(|| "1ms".to_owned());
        }
        if lenient.max_in_flight_per_source.is_some() {
            lenient
                .max_in_flight
                .get_or_insert_with(|| Text(u32::MAX.to_string()));
        }
        policy(&lenient).map(|_| ())
    }
}

fn policy(raw: &RawPolicy) -> Result<Policy, ConfigError> {
    let name = name(raw.name.as_deref())?;
    let subject = format!("policy {name}: ");
    let protocol = protocol(&subject, raw.protocol.as_deref())?;
    let ports = ports::ports(&subject, protocol, raw.ports.as_ref())?;
    let unit = unit(&subject, protocol, raw.unit.as_deref())?;
    let on_limit = on_limit(&subject, unit, raw.on_limit.as_ref())?;
    Ok(Policy {
        protocol,
        ports,
        unit,
        numbers: numbers::numbers(&subject, unit, raw)?,
        in_flight: numbers::in_flight(&subject, raw)?,
        on_limit,
        status: status(&subject, on_limit, raw.status.as_ref())?,
        mode: if raw.monitor == Some(true) {
            Mode::Monitor
        } else {
            Mode::Enforce
        },
        name,
    })
}

fn name(name: Option<&str>) -> Result<String, ConfigError> {
    let Some(name) = name else {
        return Err(ConfigError::Missing {
            subject: String::new(),
            field: "policy.name",
            hint: "write name = \"...\" in every [[policy]]",
        });
    };
    let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rest = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !first || !rest || name.len() > NAME_BYTES {
        return Err(ConfigError::BadName {
            name: name.to_owned(),
        });
    }
    if name == FRAGMENTS_POLICY {
        return Err(ConfigError::ReservedName);
    }
    Ok(name.to_owned())
}

fn protocol(subject: &str, word: Option<&str>) -> Result<Protocol, ConfigError> {
    match word {
        None | Some("tcp") => Ok(Protocol::Tcp),
        Some("udp") => Ok(Protocol::Udp),
        Some("icmp") => Ok(Protocol::Icmp),
        Some("any") => Ok(Protocol::Any),
        Some(word) => Err(ConfigError::out_of_range(
            subject,
            "policy.protocol",
            word,
            "tcp, udp, icmp, any".to_owned(),
        )),
    }
}

fn unit(subject: &str, protocol: Protocol, word: Option<&str>) -> Result<Unit, ConfigError> {
    match (word, protocol) {
        (None, Protocol::Tcp) | (Some("connection"), Protocol::Tcp) => Ok(Unit::Connection),
        (None | Some("packet"), _) => Ok(Unit::Packet),
        (Some("byte"), _) => Ok(Unit::Byte),
        (Some("connection"), Protocol::Udp | Protocol::Icmp | Protocol::Any) => {
            Err(ConfigError::conflict(
                subject,
                "policy.unit",
                "connection needs protocol tcp; use unit packet",
            ))
        }
        (Some(word), _) => Err(ConfigError::out_of_range(
            subject,
            "policy.unit",
            word,
            "connection, packet, byte".to_owned(),
        )),
    }
}

fn on_limit(subject: &str, unit: Unit, word: Option<&Text>) -> Result<OnLimit, ConfigError> {
    let field = "policy.on_limit";
    let answers = match word.map(|word| word.0.as_str()) {
        None => {
            return Ok(if unit == Unit::Connection {
                OnLimit::Answer
            } else {
                OnLimit::Drop
            });
        }
        Some("drop") => return Ok(OnLimit::Drop),
        Some("503") => OnLimit::Answer,
        Some("reset") => OnLimit::Reset,
        Some(word) => {
            return Err(ConfigError::out_of_range(
                subject,
                field,
                word,
                "503, reset, drop".to_owned(),
            ));
        }
    };
    match unit {
        Unit::Connection => Ok(answers),
        Unit::Packet | Unit::Byte => Err(ConfigError::conflict(
            subject,
            field,
            "503 and reset need unit connection; use on_limit drop",
        )),
    }
}

fn status(subject: &str, on_limit: OnLimit, word: Option<&Text>) -> Result<u16, ConfigError> {
    let field = "policy.status";
    let status = match word.map(|word| word.0.as_str()) {
        None => return Ok(503),
        Some("503") => 503,
        Some("429") => 429,
        Some(word) => {
            return Err(ConfigError::out_of_range(
                subject,
                field,
                word,
                "503, 429".to_owned(),
            ));
        }
    };
    match on_limit {
        OnLimit::Answer => Ok(status),
        OnLimit::Reset | OnLimit::Drop => {
            Err(ConfigError::conflict(subject, field, "needs on_limit 503"))
        }
    }
}

/// The word for a protocol, as in files and flags.
pub(super) fn protocol_word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Icmp => "icmp",
        Protocol::Any => "any",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Keys, text};

    #[test]
    fn fills_in_the_defaults() {
        let config = Config::built_in().unwrap();
        assert_eq!(
            config.keys,
            Keys {
                ipv4_prefix: 32,
                ipv6_prefix: 64
            }
        );
        assert_eq!(config.fragments.capacity.get(), 1_000);
        let policy = &config.policies[0];
        assert_eq!(
            (policy.name.as_str(), policy.protocol),
            ("default", Protocol::Tcp)
        );
        assert_eq!(policy.ports, [(80, 80), (443, 443)]);
        assert_eq!(
            (policy.unit, policy.on_limit),
            (Unit::Connection, OnLimit::Answer)
        );
        assert_eq!(
            (policy.numbers.capacity.get(), policy.numbers.refill.get()),
            (100, 100)
        );
        assert_eq!(policy.numbers.interval.get(), text::NS_PER_S);
        assert_eq!((policy.mode, policy.in_flight), (Mode::Monitor, None));
    }

    #[test]
    fn refuses_what_does_not_fit_together() {
        let rows: [(&str, &str, &str); 18] = [
            ("rate = '1/s'\ncapacity = 9", "conflict", "policy.capacity"),
            ("rate = '1/s'\nrefill = 9", "conflict", "policy.refill"),
            (
                "rate = '1/s'\ninterval = '1s'",
                "conflict",
                "policy.interval",
            ),
            ("burst = 9", "conflict", "policy.burst"),
            (
                "protocol = 'udp'\nunit = 'connection'",
                "conflict",
                "policy.unit",
            ),
            ("protocol = 'icmp'\nports = 80", "conflict", "policy.ports"),
            ("protocol = 'any'\nports = 80", "conflict", "policy.ports"),
            (
                "unit = 'packet'\non_limit = 503",
                "conflict",
                "policy.on_limit",
            ),
            (
                "unit = 'byte'\ncapacity = 65535\non_limit = 'reset'",
                "conflict",
                "policy.on_limit",
            ),
            (
                "on_limit = 'drop'\nstatus = 429",
                "conflict",
                "policy.status",
            ),
            (
                "max_in_flight_per_source = 1",
                "conflict",
                "policy.max_in_flight_per_source",
            ),
            (
                "max_in_flight = 4\nmax_in_flight_per_source = 5",
                "out-of-range",
                "policy.max_in_flight_per_source",
            ),
            (
                "unit = 'byte'\ncapacity = 65534",
                "out-of-range",
                "policy.capacity",
            ),
            (
                "unit = 'byte'\nrate = '65534/s'",
                "out-of-range",
                "policy.burst",
            ),
            ("protocol = 'sctp'", "out-of-range", "policy.protocol"),
            ("unit = 'bit'", "out-of-range", "policy.unit"),
            ("on_limit = 'teapot'", "out-of-range", "policy.on_limit"),
            ("status = 418", "out-of-range", "policy.status"),
        ];
        for (fields, code, field) in rows {
            let file = format!("[[policy]]\nname = 'web'\n{fields}");
            let error = RawConfig::from_toml(&file, "f")
                .unwrap()
                .validate()
                .unwrap_err();
            assert_eq!(
                (error.code(), error.field()),
                (code, Some(field)),
                "{fields}: {error}"
            );
            assert!(error.to_string().starts_with("policy web: "), "{error}");
        }
    }

    #[test]
    fn judges_a_change_by_what_it_gives_alone() {
        let change = |fields: &str| {
            let file = format!("[[policy]]\nname = 'web'\n{fields}");
            RawConfig::from_toml(&file, "f").unwrap().policy[0].refuse_impossible()
        };
        for possible in [
            "capacity = 100000\ninterval = '365d'",
            "refill = 1\ninterval = '365d'",
            "capacity = 4294967295\nrefill = 1",
            "unit = 'byte'\ninterval = '1h'",
            "unit = 'byte'\nrate = '9/s'",
            "rate = '1/365d'",
            "burst = 9",
            "burst = 9\nrefill = 3",
            "max_in_flight_per_source = 9",
        ] {
            assert_eq!(change(possible), Ok(()), "{possible}");
        }
        for (impossible, code) in [
            (
                "capacity = 100000\nrefill = 1\ninterval = '365d'",
                "out-of-range",
            ),
            ("capacity = 0", "out-of-range"),
            ("burst = 0", "out-of-range"),
            ("rate = '1/s'\ncapacity = 9", "conflict"),
            ("capacity = 9\nburst = 9", "conflict"),
            ("unit = 'byte'\ncapacity = 65534", "out-of-range"),
            ("unit = 'byte'\nrate = '9/s'\nburst = 9", "out-of-range"),
        ] {
            assert_eq!(change(impossible).unwrap_err().code(), code, "{impossible}");
        }
    }

    #[test]
    fn refuses_bad_names() {
        let long = "x".repeat(33);
        for bad in [
            "", "a b", "-a", ".a", "a/b", "a\"b", "a\nb", "a\u{7}", "é", "a😀", "٣", &long,
        ] {
            let error = policy(&RawPolicy::named(bad)).unwrap_err();
            assert_eq!(
                (error.code(), error.field()),
                ("bad-name", Some("policy.name")),
                "{bad:?}"
            );
        }
        assert_eq!(
            policy(&RawPolicy::named("fragments")),
            Err(ConfigError::ReservedName)
        );
        assert!(policy(&RawPolicy::named(&"x".repeat(32))).is_ok());
    }

    #[test]
    fn refuses_more_policies_than_there_are_rows() {
        let raw = |count: usize| RawConfig {
            policy: (0..count)
                .map(|n| RawPolicy {
                    ports: Some(Text((n + 1).to_string())),
                    ..RawPolicy::named(&format!("p{n}"))
                })
                .collect(),
            ..RawConfig::default()
        };
        assert!(raw(64).validate().is_ok());
        assert_eq!(
            raw(65).validate(),
            Err(ConfigError::TooMany {
                wanted: 65,
                retired: 0
            })
        );
    }

    #[test]
    fn refuses_a_change_only_when_no_policy_could_take_it() {
        let named = || RawPolicy::named("web");
        let text = |word: &str| Some(Text(word.to_owned()));
        let possible = [
            RawPolicy {
                unit: Some("byte".to_owned()),
                ..named()
            },
            RawPolicy {
                max_in_flight_per_source: Some(Number::from(5)),
                ..named()
            },
            RawPolicy {
                status: text("429"),
                ..named()
            },
        ];
        for raw in possible {
            assert_eq!(raw.refuse_impossible(), Ok(()), "{raw:?}");
        }
        let impossible = [
            RawPolicy {
                capacity: Some(Number::from(0)),
                ..named()
            },
            RawPolicy {
                unit: Some("byte".to_owned()),
                on_limit: text("503"),
                ..named()
            },
            RawPolicy {
                protocol: Some("udp".to_owned()),
                on_limit: text("reset"),
                ..named()
            },
        ];
        for raw in impossible {
            assert!(raw.refuse_impossible().is_err(), "{raw:?}");
        }
    }

    #[test]
    fn lays_a_change_over_a_policy() {
        let config = Config::built_in().unwrap();
        let change = RawPolicy {
            capacity: Some(Number::from(9)),
            ..RawPolicy::named("default")
        };
        let changed = config.with_policy(&change).unwrap();
        assert_eq!(changed.policies[0].numbers.capacity.get(), 9);
        assert_eq!(
            (changed.policies[0].numbers.refill, changed.policies[0].mode),
            (config.policies[0].numbers.refill, Mode::Monitor)
        );
        let added = config
            .with_policy(&RawPolicy {
                ports: Some(Text("22".to_owned())),
                ..RawPolicy::named("ssh")
            })
            .unwrap();
        assert_eq!(added.policies.len(), 2);
        let rated = RawPolicy {
            rate: Some("5/m".to_owned()),
            ..RawPolicy::named("default")
        };
        let numbers = config.with_policy(&rated).unwrap().policies[0].numbers;
        assert_eq!((numbers.capacity.get(), numbers.refill.get()), (100, 5));
    }
}
