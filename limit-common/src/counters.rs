//! What we tell: the index, name and help text of every counter in a row.
//!
//! A row is an array of 64-bit counters, one row for packets that met no policy and one for each
//! policy. A packet adds one to [`Counter::Packets`], its length to [`Counter::Bytes`], one to the
//! counter of its reason, and, when it was refused, one to the counter of what was done.

use crate::{units::PolicyId, verdict::Reason};

/// Counters in one row.
pub const COUNTERS: usize = FIRST_EFFECT + Effect::ALL.len();

/// Values in a row: [`COUNTERS`] rounded up to a power of two, so that a mask bounds an index.
pub const ROW_VALUES: usize = 32;

const _: () = assert!(COUNTERS <= ROW_VALUES && ROW_VALUES.is_power_of_two());

/// Rows of one interface: the row of no policy, then one for each policy.
pub const ROWS: usize = PolicyId::FRAGMENTS.index() + 2;

/// One counter of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Packets seen; kept in the row of no policy.
    Packets,
    /// Bytes seen, from the destination address to the end of the payload; same row.
    Bytes,
    /// Packets judged for this reason.
    Reason(Reason),
    /// What was done, or happened on the way.
    Effect(Effect),
}

/// What was done with refused packets, and what happened on the way to a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Effect {
    /// Refused, but passed because the policy only monitors.
    Monitored = 0,
    /// Refused and dropped.
    Dropped,
    /// Refused and answered with a reset.
    Reset,
    /// Refused and steered to the responder.
    Steered,
    /// Refused and answered with a SYN-ACK that leads to a 503.
    SynAnswered,
    /// A 503 sent.
    Answered503,
    /// A repeat of a 503, or an acknowledgement after it.
    AnsweredAgain,
    /// Belongs to a connection that XDP answers.
    Answering,
    /// Undecidable and dropped.
    UndecidableDropped,
    /// Charged to the overflow bucket of its policy.
    Overflow,
    /// Took the place of a source whose bucket was full again.
    Reclaimed,
}

impl Effect {
    /// Every effect, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Monitored,
        Self::Dropped,
        Self::Reset,
        Self::Steered,
        Self::SynAnswered,
        Self::Answered503,
        Self::AnsweredAgain,
        Self::Answering,
        Self::UndecidableDropped,
        Self::Overflow,
        Self::Reclaimed,
    ];
}

impl Counter {
    /// Every counter, in the order of its index.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Packets, Self::Bytes]
            .into_iter()
            .chain(Reason::ALL.into_iter().map(Self::Reason))
            .chain(Effect::ALL.into_iter().map(Self::Effect))
    }

    /// The position of this counter in its row.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        match self {
            Self::Packets => 0,
            Self::Bytes => 1,
            Self::Reason(reason) => FIRST_REASON.wrapping_add(reason as usize),
            Self::Effect(effect) => FIRST_EFFECT.wrapping_add(effect as usize),
        }
    }

    /// The name that machines read; stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.text().0
    }

    /// One line for a person.
    #[must_use]
    pub const fn help(self) -> &'static str {
        self.text().1
    }

    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Packets => ("packets", "packets seen"),
            Self::Bytes => ("bytes", "bytes seen"),
            Self::Reason(Reason::Paid) => ("paid", "admitted, the bucket paid"),
            Self::Reason(Reason::Rate) => ("rate", "limited, the source is over its rate"),
            Self::Reason(Reason::Contended) => (
                "contended",
                "limited, other CPUs changed the bucket at every attempt",
            ),
            Self::Reason(Reason::CostExceedsCapacity) => (
                "cost_exceeds_capacity",
                "limited, the cost is above the capacity",
            ),
            Self::Reason(Reason::InFlight) => ("in_flight", "shed, too much work in flight"),
            Self::Reason(Reason::Denied) => ("denied", "blocked, on the deny list"),
            Self::Reason(Reason::NotIp) => ("not_ip", "bypassed, neither IPv4 nor IPv6"),
            Self::Reason(Reason::Control) => (
                "control",
                "bypassed, neighbour discovery or path MTU discovery",
            ),
            Self::Reason(Reason::Allowed) => ("allowed", "bypassed, on the allow list"),
            Self::Reason(Reason::NoPolicy) => ("no_policy", "bypassed, no policy names it"),
            Self::Reason(Reason::OpensNothing) => {
                ("opens_nothing", "bypassed, opens no connection")
            }
            Self::Reason(Reason::TagStack) => ("tag_stack", "undecidable, too many VLAN tags"),
            Self::Reason(Reason::ExtensionChain) => (
                "extension_chain",
                "undecidable, too many IPv6 extension headers",
            ),
            Self::Reason(Reason::FragmentHeader) => (
                "fragment_header",
                "undecidable, first fragment without its transport header",
            ),
            Self::Reason(Reason::Unreadable) => (
                "unreadable",
                "undecidable, headers outside the readable part of the frame",
            ),
            Self::Reason(Reason::NoConfiguration) => (
                "no_configuration",
                "undecidable, no policy set was published",
            ),
            Self::Reason(Reason::NetworkHeader) => ("network_header", "malformed, network header"),
            Self::Reason(Reason::TransportHeader) => {
                ("transport_header", "malformed, transport header")
            }
            Self::Effect(Effect::Monitored) => ("monitored", "refused, passed by a monitor"),
            Self::Effect(Effect::Dropped) => ("dropped", "refused and dropped"),
            Self::Effect(Effect::Reset) => ("reset", "refused and reset"),
            Self::Effect(Effect::Steered) => ("steered", "refused and steered to the responder"),
            Self::Effect(Effect::SynAnswered) => ("syn_answered", "refused, handshake answered"),
            Self::Effect(Effect::Answered503) => ("answered_503", "503 sent by XDP"),
            Self::Effect(Effect::AnsweredAgain) => ("answered_again", "503 sent again"),
            Self::Effect(Effect::Answering) => {
                ("answering", "belongs to a connection that XDP answers")
            }
            Self::Effect(Effect::UndecidableDropped) => {
                ("undecidable_dropped", "undecidable and dropped")
            }
            Self::Effect(Effect::Overflow) => ("overflow", "charged to an overflow bucket"),
            Self::Effect(Effect::Reclaimed) => ("reclaimed", "took the place of a full bucket"),
        }
    }
}

/// The row of packets that met `policy`, or that met none.
#[must_use]
pub const fn row(policy: Option<PolicyId>) -> usize {
    match policy {
        None => 0,
        Some(id) => id.entry() as usize,
    }
}

const FIRST_REASON: usize = 2;
const FIRST_EFFECT: usize = FIRST_REASON + Reason::ALL.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_every_counter_its_own_index_and_name() {
        for (position, counter) in Counter::all().enumerate() {
            assert_eq!(counter.index(), position);
            assert!(
                Counter::all()
                    .filter(|other| other.name() == counter.name())
                    .count()
                    == 1
            );
        }
        assert_eq!(Counter::all().count(), COUNTERS);
    }

    #[test]
    fn gives_the_last_policy_the_last_row() {
        assert_eq!(row(Some(PolicyId::FRAGMENTS)), ROWS - 1);
    }
}
