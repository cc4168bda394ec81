//! The filter in the kernel, as typed handles; the only code that names aya.
//!
//! One [`Filter`] belongs to a network namespace and lives in pins under [`PinRoot`]: it outlives
//! the process. Invariants:
//!
//! - whoever changes pins or lists holds the [`Lock`] of the namespace; readers need none;
//! - every change is complete or undone: a process killed at any moment leaves either the earlier
//!   state in force or leftovers that no packet meets and that the next holder of the lock removes;
//! - a program that is not ours is named and left alone.

use std::{io::ErrorKind, os::fd::OwnedFd, path::PathBuf};

use aya::maps::IterableMap;
use ipnet::IpNet;
use limit_common::{
    config::PolicySet,
    counters::ROWS,
    key::Key,
    layout::{BucketSlot, CounterRow, maps},
    units::{Instant, PolicyId},
};

use crate::interrupt::Interrupt;

pub mod assembled;
pub mod attach;
pub mod counters;
pub mod error;
mod in_force;
pub mod links;
pub mod lists;
pub mod lock;
mod netlink;
pub mod object;
pub mod pins;
pub mod probe;
mod sys;
pub mod tables;
pub mod veth;

pub use attach::{Attached, AttachedInterface, Mode, ModeChoice};
pub use counters::Counters;
pub use error::KernelError;
pub use links::Interface;
pub use lists::List;
pub use lock::Lock;
pub use pins::PinRoot;
pub use tables::{Tables, Usage};

use in_force::InForce;
use object::{LoadOptions, Variant};
use pins::{Namespace, Pins};

/// What a new filter is made with; it keeps them until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sources that the bucket map holds.
    pub max_sources: u32,
}

/// What stands under the pin root for this network namespace.
#[derive(Debug)]
pub enum Presence {
    /// Nothing.
    None,
    /// A filter of this namespace, with a policy set in force.
    Here(Box<Filter>),
    /// Pins of another layout version (the folder's name), which this binary does not touch.
    OtherLayout(String),
    /// A filter of a namespace that is gone; the kernel gave its inode number to this one.
    Dead,
    /// A filter whose maker died before its first set was published, or that lost a pin.
    Incomplete,
}

/// The filter of this network namespace.
#[derive(Debug)]
pub struct Filter {
    pins: Pins,
    tables: Tables,
    clock: OwnedFd,
}

impl Filter {
    /// Looks for the filter of this network namespace.
    ///
    /// # Errors
    ///
    /// Another layout, a dead instance and incomplete leftovers are errors that name themselves;
    /// [`Filter::presence`] tells them apart.
    pub fn open(root: &PinRoot) -> Result<Option<Self>, KernelError> {
        let path = || Pins::of_this_namespace(root).map(|pins| pins.namespace_folder());
        match Self::presence(root)? {
            Presence::None => Ok(None),
            Presence::Here(filter) => Ok(Some(*filter)),
            Presence::OtherLayout(version) => Err(KernelError::OtherLayout {
                path: path()?,
                version,
            }),
            Presence::Dead => Err(KernelError::DeadInstance { path: path()? }),
            Presence::Incomplete => match Self::judged_by_leftovers(root)?.as_slice() {
                [] => Err(KernelError::Incomplete { path: path()? }),
                judged => Err(KernelError::IncompleteInUse {
                    path: path()?,
                    interfaces: judged.join(", "),
                }),
            },
        }
    }

    /// Looks for the filter of this network namespace and says what stands in its place.
    pub fn presence(root: &PinRoot) -> Result<Presence, KernelError> {
        let pins = Pins::of_this_namespace(root)?;
        if let Some(version) = pins.other_layout()? {
            return Ok(Presence::OtherLayout(version));
        }
        let folder = pins.folder();
        if !folder.exists() {
            return Ok(Presence::None);
        }
        let filter = match Self::from_pins(pins) {
            Err(KernelError::Call { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let is_there = folder.exists();
                return Ok(if is_there {
                    Presence::Incomplete
                } else {
                    Presence::None
                });
            }
            filter => filter?,
        };
        let Some(set) = filter.policy_set()? else {
            return Ok(Presence::Incomplete);
        };
        match (set.namespace_cookie, Namespace::cookie()?) {
            (0, _) | (_, None) => Ok(Presence::Here(Box::new(filter))),
            (made_in, Some(here)) if made_in == here => Ok(Presence::Here(Box::new(filter))),
            _ => Ok(Presence::Dead),
        }
    }

    /// Creates the filter of the namespace that `lock` holds: shared maps and clock, all or nothing.
    ///
    /// A dead instance and incomplete leftovers in its place are removed first, unless they judge an
    /// interface still. No policy set is in force until [`Filter::publish`], and until then others see
    /// [`Presence::Incomplete`].
    ///
    /// # Errors
    ///
    /// [`KernelError::Exists`] if there is a filter, [`KernelError::OtherLayout`] if there are pins
    /// of another version, [`KernelError::IncompleteInUse`] if leftovers judge an interface, and
    /// whatever the kernel refuses, with nothing left behind.
    pub fn create(lock: &Lock, options: &Options) -> Result<Self, KernelError> {
        probe::require_capabilities()?;
        let pins = lock.pins().clone();
        match Self::presence(pins.root())? {
            Presence::None => {}
            Presence::Here(_) => {
                return Err(KernelError::Exists {
                    path: pins.folder(),
                });
            }
            Presence::OtherLayout(version) => {
                return Err(KernelError::OtherLayout {
                    path: pins.namespace_folder(),
                    version,
                });
            }
            Presence::Dead => remove(&pins)?,
            Presence::Incomplete => match Self::judged_by_leftovers(pins.root())?.as_slice() {
                [] => remove(&pins)?,
                judged => {
                    return Err(KernelError::IncompleteInUse {
                        path: pins.namespace_folder(),
                        interfaces: judged.join(", "),
                    });
                }
            },
        }
        let building = pins.begin()?;
        let loaded = object::load(&LoadOptions {
            max_sources: options.max_sources,
            injected_clock: false,
            variant: Variant::ClockOnly,
            pins: Some(&|map| {
                maps::SHARED
                    .contains(&map)
                    .then(|| building.path().join(map))
            }),
        })?;
        loaded.pin_clock(&building.path().join(CLOCK))?;
        building.commit(&pins.folder())?;
        Self::from_pins(pins)
    }

    /// Removes every trace: interfaces first, then the pins of the filter.
    pub fn remove(self, _lock: &Lock) -> Result<(), KernelError> {
        remove(&self.pins)
    }

    /// Removes what a dead instance or a crash left behind; for [`Presence::Dead`] and
    /// [`Presence::Incomplete`] only.
    pub fn remove_leftovers(lock: &Lock) -> Result<(), KernelError> {
        match Self::presence(lock.pins().root())? {
            Presence::Dead | Presence::Incomplete => remove(lock.pins()),
            Presence::None | Presence::Here(_) | Presence::OtherLayout(_) => Ok(()),
        }
    }

    /// Names of the interfaces that incomplete leftovers judge still, as after a lost pin.
    pub fn judged_by_leftovers(root: &PinRoot) -> Result<Vec<String>, KernelError> {
        let interfaces = attach::interfaces(&Pins::of_this_namespace(root)?)?;
        Ok(interfaces
            .into_iter()
            .filter_map(|interface| interface.name)
            .collect())
    }

    /// The cookie of this network namespace for [`PolicySet::namespace_cookie`], 0 if the kernel
    /// has none.
    pub fn namespace_cookie() -> Result<u64, KernelError> {
        Ok(Namespace::cookie()?.unwrap_or(0))
    }

    /// The policy set in force, or `None` before the first is published.
    pub fn policy_set(&self) -> Result<Option<Box<PolicySet>>, KernelError> {
        let folder = self.folder();
        let pins = InForce::new(&folder);
        let Some(id) = pins.id()? else {
            return Ok(None);
        };
        match pins.find(id)? {
            Some(map) => tables::read_set(&map).map(Some),
            None => self.tables.policy_set(),
        }
    }

    /// Puts `set` in force: written whole to a map of its own, then published in one step.
    pub fn publish(&mut self, _lock: &Lock, set: &PolicySet) -> Result<(), KernelError> {
        let folder = self.folder();
        let next = tables::written(set)?;
        InForce::new(&folder).replace(IterableMap::map(&next), || self.tables.put_in_force(&next))
    }

    /// Attaches the program to `interface`, or replaces the program that is there in place.
    ///
    /// # Errors
    ///
    /// A foreign program is named and left; an explicit mode that differs from the attached one is
    /// refused, since changing it would leave a moment without a filter. The state before is kept.
    pub fn attach(
        &mut self,
        _lock: &Lock,
        interface: &Interface,
        mode: ModeChoice,
        interrupt: &Interrupt,
    ) -> Result<Attached, KernelError> {
        attach::attach(&self.pins, self.max_sources(), interface, mode, interrupt)
    }

    /// Detaches the program from the interface with this index, whether or not the device is there
    /// still, and forgets its counters.
    pub fn detach(&mut self, _lock: &Lock, index: u32) -> Result<(), KernelError> {
        attach::detach(&self.pins, index)
    }

    /// The interfaces of this filter, by index.
    pub fn interfaces(&self) -> Result<Vec<AttachedInterface>, KernelError> {
        attach::interfaces(&self.pins)
    }

    /// The counters of one interface, summed over CPUs.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotAttached`] if the interface does not belong to the filter.
    pub fn counters(&self, index: u32) -> Result<Box<[CounterRow; ROWS]>, KernelError> {
        let path = self.pins.interface(index).file(maps::COUNTERS);
        if !path.exists() {
            return Err(KernelError::NotAttached {
                name: links::name_or_index(index),
            });
        }
        Counters::from_pin(&path)?.read()
    }

    /// Every bucket in use, in no order; buckets that come or go meanwhile may be missing.
    pub fn buckets(&self) -> Result<Vec<(Key, BucketSlot)>, KernelError> {
        self.tables.buckets()
    }

    /// The bucket of `key`, if it has one.
    pub fn bucket(&self, key: &Key) -> Result<Option<BucketSlot>, KernelError> {
        self.tables.bucket(key)
    }

    /// The bucket that sources without a place share under `policy`.
    pub fn overflow(&self, policy: PolicyId) -> Result<BucketSlot, KernelError> {
        self.tables.overflow(policy)
    }

    /// Buckets in use, and how many there is room for.
    pub fn usage(&self) -> Result<Usage, KernelError> {
        self.tables.usage()
    }

    /// Sources that the bucket map holds.
    #[must_use]
    pub fn max_sources(&self) -> u32 {
        self.tables.max_sources()
    }

    /// Permits out under `policy`.
    pub fn in_flight(&self, policy: PolicyId) -> Result<u64, KernelError> {
        self.tables.in_flight(policy)
    }

    /// Adds `prefixes` to `list`; those that are there already are left.
    ///
    /// # Errors
    ///
    /// [`KernelError::ListFull`] names the list and its capacity; prefixes before the one that found
    /// no room stay.
    pub fn list_add(
        &mut self,
        _lock: &Lock,
        list: List,
        prefixes: &[IpNet],
    ) -> Result<usize, KernelError> {
        self.tables.list_add(list, prefixes)
    }

    /// Removes `prefixes` from `list` and says how many were there.
    pub fn list_remove(
        &mut self,
        _lock: &Lock,
        list: List,
        prefixes: &[IpNet],
    ) -> Result<usize, KernelError> {
        self.tables.list_remove(list, prefixes)
    }

    /// Makes `list` equal to `prefixes`: what is missing is added before what is left over goes.
    pub fn list_replace(
        &mut self,
        _lock: &Lock,
        list: List,
        prefixes: &[IpNet],
    ) -> Result<(), KernelError> {
        self.tables.list_replace(list, prefixes)
    }

    /// The entries of `list` in order of address and length.
    pub fn list_entries(&self, list: List) -> Result<Vec<IpNet>, KernelError> {
        self.tables.list_entries(list)
    }

    /// The filter's own clock, read by a test run of its clock program.
    pub fn now(&self) -> Result<Instant, KernelError> {
        object::read_clock(&self.clock)
    }

    /// Kernel memory of the filter's maps, as the kernel accounts it; the few bytes of the outer array
    /// of policy sets are left out.
    pub fn memory_bytes(&self) -> Result<u64, KernelError> {
        let mut total = self.tables.memory_bytes()?;
        let folder = self.folder();
        let pins = InForce::new(&folder);
        if let Some(id) = pins.id()?
            && let Some(set) = pins.find(id)?
        {
            total = total.saturating_add(tables::memory_of(&set)?);
        }
        for index in self.pins.interface_indexes()? {
            let interface = self.pins.interface(index);
            for map in maps::PER_INTERFACE {
                total = total.saturating_add(tables::memory_of_pin(&interface.file(map))?);
            }
        }
        Ok(total)
    }

    /// The folder that holds the filter's pins.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.pins.folder()
    }

    fn from_pins(pins: Pins) -> Result<Self, KernelError> {
        let tables = Tables::from_pins(&pins.folder())?;
        let clock = object::clock_from_pin(&pins.folder().join(CLOCK))?;
        Ok(Self {
            pins,
            tables,
            clock,
        })
    }
}

/// Detaches every interface, then takes the pins away.
fn remove(pins: &Pins) -> Result<(), KernelError> {
    for index in pins.interface_indexes()? {
        attach::detach(pins, index)?;
    }
    pins.remove_all()
}

/// The name of the pinned clock program.
const CLOCK: &str = "clock";
