//! The look-ups before any bucket: lists and permits out.

use aya_ebpf::btf_maps::{LpmTrie, lpm_trie::Key as PrefixKey};
use limit_common::{key::Address, layout::ListSizes, pipeline::List, units::PolicyId};

use crate::maps::{
    ALLOWED_PREFIXES_V4, ALLOWED_PREFIXES_V6, BLOCKED_PREFIXES_V4, BLOCKED_PREFIXES_V6, IN_FLIGHTS,
    LIST_SIZES,
};

/// How many prefixes each list holds.
#[inline(always)]
pub(crate) fn list_sizes() -> Option<&'static ListSizes> {
    LIST_SIZES.get(0)
}

/// Whether `source` is on `list`; an empty list is not looked up.
#[inline(always)]
pub(crate) fn is_listed(sizes: &ListSizes, list: List, source: &Address) -> bool {
    match (list, source) {
        (List::Allow, Address::V4(ip)) => {
            sizes.allowed_v4 != 0 && holds(&ALLOWED_PREFIXES_V4, 32, *ip)
        }
        (List::Allow, Address::V6(ip)) => {
            sizes.allowed_v6 != 0 && holds(&ALLOWED_PREFIXES_V6, 128, *ip)
        }
        (List::Deny, Address::V4(ip)) => {
            sizes.blocked_v4 != 0 && holds(&BLOCKED_PREFIXES_V4, 32, *ip)
        }
        (List::Deny, Address::V6(ip)) => {
            sizes.blocked_v6 != 0 && holds(&BLOCKED_PREFIXES_V6, 128, *ip)
        }
    }
}

/// Permits of `policy` that are out, at most `u32::MAX`.
#[inline(always)]
pub(crate) fn in_flight(policy: PolicyId) -> u32 {
    let out = IN_FLIGHTS
        .get(u32::from(policy.number()))
        .copied()
        .unwrap_or(0);
    u32::try_from(out).unwrap_or(u32::MAX)
}

#[inline(always)]
fn holds<A, const CAPACITY: usize>(
    prefixes: &LpmTrie<A, u32, CAPACITY>,
    bits: u32,
    address: A,
) -> bool {
    prefixes.get(&PrefixKey::new(bits, address)).is_some()
}
