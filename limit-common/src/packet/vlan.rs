//! VLAN tags: between the Ethernet addresses and the payload type, skipped.

use crate::frame::Frame;

use super::{Miss, ParseError, end_of, ethernet::Ethernet, read};

/// Skips the tags that begin where `ethernet` says the payload does.
///
/// # Errors
///
/// [`ParseError::TagStack`] past [`MAX_TAGS`]: Linux strips priority tags (VLAN 0) without end, so
/// a deeper stack may still reach a socket.
///
/// # Source
///
/// IEEE 802.1Q, clause 9: tag protocol (2 bytes, read already), tag control (2), payload type (2).
#[inline(always)]
pub(super) fn skip<F: Frame + ?Sized>(
    frame: &F,
    mut ethernet: Ethernet,
) -> Result<Ethernet, ParseError> {
    for _ in 0..MAX_TAGS {
        if !is_tag(ethernet.ethertype) {
            return Ok(ethernet);
        }
        let [_, _, high, low] =
            read(frame, ethernet.payload, end_of(frame)).map_err(Miss::in_network_header)?;
        ethernet = Ethernet {
            ethertype: u16::from_be_bytes([high, low]),
            payload: ethernet.payload.wrapping_add(LENGTH),
        };
    }
    if is_tag(ethernet.ethertype) {
        Err(ParseError::TagStack)
    } else {
        Ok(ethernet)
    }
}

#[inline(always)]
const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, CUSTOMER | SERVICE)
}

/// Tags that we walk.
const MAX_TAGS: usize = 4;

/// Customer tag (IEEE 802.1Q).
const CUSTOMER: u16 = 0x8100;

/// Service tag (IEEE 802.1ad). Linux strips no other kind.
const SERVICE: u16 = 0x88a8;

const LENGTH: usize = 4;
