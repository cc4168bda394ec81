//! From flags and files to one validated [`Config`], and from there to the record the kernel reads.
//!
//! Text as typed ([`PolicyFlags`]) and the file as written ([`RawConfig`]) meet in [`RawPolicy`];
//! [`Config`] is what they mean, cannot be wrong, and is the only one that leaves this module.
//! [`compile()`] and [`decompile()`] turn it into a [`PolicySet`](limit_common::config::PolicySet) and
//! back. Nothing here reads a clock, a file or the kernel.

use core::num::NonZeroU32;

use limit_common::{
    config::{OnLimit, Protocol, Unit},
    units::{Capacity, Interval, Refill},
};

mod compile;
mod decompile;
mod error;
mod flags;
mod raw;
pub mod text;
mod validate;

pub use compile::{Facts, RETIRED, compile};
pub use decompile::{decompile, name_of, policy_ids};
pub use error::{ConfigError, number_up_to};
pub use flags::{OnLimitWord, PolicyFlags, ProtocolWord, StatusWord, UnitWord};
pub use raw::{Number, RawConfig, RawFragments, RawKeys, RawPolicy, Text};

/// Everything an operator decides about a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which part of an address is charged.
    pub keys: Keys,
    /// The numbers of the built-in policy that fragments without a port meet.
    pub fragments: Numbers,
    /// The policies; names are unique and no two claim one port of one protocol.
    pub policies: Vec<Policy>,
}

/// Leading bits of a source address that form its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Of an IPv4 address, 0..=32.
    pub ipv4_prefix: u8,
    /// Of an IPv6 address, 0..=128.
    pub ipv6_prefix: u8,
}

/// One limit: what it counts, for which packets, how much, and what it does beyond that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// 1..=32 ASCII letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The protocol it is for.
    pub protocol: Protocol,
    /// Destination ports as sorted ranges that do not touch; empty for every port.
    pub ports: Vec<(u16, u16)>,
    /// What a token pays for.
    pub unit: Unit,
    /// The bucket of each source.
    pub numbers: Numbers,
    /// The gate before any bucket.
    pub in_flight: Option<InFlight>,
    /// What a refused packet gets.
    pub on_limit: OnLimit,
    /// HTTP status of the answer: 503 or 429.
    pub status: u16,
    /// Whether refusals are carried out.
    pub mode: Mode,
}

/// The numbers of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Most tokens it holds.
    pub capacity: Capacity,
    /// Tokens gained at each whole interval.
    pub refill: Refill,
    /// Nanoseconds between refills.
    pub interval: Interval,
}

/// Permits out at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Of the policy in all.
    pub total: NonZeroU32,
    /// Of one source; at most `total`.
    pub per_source: NonZeroU32,
}

/// Whether refusals are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refusals are counted and the packet passes.
    Monitor,
    /// Refusals are carried out.
    Enforce,
}

impl Config {
    /// What `attach` makes when it is told nothing: the policy `default`, monitoring.
    ///
    /// # Errors
    ///
    /// None that can happen: the defaults are in range.
    pub fn built_in() -> Result<Self, ConfigError> {
        let policy = RawPolicy {
            monitor: Some(true),
            ..RawPolicy::named(DEFAULT_POLICY)
        };
        Self::from_policy(&policy)
    }

    /// A configuration of one policy.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the policy is not valid.
    pub fn from_policy(policy: &RawPolicy) -> Result<Self, ConfigError> {
        let mut policy = policy.clone();
        if policy.name.as_deref() == Some(DEFAULT_POLICY) {
            policy.fill_default_ports();
        }
        RawConfig {
            policy: vec![policy],
            ..RawConfig::default()
        }
        .validate()
    }

    /// The policy with this name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name == name)
    }

    /// This configuration with `change` laid over the policy it names, or with that policy added.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the result is not valid.
    pub fn with_policy(&self, change: &RawPolicy) -> Result<Self, ConfigError> {
        let mut raw = self.to_raw();
        let known = raw
            .policy
            .iter_mut()
            .find(|policy| policy.name == change.name);
        match known {
            Some(policy) => policy.overlay(change),
            None => {
                let mut added = change.clone();
                if added.name.as_deref() == Some(DEFAULT_POLICY) {
                    added.fill_default_ports();
                }
                raw.policy.push(added);
            }
        }
        raw.validate()
    }

    /// This configuration with other numbers for the built-in policy `fragments`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the numbers are not valid.
    pub fn with_fragments(&self, change: &RawFragments) -> Result<Self, ConfigError> {
        let mut raw = self.to_raw();
        raw.fragments.overlay(change);
        raw.validate()
    }
}

impl Policy {
    /// Whether it takes every packet of its protocol that no other policy names.
    #[must_use]
    pub fn is_portless(&self) -> bool {
        self.ports.is_empty()
    }
}

/// Name of the policy that flags mean when none is named.
pub const DEFAULT_POLICY: &str = "default";

/// Name of the built-in policy for fragments; no other policy may have it.
pub const FRAGMENTS_POLICY: &str = "fragments";

/// Ports of the policy `default` unless `--ports` says otherwise.
const DEFAULT_PORTS: &str = "80,443";

/// Numbers of a policy that are not given.
const DEFAULT_CAPACITY: u32 = 100;
const DEFAULT_REFILL: u32 = 100;
const DEFAULT_INTERVAL_NS: u64 = text::NS_PER_S;

/// Numbers of the built-in policy `fragments` that are not given.
const FRAGMENTS_CAPACITY: u32 = 1_000;
const FRAGMENTS_REFILL: u32 = 1_000;
