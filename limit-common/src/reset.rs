//! The bytes of a TCP reset that answers a refused SYN.
//!
//! The parts together are the network and transport header of the reply, checksums complete, to stand
//! where the request's network header stood. They hold no payload, no options and nothing else of the
//! request but its addresses, ports and sequence number. Addresses are taken as integers, because
//! arrays of bytes would not fit the stack of the kernel program.

/// What of a request its reset depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source port of the request.
    pub source_port: u16,
    /// Destination port of the request.
    pub destination_port: u16,
    /// Sequence number of the request; data that it may carry is not acknowledged.
    pub sequence: u32,
}

/// An IPv6 address as two big-endian halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// The first eight bytes.
    pub high: u64,
    /// The last eight bytes.
    pub low: u64,
}

/// Length of an IPv4 reset, network header included.
pub const IPV4_BYTES: usize = 40;

/// Length of an IPv6 reset, network header included.
pub const IPV6_BYTES: usize = 60;

/// The IPv4 header of a reset from `from` to `to`.
///
/// # Source
///
/// RFC 791, section 3.1
#[must_use]
#[inline(always)]
pub const fn ipv4_header(from: u32, to: u32) -> [u8; 20] {
    let total = VERSION_IHL_TOS
        .wrapping_add(IPV4_BYTES as u32)
        .wrapping_add(DONT_FRAGMENT)
        .wrapping_add(TTL_TCP)
        .wrapping_add(words(from))
        .wrapping_add(words(to));
    let [x, y] = checksum(total);
    let [a, b, c, d] = from.to_be_bytes();
    let [e, f, g, h] = to.to_be_bytes();
    [
        0x45,
        0,
        0,
        IPV4_BYTES as u8,
        0,
        0,
        0x40,
        0,
        HOPS,
        TCP as u8,
        x,
        y,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ]
}

/// The first eight bytes of the IPv6 header of a reset; the addresses follow.
///
/// # Source
///
/// RFC 8200, section 3
pub const IPV6_START: [u8; 8] = [0x60, 0, 0, 0, 0, TCP_BYTES as u8, TCP as u8, HOPS];

/// The sum over the IPv4 pseudo header of a reset.
///
/// # Source
///
/// RFC 9293, section 3.1
#[must_use]
#[inline(always)]
pub const fn ipv4_pseudo(from: u32, to: u32) -> u32 {
    TCP.wrapping_add(TCP_BYTES)
        .wrapping_add(words(from))
        .wrapping_add(words(to))
}

/// The sum over the IPv6 pseudo header of a reset.
///
/// # Source
///
/// RFC 8200, section 8.1
#[must_use]
#[inline(always)]
pub const fn ipv6_pseudo(from: Halves, to: Halves) -> u32 {
    TCP.wrapping_add(TCP_BYTES)
        .wrapping_add(words((from.high >> 32) as u32))
        .wrapping_add(words(from.high as u32))
        .wrapping_add(words((from.low >> 32) as u32))
        .wrapping_add(words(from.low as u32))
        .wrapping_add(words((to.high >> 32) as u32))
        .wrapping_add(words(to.high as u32))
        .wrapping_add(words((to.low >> 32) as u32))
        .wrapping_add(words(to.low as u32))
}

/// The TCP header of the reset that answers `request`, over a pseudo header that adds up to `pseudo`.
///
/// # Source
///
/// RFC 9293, section 3.5.2: a reset in answer to a SYN has sequence number 0 and acknowledges it.
#[must_use]
#[inline(always)]
pub const fn tcp_header(request: Segment, pseudo: u32) -> [u8; 20] {
    let acknowledged = request.sequence.wrapping_add(1);
    let total = pseudo
        .wrapping_add(request.destination_port as u32)
        .wrapping_add(request.source_port as u32)
        .wrapping_add(words(acknowledged))
        .wrapping_add(OFFSET_RST_ACK);
    let [x, y] = checksum(total);
    let [a, b] = request.destination_port.to_be_bytes();
    let [c, d] = request.source_port.to_be_bytes();
    let [e, f, g, h] = acknowledged.to_be_bytes();
    [
        a, b, c, d, 0, 0, 0, 0, e, f, g, h, 0x50, 0x14, 0, 0, x, y, 0, 0,
    ]
}

/// Whether a packet from `source` to `destination` may be answered: neither is a broadcast, multicast,
/// unspecified or loopback address, and they differ.
#[must_use]
#[inline(always)]
pub const fn may_answer_ipv4(source: u32, destination: u32) -> bool {
    const fn is_host(address: u32) -> bool {
        let first = address >> 24;
        first != 0 && first != 127 && first < 224
    }
    is_host(source) && is_host(destination) && source != destination
}

/// The same for IPv6.
#[must_use]
#[inline(always)]
pub const fn may_answer_ipv6(source: Halves, destination: Halves) -> bool {
    /// `::` and `::1` are the two addresses with an upper half of 0 and a lower half below 2.
    const fn is_host(address: Halves) -> bool {
        address.high >> 56 != 0xff && (address.high != 0 || address.low > 1)
    }
    is_host(source)
        && is_host(destination)
        && (source.high != destination.high || source.low != destination.low)
}

/// The two 16-bit words of four bytes, added.
#[inline(always)]
const fn words(bytes: u32) -> u32 {
    (bytes >> 16).wrapping_add(bytes & 0xffff)
}

/// The checksum over words that add up to `total`, of which there are fewer than 2^16 (RFC 1071).
#[inline(always)]
const fn checksum(total: u32) -> [u8; 2] {
    let once = words(total);
    (!(words(once) as u16)).to_be_bytes()
}

const VERSION_IHL_TOS: u32 = 0x4500;
const DONT_FRAGMENT: u32 = 0x4000;
const HOPS: u8 = 64;
const TTL_TCP: u32 = (HOPS as u32) << 8 | TCP;
const TCP: u32 = 6;
const TCP_BYTES: u32 = 20;
const OFFSET_RST_ACK: u32 = 0x5014;

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Segment = Segment {
        source_port: 51_000,
        destination_port: 80,
        sequence: 0xffff_ffff,
    };

    /// One's complement sum of the bytes as 16-bit words; 0xffff over a valid checksum.
    fn verify(parts: &[&[u8]]) -> u16 {
        let mut total = 0_u64;
        for part in parts {
            for pair in part.chunks(2) {
                let word = u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
                total = total.wrapping_add(word);
            }
        }
        while total > 0xffff {
            total = (total >> 16).wrapping_add(total & 0xffff);
        }
        u16::try_from(total).unwrap()
    }

    #[test]
    fn writes_ipv4_checksums_that_verify() {
        for to in [0xcb00_7107, 0x0100_0001, 0xdfff_ffff] {
            let from = 0xc633_6401_u32;
            let header = ipv4_header(from, to);
            let tcp = tcp_header(REQUEST, ipv4_pseudo(from, to));
            assert_eq!(verify(&[&header]), 0xffff);
            assert_eq!(verify(&[&header[12..20], &[0, 6, 0, 20], &tcp]), 0xffff);
            assert_eq!(header[12..16], from.to_be_bytes());
            assert_eq!(header[16..20], to.to_be_bytes());
        }
    }

    #[test]
    fn writes_ipv6_checksums_that_verify() {
        for fill in [1, 0x7fff_ffff_ffff_ffff, u64::MAX] {
            let (from, to) = (Halves { high: fill, low: 7 }, Halves { high: 9, low: fill });
            let tcp = tcp_header(REQUEST, ipv6_pseudo(from, to));
            let mut pseudo = [0; 40];
            pseudo[..8].copy_from_slice(&from.high.to_be_bytes());
            pseudo[8..16].copy_from_slice(&from.low.to_be_bytes());
            pseudo[16..24].copy_from_slice(&to.high.to_be_bytes());
            pseudo[24..32].copy_from_slice(&to.low.to_be_bytes());
            pseudo[35] = 20;
            pseudo[39] = 6;
            assert_eq!(verify(&[&pseudo, &tcp]), 0xffff);
        }
    }

    #[test]
    fn acknowledges_the_syn_with_wrapping_sequence() {
        let tcp = tcp_header(REQUEST, 0);
        assert_eq!(tcp[..4], [0, 80, 0xc7, 0x38]);
        assert_eq!(tcp[4..12], [0; 8]);
        assert_eq!(tcp[13], 0x14);
    }

    #[test]
    fn never_answers_groups_or_itself() {
        let host = 0xc633_6401;
        assert!(may_answer_ipv4(0xcb00_7107, host));
        for other in [0xffff_ffff, 0xe000_0001, 0, 0x7f00_0001, host] {
            assert!(!may_answer_ipv4(other, host), "{other:x}");
            assert!(!may_answer_ipv4(host, other), "{other:x}");
        }
        let host = Halves {
            high: 0x2001_0db8 << 32,
            low: 1,
        };
        assert!(may_answer_ipv6(
            Halves {
                high: host.high,
                low: 2
            },
            host
        ));
        let (group, none) = (
            Halves {
                high: 0xff02 << 48,
                low: 1,
            },
            Halves { high: 0, low: 0 },
        );
        for other in [group, none, Halves { high: 0, low: 1 }, host] {
            assert!(!may_answer_ipv6(other, host), "{other:x?}");
            assert!(!may_answer_ipv6(host, other), "{other:x?}");
        }
    }
}
