//! The configuration as written: every field optional, nothing checked but its type.
//!
//! Numbers keep their text, so that an error can show what was written, however large it is.

use core::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

use super::{ConfigError, DEFAULT_PORTS};

/// A configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    /// `[keys]`
    #[serde(default)]
    pub keys: RawKeys,
    /// `[fragments]`
    #[serde(default)]
    pub fragments: RawFragments,
    /// `[[policy]]`
    #[serde(default)]
    pub policy: Vec<RawPolicy>,
}

/// `[keys]`: leading bits of a source address that form its key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawKeys {
    /// Of an IPv4 address, 0..=32; default 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix: Option<Number>,
    /// Of an IPv6 address, 0..=128; default 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix: Option<Number>,
}

/// `[fragments]`: the numbers of the built-in policy for fragments that carry no port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawFragments {
    /// Most packets at once; default 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Number>,
    /// Packets gained each interval; default 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Number>,
    /// Time between refills; default 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
}

/// `[[policy]]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RawPolicy {
    /// Name; required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `tcp`, `udp`, `icmp` or `any`; default tcp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Ports and ranges; default every port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Text>,
    /// `connection`, `packet` or `byte`; default connection for tcp, else packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Most tokens a source has; default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Number>,
    /// Tokens gained each interval; default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill: Option<Number>,
    /// Time between refills; default 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Refill and interval in one: `100/s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Capacity, beside `rate`; default the tokens of the rate. In a change, what is not given stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Number>,
    /// Most permits out at once, or `none`; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<Text>,
    /// Most permits out at once for one source; default a quarter of `max_in_flight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight_per_source: Option<Number>,
    /// `503`, `reset` or `drop`; default 503 for unit connection, else drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<Text>,
    /// 503 or 429; default 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Text>,
    /// Whether refusals are only counted; default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor: Option<bool>,
}

impl RawConfig {
    /// Reads a file's text; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NotToml`] or [`ConfigError::Field`].
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let not_toml = |error: &toml::de::Error| ConfigError::NotToml {
            origin: origin.to_owned(),
            message: at_line(text, error),
        };
        toml::from_str::<toml::Table>(text).map_err(|error| not_toml(&error))?;
        toml::from_str(text).map_err(|error| {
            let (code, field) = kind(error.message());
            ConfigError::Field {
                origin: origin.to_owned(),
                message: at_line(text, &error),
                code,
                field,
            }
        })
    }

    /// The text of a file that [`Self::from_toml`] reads back.
    ///
    /// # Errors
    ///
    /// When a number does not fit a TOML integer; validated ones do.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

impl RawPolicy {
    /// A policy with a name and nothing else.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// Gives a TCP policy without ports those of the policy `default`.
    pub(super) fn fill_default_ports(&mut self) {
        if self.ports.is_none() && self.protocol.as_deref().is_none_or(|name| name == "tcp") {
            self.ports = Some(Text(DEFAULT_PORTS.to_owned()));
        }
    }

    /// Lays the fields that `change` gives over this policy, which came from a valid one.
    ///
    /// What a given field makes meaningless is cleared, so that its default comes back.
    pub(super) fn overlay(&mut self, change: &Self) {
        let mut change = change.clone();
        change.spread_burst();
        if change.rate.is_some() {
            self.burst = self.capacity.take();
            (self.refill, self.interval) = (None, None);
        }
        if change.max_in_flight.is_some() {
            self.max_in_flight_per_source = None;
        }
        if change
            .on_limit
            .as_ref()
            .is_some_and(|on_limit| on_limit.0 != "503")
        {
            self.status = None;
        }
        if change.ports.as_ref().is_some_and(|ports| ports.0 == "all") {
            self.ports = None;
        }
        take(&mut self.protocol, change.protocol);
        take(&mut self.ports, change.ports);
        take(&mut self.unit, change.unit);
        take(&mut self.capacity, change.capacity);
        take(&mut self.refill, change.refill);
        take(&mut self.interval, change.interval);
        take(&mut self.rate, change.rate);
        take(&mut self.burst, change.burst);
        take(&mut self.max_in_flight, change.max_in_flight);
        take(
            &mut self.max_in_flight_per_source,
            change.max_in_flight_per_source,
        );
        take(&mut self.on_limit, change.on_limit);
        take(&mut self.status, change.status);
        take(&mut self.monitor, change.monitor);
    }
}

impl RawPolicy {
    /// Takes a burst without a rate for the capacity that it is, over a policy that has a rate.
    pub(super) fn spread_burst(&mut self) {
        if self.rate.is_none() && self.capacity.is_none() {
            self.capacity = self.burst.take();
        }
    }
}

impl RawFragments {
    /// Lays the fields that `change` gives over these.
    pub(super) fn overlay(&mut self, change: &Self) {
        let change = change.clone();
        take(&mut self.capacity, change.capacity);
        take(&mut self.refill, change.refill);
        take(&mut self.interval, change.interval);
    }
}

fn take<T>(field: &mut Option<T>, change: Option<T>) {
    if change.is_some() {
        *field = change;
    }
}

/// An integer as written, of any size and sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(pub String);

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

/// A word or a list of words; integers are taken as their digits, lists as comma-separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Integer;
        impl Visitor<'_> for Integer {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number, E> {
                Ok(Number(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number.to_string()))
            }

            fn visit_i128<E: de::Error>(self, number: i128) -> Result<Number, E> {
                Ok(Number(number.to_string()))
            }

            fn visit_u128<E: de::Error>(self, number: u128) -> Result<Number, E> {
                Ok(Number(number.to_string()))
            }
        }
        deserializer.deserialize_any(Integer)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: i64 = self.0.parse().map_err(serde::ser::Error::custom)?;
        serializer.serialize_i64(number)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, an integer, or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Text, A::Error> {
                let mut words = Vec::new();
                while let Some(Text(word)) = list.next_element()? {
                    words.push(word);
                }
                Ok(Text(words.join(",")))
            }
        }
        deserializer.deserialize_any(Words)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.parse::<i64>() {
            Ok(number) => serializer.serialize_i64(number),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

/// `line N: message`, or the message alone when the parser gives no place.
fn at_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', ", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return message;
    };
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    format!("line {line}: {message}")
}

/// The kind of a type error, and the field it names; serde words these messages itself.
fn kind(message: &str) -> (&'static str, Option<String>) {
    let code = if message.starts_with("unknown field") {
        "unknown-field"
    } else if message.starts_with("missing field") {
        "missing-field"
    } else if message.starts_with("duplicate") {
        "duplicate-field"
    } else if message.ends_with("expected an integer") {
        "not-an-integer"
    } else {
        "wrong-type"
    };
    let field = message
        .split('`')
        .nth(1)
        .filter(|_| message.contains("field `"));
    (code, field.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ports_in_every_form() {
        for (written, meant) in [
            ("80", "80"),
            ("\"80,8000-8010\"", "80,8000-8010"),
            ("[80, \"90-99\"]", "80,90-99"),
        ] {
            let raw = RawConfig::from_toml(&format!("[[policy]]\nports = {written}"), "f");
            assert_eq!(
                raw.unwrap().policy[0].ports,
                Some(Text(meant.to_owned())),
                "{written}"
            );
        }
    }

    #[test]
    fn tells_a_bad_file_from_a_bad_field() {
        let code = |text| RawConfig::from_toml(text, "f").unwrap_err().code();
        assert_eq!(code("[[policy"), "not-toml");
        assert_eq!(code("[keys]\n[keys]"), "not-toml");
        assert_eq!(code("[keys]\nipv4 = 1"), "unknown-field");
        assert_eq!(code("[[policy]]\ncapacity = \"9\""), "not-an-integer");
        assert_eq!(code("[[policy]]\ncapacity = 1.0"), "not-an-integer");
        assert_eq!(code("[[policy]]\ninterval = 1"), "wrong-type");
    }

    #[test]
    fn names_the_line_and_the_field() {
        let error = RawConfig::from_toml("[keys]\n\nipv4 = 1", "limit.toml").unwrap_err();
        assert_eq!(error.field(), Some("ipv4"));
        assert!(
            error.to_string().starts_with("limit.toml: line 3: "),
            "{error}"
        );
    }
}
