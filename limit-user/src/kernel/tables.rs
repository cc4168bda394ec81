//! The maps of a filter, typed: the same handles over pins and over a freshly loaded object.
//!
//! Every map's shape is checked when it is opened, since aya takes a pinned map as it finds it.
//! Nothing here is atomic across entries.

use std::{
    fmt, fs, io,
    os::fd::{AsFd, AsRawFd},
    path::Path,
};

use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, HashMap, IterableMap, Map, MapData, MapError, MapInfo},
};
use limit_common::{
    config::PolicySet,
    key::Key,
    layout::{BucketSlot, LIST_CAPACITY, ListSizes, maps},
    units::PolicyId,
};

use super::{error::KernelError, lists::Trie, sys};

/// Buckets in use, and the room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Sources that have a bucket.
    pub used: u64,
    /// Sources that fit.
    pub capacity: u64,
}

/// The maps of one filter.
pub struct Tables {
    policy_sets: ArrayOfMaps<MapData, Array<MapData, PolicySet>>,
    buckets: HashMap<MapData, Key, BucketSlot>,
    overflows: Array<MapData, BucketSlot>,
    in_flights: Array<MapData, u64>,
    pub(super) list_sizes: Array<MapData, ListSizes>,
    pub(super) allowed_v4: Trie<4>,
    pub(super) allowed_v6: Trie<16>,
    pub(super) blocked_v4: Trie<4>,
    pub(super) blocked_v6: Trie<16>,
    /// Maps that only the kernel side uses; held for their memory figures.
    others: Vec<MapData>,
    max_sources: u32,
}

impl Tables {
    /// Opens the pinned maps in `folder`.
    ///
    /// # Errors
    ///
    /// [`KernelError::MapShape`] names a map that is not as this binary expects.
    pub(super) fn from_pins(folder: &Path) -> Result<Self, KernelError> {
        Self::from_source(&mut |name| {
            let data = MapData::from_pin(folder.join(name))
                .map_err(|error| KernelError::map(format!("open pinned map {name}"), error))?;
            Map::from_map_data(data)
                .map_err(|error| KernelError::map(format!("open pinned map {name}"), error))
        })
    }

    /// Takes the maps out of a loaded object.
    pub(super) fn from_object(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        Self::from_source(&mut |name| take(ebpf, name))
    }

    fn from_source(
        source: &mut dyn FnMut(&str) -> Result<Map, KernelError>,
    ) -> Result<Self, KernelError> {
        let buckets: HashMap<MapData, Key, BucketSlot> = typed(source, maps::BUCKETS)?;
        let max_sources = entries(maps::BUCKETS, buckets.map())?;
        let mut others = Vec::new();
        for name in [maps::PLACES, maps::HANDS] {
            let Map::Array(data) = source(name)? else {
                return Err(KernelError::Object {
                    origin: "in use".to_owned(),
                    problem: format!("has a map {name} that is no array"),
                });
            };
            others.push(data);
        }
        if let Some(places) = others.first() {
            expect_entries(maps::PLACES, places, max_sources)?;
        }
        let tables = Self {
            policy_sets: typed(source, maps::POLICY_SETS)?,
            overflows: typed(source, maps::OVERFLOWS)?,
            in_flights: typed(source, maps::IN_FLIGHTS)?,
            list_sizes: typed(source, maps::LIST_SIZES)?,
            allowed_v4: typed(source, maps::ALLOWED_PREFIXES_V4)?,
            allowed_v6: typed(source, maps::ALLOWED_PREFIXES_V6)?,
            blocked_v4: typed(source, maps::BLOCKED_PREFIXES_V4)?,
            blocked_v6: typed(source, maps::BLOCKED_PREFIXES_V6)?,
            buckets,
            others,
            max_sources,
        };
        expect_entries(
            maps::ALLOWED_PREFIXES_V4,
            tables.allowed_v4.map(),
            LIST_CAPACITY,
        )?;
        expect_entries(
            maps::ALLOWED_PREFIXES_V6,
            tables.allowed_v6.map(),
            LIST_CAPACITY,
        )?;
        expect_entries(
            maps::BLOCKED_PREFIXES_V4,
            tables.blocked_v4.map(),
            LIST_CAPACITY,
        )?;
        expect_entries(
            maps::BLOCKED_PREFIXES_V6,
            tables.blocked_v6.map(),
            LIST_CAPACITY,
        )?;
        Ok(tables)
    }

    pub(super) fn buckets_map(&self) -> &MapData {
        self.buckets.map()
    }

    /// Sources that the bucket map holds.
    #[must_use]
    pub const fn max_sources(&self) -> u32 {
        self.max_sources
    }

    /// The policy set in force, or `None` before the first is published.
    pub fn policy_set(&self) -> Result<Option<Box<PolicySet>>, KernelError> {
        let action = "read the policy set";
        match self.policy_sets.get(&IN_FORCE, 0) {
            Ok(set) => sys::array_lookup(set.map(), 0)
                .map(Some)
                .map_err(|error| KernelError::call(action, error)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(KernelError::map(action, error)),
        }
    }

    /// Puts `set` in force: written whole to a map of its own, then published in one step.
    pub fn publish(&mut self, set: &PolicySet) -> Result<(), KernelError> {
        let inner = written(set)?;
        self.put_in_force(&inner)
    }

    /// Publishes a set that was written.
    pub(super) fn put_in_force(
        &mut self,
        set: &Array<MapData, PolicySet>,
    ) -> Result<(), KernelError> {
        self.policy_sets
            .set(IN_FORCE, set, 0)
            .map_err(|error| KernelError::map("publish the policy set", error))
    }

    /// Every bucket in use, in no order; buckets that come or go meanwhile may be missing.
    pub fn buckets(&self) -> Result<Vec<(Key, BucketSlot)>, KernelError> {
        let mut found = Vec::new();
        let whole = visit_batches(self.buckets.map(), &mut |key, value| {
            found.extend(sys::record(key).zip(sys::record(value)));
        });
        match whole {
            Ok(true) => return Ok(found),
            Ok(false) => found.clear(),
            Err(error) => return Err(KernelError::call("read the buckets", error)),
        }
        for key in self.buckets.keys() {
            let key = key.map_err(|error| KernelError::map("read the buckets", error))?;
            found.extend(self.bucket(&key)?.map(|slot| (key, slot)));
        }
        Ok(found)
    }

    /// The bucket of `key`, if it has one.
    pub fn bucket(&self, key: &Key) -> Result<Option<BucketSlot>, KernelError> {
        match self.buckets.get(key, 0) {
            Ok(slot) => Ok(Some(slot)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(KernelError::map("read a bucket", error)),
        }
    }

    /// Writes the bucket of `key`, for tests and tools that prepare a state.
    pub fn set_bucket(&mut self, key: &Key, slot: &BucketSlot) -> Result<(), KernelError> {
        self.buckets
            .insert(key, slot, 0)
            .map_err(|error| KernelError::map("write a bucket", error))
    }

    /// Removes the bucket of `key`, for tests that begin anew; the next newcomer finds its place free.
    pub fn remove_bucket(&mut self, key: &Key) -> Result<(), KernelError> {
        self.buckets
            .remove(key)
            .map_err(|error| KernelError::map("remove a bucket", error))
    }

    /// The bucket that sources without a place share under `policy`.
    pub fn overflow(&self, policy: PolicyId) -> Result<BucketSlot, KernelError> {
        self.overflows
            .get(&u32::from(policy.number()), 0)
            .map_err(|error| KernelError::map("read an overflow bucket", error))
    }

    /// Buckets in use, and how many there is room for.
    pub fn usage(&self) -> Result<Usage, KernelError> {
        let mut used = 0_u64;
        let whole = visit_batches(self.buckets.map(), &mut |_, _| {
            used = used.saturating_add(1)
        })
        .map_err(|error| KernelError::call("count the buckets", error))?;
        if !whole {
            used = self.buckets.keys().count() as u64;
        }
        Ok(Usage {
            used,
            capacity: u64::from(self.max_sources),
        })
    }

    /// Permits out under `policy`.
    pub fn in_flight(&self, policy: PolicyId) -> Result<u64, KernelError> {
        self.in_flights
            .get(&u32::from(policy.number()), 0)
            .map_err(|error| KernelError::map("read the permits in flight", error))
    }

    /// Sets the permits out under `policy`.
    pub fn set_in_flight(&mut self, policy: PolicyId, permits: u64) -> Result<(), KernelError> {
        self.in_flights
            .set(u32::from(policy.number()), permits, 0)
            .map_err(|error| KernelError::map("write the permits in flight", error))
    }

    /// Kernel memory of these maps but the policy sets, as the kernel accounts it.
    pub(super) fn memory_bytes(&self) -> Result<u64, KernelError> {
        let own = [
            self.buckets.map(),
            self.overflows.map(),
            self.in_flights.map(),
            self.list_sizes.map(),
            self.allowed_v4.map(),
            self.allowed_v6.map(),
            self.blocked_v4.map(),
            self.blocked_v6.map(),
        ];
        let mut total = 0_u64;
        for map in own.into_iter().chain(&self.others) {
            total = total.saturating_add(memory_of(map)?);
        }
        Ok(total)
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("max_sources", &self.max_sources)
            .finish_non_exhaustive()
    }
}

/// A map of its own that holds `set`.
pub(super) fn written(set: &PolicySet) -> Result<Array<MapData, PolicySet>, KernelError> {
    let mut inner = Array::<MapData, PolicySet>::create(1, 0)
        .map_err(|error| KernelError::map("create a policy set", error))?;
    inner
        .set(0, set, 0)
        .map_err(|error| KernelError::map("write the policy set", error))?;
    Ok(inner)
}

/// The policy set that a map of its own holds.
pub(super) fn read_set(map: &MapData) -> Result<Box<PolicySet>, KernelError> {
    sys::array_lookup(map, 0).map_err(|error| KernelError::call("read the policy set", error))
}

/// Kernel memory of one pinned map, 0 if a detach took the pin away.
pub(super) fn memory_of_pin(path: &Path) -> Result<u64, KernelError> {
    match MapData::from_pin(path) {
        Ok(data) => memory_of(&data),
        Err(_) if !path.exists() => Ok(0),
        Err(error) => Err(KernelError::map(format!("open {}", path.display()), error)),
    }
}

/// The number of the kernel's own for a pinned map.
pub(super) fn id_of_pin(path: &Path) -> Result<u32, KernelError> {
    MapInfo::from_pin(path)
        .map(|info| info.id())
        .map_err(|error| KernelError::map(format!("open {}", path.display()), error))
}

/// Takes a map out of a loaded object.
pub(super) fn take(ebpf: &mut Ebpf, name: &str) -> Result<Map, KernelError> {
    ebpf.take_map(name).ok_or_else(|| KernelError::Object {
        origin: "in use".to_owned(),
        problem: format!("has no map {name}"),
    })
}

/// Shows every element of a map to `visit`, in batches; `false` if the kernel has no batches for it.
pub(super) fn visit_batches(
    map: &MapData,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> io::Result<bool> {
    let info = map.info().map_err(io::Error::other)?;
    let (key_bytes, value_bytes) = (info.key_size() as usize, info.value_size() as usize);
    let mut capacity = BATCH;
    let mut position = None;
    loop {
        match sys::map_lookup_batch(map, position.as_ref(), capacity) {
            Ok(batch) => {
                let values = batch.values.chunks_exact(value_bytes);
                for (key, value) in batch.keys.chunks_exact(key_bytes).zip(values) {
                    visit(key, value);
                }
                match batch.next {
                    Some(next) => position = Some(next),
                    None => return Ok(true),
                }
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOSPC) if capacity < LARGEST_BATCH => capacity *= 2,
                _ if has_no_batches(&error) => return Ok(false),
                _ => return Err(error),
            },
        }
    }
}

/// Whether a kernel that answers so is read one element at a time: it has no batches for the map, or
/// gave up on one.
fn has_no_batches(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EINTR | ENOTSUPP)
    )
}

/// A map as the typed handle that its user expects.
fn typed<T>(
    source: &mut dyn FnMut(&str) -> Result<Map, KernelError>,
    name: &str,
) -> Result<T, KernelError>
where
    T: TryFrom<Map, Error = MapError>,
{
    T::try_from(source(name)?).map_err(|error| shape(name, error))
}

/// The error of a map whose key or value is not what this binary expects.
pub(super) fn shape(map: &str, error: MapError) -> KernelError {
    let (what, found, expected) = match error {
        MapError::InvalidKeySize { size, expected } => ("a key size of", expected, size),
        MapError::InvalidValueSize { size, expected } => ("a value size of", expected, size),
        other => return KernelError::map(format!("use map {map}"), other),
    };
    KernelError::MapShape {
        map: map.to_owned(),
        what,
        found: found as u64,
        expected: expected as u64,
    }
}

/// Checks the number of entries that a map was made with.
pub(super) fn expect_entries(name: &str, map: &MapData, expected: u32) -> Result<(), KernelError> {
    let found = entries(name, map)?;
    if found == expected {
        return Ok(());
    }
    Err(KernelError::MapShape {
        map: name.to_owned(),
        what: "a capacity of",
        found: u64::from(found),
        expected: u64::from(expected),
    })
}

fn entries(name: &str, map: &MapData) -> Result<u32, KernelError> {
    map.info()
        .map(|info| info.max_entries())
        .map_err(|error| KernelError::map(format!("ask about map {name}"), error))
}

/// `memlock` of a map's descriptor: what the kernel accounts for it.
pub(super) fn memory_of(map: &MapData) -> Result<u64, KernelError> {
    let path = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let text = fs::read_to_string(&path)
        .map_err(|error| KernelError::call(format!("read {path}"), error))?;
    let figure = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(figure
        .and_then(|figure| figure.trim().parse().ok())
        .unwrap_or(0))
}

/// The entry of the policy sets that holds the one in force.
pub(super) const IN_FORCE: u32 = 0;

/// Elements that one call reads; a longer hash chain doubles it.
const BATCH: usize = 4096;
const LARGEST_BATCH: usize = 1 << 20;

/// What the kernel answers for a command that a map type lacks; not an errno of the C library.
const ENOTSUPP: libc::c_int = 524;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_by_one_where_a_batch_is_not_to_be_had() {
        let answers = |number| has_no_batches(&io::Error::from_raw_os_error(number));
        assert!(answers(libc::EINTR) && answers(libc::EINVAL) && answers(ENOTSUPP));
        assert!(!answers(libc::EPERM) && !answers(libc::ENOSPC) && !answers(libc::EFAULT));
    }
}
