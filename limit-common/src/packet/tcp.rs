//! TCP: destination port, and whether the segment asks for a connection.

use crate::frame::Frame;

use super::{ParseError, Payload, Segment};

/// Reads the TCP header of `segment`.
///
/// All 20 bytes must be here, in a first fragment too: Linux cuts a first fragment to a multiple of
/// 8 bytes, and with fewer than 16 of them the flags would come from another packet.
///
/// # Errors
///
/// [`ParseError::TransportHeader`] where Linux discards (`tcp_v4_rcv`, `tcp_v6_rcv`): a data offset
/// below 5 words, or a whole packet that ends inside the header or its options.
///
/// # Source
///
/// RFC 9293, section 3.1: destination port (bytes 2 and 3), data offset (upper half of 12), flags (13).
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F, segment: Segment) -> Result<Payload, ParseError> {
    let header: [u8; MIN_HEADER] = match segment.header(frame) {
        Ok(header) => header,
        Err(outcome) => return outcome,
    };
    let [
        _,
        _,
        port_high,
        port_low,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        words,
        flags,
        ..,
    ] = header;

    let length = usize::from(words >> 4).wrapping_mul(4);
    if length < MIN_HEADER {
        return Err(ParseError::TransportHeader);
    }
    if !segment.holds(length) {
        return segment.incomplete();
    }
    Ok(Payload::Tcp {
        port: u16::from_be_bytes([port_high, port_low]),
        opens: flags & (SYN | RST | ACK) == SYN,
    })
}

/// Bytes of a header without options.
const MIN_HEADER: usize = 20;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
