//! Who pays: the source prefix and the policy, from a packet.

use crate::units::PolicyId;

/// Who is charged: a source prefix under one policy.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Source address with the bits past the prefix cleared; IPv4 in the first four bytes, rest 0.
    pub prefix: [u8; 16],
    /// 4 or 6. Keeps an IPv4 source apart from an IPv6 one with the same bytes.
    pub family: u8,
    /// Number of the policy.
    pub policy: u8,
    /// Always 0, so that equal keys have equal bytes.
    pub reserved: u16,
}

/// A source address as the packet carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

impl Key {
    /// The key of `source` under `policy`, whose prefixes have these lengths.
    ///
    /// Lengths above the family's width count as the whole address.
    #[must_use]
    #[inline(always)]
    pub const fn from_source(
        source: &Address,
        policy: PolicyId,
        ipv4_prefix: u8,
        ipv6_prefix: u8,
    ) -> Self {
        // Words to the end: taken apart into bytes on the way, they cost the kernel a register each.
        let (high, low, family) = match *source {
            Address::V4(address) => {
                let word = u32::from_be_bytes(address) & mask_v4(ipv4_prefix);
                ((word as u64) << 32, 0, 4)
            }
            Address::V6(address) => {
                let [high, low] = halves(u128::from_be_bytes(address));
                (
                    high & mask_high(ipv6_prefix),
                    low & mask_low(ipv6_prefix),
                    6,
                )
            }
        };
        let prefix = ((high as u128) << 64 | low as u128).to_be_bytes();
        Self {
            prefix,
            family,
            policy: policy.number(),
            reserved: 0,
        }
    }
}

/// The upper and the lower half: BPF has no arithmetic on 128 bits but shifts by 64.
#[inline(always)]
pub(crate) const fn halves(word: u128) -> [u64; 2] {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a half is 64 bits, and the upper one is shifted down"
    )]
    [(word >> 64) as u64, word as u64]
}

/// The leading `length` bits set.
#[inline(always)]
const fn mask_v4(length: u8) -> u32 {
    if length >= 32 {
        u32::MAX
    } else {
        !(u32::MAX >> length)
    }
}

/// The upper half of a 128-bit mask of `length` leading bits.
#[inline(always)]
const fn mask_high(length: u8) -> u64 {
    if length >= 64 {
        u64::MAX
    } else {
        !(u64::MAX >> length)
    }
}

/// The lower half of a 128-bit mask of `length` leading bits.
#[inline(always)]
const fn mask_low(length: u8) -> u64 {
    if length <= 64 {
        0
    } else {
        mask_high(length.wrapping_sub(64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: PolicyId = PolicyId::FRAGMENTS;

    #[test]
    fn clears_the_bits_past_the_prefix() {
        let key = Key::from_source(&Address::V4([203, 0, 113, 77]), POLICY, 26, 64);
        assert_eq!(key.prefix[..5], [203, 0, 113, 64, 0]);

        let mut address = [0xff; 16];
        address[8] = 1;
        let key = Key::from_source(&Address::V6(address), POLICY, 32, 64);
        assert_eq!(
            key.prefix,
            [
                255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0
            ]
        );
    }

    #[test]
    fn takes_prefix_lengths_at_both_ends() {
        let source = Address::V4([203, 0, 113, 77]);
        assert_eq!(Key::from_source(&source, POLICY, 0, 0).prefix, [0; 16]);
        assert_eq!(
            Key::from_source(&source, POLICY, 32, 0).prefix[..4],
            [203, 0, 113, 77]
        );
        assert_eq!(
            Key::from_source(&Address::V6([7; 16]), POLICY, 0, 128).prefix,
            [7; 16]
        );
        assert_eq!(
            Key::from_source(&Address::V6([7; 16]), POLICY, 0, 0).prefix,
            [0; 16]
        );
    }

    #[test]
    fn keeps_families_with_equal_bytes_apart() {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[203, 0, 113, 77]);
        let v4 = Key::from_source(&Address::V4([203, 0, 113, 77]), POLICY, 32, 128);
        let v6 = Key::from_source(&Address::V6(bytes), POLICY, 32, 128);
        assert_ne!(v4, v6);
    }
}
