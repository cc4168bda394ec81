//! The configuration record the kernel reads: policies, the ports they name, and their numbers.
//!
//! A [`PolicySet`] is written whole before it is published and never after, so a reader sees one set
//! or the next, never a mix. It holds no flag that it is in force: publishing is the outer map's work.

use core::num::{NonZeroU32, NonZeroU64};

use crate::{
    bucket::step::Step,
    units::{Instant, PolicyId},
};

/// Policies that an operator may define.
pub const MAX_POLICIES: usize = PolicyId::FRAGMENTS.index();

/// Rows of [`PolicySet::policies`]: the operator's, then the built-in `fragments`.
pub const POLICY_ROWS: usize = MAX_POLICIES + 1;

/// Earlier generations that a policy remembers, so that a bucket that slept through changes is
/// brought up to date; a bucket older than these keeps what every capacity since leaves of its tokens.
pub const HISTORY: usize = 16;

/// Longest policy name, in bytes of UTF-8.
pub const NAME_BYTES: usize = 32;

/// Everything that decides, in one value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PolicySet {
    /// Rises with each published set; 1 is the first.
    pub revision: u64,
    /// Cookie of the network namespace that the filter belongs to, or 0 if the kernel has none.
    pub namespace_cookie: u64,
    /// Sources the bucket map holds; as given to `--max-sources`.
    pub max_sources: u32,
    /// 1 if undecidable packets are dropped, 0 if they pass (no policy enforces).
    pub drop_undecidable: u8,
    /// Policy number plus one of ICMP and ICMPv6 packets, 0 for none.
    pub icmp: u8,
    /// Policy number plus one of every other IP protocol, 0 for none.
    pub other: u8,
    /// Always 0.
    pub reserved: u8,
    /// The policies by number.
    pub policies: [PolicyRecord; POLICY_ROWS],
    /// Policy number plus one by TCP destination port, 0 for none.
    pub tcp_ports: [u8; PORTS],
    /// Policy number plus one by UDP destination port, 0 for none.
    pub udp_ports: [u8; PORTS],
}

impl PolicySet {
    /// The policy with this number, if that row is in use.
    #[must_use]
    #[inline(always)]
    pub fn policy(&self, number: u8) -> Option<&PolicyRecord> {
        let record = self.policies.get(usize::from(number))?;
        if record.current.generation == 0 {
            None
        } else {
            Some(record)
        }
    }
}

/// One policy: what it counts, how it answers, and its numbers over time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PolicyRecord {
    /// The numbers in force; generation 0 marks an unused row.
    pub current: Numbers,
    /// Earlier numbers, newest first; generation 0 marks an unused entry.
    pub history: [Past; HISTORY],
    /// Smallest capacity of all generations so far: what a bucket keeps of its tokens if it is older than
    /// the history.
    pub least_capacity: u32,
    /// Always 0.
    pub reserved: u32,
    /// Most permits out at once, 0 for no gate.
    pub max_in_flight: u32,
    /// Most permits out at once for one source, 0 for no gate.
    pub max_in_flight_per_source: u32,
    /// A [`Unit`] as a number.
    pub unit: u8,
    /// An [`OnLimit`] as a number.
    pub on_limit: u8,
    /// 1 if the policy only counts what it would refuse.
    pub monitor: u8,
    /// Leading bits of an IPv4 source that form its key, 0..=32.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 source that form its key, 0..=128.
    pub ipv6_prefix: u8,
    /// A [`Protocol`] as a number.
    pub protocol: u8,
    /// HTTP status of the answer: 503 or 429.
    pub status: u16,
    /// Name in UTF-8, padded with zeros.
    pub name: [u8; NAME_BYTES],
}

/// The numbers of a policy in one generation.
///
/// Refills fall on `epoch_ns + n * interval_ns`, for every source alike.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Rises by one at each change of the policy's numbers; 1 is the first, 0 means unused.
    pub generation: u64,
    /// From when on these numbers hold.
    pub since_ns: u64,
    /// Phase of the refills. Kept while the interval stays the same; a new interval starts at `since_ns`.
    pub epoch_ns: u64,
    /// Nanoseconds between refills.
    pub interval_ns: u64,
    /// Most tokens a bucket holds.
    pub capacity: u32,
    /// Tokens gained at each whole interval.
    pub refill: u32,
}

impl Numbers {
    /// An unused entry.
    pub const UNUSED: Self = Self {
        generation: 0,
        since_ns: 0,
        epoch_ns: 0,
        interval_ns: 0,
        capacity: 0,
        refill: 0,
    };

    /// The step arithmetic of these numbers in ticks of 1 ns, or `None` if the entry is unused.
    #[must_use]
    #[inline(always)]
    pub const fn step(&self) -> Option<Step> {
        let Some(capacity) = NonZeroU32::new(self.capacity) else {
            return None;
        };
        let Some(refill) = NonZeroU32::new(self.refill) else {
            return None;
        };
        let Some(interval) = NonZeroU64::new(self.interval_ns) else {
            return None;
        };
        Some(Step {
            capacity,
            refill,
            interval,
        })
    }

    /// The phase of the refills.
    #[must_use]
    pub const fn epoch(&self) -> Instant {
        Instant::from_ns(self.epoch_ns)
    }
}

/// Earlier numbers of a policy, and what the later ones make of a bucket in them.
///
/// A bucket that had `t` tokens at `until_ns` has `min(later_capacity, t + later_gain)` when the
/// current numbers come into force (`bucket::generation`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The numbers.
    pub numbers: Numbers,
    /// When the next generation came into force.
    pub until_ns: u64,
    /// Tokens gained under later generations, before the current one.
    pub later_gain: u32,
    /// Most tokens that later generations leave.
    pub later_capacity: u32,
}

impl Past {
    /// An unused entry.
    pub const UNUSED: Self = Self {
        numbers: Numbers::UNUSED,
        until_ns: 0,
        later_gain: 0,
        later_capacity: 0,
    };
}

/// What one token pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unit {
    /// A new TCP connection: SYN set, ACK and RST clear.
    Connection = 0,
    /// A packet.
    Packet,
    /// A byte of the frame, from the destination address to the end of the payload, tags included.
    Byte,
}

/// What happens to a refused packet of an enforcing policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OnLimit {
    /// An HTTP 503 (dropped where nothing can answer).
    Answer = 0,
    /// A TCP reset.
    Reset,
    /// Dropped without a word.
    Drop,
}

/// The protocol a policy was written for; the port tables hold what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// Every IP protocol.
    Any,
}

macro_rules! from_number {
    ($type:ident { $($variant:ident),+ }) => {
        impl $type {
            /// The variant with this number, or `None`.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $(n if n == Self::$variant as u8 => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
from_number!(Unit {
    Connection,
    Packet,
    Byte
});
from_number!(OnLimit {
    Answer,
    Reset,
    Drop
});
from_number!(Protocol {
    Tcp,
    Udp,
    Icmp,
    Any
});

/// Ports of one protocol.
pub const PORTS: usize = 65_536;
