//! ICMP and ICMPv6: what the link and path MTU discovery need is told apart from the rest.

use crate::frame::Frame;

use super::{ParseError, Payload, Segment};

/// Reads the ICMP header of `segment`.
///
/// # Errors
///
/// [`ParseError::TransportHeader`] below 8 bytes, where Linux discards (`icmp_rcv`).
///
/// # Source
///
/// RFC 792: type (1 byte), code (1), checksum (2), rest of the header (4). RFC 1191, section 4:
/// type 3, code 4 says that a packet was too large.
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F, segment: Segment) -> Result<Payload, ParseError> {
    let header: [u8; HEADER] = match segment.header(frame) {
        Ok(header) => header,
        Err(outcome) => return outcome,
    };
    match header {
        [DESTINATION_UNREACHABLE, FRAGMENTATION_NEEDED, ..] => Ok(Payload::Control),
        _ => Ok(Payload::Icmp),
    }
}

/// Reads the ICMPv6 header of `segment`.
///
/// # Errors
///
/// [`ParseError::TransportHeader`] below 8 bytes: RFC 4443 has a header of 4, but each of its
/// messages has 8 or more, and Linux discards what is shorter (`icmpv6_rcv`).
///
/// # Source
///
/// RFC 4443, section 2.1: type (1 byte), code (1), checksum (2); section 3.2: type 2 says that a
/// packet was too large. RFC 4861, sections 6 to 8: types 133 to 137 with code 0 and hop limit 255;
/// RFC 6980: never fragmented, not even into one piece.
#[inline(always)]
pub(super) fn parse_v6<F: Frame + ?Sized>(
    frame: &F,
    segment: Segment,
) -> Result<Payload, ParseError> {
    let header: [u8; HEADER] = match segment.header(frame) {
        Ok(header) => header,
        Err(outcome) => return outcome,
    };
    match header {
        [PACKET_TOO_BIG, ..] => Ok(Payload::Control),
        [ROUTER_SOLICITATION..=REDIRECT, 0, ..] if segment.on_link => Ok(Payload::Control),
        _ => Ok(Payload::Icmp),
    }
}

/// Bytes of the header that both families' stacks demand.
const HEADER: usize = 8;

const DESTINATION_UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const PACKET_TOO_BIG: u8 = 2;
const ROUTER_SOLICITATION: u8 = 133;
const REDIRECT: u8 = 137;
