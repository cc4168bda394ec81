//! Whether the shell that runs this would feel the filter: its own ssh peer, from the environment.

use std::{env, net::IpAddr};

use ipnet::IpNet;
use limit_common::config::PolicySet;

use crate::config::name_of;

/// The ssh session that this process runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Where it comes from.
    pub peer: IpAddr,
    /// The port it came to.
    pub port: u16,
}

impl Session {
    /// The session that `SSH_CONNECTION` describes, if there is one.
    #[must_use]
    pub fn of_this_shell() -> Option<Self> {
        Self::parse(&env::var("SSH_CONNECTION").ok()?)
    }

    /// Reads `client-address client-port server-address server-port`.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [peer, _, _, port] = words[..] else {
            return None;
        };
        // A link-local peer carries its interface, which is no part of the address.
        let peer = peer.split('%').next()?.parse().ok()?;
        Some(Self {
            peer,
            port: port.parse().ok()?,
        })
    }

    /// A warning if a new login from there would meet a policy; the allow list goes first.
    #[must_use]
    pub fn warning(&self, set: &PolicySet, allowed: &[IpNet]) -> Option<String> {
        let row = usize::from(set.tcp_ports[usize::from(self.port)]).checked_sub(1)?;
        let record = set.policies.get(row)?;
        if allowed.iter().any(|prefix| prefix.contains(&self.peer)) {
            return None;
        }
        let outcome = if record.monitor == 1 {
            "would be counted"
        } else {
            "can be refused: this session goes on, a new login may not"
        };
        Some(format!(
            "your own ssh peer {} falls under policy {} (tcp {}) and {outcome}; `limitctl allow add \
             {}` lets it through",
            self.peer,
            name_of(record),
            self.port,
            self.peer
        ))
    }

    /// A warning if `denied` holds the peer.
    #[must_use]
    pub fn denied_warning(&self, denied: &[IpNet]) -> Option<String> {
        let prefix = denied.iter().find(|prefix| prefix.contains(&self.peer))?;
        Some(format!(
            "{prefix} holds your own ssh peer {}: this session may end; from elsewhere, `limitctl \
             deny remove {prefix}` takes it back",
            self.peer
        ))
    }
}

#[cfg(test)]
mod tests {
    use limit_common::units::Instant;

    use super::*;
    use crate::config::{Config, Facts, compile};

    fn session(port: u16) -> Session {
        Session::parse(&format!("203.0.113.7 50000 198.51.100.1 {port}")).unwrap()
    }

    #[test]
    fn reads_both_families_and_nothing_else() {
        assert_eq!(session(22).port, 22);
        let peer = Session::parse("fe80::1%eth0 5 fe80::2%eth0 22")
            .unwrap()
            .peer;
        assert_eq!(peer, "fe80::1".parse::<IpAddr>().unwrap());
        for bad in [
            "",
            "a b c d",
            "1.2.3.4 1 1.2.3.4",
            "1.2.3.4 1 1.2.3.4 99999",
        ] {
            assert_eq!(Session::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn warns_only_about_a_port_under_a_policy_and_a_peer_off_the_allow_list() {
        let facts = Facts {
            max_sources: 64,
            namespace_cookie: 0,
        };
        let config = Config::built_in().unwrap();
        let set = compile(&config, None, Instant::from_ns(1), facts).unwrap();
        assert_eq!(session(22).warning(&set, &[]), None);
        let warning = session(443).warning(&set, &[]).unwrap();
        assert!(
            warning.contains("203.0.113.7") && warning.contains("policy default"),
            "{warning}"
        );
        assert_eq!(
            session(443).warning(&set, &["203.0.113.0/24".parse().unwrap()]),
            None
        );
    }

    #[test]
    fn warns_about_a_denied_peer() {
        assert_eq!(
            session(22).denied_warning(&["198.51.100.0/24".parse().unwrap()]),
            None
        );
        assert!(
            session(22)
                .denied_warning(&["203.0.0.0/16".parse().unwrap()])
                .is_some()
        );
    }
}
