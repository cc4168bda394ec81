//! A policy as `attach`, `set` and `show` print it.

use core::fmt;

use limit_common::config::{OnLimit, Unit};
use serde::Serialize;

use crate::{
    config::{
        Config, FRAGMENTS_POLICY, Mode, Numbers, Policy,
        text::{self, NS_PER_MS, format_duration, format_number},
    },
    kernel::{Mode as XdpMode, links::Kind},
};

/// A policy as machines read it.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyView {
    name: String,
    protocol: &'static str,
    /// `null` for every port.
    ports: Option<String>,
    unit: &'static str,
    #[serde(flatten)]
    numbers: NumbersView,
    max_in_flight: Option<u32>,
    max_in_flight_per_source: Option<u32>,
    on_limit: &'static str,
    status: u16,
    mode: &'static str,
}

/// The numbers of a bucket as machines read them.
#[derive(Clone, Debug, Serialize)]
pub struct NumbersView {
    capacity: u32,
    refill: u32,
    interval: String,
    interval_ms: u64,
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        Self {
            name: policy.name.clone(),
            protocol: policy.protocol_word(),
            ports: (!policy.is_portless()).then(|| text::format_ports(&policy.ports)),
            unit: policy.unit_word(),
            numbers: NumbersView::from(policy.numbers),
            max_in_flight: policy.in_flight.map(|gate| gate.total.get()),
            max_in_flight_per_source: policy.in_flight.map(|gate| gate.per_source.get()),
            on_limit: policy.on_limit_word(),
            status: policy.status,
            mode: mode_word(policy.mode),
        }
    }
}

impl From<Numbers> for NumbersView {
    fn from(numbers: Numbers) -> Self {
        Self {
            capacity: numbers.capacity.get(),
            refill: numbers.refill.get(),
            interval: format_duration(numbers.interval.get()),
            interval_ms: numbers.interval.get() / NS_PER_MS,
        }
    }
}

/// The policies of a configuration as machines read them.
#[must_use]
pub fn views(config: &Config) -> Vec<PolicyView> {
    config.policies.iter().map(PolicyView::from).collect()
}

/// One line for each policy.
#[must_use]
pub fn lines(config: &Config) -> String {
    let mut lines = String::new();
    for policy in &config.policies {
        lines.push_str(&format!("policy {}\n", Line(policy)));
    }
    lines
}

/// One line for the built-in policy `fragments`.
#[must_use]
pub fn fragments_line(config: &Config) -> String {
    let enforces = config
        .policies
        .iter()
        .any(|policy| policy.mode == Mode::Enforce);
    format!(
        "policy {FRAGMENTS_POLICY}: later fragments, {}, {}\n",
        numbers_text(config.fragments, "packets"),
        if enforces { "drop" } else { "only monitors" }
    )
}

/// What an operator should know about the policies that were asked for.
#[must_use]
pub fn warnings(config: &Config) -> Vec<String> {
    config
        .policies
        .iter()
        .filter(|policy| policy.in_flight.is_some())
        .map(|policy| {
            format!(
                "policy {}: this version counts no open connections, so max_in_flight is kept and \
                 sheds nothing",
                policy.name
            )
        })
        .collect()
}

/// What an operator should know about resets on an interface that the filter runs on natively.
///
/// The kernel hands a frame that XDP sends from one end of a veth to the program of the other end, and
/// drops it where there is none.
#[must_use]
pub fn reset_warning(kind: &Kind, mode: XdpMode, config: &Config) -> Option<&'static str> {
    let resets =
        |policy: &Policy| policy.on_limit == OnLimit::Reset && matches!(policy.mode, Mode::Enforce);
    (*kind == Kind::Veth && mode == XdpMode::Native && config.policies.iter().any(resets)).then_some(
        "resets leave a veth in native mode only if its peer has an XDP program, one that passes is \
         enough; else clients wait: --xdp-mode generic needs none",
    )
}

/// A policy in one line for people.
#[derive(Debug)]
pub struct Line<'a>(pub &'a Policy);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.0;
        write!(f, "{}: {}", policy.name, policy.protocol_word())?;
        if !policy.is_portless() {
            write!(f, " {}", text::format_ports(&policy.ports))?;
        }
        let unit = match policy.unit {
            Unit::Connection => "connections",
            Unit::Packet => "packets",
            Unit::Byte => "bytes",
        };
        write!(f, ", {}", numbers_text(policy.numbers, unit))?;
        if let Some(gate) = policy.in_flight {
            write!(
                f,
                ", {} in flight, {} a source",
                gate.total, gate.per_source
            )?;
        }
        match policy.mode {
            Mode::Monitor => f.write_str(", only monitors"),
            Mode::Enforce => match policy.on_limit {
                OnLimit::Answer => {
                    write!(f, ", on limit {} (this version drops)", policy.status)
                }
                OnLimit::Reset => f.write_str(", on limit reset"),
                OnLimit::Drop => f.write_str(", on limit drop"),
            },
        }
    }
}

fn numbers_text(numbers: Numbers, unit: &str) -> String {
    format!(
        "{} {unit} at once and {} more each {} per source",
        format_number(numbers.capacity.get().into()),
        format_number(numbers.refill.get().into()),
        format_duration(numbers.interval.get())
    )
}

const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Monitor => "monitor",
        Mode::Enforce => "enforce",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    #[test]
    fn says_in_one_line_what_a_policy_does() {
        let config = Config::built_in().unwrap();
        assert_eq!(
            lines(&config),
            "policy default: tcp 80,443, 100 connections at once and 100 more each 1s per source, \
             only monitors\n"
        );
        let file = "[[policy]]\nname = 'dns'\nprotocol = 'udp'\nports = 53\nrate = '1000/s'";
        let config = RawConfig::from_toml(file, "f").unwrap().validate().unwrap();
        assert!(lines(&config).ends_with(
            "udp 53, 1,000 packets at once and 1,000 more each 1s per source, on limit drop\n"
        ));
        assert!(fragments_line(&config).ends_with(", drop\n"));
    }

    #[test]
    fn warns_that_nothing_feeds_the_gate() {
        let file = "[[policy]]\nname = 'web'\nmax_in_flight = 8";
        let config = RawConfig::from_toml(file, "f").unwrap().validate().unwrap();
        assert_eq!(warnings(&config).len(), 1);
        assert!(warnings(&Config::built_in().unwrap()).is_empty());
    }

    #[test]
    fn warns_of_resets_that_a_native_veth_loses() {
        let mut config = Config::built_in().unwrap();
        config.policies[0].on_limit = OnLimit::Reset;
        let lost = |config: &Config, kind: Kind, mode| reset_warning(&kind, mode, config).is_some();
        assert!(
            !lost(&config, Kind::Veth, XdpMode::Native),
            "it only monitors"
        );
        config.policies[0].mode = Mode::Enforce;
        assert!(lost(&config, Kind::Veth, XdpMode::Native));
        assert!(!lost(&config, Kind::Veth, XdpMode::Generic));
        assert!(!lost(&config, Kind::Device, XdpMode::Native));
        config.policies[0].on_limit = OnLimit::Drop;
        assert!(!lost(&config, Kind::Veth, XdpMode::Native));
    }
}
