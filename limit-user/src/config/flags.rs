//! The policy flags as typed; what they mean is decided where the file's fields are.

use clap::{Args, ValueEnum};

use super::{
    ConfigError, DEFAULT_POLICY, RawFragments, RawPolicy,
    raw::{Number, Text},
};

/// Flags that describe one policy.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Policy")]
pub struct PolicyFlags {
    /// Policy that the flags below are for [default: default]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Most tokens a source can have at once: its burst, in units of --unit [new policy: 100]
    #[arg(
        long,
        visible_alias = "cap",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub capacity: Option<String>,

    /// Tokens a source gains each --interval [new policy: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub refill: Option<String>,

    /// Time between refills, 1ms to 365d, as 500ms, 1s, 5m, 1h or 1d [new policy: 1s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub interval: Option<String>,

    /// Refill and interval in one, as 100/s, 5/m or 10/500ms [new policy: 100/s]
    #[arg(long, value_name = "N/UNIT", allow_hyphen_values = true)]
    pub rate: Option<String>,

    /// Capacity, beside --rate or for a policy there is, in units of --unit [new policy: the tokens of the rate]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub burst: Option<String>,

    /// Most connections open at once under this policy, or none [new policy: none]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_in_flight: Option<String>,

    /// Most connections open at once for one source [default: a quarter of --max-in-flight whenever that is given, at least 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_in_flight_per_source: Option<String>,

    /// Protocol the policy is for [new policy: tcp]
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<ProtocolWord>,

    /// Destination ports as 80,8000-8010, or all [new policy: 80,443 for the policy default, else all]
    #[arg(long, value_name = "LIST", allow_negative_numbers = true)]
    pub ports: Option<String>,

    /// What one token pays for; bytes are those of the whole frame [new policy: connection for tcp, else packet]
    #[arg(long, value_name = "UNIT")]
    pub unit: Option<UnitWord>,

    /// What a refused packet gets [new policy: 503 for unit connection, else drop]
    #[arg(long, value_name = "ACTION")]
    pub on_limit: Option<OnLimitWord>,

    /// HTTP status of the answer with --on-limit 503 [new policy: 503]
    #[arg(long, value_name = "CODE")]
    pub status: Option<StatusWord>,

    /// Count what would be refused and let it pass [default on attach without policy flags]
    #[arg(long)]
    pub monitor: bool,

    /// Carry out refusals [default on attach with any policy flag]
    #[arg(long)]
    pub enforce: bool,
}

/// Values of `--protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolWord {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// ICMP and ICMPv6
    Icmp,
    /// Every IP protocol
    Any,
}

/// Values of `--unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitWord {
    /// A new TCP connection (its SYN)
    Connection,
    /// A packet
    Packet,
    /// A byte of the frame
    Byte,
}

/// Values of `--on-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLimitWord {
    /// An HTTP answer; this version drops instead
    #[value(name = "503")]
    Answer,
    /// A TCP reset
    Reset,
    /// Nothing
    Drop,
}

/// Values of `--status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusWord {
    /// Service Unavailable
    #[value(name = "503")]
    Unavailable,
    /// Too Many Requests
    #[value(name = "429")]
    TooMany,
}

impl PolicyFlags {
    /// The policy they are for.
    #[must_use]
    pub fn name(&self) -> &str {
        self.policy.as_deref().unwrap_or(DEFAULT_POLICY)
    }

    /// Whether no flag but `--policy` was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.structural().is_none() && !self.has_numbers() && !self.monitor && !self.enforce
    }

    /// The first flag given that says what a policy is for or how it answers.
    #[must_use]
    pub fn structural(&self) -> Option<&'static str> {
        [
            (self.protocol.is_some(), "protocol"),
            (self.ports.is_some(), "ports"),
            (self.unit.is_some(), "unit"),
            (self.on_limit.is_some(), "on-limit"),
            (self.status.is_some(), "status"),
        ]
        .into_iter()
        .find_map(|(given, flag)| given.then_some(flag))
    }

    /// The flags as fields of a policy; `monitor` is `None` when neither mode flag was given.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a number is not one, or `--monitor` meets `--enforce`.
    pub fn to_raw(&self) -> Result<RawPolicy, ConfigError> {
        Ok(RawPolicy {
            name: Some(self.name().to_owned()),
            protocol: self.protocol.map(word),
            ports: self.ports.clone().map(Text),
            unit: self.unit.map(word),
            capacity: number("policy.capacity", self.capacity.as_deref())?,
            refill: number("policy.refill", self.refill.as_deref())?,
            interval: self.interval.clone(),
            rate: self.rate.clone(),
            burst: number("policy.burst", self.burst.as_deref())?,
            max_in_flight: self.max_in_flight()?,
            max_in_flight_per_source: number(
                "policy.max_in_flight_per_source",
                self.max_in_flight_per_source.as_deref(),
            )?,
            on_limit: self.on_limit.map(|on_limit| Text(word(on_limit))),
            status: self.status.map(|status| Text(word(status))),
            monitor: self.mode()?,
        })
    }

    /// The flags as numbers of the built-in policy `fragments`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a number is not one, or a flag is given that `fragments` does not have.
    pub fn to_fragments(&self) -> Result<RawFragments, ConfigError> {
        let raw = self.to_raw()?;
        let stranger = [
            (raw.rate.is_some(), "policy.rate"),
            (raw.burst.is_some(), "policy.burst"),
            (raw.max_in_flight.is_some(), "policy.max_in_flight"),
            (
                raw.max_in_flight_per_source.is_some(),
                "policy.max_in_flight_per_source",
            ),
            (raw.monitor.is_some(), "policy.monitor"),
        ];
        match stranger
            .into_iter()
            .find_map(|(given, field)| given.then_some(field))
        {
            Some(field) => Err(ConfigError::Conflict {
                subject: "policy fragments: ".to_owned(),
                field,
                reason: "cannot be set: the built-in policy takes capacity, refill and interval, \
                         and enforces when any other policy does"
                    .to_owned(),
            }),
            None => Ok(RawFragments {
                capacity: raw.capacity,
                refill: raw.refill,
                interval: raw.interval,
            }),
        }
    }

    fn has_numbers(&self) -> bool {
        [
            &self.capacity,
            &self.refill,
            &self.interval,
            &self.rate,
            &self.burst,
            &self.max_in_flight,
            &self.max_in_flight_per_source,
        ]
        .into_iter()
        .any(Option::is_some)
    }

    fn mode(&self) -> Result<Option<bool>, ConfigError> {
        match (self.monitor, self.enforce) {
            (true, true) => Err(ConfigError::Conflict {
                subject: format!("policy {}: ", self.name()),
                field: "policy.monitor",
                reason: "does not go with --enforce; give one of the two".to_owned(),
            }),
            (true, false) => Ok(Some(true)),
            (false, true) => Ok(Some(false)),
            (false, false) => Ok(None),
        }
    }

    fn max_in_flight(&self) -> Result<Option<Text>, ConfigError> {
        match self.max_in_flight.as_deref() {
            Some("none") => Ok(Some(Text("none".to_owned()))),
            text => Ok(number("policy.max_in_flight", text)?.map(|Number(text)| Text(text))),
        }
    }
}

fn number(field: &'static str, text: Option<&str>) -> Result<Option<Number>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ConfigError::Malformed {
            subject: String::new(),
            field,
            value: text.to_owned(),
            expected: "a whole number",
        });
    }
    Ok(Some(Number(text.to_owned())))
}

/// The word that was typed for a value.
fn word<T: ValueEnum>(value: T) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
