//! UDP: destination port.

use crate::frame::Frame;

use super::{Fragment, ParseError, Payload, Segment};

/// Reads the UDP header of `segment`.
///
/// # Errors
///
/// [`ParseError::TransportHeader`] where Linux discards (`__udp4_lib_rcv`, `__udp6_lib_rcv`): a whole
/// packet that ends inside the header, or a stated length below the header's or above what the
/// packet holds. A stated length of 0 is taken for a jumbogram (RFC 2675, section 4): Linux accepts
/// it over IPv6.
///
/// # Source
///
/// RFC 768: source port (2 bytes), destination port (2), length of header and data (2), checksum (2).
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F, segment: Segment) -> Result<Payload, ParseError> {
    let header: [u8; HEADER] = match segment.header(frame) {
        Ok(header) => header,
        Err(outcome) => return outcome,
    };
    let [_, _, port_high, port_low, length_high, length_low, _, _] = header;

    let stated = usize::from(u16::from_be_bytes([length_high, length_low]));
    let exceeds = match segment.fragment {
        Fragment::Whole => !segment.holds(stated),
        Fragment::First => false,
    };
    if stated != 0 && (stated < HEADER || exceeds) {
        return Err(ParseError::TransportHeader);
    }
    Ok(Payload::Udp {
        port: u16::from_be_bytes([port_high, port_low]),
    })
}

/// Bytes of the header.
const HEADER: usize = 8;
