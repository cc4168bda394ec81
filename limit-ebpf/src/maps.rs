//! Every map of the program, nothing else.
//!
//! Capacities of `BUCKETS` and `PLACES` are set by the loader; the numbers here are the defaults.

use aya_ebpf::{
    btf_maps::{Array, ArrayOfMaps, HashMap, LpmTrie, PerCpuArray, ProgramArray},
    macros::btf_map,
};
use limit_common::{
    config::{POLICY_ROWS, PolicySet},
    counters::ROWS,
    key::Key,
    layout::{
        BucketSlot, CounterRow, DEFAULT_MAX_SOURCES, Handover, LIST_CAPACITY, ListSizes, Place,
        tails,
    },
};

/// The policy sets.
///
/// **entry** one policy set. **key** 0 = in force. **value** an array of one [`PolicySet`], written
/// before it is published, never after. **writer** limitctl. **reader** every packet. **capacity** 2:
/// one spare for a set to fall back on. **when full** never. **race** a packet holds the set it
/// began with until it ends (RCU).
#[btf_map]
pub(crate) static POLICY_SETS: ArrayOfMaps<Array<PolicySet, 1>, 2> = ArrayOfMaps::new();

/// The buckets.
///
/// **entry** one source under one policy. **key** [`Key`]. **value** [`BucketSlot`]. **writer** every
/// judged packet, by compare-and-swap. **reader** limitctl. **capacity** `--max-sources`, allocated
/// at load. **when full** the newcomer takes the place of a full bucket, else it is charged to
/// `OVERFLOWS`. **race** insert-if-absent; the protocol of `limit_common::bucket::slot`.
#[btf_map]
pub(crate) static BUCKETS: HashMap<Key, BucketSlot, { DEFAULT_MAX_SOURCES as usize }> =
    HashMap::new();

/// The places of `BUCKETS`, in order of insertion.
///
/// **entry** one place. **key** position. **value** [`Place`]. **writer** newcomers. **reader**
/// newcomers. **capacity** that of `BUCKETS`, so every bucket has one place. **when full** the hand
/// goes round. **race** whoever swaps the state to busy owns the place until it stores another state.
#[btf_map]
pub(crate) static PLACES: Array<Place, { DEFAULT_MAX_SOURCES as usize }> = Array::new();

/// The hand that walks `PLACES`.
///
/// **entry** one counter. **key** 0. **value** places looked at since load; also the source of
/// sequence numbers. **writer** newcomers, by fetch-and-add. **reader** newcomers. **capacity** 1.
/// **when full** wraps after 2^64 looks. **race** each look gets a number of its own.
#[btf_map]
pub(crate) static HANDS: Array<u64, 1> = Array::new();

/// The overflow buckets.
///
/// **entry** the bucket that sources of one policy share when `BUCKETS` has no room. **key** policy
/// number. **value** [`BucketSlot`], all zero until its first charge. **writer**, **race** as
/// `BUCKETS`, but never retired. **reader** limitctl. **capacity** one a policy. **when full** never.
#[btf_map]
pub(crate) static OVERFLOWS: Array<BucketSlot, POLICY_ROWS> = Array::new();

/// Permits out.
///
/// **entry** one policy. **key** policy number. **value** permits out. **writer** whoever counts
/// open work. **reader** every packet of a policy that has a gate. **capacity** one a policy.
/// **when full** never. **race** the reader may see the count of a moment ago.
#[btf_map]
pub(crate) static IN_FLIGHTS: Array<u64, POLICY_ROWS> = Array::new();

/// IPv4 prefixes that bypass the filter.
///
/// **entry** one prefix. **key** length and address. **value** 1. **writer** limitctl. **reader**
/// every IP packet while `LIST_SIZES` is not 0. **capacity** [`LIST_CAPACITY`], allocated as used.
/// **when full** limitctl refuses the next prefix by name. **race** a change is seen whole (RCU).
#[btf_map]
pub(crate) static ALLOWED_PREFIXES_V4: LpmTrie<[u8; 4], u32, { LIST_CAPACITY as usize }> =
    LpmTrie::new();

/// IPv6 prefixes that bypass the filter; as `ALLOWED_PREFIXES_V4`.
#[btf_map]
pub(crate) static ALLOWED_PREFIXES_V6: LpmTrie<[u8; 16], u32, { LIST_CAPACITY as usize }> =
    LpmTrie::new();

/// IPv4 prefixes that are blocked; as `ALLOWED_PREFIXES_V4`.
#[btf_map]
pub(crate) static BLOCKED_PREFIXES_V4: LpmTrie<[u8; 4], u32, { LIST_CAPACITY as usize }> =
    LpmTrie::new();

/// IPv6 prefixes that are blocked; as `ALLOWED_PREFIXES_V4`.
#[btf_map]
pub(crate) static BLOCKED_PREFIXES_V6: LpmTrie<[u8; 16], u32, { LIST_CAPACITY as usize }> =
    LpmTrie::new();

/// How many prefixes each list holds.
///
/// **entry** the four sizes. **key** 0. **value** [`ListSizes`]. **writer** limitctl: raised before
/// an insert, lowered after a removal. **reader** every IP packet. **capacity** 1. **when full**
/// never. **race** a size that is too high costs a look-up, never a decision.
#[btf_map]
pub(crate) static LIST_SIZES: Array<ListSizes, 1> = Array::new();

/// The counters of one interface.
///
/// **entry** one row. **key** 0 = no policy, else policy number plus one. **value** [`CounterRow`].
/// **writer** every packet, on its own CPU's copy. **reader** limitctl, which adds the copies.
/// **capacity** one row a policy and one more. **when full** never. **race** none.
#[btf_map]
pub(crate) static COUNTERS: PerCpuArray<CounterRow, ROWS> = PerCpuArray::new();

/// The programs that a refused packet may go on in.
///
/// **entry** one program. **key** a position of `layout::tails`. **writer** limitctl at load.
/// **reader** the kernel. **capacity** [`tails::COUNT`]. **when full** never. **race** none. It loses
/// its entries with its last user-space reference, so it stays pinned.
#[btf_map]
pub(crate) static TAILS: ProgramArray<{ tails::COUNT as usize }> = ProgramArray::new();

/// What the hot program leaves for the one it tail-calls.
///
/// **entry** one hand-over. **key** 0. **value** [`Handover`]. **writer** the hot program. **reader**
/// the tail-called program, in the same run on the same CPU. **capacity** 1. **when full** never. **race** none.
#[btf_map]
pub(crate) static HANDOVERS: PerCpuArray<Handover, 1> = PerCpuArray::new();

/// The time that a test injects.
///
/// **entry** nanoseconds. **key** 0. **writer** a test. **reader** the clock, if `INJECTED_CLOCK` is
/// set. **capacity** 1. **when full** never. **race** none: tests run one packet at a
/// time.
#[btf_map]
pub(crate) static INJECTED_CLOCKS: Array<u64, 1> = Array::new();
