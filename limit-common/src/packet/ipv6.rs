//! IPv6: source address, extension headers walked up to a bound, fragments told apart.

use crate::{frame::Frame, key::Address, verdict::Reason};

use super::{Fragment, Miss, Packet, ParseError, Payload, Segment, Transport, end_of, read};

/// Reads the IPv6 header at `offset` and the extension headers after it.
///
/// # Errors
///
/// [`ParseError::NetworkHeader`] where Linux discards (`ip6_rcv_core`): a version other than 6, a
/// payload length above what the frame holds, an extension header that runs past the payload.
///
/// # Source
///
/// RFC 8200, section 3: version (4 bits), payload length (bytes 4 and 5), next header (6), hop
/// limit (7), source (8 to 23), destination (24 to 39).
#[inline(always)]
pub(super) fn parse<F: Frame + ?Sized>(frame: &F, offset: usize) -> Result<Packet, ParseError> {
    let frame_end = end_of(frame);
    let header: [u8; 8] = read(frame, offset, frame_end).map_err(Miss::in_network_header)?;
    let [version, _, _, _, length_high, length_low, next, hop_limit] = header;
    let source: [u8; 16] =
        read(frame, offset.wrapping_add(SOURCE), frame_end).map_err(Miss::in_network_header)?;

    let start = offset.wrapping_add(HEADER);
    if version >> 4 != VERSION || start > frame_end {
        return Err(ParseError::NetworkHeader);
    }
    // No wrap: `start <= frame_end`, as just seen.
    let available = frame_end.wrapping_sub(start);
    let stated = usize::from(u16::from_be_bytes([length_high, length_low]));
    let unstated = stated == 0 && (next == HOP_BY_HOP || available > MAX_STATED);
    let length = if unstated { available } else { stated };
    if length > available {
        return Err(ParseError::NetworkHeader);
    }

    let chain = Chain {
        next,
        offset: start,
        fragments: 0,
        more: 0,
    };
    Ok(Packet {
        source: Address::V6(source),
        payload: walk(frame, chain, start.wrapping_add(length), hop_limit)?,
    })
}

/// A position in the chain of extension headers.
#[derive(Clone, Copy)]
struct Chain {
    /// Number of the header at `offset`.
    next: u8,
    offset: usize,
    /// Fragment headers passed.
    fragments: u64,
    /// The more-fragments bit of the fragment header, 0 before it.
    more: u64,
}

/// Walks the extension headers up to the transport header.
///
/// Headers beyond [`MAX_HEADERS`] and a second fragment header are undecidable: Linux walks a chain
/// of any length, and what it makes of fragments within fragments depends on its version.
///
/// A round has one way through it. What a header means is looked up in bit sets and not branched on,
/// because the verifier follows every way through every round: it took 184,000 instructions for a
/// program that only parses with a branch for each kind of header, 16,000 so. The compiler turns a
/// set of one number into a comparison and a branch; therefore the sets have a second number each,
/// which cannot occur.
#[inline(always)]
fn walk<F: Frame + ?Sized>(
    frame: &F,
    mut chain: Chain,
    end: usize,
    hop_limit: u8,
) -> Result<Payload, ParseError> {
    for _ in 0..MAX_HEADERS {
        if !has(EXTENSIONS, chain.next) {
            break;
        }
        let [next, units, high, low] = match read(frame, chain.offset, end) {
            Ok(header) => header,
            Err(Miss::Truncated) => return chain.incomplete(),
            Err(Miss::Unreadable) => return undecidable(Reason::Unreadable),
        };
        let fragment = bit(FRAGMENTS, chain.next);
        let field = u64::from(u16::from_be_bytes([high, low])) & fragment.wrapping_neg();
        chain.fragments = chain.fragments.wrapping_add(fragment);
        if chain.fragments > 1 {
            return undecidable(Reason::ExtensionChain);
        }
        if field & FRAGMENT_OFFSET != 0 {
            return Ok(Payload::LaterFragment);
        }
        chain.more |= field & MORE;
        chain.offset = frame.forget(chain.offset.wrapping_add(length(chain.next, units)));
        if chain.offset > end {
            return chain.incomplete();
        }
        chain.next = next;
    }
    if has(EXTENSIONS, chain.next) {
        return undecidable(Reason::ExtensionChain);
    }
    let Some(transport) = transport(chain.next) else {
        return Ok(Payload::Other);
    };
    let segment = Segment {
        transport,
        offset: chain.offset,
        end,
        fragment: if chain.more == 0 {
            Fragment::Whole
        } else {
            Fragment::First
        },
        on_link: hop_limit == FROM_THIS_LINK && chain.fragments == 0,
    };
    segment.parse(frame)
}

impl Chain {
    /// An extension header runs past the end of this packet.
    ///
    /// RFC 7112 has the whole chain in the first fragment, but Linux before 5.11 does not insist.
    #[inline(always)]
    const fn incomplete(self) -> Result<Payload, ParseError> {
        if self.more == 0 {
            Err(ParseError::NetworkHeader)
        } else {
            undecidable(Reason::FragmentHeader)
        }
    }
}

#[inline(always)]
const fn undecidable(reason: Reason) -> Result<Payload, ParseError> {
    Ok(Payload::Unknown(reason))
}

/// Bytes of the extension header `number` whose second byte is `units`.
///
/// # Source
///
/// RFC 8200, sections 4.3, 4.4 and 4.6: units of 8 bytes, the first not counted; section 4.5: a
/// fragment header has 8 bytes. RFC 4302, section 2.2: units of 4 bytes, the first two not counted.
#[inline(always)]
fn length(number: u8, units: u8) -> usize {
    let fragment = bit(FRAGMENTS, number);
    let authentication = bit(AUTHENTICATIONS, number);
    let units = u64::from(units) & fragment.wrapping_sub(1);
    let bytes = units.wrapping_add(1).wrapping_add(authentication) << (3 ^ authentication);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whether the set has this number.
#[inline(always)]
const fn has(set: u64, number: u8) -> bool {
    number < 64 && bit(set, number) != 0
}

/// 1 if the set has this number below 64, else 0.
#[inline(always)]
const fn bit(set: u64, number: u8) -> u64 {
    set.wrapping_shr(number as u32) & 1
}

/// The transport protocol by its number (IANA, protocol numbers).
#[inline(always)]
const fn transport(number: u8) -> Option<Transport> {
    match number {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        58 => Some(Transport::Icmpv6),
        _ => None,
    }
}

const VERSION: u8 = 6;

/// Bytes of the fixed header.
const HEADER: usize = 40;

/// Where the source address stands in it.
const SOURCE: usize = 8;

/// Extension headers that we walk.
const MAX_HEADERS: usize = 8;

/// Most bytes that the payload length can state. 0 before a hop-by-hop header stands for a jumbo
/// payload (RFC 2675): Linux then trims nothing. Above this, offloads made the packet larger.
const MAX_STATED: usize = 0xffff;

/// Hop limit that no router can have forwarded (RFC 4861, section 3.1).
const FROM_THIS_LINK: u8 = 255;

const HOP_BY_HOP: u8 = 0;

/// Extension headers that Linux walks: hop-by-hop options, routing, fragment, authentication,
/// destination options. ESP hides what follows; it counts as a protocol.
const EXTENSIONS: u64 = 1 << HOP_BY_HOP | 1 << 43 | 1 << 44 | 1 << 51 | 1 << 60;

/// The fragment header. 45 is no extension header: see [`walk`].
const FRAGMENTS: u64 = 1 << 44 | 1 << 45;

/// The authentication header. 52 is no extension header: see [`walk`].
const AUTHENTICATIONS: u64 = 1 << 51 | 1 << 52;

/// More fragments follow (RFC 8200, section 4.5).
const MORE: u64 = 0x0001;

/// Fragment offset in units of 8 bytes.
const FRAGMENT_OFFSET: u64 = 0xfff8;
