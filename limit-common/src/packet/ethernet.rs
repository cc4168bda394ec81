//! Ethernet: the first header of every frame; says what the frame carries.

use crate::frame::Frame;

use super::{Miss, ParseError, end_of, read, vlan};

/// Ethernet type of IPv4 (RFC 894).
pub(super) const IPV4: u16 = 0x0800;

/// Ethernet type of IPv6 (RFC 2464, section 3).
pub(super) const IPV6: u16 = 0x86dd;

/// What an Ethernet header and its tags say.
#[derive(Clone, Copy)]
pub(super) struct Ethernet {
    /// Type of the payload. A value below 0x600 is a length (IEEE 802.3); Linux takes no IP from
    /// such a frame, with a SNAP header or without.
    pub(super) ethertype: u16,
    /// First byte of the payload.
    pub(super) payload: usize,
}

/// Reads the Ethernet header and skips the VLAN tags.
///
/// # Source
///
/// IEEE 802.3, clause 3.1.1: destination (6 bytes), source (6), type or length (2).
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F) -> Result<Ethernet, ParseError> {
    let ethertype = read(frame, TYPE_OFFSET, end_of(frame)).map_err(Miss::in_network_header)?;
    vlan::skip(
        frame,
        Ethernet {
            ethertype: u16::from_be_bytes(ethertype),
            payload: LENGTH,
        },
    )
}

const TYPE_OFFSET: usize = 12;
const LENGTH: usize = 14;
