//! IPv4: source address, options skipped, fragments told apart.

use crate::{frame::Frame, key::Address};

use super::{Fragment, Miss, Packet, ParseError, Payload, Segment, Transport, end_of, read};

/// Reads the IPv4 header at `offset`.
///
/// # Errors
///
/// [`ParseError::NetworkHeader`] where Linux discards (`ip_rcv_core`): a version other than 4, fewer
/// than 5 words of header, a total length below the header's or above what the frame holds.
///
/// # Source
///
/// RFC 791, section 3.1: version and header length in words (1 byte), total length (bytes 2 and 3),
/// flags and fragment offset (6 and 7), protocol (9), source (12 to 15), options after byte 19.
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet, ParseError> {
    let frame_end = end_of(frame);
    let header: [u8; MIN_HEADER] =
        read(frame, offset, frame_end).map_err(Miss::in_network_header)?;
    let [
        version_and_words,
        _,
        total_high,
        total_low,
        _,
        _,
        fragment_high,
        fragment_low,
        ..,
    ] = header;
    let [.., protocol, _, _, a, b, c, d, _, _, _, _] = header;

    let header_length = usize::from(version_and_words & 0x0f).wrapping_mul(4);
    if version_and_words >> 4 != VERSION || header_length < MIN_HEADER {
        return Err(ParseError::NetworkHeader);
    }
    // No wrap: the header was read, so it begins before the end.
    let available = frame_end.wrapping_sub(offset);
    let stated = usize::from(u16::from_be_bytes([total_high, total_low]));
    let total_length = if stated == 0 && available > MAX_STATED {
        available
    } else {
        stated
    };
    if total_length < header_length || total_length > available {
        return Err(ParseError::NetworkHeader);
    }

    let fragment = u16::from_be_bytes([fragment_high, fragment_low]);
    let payload = if fragment & FRAGMENT_OFFSET != 0 {
        Payload::LaterFragment
    } else if let Some(transport) = transport(protocol) {
        let segment = Segment {
            transport,
            offset: offset.wrapping_add(header_length),
            end: offset.wrapping_add(total_length),
            fragment: if fragment & MORE == 0 {
                Fragment::Whole
            } else {
                Fragment::First
            },
            on_link: false,
        };
        segment.parse(frame)?
    } else {
        Payload::Other
    };
    Ok(Packet {
        source: Address::V4([a, b, c, d]),
        payload,
    })
}

/// The transport protocol by its number (IANA, protocol numbers).
#[inline(always)]
const fn transport(protocol: u8) -> Option<Transport> {
    match protocol {
        1 => Some(Transport::Icmp),
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}

const VERSION: u8 = 4;

/// Bytes of a header without options.
const MIN_HEADER: usize = 20;

/// Most bytes that the total length can state. A packet that offloads made larger states 0, and
/// Linux then takes the length of the frame (`iph_totlen`).
const MAX_STATED: usize = 0xffff;

/// More fragments follow.
const MORE: u16 = 0x2000;

/// Fragment offset in units of 8 bytes.
const FRAGMENT_OFFSET: u16 = 0x1fff;
