//! A TCP reset in answer to a refused SYN, written over the frame that carried it.
//!
//! The link header turns round, tags stay, the network and transport headers become those of
//! `limit_common::reset`, and whatever followed is cut off: the reply is never longer than the SYN. A
//! SYN behind IPv6 extension headers gets none.

use limit_common::{
    frame::Frame as _,
    packet::{Packet, Payload},
    reset::{
        Halves, IPV4_BYTES, IPV6_BYTES, IPV6_START, Segment, ipv4_header, ipv4_pseudo, ipv6_pseudo,
        may_answer_ipv4, may_answer_ipv6, tcp_header,
    },
};

use crate::frame::XdpFrame;

/// What became of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The frame holds it, ready to be sent back.
    Reset,
    /// The frame may not be answered, or the kernel refused to shorten it.
    Nothing,
}

/// Turns the SYN in `frame` into the reset that answers it.
///
/// After [`Sent::Nothing`] the frame may be half changed and must not be passed on.
#[inline(always)]
pub(crate) fn send(frame: &XdpFrame<'_>) -> Sent {
    if write(frame).is_some() {
        Sent::Reset
    } else {
        Sent::Nothing
    }
}

#[inline(always)]
fn write(frame: &XdpFrame<'_>) -> Option<()> {
    let packet = Packet::parse(frame).ok()?;
    if !matches!(packet.payload, Payload::Tcp { opens: true, .. }) {
        return None;
    }
    let network = Packet::network_offset(frame)?;
    let [first, _] = frame.read::<2>(network)?;
    turn_link_header(frame)?;
    let length = match first >> 4 {
        4 => {
            let transport = network.wrapping_add(usize::from(first & 0x0f).wrapping_mul(4));
            write_ipv4(frame, network, read_request(frame, transport)?)?
        }
        _ => {
            let [next, _] = frame.read::<2>(network.wrapping_add(6))?;
            if next != TCP {
                return None;
            }
            write_ipv6(
                frame,
                network,
                read_request(frame, network.wrapping_add(40))?,
            )?
        }
    };
    frame.truncate(network.wrapping_add(length)).then_some(())
}

/// What the reset repeats of the TCP header at `transport`.
#[inline(always)]
fn read_request(frame: &XdpFrame<'_>, transport: usize) -> Option<Segment> {
    let [a, b, c, d, e, f, g, h] = frame.read::<8>(frame.forget(transport))?;
    Some(Segment {
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        sequence: u32::from_be_bytes([e, f, g, h]),
    })
}

/// Sends the frame back to where it came from, unless a group is either end.
#[inline(always)]
fn turn_link_header(frame: &XdpFrame<'_>) -> Option<()> {
    let destination = frame.read::<6>(0)?;
    let source = frame.read::<6>(6)?;
    let ([to, ..], [from, ..]) = (destination, source);
    if (to | from) & GROUP_BIT != 0 {
        return None;
    }
    (frame.write(0, source) && frame.write(6, destination)).then_some(())
}

/// Writes the reply at `network`; its length.
///
/// Every position is forgotten, here and below: the compiler would leave out the bounds check of a
/// read that a later one covers, and the verifier wants each.
#[inline(always)]
fn write_ipv4(frame: &XdpFrame<'_>, network: usize, request: Segment) -> Option<usize> {
    let at = |position: usize| frame.forget(network.wrapping_add(position));
    let source = u32::from_be_bytes(frame.read(at(12))?);
    let destination = u32::from_be_bytes(frame.read(at(16))?);
    if !may_answer_ipv4(source, destination) {
        return None;
    }
    let tcp = tcp_header(request, ipv4_pseudo(destination, source));
    (frame.write(at(20), tcp) && frame.write(at(0), ipv4_header(destination, source)))
        .then_some(IPV4_BYTES)
}

/// Writes the reply at `network`; its length.
#[inline(always)]
fn write_ipv6(frame: &XdpFrame<'_>, network: usize, request: Segment) -> Option<usize> {
    let at = |position: usize| frame.forget(network.wrapping_add(position));
    let source = Halves {
        high: u64::from_be_bytes(frame.read(at(8))?),
        low: u64::from_be_bytes(frame.read(at(16))?),
    };
    let destination = Halves {
        high: u64::from_be_bytes(frame.read(at(24))?),
        low: u64::from_be_bytes(frame.read(at(32))?),
    };
    if !may_answer_ipv6(source, destination) {
        return None;
    }
    let tcp = tcp_header(request, ipv6_pseudo(destination, source));
    (frame.write(at(40), tcp)
        && frame.write(at(0), IPV6_START)
        && frame.write(at(8), destination.high.to_be_bytes())
        && frame.write(at(16), destination.low.to_be_bytes())
        && frame.write(at(24), source.high.to_be_bytes())
        && frame.write(at(32), source.low.to_be_bytes()))
    .then_some(IPV6_BYTES)
}

/// Set in the first byte of a link address that names a group.
const GROUP_BIT: u8 = 1;

/// TCP as an IPv6 next header.
const TCP: u8 = 6;
