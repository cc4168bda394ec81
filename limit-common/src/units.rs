//! Quantities with the unit in the type; every other module builds on these.

use core::num::{NonZeroU8, NonZeroU32, NonZeroU64};

/// A reading of the filter's clock, in nanoseconds since an origin that only that clock knows.
///
/// The kernel's origin is boot (`bpf_ktime_get_ns`); a simulator may choose any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The instant `ns` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }
}

/// Most tokens a bucket holds.
pub type Capacity = NonZeroU32;

/// Tokens gained at each whole interval.
pub type Refill = NonZeroU32;

/// Length of the refill interval, in ticks of the caller's clock (the kernel's tick is 1 ns).
pub type Interval = NonZeroU64;

/// The number of a policy: its place in the policy set, in the counters and in every key.
///
/// Held as the number plus one, as it stands in the port tables, where 0 means none: so an optional
/// policy is one byte, and the kernel program never copies a byte that was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PolicyId(NonZeroU8);

impl PolicyId {
    /// The built-in policy that later fragments meet; its number follows the operator's policies.
    pub const FRAGMENTS: Self = Self(NonZeroU8::MIN.saturating_add(64));

    /// The policy with this number, or `None` above [`Self::FRAGMENTS`].
    #[must_use]
    #[inline(always)]
    pub const fn new(number: u8) -> Option<Self> {
        match NonZeroU8::MIN.checked_add(number) {
            Some(entry) if entry.get() <= Self::FRAGMENTS.0.get() => Some(Self(entry)),
            Some(_) | None => None,
        }
    }

    /// The policy that a port table's `entry` names, if it names one.
    #[must_use]
    #[inline(always)]
    pub const fn from_entry(entry: u8) -> Option<Self> {
        match NonZeroU8::new(entry) {
            Some(entry) if entry.get() <= Self::FRAGMENTS.0.get() => Some(Self(entry)),
            Some(_) | None => None,
        }
    }

    /// The number plus one: the entry that names this policy in a port table.
    #[must_use]
    #[inline(always)]
    pub const fn entry(self) -> u8 {
        self.0.get()
    }

    /// The place of this policy in the policy set.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.number() as usize
    }

    /// The number as it stands in a key.
    #[must_use]
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0.get().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_policies_from_0_to_64() {
        for number in 0..=64 {
            let id = PolicyId::new(number).unwrap();
            assert_eq!(
                (id.number(), id.entry(), id.index()),
                (number, number + 1, number.into())
            );
            assert_eq!(PolicyId::from_entry(id.entry()), Some(id));
        }
        assert_eq!((PolicyId::new(65), PolicyId::new(255)), (None, None));
        assert_eq!(
            (PolicyId::from_entry(0), PolicyId::from_entry(66)),
            (None, None)
        );
        assert_eq!(size_of::<Option<PolicyId>>(), 1);
    }
}
