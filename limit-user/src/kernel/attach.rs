//! One interface joins the filter, gets a newer program, or leaves.
//!
//! The pinned link comes last when an interface joins and goes first when it leaves, so a killed
//! process leaves an interface that is judged in full or not at all. A replacement keeps the link
//! and the counters; the tail calls of the newer program are pinned beside those of the older one
//! before the link changes over, so neither program is ever without its own.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
};

use limit_common::layout::maps;

use super::{
    error::KernelError,
    links::{self, Interface},
    object::{self, LoadOptions, Loaded, Variant},
    pins::{self, InterfacePins, Pins},
    probe,
    sys::{self, XdpFlags},
    tables,
};
use crate::interrupt::Interrupt;

/// Which mode is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChoice {
    /// Native, else generic.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the network stack.
    Generic,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the network stack, for any device.
    Generic,
    /// On the card.
    Offloaded,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
        })
    }
}

/// How an interface was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The mode in force.
    pub mode: Mode,
    /// Why it is not native, if native was tried.
    pub fallback_reason: Option<String>,
    /// Whether a program of ours was there and was replaced in place.
    pub replaced: bool,
    /// Whether the program takes frames in several buffers.
    pub frags: bool,
}

/// One interface of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedInterface {
    /// Its index when it was attached.
    pub index: u32,
    /// Index of the device that the link is on, in the namespace of that device; 0 once the device is
    /// gone or the link was detached.
    pub device: u32,
    /// Its name, or `None` if the device is gone from this network namespace.
    pub name: Option<String>,
    /// The mode in force, or `None` if the program is on no device of this namespace.
    pub mode: Option<Mode>,
    /// The program's id.
    pub program_id: u32,
    /// The link's id.
    pub link_id: u32,
}

impl AttachedInterface {
    /// Whether the device exists no longer.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.device == 0 && self.name.is_none()
    }

    /// Whether the device was moved to another network namespace, where its frames are judged still.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        self.device != 0 && self.name.is_none()
    }

    /// The name of a device that is here and whose link somebody else detached.
    #[must_use]
    pub fn cut_off(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| self.device == 0)
    }

    /// What people are to know, if the interface is not judged here as it should be.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let index = self.index;
        if let Some(name) = self.cut_off() {
            return Some(format!(
                "{name} is not filtered any more: `limitctl attach {name}`"
            ));
        }
        if self.is_elsewhere() {
            return Some(format!(
                "interface {index} is in another network namespace, and judged there: \
                 `limitctl detach --all` lets go of it"
            ));
        }
        self.is_gone()
            .then(|| format!("interface {index} is gone; the next attach forgets it"))
    }
}

/// Attaches to `interface`, or replaces the program that is there in place.
///
/// What was known about the interface may be older than the lock, so it is looked up again.
pub(super) fn attach(
    pins: &Pins,
    max_sources: u32,
    interface: &Interface,
    choice: ModeChoice,
    interrupt: &Interrupt,
) -> Result<Attached, KernelError> {
    probe::require_capabilities()?;
    let interface = &current(interface)?;
    interface.require_suitable()?;
    let place = pins.interface(interface.index);
    let job = Job {
        pins,
        place: &place,
        max_sources,
        interface,
        choice,
        interrupt,
    };
    if let Some(link) = open_link(&place)? {
        let info = sys::link_info(link.as_fd()).map_err(|error| {
            KernelError::call(format!("ask about the link of {interface}"), error)
        })?;
        if info.interface == interface.index {
            return job.replace(&link, info.program_id);
        }
    }
    // What is left is of a device that is gone, or of a process that died on the way.
    place.clear()?;
    job.attach()
}

/// Detaches whatever is pinned for this index.
pub(super) fn detach(pins: &Pins, index: u32) -> Result<(), KernelError> {
    let place = pins.interface(index);
    if let Some(link) = open_link(&place)? {
        // Letting go of the last reference would detach some time later; this does it at once.
        sys::link_detach(link.as_fd()).map_err(|error| {
            KernelError::call(format!("detach {}", links::name_or_index(index)), error)
        })?;
        pins::remove(&place.link())?;
    }
    place.clear()
}

/// The interfaces that have a pinned link, by index.
pub(super) fn interfaces(pins: &Pins) -> Result<Vec<AttachedInterface>, KernelError> {
    let mut found = Vec::new();
    for index in pins.interface_indexes()? {
        let Some(link) = open_link(&pins.interface(index))? else {
            continue;
        };
        let info = sys::link_info(link.as_fd())
            .map_err(|error| KernelError::call(format!("ask about link {index}"), error))?;
        let device = if info.interface == 0 {
            Interface::by_index(index)?
        } else {
            // A device that was moved away may share its index with one that is here.
            Interface::by_index(info.interface)?
                .filter(|device| device.mode_of(info.program_id).is_some())
        };
        let mode = device
            .as_ref()
            .and_then(|device| device.mode_of(info.program_id));
        found.push(AttachedInterface {
            index,
            device: info.interface,
            name: device.map(|device| device.name),
            mode,
            program_id: info.program_id,
            link_id: info.id,
        });
    }
    Ok(found)
}

/// One attach: everything it needs.
struct Job<'a> {
    pins: &'a Pins,
    place: &'a InterfacePins,
    max_sources: u32,
    interface: &'a Interface,
    choice: ModeChoice,
    interrupt: &'a Interrupt,
}

impl Job<'_> {
    /// A first attach.
    fn attach(&self) -> Result<Attached, KernelError> {
        self.refuse_foreign()?;
        let mut undo = Undo {
            place: self.place,
            armed: true,
        };
        self.place.make()?;
        let (loaded, frags) = self.load()?;
        loaded.pin_tails(&self.place.file(maps::TAILS))?;
        self.interrupt.check()?;
        let (link, mode, fallback_reason) = self.create_link(&loaded)?;
        self.interrupt.check()?;
        let pin = self.place.link();
        sys::object_pin(link.as_fd(), &pin)
            .map_err(|error| KernelError::call(format!("pin {}", pin.display()), error))?;
        undo.armed = false;
        Ok(Attached {
            mode,
            fallback_reason,
            replaced: false,
            frags,
        })
    }

    /// A newer program in place of one of ours.
    fn replace(&self, link: &OwnedFd, running: u32) -> Result<Attached, KernelError> {
        let mode = self.interface.mode_of(running).ok_or_else(|| {
            self.refused(format!("the mode of its program, id {running}, is unknown"))
        })?;
        self.require_same_mode(mode)?;
        let (tails, next) = (self.place.file(maps::TAILS), self.place.file(TAILS_NEXT));
        self.finish_replacement(running)?;
        let (loaded, frags) = self.load()?;
        let changed = loaded.pin_tails(&next).and_then(|()| {
            self.interrupt.check()?;
            sys::link_update(link.as_fd(), loaded.filter_fd()?).map_err(|error| {
                KernelError::call(format!("replace the program of {}", self.interface), error)
            })
        });
        if let Err(error) = changed {
            pins::remove(&next)?;
            return Err(error);
        }
        pins::rename(&next, &tails)?;
        Ok(Attached {
            mode,
            fallback_reason: None,
            replaced: true,
            frags,
        })
    }

    /// Settles a replacement that a killed process left: if the running program has the newer tail
    /// calls they take the name of the older ones, else they go.
    fn finish_replacement(&self, running: u32) -> Result<(), KernelError> {
        let next = self.place.file(TAILS_NEXT);
        if !next.exists() {
            return Ok(());
        }
        if links::maps_of_program(running)?.contains(&tables::id_of_pin(&next)?) {
            pins::rename(&next, &self.place.file(maps::TAILS))
        } else {
            pins::remove(&next)
        }
    }

    /// Loads the filter over the shared maps and this interface's counters.
    fn load(&self) -> Result<(Loaded, bool), KernelError> {
        let frags = probe::has_frags();
        let variant = if frags {
            Variant::Frags
        } else {
            Variant::Plain
        };
        let loaded = object::load(&LoadOptions {
            max_sources: self.max_sources,
            injected_clock: false,
            variant,
            pins: Some(&|map| match map {
                maps::COUNTERS => Some(self.place.file(map)),
                _ => maps::SHARED
                    .contains(&map)
                    .then(|| self.pins.folder().join(map)),
            }),
        })?;
        Ok((loaded, frags))
    }

    /// Native first, then generic, as the choice allows.
    fn create_link(&self, loaded: &Loaded) -> Result<(OwnedFd, Mode, Option<String>), KernelError> {
        let program = loaded.filter_fd()?;
        let create = |flags| sys::link_create(program, self.interface.index, flags);
        let mut native = None;
        if self.choice != ModeChoice::Generic {
            match create(XdpFlags::Native) {
                Ok(link) => return Ok((link, Mode::Native, None)),
                Err(error) => native = Some(in_words(self.interface, &error, Mode::Native)?),
            }
        }
        if self.choice == ModeChoice::Native {
            return Err(self.refused(native.unwrap_or_default()));
        }
        match create(XdpFlags::Generic) {
            Ok(link) => Ok((link, Mode::Generic, native)),
            Err(error) => {
                let generic = in_words(self.interface, &error, Mode::Generic)?;
                let reasons: Vec<String> = native.into_iter().chain([generic]).collect();
                Err(self.refused(reasons.join("; ")))
            }
        }
    }

    fn refused(&self, reason: String) -> KernelError {
        KernelError::Refused {
            interface: self.interface.name.clone(),
            reason,
        }
    }

    /// Leaves a program that is not ours alone, by name.
    fn refuse_foreign(&self) -> Result<(), KernelError> {
        self.interface.refuse_foreign()
    }

    fn require_same_mode(&self, attached: Mode) -> Result<(), KernelError> {
        let asked = match self.choice {
            ModeChoice::Auto => return Ok(()),
            ModeChoice::Native => Mode::Native,
            ModeChoice::Generic => Mode::Generic,
        };
        if asked == attached {
            return Ok(());
        }
        let interface = self.interface.name.clone();
        Err(KernelError::ModeDiffers {
            interface,
            attached,
            asked,
        })
    }
}

/// Removes the folder of an interface that did not come to be attached.
struct Undo<'a> {
    place: &'a InterfacePins,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            // Whatever resists is cleared by the next attach.
            self.place.clear().ok();
        }
    }
}

/// Why a mode failed, for people; errors that no other mode would mend are returned as such.
fn in_words(
    interface: &Interface,
    error: &std::io::Error,
    mode: Mode,
) -> Result<String, KernelError> {
    let name = &interface.name;
    let words = match error.raw_os_error() {
        // The kernel says either of a device that went away.
        Some(libc::ENODEV | libc::EINVAL) if Interface::by_index(interface.index)?.is_none() => {
            return Err(KernelError::InterfaceGone { name: name.clone() });
        }
        Some(libc::EPERM) => {
            let error = std::io::Error::from_raw_os_error(libc::EPERM);
            return Err(KernelError::call(format!("attach XDP to {name}"), error));
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            // Whoever came in between is asked for by name.
            if let Some(device) = Interface::by_index(interface.index)? {
                device.refuse_foreign()?;
            }
            "another XDP program is there, or on the device above it".to_owned()
        }
        Some(libc::EOPNOTSUPP) => "the driver has no native XDP".to_owned(),
        Some(libc::ERANGE) => {
            format!(
                "an MTU of {} is above what the driver takes with XDP",
                interface.mtu
            )
        }
        Some(libc::ENOMEM | libc::ENOSPC) => {
            "the driver has too few queues or too little memory for XDP".to_owned()
        }
        Some(libc::EINVAL) => format!(
            "the driver refuses XDP with its settings: an MTU of {}, large receive offload, or \
             the number of queues",
            interface.mtu
        ),
        _ => "the driver refuses it".to_owned(),
    };
    let number = error.raw_os_error().unwrap_or_default();
    Ok(format!(
        "{mode}: {words} ({}, errno {number})",
        os_text(error)
    ))
}

/// The interface as it is at this moment.
fn current(interface: &Interface) -> Result<Interface, KernelError> {
    Interface::by_index(interface.index)?
        .filter(|device| device.name == interface.name)
        .ok_or_else(|| KernelError::InterfaceGone {
            name: interface.name.clone(),
        })
}

/// The pinned link, if there is one.
fn open_link(place: &InterfacePins) -> Result<Option<OwnedFd>, KernelError> {
    let path = place.link();
    match sys::object_open(&path) {
        Ok(link) => Ok(Some(link)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KernelError::call(format!("open {}", path.display()), error)),
    }
}

/// The text of an error without the number that std appends.
fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

/// Where a newer program's tail calls wait for the link to change over.
const TAILS_NEXT: &str = "TAILS_NEXT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_of_a_device_that_went_away_that_it_did() {
        let here = Interface::find("lo").unwrap();
        let gone = Interface {
            index: u32::MAX >> 1,
            ..here.clone()
        };
        for number in [libc::EINVAL, libc::ENODEV] {
            let error = std::io::Error::from_raw_os_error(number);
            let found = in_words(&gone, &error, Mode::Native).unwrap_err();
            assert!(
                matches!(found, KernelError::InterfaceGone { .. }),
                "{found}"
            );
            let found = in_words(&here, &error, Mode::Native).unwrap();
            assert!(found.contains("the driver refuses"), "{found}");
        }
    }
}
