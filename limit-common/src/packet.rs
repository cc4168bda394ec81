//! What a frame holds: its source address, and what it asks of this host.
//!
//! The header walk goes from the outside in, one file a protocol, and reads through [`Frame`] alone.
//! Invariants:
//!
//! - It returns for every frame: the tag stack and the extension chain have fixed bounds.
//! - A port is read only from where the stack reads it: inside the length that the IP header states,
//!   past every option and extension header, and never from a later fragment.
//! - Malformed is only what the stack discards as well. What the stack may accept and we cannot read
//!   is undecidable, because passing it as malformed would lead around the filter.
//! - Checksums are not verified: a packet with a wrong one is judged like any other.

mod ethernet;
mod icmp;
mod ipv4;
mod ipv6;
mod tcp;
mod udp;
mod vlan;

use crate::{frame::Frame, key::Address, verdict::Reason};

/// An IPv4 or IPv6 packet, as far as the filter needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The source address of the IP header.
    pub source: Address,
    /// What the packet carries.
    pub payload: Payload,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A TCP segment, or a first fragment that holds the whole TCP header.
    Tcp {
        /// Destination port.
        port: u16,
        /// The segment asks for a connection: SYN set, ACK and RST clear, other flags ignored.
        opens: bool,
    },
    /// A UDP datagram, or a first fragment that holds the whole UDP header.
    Udp {
        /// Destination port.
        port: u16,
    },
    /// ICMP over IPv4 or ICMPv6 over IPv6, other than [`Self::Control`].
    Icmp,
    /// Any other protocol; the tunnels, ESP, no next header, and ICMP over the other family as well.
    Other,
    /// A fragment at an offset above 0: it has no port.
    LaterFragment,
    /// Neighbour discovery, or a message that path MTU discovery needs.
    Control,
    /// Undecidable for this reason. The source is known, so the lists still apply.
    Unknown(Reason),
}

/// Why a frame has no source that could be charged, or nothing worth charging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// More VLAN tags than we walk; the stack takes any number of priority tags.
    TagStack,
    /// The IP header is inside the frame, but outside the part that the driver made readable.
    Unreadable,
    /// A tag, IP header or extension header that the stack discards.
    NetworkHeader,
    /// A TCP, UDP or ICMP header that the stack discards.
    TransportHeader,
}

impl ParseError {
    /// The reason that the frame is counted under.
    #[must_use]
    #[inline(always)]
    pub const fn reason(self) -> Reason {
        match self {
            Self::NotIp => Reason::NotIp,
            Self::TagStack => Reason::TagStack,
            Self::Unreadable => Reason::Unreadable,
            Self::NetworkHeader => Reason::NetworkHeader,
            Self::TransportHeader => Reason::TransportHeader,
        }
    }
}

impl Packet {
    /// Reads the headers of `frame`. VLAN tags are skipped: a tagged frame equals the untagged one.
    ///
    /// # Errors
    ///
    /// [`ParseError::NotIp`], or the frame is malformed, or it is undecidable before its source is
    /// known. Undecidable after that is [`Payload::Unknown`].
    #[inline(always)]
    pub fn parse<F: Frame + ?Sized>(frame: &F) -> Result<Self, ParseError> {
        let ethernet = ethernet::parse(frame)?;
        match ethernet.ethertype {
            ethernet::IPV4 => ipv4::parse(frame, frame.forget(ethernet.payload)),
            ethernet::IPV6 => ipv6::parse(frame, frame.forget(ethernet.payload)),
            _ => Err(ParseError::NotIp),
        }
    }

    /// The first byte of the network header: past the link header and all its tags.
    #[must_use]
    #[inline(always)]
    pub fn network_offset<F: Frame + ?Sized>(frame: &F) -> Option<usize> {
        let ethernet = ethernet::parse(frame).ok()?;
        Some(frame.forget(ethernet.payload))
    }
}

/// A transport header and its data.
#[derive(Clone, Copy)]
struct Segment {
    transport: Transport,
    /// First byte of the transport header.
    offset: usize,
    /// First byte that does not belong to the packet; the stack trims what follows.
    end: usize,
    fragment: Fragment,
    /// The packet left a node on this link and is no fragment, as neighbour discovery demands.
    on_link: bool,
}

/// Transport protocols that the filter reads.
#[derive(Clone, Copy)]
enum Transport {
    Tcp,
    Udp,
    Icmp,
    Icmpv6,
}

/// Whether more of the transport payload comes in other packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    /// All of it is here.
    Whole,
    /// The packet holds its beginning only.
    First,
}

impl Segment {
    /// Reads the transport header.
    #[inline(always)]
    fn parse<F: Frame + ?Sized>(self, frame: &F) -> Result<Payload, ParseError> {
        match self.transport {
            Transport::Tcp => tcp::parse(frame, self),
            Transport::Udp => udp::parse(frame, self),
            Transport::Icmp => icmp::parse(frame, self),
            Transport::Icmpv6 => icmp::parse_v6(frame, self),
        }
    }

    /// The first `N` bytes of the transport header, or what to make of their absence.
    #[inline(always)]
    fn header<F: Frame + ?Sized, const N: usize>(
        self,
        frame: &F,
    ) -> Result<[u8; N], Result<Payload, ParseError>> {
        match read(frame, self.offset, self.end) {
            Ok(header) => Ok(header),
            Err(Miss::Unreadable) => Err(Ok(Payload::Unknown(Reason::Unreadable))),
            Err(Miss::Truncated) => Err(self.incomplete()),
        }
    }

    /// The transport header runs past the end of this packet.
    ///
    /// Linux puts fragments together before it reads the header, so that a first fragment may end
    /// anywhere; a whole packet that ends inside the header is discarded.
    #[inline(always)]
    const fn incomplete(self) -> Result<Payload, ParseError> {
        match self.fragment {
            Fragment::Whole => Err(ParseError::TransportHeader),
            Fragment::First => Ok(Payload::Unknown(Reason::FragmentHeader)),
        }
    }

    /// Whether the packet ends no sooner than `length` bytes into the transport header and data.
    #[inline(always)]
    const fn holds(self, length: usize) -> bool {
        self.offset.saturating_add(length) <= self.end
    }
}

/// Why a header could not be read.
enum Miss {
    /// The packet ends before the header does.
    Truncated,
    /// The packet holds the header, but the frame does not give it.
    Unreadable,
}

impl Miss {
    /// The error of a header up to the source address.
    #[inline(always)]
    const fn in_network_header(self) -> ParseError {
        match self {
            Self::Truncated => ParseError::NetworkHeader,
            Self::Unreadable => ParseError::Unreadable,
        }
    }
}

/// The `N` bytes at `offset` of a packet that ends before `end`.
#[inline(always)]
fn read<F: Frame + ?Sized, const N: usize>(
    frame: &F,
    offset: usize,
    end: usize,
) -> Result<[u8; N], Miss> {
    if offset.saturating_add(N) > end {
        return Err(Miss::Truncated);
    }
    frame.read(offset).ok_or(Miss::Unreadable)
}

/// The first byte past the frame.
#[inline(always)]
fn end_of<F: Frame + ?Sized>(frame: &F) -> usize {
    frame.length() as usize
}
