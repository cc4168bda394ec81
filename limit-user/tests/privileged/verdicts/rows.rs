//! The table: every reason, unit, action, list and prefix, in frames from the usual two sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use limit_common::{counters::Effect, key::Key, units::PolicyId, verdict::Reason};

use super::{Expected, Row};
use crate::{
    frames::{
        Extension, Frame,
        transport::{SYN, Transport, tcp},
    },
    loaded::{Xdp, key},
};

mod exempt;
mod judged;

/// Every row.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = judged::connections();
    rows.extend(judged::packets_and_bytes());
    rows.extend(judged::policies());
    rows.extend(judged::prefixes());
    rows.extend(exempt::lists());
    rows.extend(exempt::in_flight());
    rows.extend(exempt::fragments());
    rows.extend(exempt::unjudged());
    rows
}

/// A row whose outcome is still to be said.
fn row(description: &'static str, frame: Frame, config: String) -> Row {
    Row {
        description,
        frame,
        config,
        allowed: &[],
        denied: &[],
        in_flight: 0,
        already: 0,
        capacity: None,
        entry: None,
        expected: Expected {
            reason: Reason::Paid,
            policy: None,
            action: Xdp::Pass,
            effect: None,
            bucket: None,
        },
    }
}

impl Row {
    fn already(self, already: u32) -> Self {
        Self { already, ..self }
    }

    /// The first policy has this capacity.
    fn of(self, capacity: u32) -> Self {
        let capacity = Some(capacity);
        Self { capacity, ..self }
    }

    /// The usual IPv4 source pays and has so many tokens left.
    fn pays(self, policy: PolicyId, left: u32) -> Self {
        self.pays_as(key(V4, policy), left)
    }

    fn pays_from(self, source: IpAddr, policy: PolicyId, left: u32) -> Self {
        self.pays_as(key(source, policy), left)
    }

    fn pays_as(self, key: Key, left: u32) -> Self {
        let expected = Expected {
            reason: Reason::Paid,
            policy: PolicyId::new(key.policy),
            action: Xdp::Pass,
            effect: None,
            bucket: Some((key, left)),
        };
        Self { expected, ..self }
    }

    /// The usual IPv4 source has nothing left.
    fn refused(self, reason: Reason, policy: PolicyId, action: Xdp, effect: Effect) -> Self {
        self.refused_from(V4, reason, policy, action, effect)
    }

    fn refused_from(
        self,
        source: IpAddr,
        reason: Reason,
        policy: PolicyId,
        action: Xdp,
        effect: Effect,
    ) -> Self {
        let row = self.unjudged(reason, Some(policy), action, Some(effect));
        let bucket = Some((key(source, policy), 0));
        let expected = Expected {
            bucket,
            ..row.expected
        };
        Self { expected, ..row }
    }

    /// The usual IPv4 source has too little left.
    fn refused_with(
        self,
        left: u32,
        reason: Reason,
        policy: PolicyId,
        action: Xdp,
        effect: Effect,
    ) -> Self {
        let row = self.unjudged(reason, Some(policy), action, Some(effect));
        let bucket = Some((key(V4, policy), left));
        let expected = Expected {
            bucket,
            ..row.expected
        };
        Self { expected, ..row }
    }

    /// No bucket is asked.
    fn unjudged(
        self,
        reason: Reason,
        policy: Option<PolicyId>,
        action: Xdp,
        effect: Option<Effect>,
    ) -> Self {
        let expected = Expected {
            reason,
            policy,
            action,
            effect,
            bucket: None,
        };
        Self { expected, ..self }
    }
}

/// A policy for TCP port 80.
fn web(fields: &str) -> String {
    let fields = if fields.is_empty() {
        "on_limit = 'drop'"
    } else {
        fields
    };
    format!("policy = [{{ name = 'web', ports = '80', {NUMBERS}, {fields} }}]")
}

fn syn() -> Frame {
    Frame::ipv4(tcp(80, SYN))
}

fn sctp() -> Transport {
    Transport::Raw(132, vec![0, 80, 0, 80])
}

fn options() -> Extension {
    Extension::Destination(vec![1, 4])
}

const NUMBERS: &str = "capacity = 4, refill = 1, interval = '1s'";

/// The sources of the frames.
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 7));
