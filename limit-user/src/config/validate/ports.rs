//! Which packets a policy claims, and that no two claim the same.

use limit_common::config::Protocol;

use super::{
    super::{
        ConfigError, Policy,
        raw::Text,
        text::{self, TextError},
    },
    protocol_word,
};

/// Sorted ranges that neither overlap nor touch; empty for every port.
pub(super) fn ports(
    subject: &str,
    protocol: Protocol,
    written: Option<&Text>,
) -> Result<Vec<(u16, u16)>, ConfigError> {
    let Some(Text(written)) = written else {
        return Ok(Vec::new());
    };
    if written == "all" {
        return Ok(Vec::new());
    }
    let field = "policy.ports";
    let mut ranges = text::ports(written).map_err(|error| match error {
        TextError::Malformed => ConfigError::Malformed {
            subject: subject.to_owned(),
            field,
            value: written.clone(),
            expected: "a list of ports and ranges such as 80,8000-8010, or all",
        },
        TextError::TooLarge => ConfigError::out_of_range(
            subject,
            field,
            written,
            "1..=65535, each range rising".to_owned(),
        ),
    })?;
    match protocol {
        Protocol::Tcp | Protocol::Udp => {}
        Protocol::Icmp | Protocol::Any => {
            return Err(ConfigError::conflict(
                subject,
                field,
                "need protocol tcp or udp",
            ));
        }
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = (*end).max(last),
            Some(_) | None => merged.push((first, last)),
        }
    }
    Ok(merged)
}

/// Refuses two policies of one name, or with a port in common.
pub(super) fn keep_apart(first: &Policy, second: &Policy) -> Result<(), ConfigError> {
    if first.name == second.name {
        return Err(ConfigError::DuplicateName {
            name: first.name.clone(),
        });
    }
    if first.protocol != second.protocol {
        return Ok(());
    }
    let protocol = protocol_word(first.protocol);
    let what = if first.is_portless() && second.is_portless() {
        match first.protocol {
            Protocol::Tcp | Protocol::Udp => Some(format!("every {protocol} port without its own")),
            Protocol::Icmp => Some("protocol icmp".to_owned()),
            Protocol::Any => Some("protocol any".to_owned()),
        }
    } else {
        common_port(&first.ports, &second.ports).map(|port| format!("{protocol} port {port}"))
    };
    match what {
        None => Ok(()),
        Some(what) => Err(ConfigError::Overlap {
            first: first.name.clone(),
            second: second.name.clone(),
            what,
        }),
    }
}

/// The lowest port in both lists of sorted ranges.
fn common_port(first: &[(u16, u16)], second: &[(u16, u16)]) -> Option<u16> {
    first
        .iter()
        .flat_map(|a| second.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))))
        .find_map(|(start, end)| (start <= end).then_some(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RawConfig, RawPolicy};

    #[test]
    fn merges_ports() {
        let raw = RawPolicy {
            ports: Some(Text("443,80-90,85-99,100,81".to_owned())),
            ..RawPolicy::named("web")
        };
        assert_eq!(
            Config::from_policy(&raw).unwrap().policies[0].ports,
            [(80, 100), (443, 443)]
        );
    }

    #[test]
    fn refuses_two_policies_that_claim_one_port() {
        let both = |first: &str, second: &str| {
            let file = format!("[[policy]]\nname = 'a'\n{first}\n[[policy]]\nname = 'b'\n{second}");
            RawConfig::from_toml(&file, "f").unwrap().validate()
        };
        let claim = |first, second| match both(first, second) {
            Err(ConfigError::Overlap {
                first,
                second,
                what,
            }) => {
                assert_eq!((first.as_str(), second.as_str()), ("a", "b"));
                what
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            claim("ports = '80,443'", "ports = '400-450'"),
            "tcp port 443"
        );
        assert_eq!(claim("", ""), "every tcp port without its own");
        assert_eq!(
            claim("protocol = 'icmp'", "protocol = 'icmp'"),
            "protocol icmp"
        );
        assert_eq!(
            claim("protocol = 'any'", "protocol = 'any'"),
            "protocol any"
        );
        assert!(both("ports = 80", "").is_ok());
        assert!(both("ports = 53", "protocol = 'udp'\nports = 53").is_ok());
        assert!(both("protocol = 'any'", "protocol = 'icmp'").is_ok());
    }
}
