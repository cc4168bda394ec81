//! Where limit-ebpf and limit-user meet: map names, capacities, record sizes.
//!
//! Any change of a name, a size or a meaning here is another [`VERSION`], and an ADR.

use core::mem::{offset_of, size_of};

use crate::{
    config::{HISTORY, Numbers, Past, PolicyRecord, PolicySet},
    counters::ROW_VALUES,
    key::Key,
};

/// Version of everything in this module; the pin folder carries it as `v<VERSION>`.
pub const VERSION: u32 = 1;

/// Sources that the bucket map holds unless `--max-sources` says otherwise.
pub const DEFAULT_MAX_SOURCES: u32 = 256 * 1024;

/// Fewest sources that `--max-sources` takes.
pub const MIN_MAX_SOURCES: u32 = 64;

/// Most sources that `--max-sources` takes.
pub const MAX_MAX_SOURCES: u32 = 16 * 1024 * 1024;

/// Entries of each list and family.
pub const LIST_CAPACITY: u32 = 128 * 1024;

/// Map names, as the loader and bpftool show them.
pub mod maps {
    /// Array of maps: entry 0 is the policy set in force.
    pub const POLICY_SETS: &str = "POLICY_SETS";
    /// Hash: key to bucket slot.
    pub const BUCKETS: &str = "BUCKETS";
    /// Array: the places of the bucket map, in order of insertion.
    pub const PLACES: &str = "PLACES";
    /// Array of one: the hand that walks the places.
    pub const HANDS: &str = "HANDS";
    /// Array: the overflow bucket of each policy.
    pub const OVERFLOWS: &str = "OVERFLOWS";
    /// Array: permits out, by policy.
    pub const IN_FLIGHTS: &str = "IN_FLIGHTS";
    /// Trie: prefixes that bypass the filter.
    pub const ALLOWED_PREFIXES_V4: &str = "ALLOWED_PREFIXES_V4";
    /// Trie: prefixes that bypass the filter.
    pub const ALLOWED_PREFIXES_V6: &str = "ALLOWED_PREFIXES_V6";
    /// Trie: prefixes that are blocked.
    pub const BLOCKED_PREFIXES_V4: &str = "BLOCKED_PREFIXES_V4";
    /// Trie: prefixes that are blocked.
    pub const BLOCKED_PREFIXES_V6: &str = "BLOCKED_PREFIXES_V6";
    /// Array of one: entries in each list, so that empty ones are skipped.
    pub const LIST_SIZES: &str = "LIST_SIZES";
    /// Per-CPU array: counter rows of one interface.
    pub const COUNTERS: &str = "COUNTERS";
    /// Program array: tail calls of one interface.
    pub const TAILS: &str = "TAILS";
    /// Per-CPU array of one: what the hot program leaves for a tail call.
    pub const HANDOVERS: &str = "HANDOVERS";
    /// Array of one: the time that a test injects.
    pub const INJECTED_CLOCKS: &str = "INJECTED_CLOCKS";

    /// Maps that belong to the filter and are shared by its interfaces.
    pub const SHARED: [&str; 11] = [
        POLICY_SETS,
        BUCKETS,
        PLACES,
        HANDS,
        OVERFLOWS,
        IN_FLIGHTS,
        ALLOWED_PREFIXES_V4,
        ALLOWED_PREFIXES_V6,
        BLOCKED_PREFIXES_V4,
        BLOCKED_PREFIXES_V6,
        LIST_SIZES,
    ];

    /// Maps that each interface has of its own and that must stay pinned.
    pub const PER_INTERFACE: [&str; 2] = [COUNTERS, TAILS];
}

/// Program names in the object.
pub mod programs {
    /// The filter, for drivers and kernels without multi-buffer XDP.
    pub const LIMIT: &str = "limit";
    /// The filter, multi-buffer.
    pub const LIMIT_FRAGS: &str = "limit_frags";
    /// The reset, tail-called by `limit`.
    pub const RESET: &str = "reset";
    /// The reset, tail-called by `limit_frags`.
    pub const RESET_FRAGS: &str = "reset_frags";
    /// Writes the filter's clock into the first 8 bytes of the packet, little-endian; only ever test-run.
    pub const CLOCK: &str = "filter_clock";
}

/// Globals that the loader sets before the program is verified.
pub mod globals {
    /// 1 makes the clock read [`super::maps::INJECTED_CLOCKS`]; 0 leaves no trace of it.
    pub const INJECTED_CLOCK: &str = "INJECTED_CLOCK";
    /// Number of places, the same as the capacity of the bucket map.
    pub const MAX_SOURCES: &str = "MAX_SOURCES";
}

/// Positions in [`maps::TAILS`].
pub mod tails {
    /// The reset program.
    pub const RESET: u32 = 0;
    /// Positions in all.
    pub const COUNT: u32 = 4;
}

/// One source's bucket: state in the words that `bucket::slot` swaps, and an estimate for people.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketSlot {
    /// Sequence, intervals since `base`, tokens; every decision swaps this word.
    pub state: u64,
    /// Sequence and the interval number that `state` counts from.
    pub base: u64,
    /// Sequence and the generation of the numbers that `state` is in.
    pub meaning: u64,
    /// Sequence and the source that pays from this slot; a slot's memory may pass to another source
    /// while a CPU still holds a pointer to it.
    pub owner: u64,
    /// Refusals of this source, sampled: added in steps of [`REFUSAL_SAMPLE`].
    pub refusals: u64,
}

/// One refusal in this many is written to the source's slot, with this weight.
pub const REFUSAL_SAMPLE: u64 = 16;

/// One place of the bucket map: which key has it.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A [`place_state`] value; whoever swaps it to busy may read and write `key`.
    pub state: u64,
    /// The key that has this place while it is held.
    pub key: Key,
    /// Always 0.
    pub reserved: u32,
}

/// Values of [`Place::state`].
pub mod place_state {
    /// No key has this place.
    pub const EMPTY: u64 = 0;
    /// A CPU is changing this place.
    pub const BUSY: u64 = 1;
    /// `key` has this place.
    pub const HELD: u64 = 2;
}

/// Entries in each list; a list of 0 entries is not looked up.
///
/// The writer raises a size before it inserts and lowers it after it removed, so a size of 0 means
/// an empty list even if the writer died between the two.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListSizes {
    /// IPv4 prefixes allowed.
    pub allowed_v4: u32,
    /// IPv6 prefixes allowed.
    pub allowed_v6: u32,
    /// IPv4 prefixes blocked.
    pub blocked_v4: u32,
    /// IPv6 prefixes blocked.
    pub blocked_v6: u32,
}

/// The counters of one row.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRow {
    /// Values by `Counter::index`; the rest are 0.
    pub values: [u64; ROW_VALUES],
}

/// What the hot program leaves for a tail-called one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// The counter row of the refused packet.
    pub row: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The most bytes of a frame that a bucket of unit byte charges for. Offloads may hand over longer
/// ones, which a bucket of this capacity could otherwise never pay.
pub const MAX_FRAME_BYTES: u32 = 65_535;

const _: () = assert!(size_of::<Key>() == 20);
const _: () = assert!(size_of::<BucketSlot>() == 40);
const _: () = assert!(size_of::<Place>() == 32);
const _: () = assert!(size_of::<Numbers>() == 40);
const _: () = assert!(size_of::<Past>() == 56);
const _: () = assert!(offset_of!(PolicyRecord, least_capacity) == 40 + HISTORY * 56);
const _: () = assert!(size_of::<PolicyRecord>() == 40 + HISTORY * 56 + 8 + 16 + 32);
const _: () = assert!(offset_of!(PolicySet, policies) == 24);
const _: () = assert!(size_of::<PolicySet>() == 24 + 65 * size_of::<PolicyRecord>() + 2 * 65_536);

/// `aya::Pod` for the records: user space copies them to and from maps byte by byte.
#[cfg(feature = "user")]
mod pod {
    use super::{BucketSlot, CounterRow, Handover, Key, ListSizes, Place, PolicySet};

    // SAFETY: `repr(C)`, integers and arrays of them, no padding (sizes asserted above).
    unsafe impl aya::Pod for BucketSlot {}
    // SAFETY: `repr(C)`, integers and arrays of them, no padding (sizes asserted above).
    unsafe impl aya::Pod for Place {}
    // SAFETY: `repr(C)`, integers and arrays of them, no padding (sizes asserted above).
    unsafe impl aya::Pod for Key {}
    // SAFETY: `repr(C)`, four `u32` and nothing else.
    unsafe impl aya::Pod for ListSizes {}
    // SAFETY: `repr(C)`, one array of `u64`.
    unsafe impl aya::Pod for CounterRow {}
    // SAFETY: `repr(C)`, two `u32`.
    unsafe impl aya::Pod for Handover {}
    // SAFETY: `repr(C)`, integers and arrays of them, no padding (sizes asserted above).
    unsafe impl aya::Pod for PolicySet {}
}
