//! The loaded program as tests see it: a frame in; an action, the counters that rose and buckets out.
//!
//! The clock is injected. Loading takes a second of the verifier's and the linker's time, so most tests
//! share one [`Kernel`] per variant, which [`Kernel::begin`] makes as good as new.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use ipnet::IpNet;
use limit_common::{
    bucket::{
        slot::{self, Owner},
        step::Level,
    },
    config::PolicySet,
    counters::{Counter, ROW_VALUES, ROWS, row},
    key::{Address, Key},
    layout::{CounterRow, MIN_MAX_SOURCES},
    units::{Instant, PolicyId},
    verdict::Reason,
};
use limit_user::{
    config::{Config, Facts, RawConfig, compile},
    kernel::{
        List,
        object::{self, LoadOptions, Loaded, Variant},
    },
};

/// The action that the program returned (`enum xdp_action` of `linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Xdp {
    Aborted,
    Drop,
    Pass,
    Tx,
}

/// What one frame did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) action: Xdp,
    /// Every counter that rose: its row, its name, and by how much.
    pub(crate) rose: Vec<(usize, Counter, u64)>,
}

/// Levels of buckets by key: the family, the policy and the prefix. `None` where the clock is behind
/// the numbers in force.
pub(crate) type Levels = BTreeMap<(u8, u8, [u8; 16]), Option<Level>>;

/// Rows of counters, as the kernel has them.
pub(crate) type Rows = Box<[CounterRow; ROWS]>;

/// A loaded filter that nothing is attached to.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) loaded: Loaded,
    set: Box<PolicySet>,
    now: Instant,
    seen: Rows,
}

impl Kernel {
    /// A filter of its own with room for so many sources, `set` in force, at [`EPOCH`].
    pub(crate) fn new(variant: Variant, max_sources: u32, set: &PolicySet) -> Self {
        let loaded = object::load(&LoadOptions {
            max_sources,
            ..options(variant)
        });
        let mut kernel = Self::over(loaded.unwrap());
        kernel.begin(set);
        kernel
    }

    /// A filter with no set in force.
    pub(crate) fn over(loaded: Loaded) -> Self {
        let seen = loaded.counters().unwrap();
        Self {
            loaded,
            set: compiled(""),
            now: EPOCH,
            seen,
        }
    }

    /// Begins anew at [`EPOCH`] with `set`: no bucket, no list, no permit out.
    ///
    /// Overflow buckets stay, so a test that fills the table takes a filter of its own.
    pub(crate) fn begin(&mut self, set: &PolicySet) {
        let tables = &mut self.loaded.tables;
        for (key, _) in tables.buckets().unwrap() {
            tables.remove_bucket(&key).unwrap();
        }
        for list in [List::Allow, List::Deny] {
            tables.list_replace(list, &[]).unwrap();
        }
        for number in 0..=PolicyId::FRAGMENTS.number() {
            let policy = PolicyId::new(number).unwrap();
            if tables.in_flight(policy).unwrap() != 0 {
                tables.set_in_flight(policy, 0).unwrap();
            }
        }
        self.publish(set);
        self.at(EPOCH);
        self.seen = self.loaded.counters().unwrap();
    }

    pub(crate) fn publish(&mut self, set: &PolicySet) {
        self.loaded.tables.publish(set).unwrap();
        *self.set = *set;
    }

    pub(crate) fn at(&mut self, now: Instant) {
        self.loaded.clock.set(now).unwrap();
        self.now = now;
    }

    pub(crate) fn list(&mut self, list: List, prefix: IpNet) {
        let added = self.loaded.tables.list_add(list, &[prefix]).unwrap();
        assert_eq!(added, 1, "{prefix} is on the {} list", list.name());
    }

    pub(crate) fn set_in_flight(&mut self, policy: PolicyId, permits: u64) {
        self.loaded.tables.set_in_flight(policy, permits).unwrap();
    }

    /// Judges `frame`; looks at the counters of the policies in use.
    pub(crate) fn judge(&mut self, frame: &[u8]) -> Observed {
        self.judge_repeatedly(frame, 1)
    }

    /// Judges `frame` so many times in one go; the action is that of the last time.
    pub(crate) fn judge_repeatedly(&mut self, frame: &[u8], times: u32) -> Observed {
        let run = self.loaded.run(frame, times).unwrap();
        let mut rose = Vec::new();
        for row in rows_in_use(&self.set) {
            let after = self.loaded.counters.read_row(row as u32).unwrap();
            rose.extend(risen(row, &self.seen[row], &after));
            self.seen[row] = after;
        }
        Observed {
            action: Xdp::from(run.action),
            rose,
        }
    }

    /// Fails if a counter rose that [`Self::judge`] did not look at.
    pub(crate) fn assert_nothing_else_rose(&self) {
        let rows = self.loaded.counters().unwrap();
        for (row, (before, after)) in self.seen.iter().zip(rows.iter()).enumerate() {
            assert_eq!(before, after, "counters of row {row} rose");
        }
    }

    /// Every bucket, brought up to the present.
    pub(crate) fn levels(&self) -> Levels {
        let buckets = self.loaded.tables.buckets().unwrap();
        buckets
            .iter()
            .map(|(key, slot)| {
                let policy = self.set.policy(key.policy).unwrap();
                (
                    ordered(key),
                    slot::read(slot, Owner::from_key(key), policy, self.now),
                )
            })
            .collect()
    }

    /// The bucket of `key`, brought up to the present.
    pub(crate) fn level(&self, key: &Key) -> Option<Level> {
        let slot = self.loaded.tables.bucket(key).unwrap()?;
        slot::read(
            &slot,
            Owner::from_key(key),
            self.set.policy(key.policy)?,
            self.now,
        )
    }

    /// The bucket that sources without a place share, brought up to the present.
    pub(crate) fn overflow_level(&self, policy: PolicyId) -> Option<Level> {
        let slot = self.loaded.tables.overflow(policy).unwrap();
        slot::read(
            &slot,
            Owner::from_policy(policy),
            self.set.policy(policy.number())?,
            self.now,
        )
    }

    /// A counter of a policy since the program was loaded.
    pub(crate) fn count(&self, policy: Option<PolicyId>, counter: Counter) -> u64 {
        let row = self.loaded.counters.read_row(row(policy) as u32).unwrap();
        row.values[counter.index()]
    }
}

impl Observed {
    /// Why the frame met its verdict.
    pub(crate) fn reason(&self) -> Reason {
        let mut reasons = self
            .rose
            .iter()
            .filter_map(|(_, counter, _)| match counter {
                Counter::Reason(reason) => Some(*reason),
                Counter::Packets | Counter::Bytes | Counter::Effect(_) => None,
            });
        let reason = reasons.next().unwrap();
        assert_eq!(reasons.next(), None, "two reasons: {self:?}");
        reason
    }

    /// How often the frame met `reason`.
    pub(crate) fn times(&self, counter: Counter) -> u64 {
        let counted = self.rose.iter().filter(|(_, other, _)| *other == counter);
        counted.map(|(_, _, by)| by).sum()
    }
}

impl From<u32> for Xdp {
    fn from(action: u32) -> Self {
        match action {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Tx,
            other => panic!("the program returned {other}"),
        }
    }
}

/// The shared filter of `variant`, begun anew with `set`.
pub(crate) fn shared(variant: Variant, set: &PolicySet) -> MutexGuard<'static, Kernel> {
    static PLAIN: LazyLock<Mutex<Kernel>> = LazyLock::new(|| load(Variant::Plain));
    static FRAGS: LazyLock<Mutex<Kernel>> = LazyLock::new(|| load(Variant::Frags));
    fn load(variant: Variant) -> Mutex<Kernel> {
        Mutex::new(Kernel::new(variant, SHARED_SOURCES, &compiled("")))
    }
    let kernel = match variant {
        Variant::Frags => &FRAGS,
        Variant::Plain | Variant::ClockOnly => &PLAIN,
    };
    // A test that failed left nothing that `begin` does not put right.
    let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
    kernel.begin(set);
    kernel
}

/// The set of this configuration, in force since [`EPOCH`].
pub(crate) fn compiled(text: &str) -> Box<PolicySet> {
    compile(&config(text), None, EPOCH, FACTS).unwrap()
}

/// The set that follows `previous` with this configuration, in force from `now` on.
pub(crate) fn compiled_after(previous: &PolicySet, text: &str, now: Instant) -> Box<PolicySet> {
    compile(&config(text), Some(previous), now, FACTS).unwrap()
}

pub(crate) fn config(text: &str) -> Config {
    let raw = RawConfig::from_toml(text, "test").unwrap();
    raw.validate().unwrap()
}

/// Counters of one row that rose.
pub(crate) fn risen(
    row: usize,
    before: &CounterRow,
    after: &CounterRow,
) -> Vec<(usize, Counter, u64)> {
    Counter::all()
        .map(|counter| {
            let index = counter.index();
            (row, counter, after.values[index] - before.values[index])
        })
        .filter(|(_, _, by)| *by != 0)
        .collect()
}

/// The rows of no policy and of the policies of `set`.
pub(crate) fn rows_in_use(set: &PolicySet) -> impl Iterator<Item = usize> {
    let policies =
        (0..=PolicyId::FRAGMENTS.number()).filter(|number| set.policy(*number).is_some());
    [row(None)]
        .into_iter()
        .chain(policies.map(|number| row(PolicyId::new(number))))
}

pub(crate) fn no_rows() -> Rows {
    let values = [0; ROW_VALUES];
    Box::new([CounterRow { values }; ROWS])
}

pub(crate) fn ordered(key: &Key) -> (u8, u8, [u8; 16]) {
    (key.family, key.policy, key.prefix)
}

/// The key of the whole address of an IPv4 source, or of the /64 of an IPv6 one.
pub(crate) fn key(source: IpAddr, policy: PolicyId) -> Key {
    let address = match source {
        IpAddr::V4(address) => Address::V4(address.octets()),
        IpAddr::V6(address) => Address::V6(address.octets()),
    };
    Key::from_source(&address, policy, 32, 64)
}

pub(crate) const fn options<'a>(variant: Variant) -> LoadOptions<'a> {
    LoadOptions {
        max_sources: MIN_MAX_SOURCES,
        injected_clock: true,
        variant,
        pins: None,
    }
}

/// `ms` milliseconds after [`EPOCH`].
pub(crate) const fn at_ms(ms: u64) -> Instant {
    Instant::from_ns(EPOCH.as_ns() + ms * MS)
}

/// When sets come into force and refills are counted from. No multiple of any interval in use.
pub(crate) const EPOCH: Instant = Instant::from_ns(1_000_000_007_000_003);

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// The first policy of a configuration.
pub(crate) const FIRST: PolicyId = PolicyId::new(0).unwrap();
/// The second policy of a configuration.
pub(crate) const SECOND_POLICY: PolicyId = PolicyId::new(1).unwrap();

pub(crate) const FACTS: Facts = Facts {
    max_sources: SHARED_SOURCES,
    namespace_cookie: 0,
};

const SHARED_SOURCES: u32 = 1024;
