//! What we do with a packet, and why: one [`Reason`] a packet, each with one [`Verdict`].

/// What the filter decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Judged and let through.
    Admit,
    /// Let through unexamined: not IP, or not ours to judge.
    Bypass,
    /// Denied because its key is over its rate.
    Limit,
    /// Denied because too much work is in flight, whoever asks.
    Shed,
    /// Denied because the deny list says so.
    Block,
    /// The stack may accept what we cannot read.
    Undecidable,
    /// The stack would discard it too.
    Malformed,
}

/// Why a packet met its verdict; one counter each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The bucket paid.
    Paid = 0,
    /// The bucket holds fewer tokens than the cost.
    Rate,
    /// Every attempt to charge the bucket met another CPU's change.
    Contended,
    /// The cost is above the capacity; no wait helps.
    CostExceedsCapacity,
    /// The policy's permits are all out.
    InFlight,
    /// The source is on the deny list.
    Denied,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Neighbour discovery, or an ICMP message that path MTU discovery needs.
    Control,
    /// The source is on the allow list.
    Allowed,
    /// No policy names this protocol and port.
    NoPolicy,
    /// A TCP segment that opens no connection, under a policy that counts connections.
    OpensNothing,
    /// More VLAN tags than we walk.
    TagStack,
    /// More IPv6 extension headers than we walk, or one that we cannot read.
    ExtensionChain,
    /// A first fragment that ends before the fields of its transport header.
    FragmentHeader,
    /// Headers outside the part of the frame that the driver made readable.
    Unreadable,
    /// No policy set was published.
    NoConfiguration,
    /// A network header that the stack discards.
    NetworkHeader,
    /// A transport header that the stack discards.
    TransportHeader,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Paid,
        Self::Rate,
        Self::Contended,
        Self::CostExceedsCapacity,
        Self::InFlight,
        Self::Denied,
        Self::NotIp,
        Self::Control,
        Self::Allowed,
        Self::NoPolicy,
        Self::OpensNothing,
        Self::TagStack,
        Self::ExtensionChain,
        Self::FragmentHeader,
        Self::Unreadable,
        Self::NoConfiguration,
        Self::NetworkHeader,
        Self::TransportHeader,
    ];

    /// The verdict that this reason leads to.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Paid => Verdict::Admit,
            Self::Rate | Self::Contended | Self::CostExceedsCapacity => Verdict::Limit,
            Self::InFlight => Verdict::Shed,
            Self::Denied => Verdict::Block,
            Self::NotIp | Self::Control | Self::Allowed | Self::NoPolicy | Self::OpensNothing => {
                Verdict::Bypass
            }
            Self::TagStack
            | Self::ExtensionChain
            | Self::FragmentHeader
            | Self::Unreadable
            | Self::NoConfiguration => Verdict::Undecidable,
            Self::NetworkHeader | Self::TransportHeader => Verdict::Malformed,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// On to the network stack.
    Pass,
    /// Discarded.
    Drop,
    /// Answered with a TCP reset and discarded.
    Reset,
    /// Answered with an HTTP 503 and discarded.
    Answer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_reasons_in_the_order_of_all() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, number);
        }
    }
}
