//! Which policy set is in force, as a pin: a map can be opened by its id with CAP_SYS_ADMIN alone.
//!
//! The set in force is pinned beside the array of sets. A new one is pinned under another name first,
//! then published, then renamed over the old one, so that whichever is published has a pin at every
//! moment; the array tells its id, and the pin with that id is the one.

use std::{
    io,
    path::{Path, PathBuf},
};

use aya::maps::MapData;
use limit_common::layout::maps;

use super::{error::KernelError, pins, sys, tables::IN_FORCE};

/// The pin of the policy set in force, below the filter's folder.
pub(super) struct InForce<'a> {
    folder: &'a Path,
}

impl<'a> InForce<'a> {
    pub(super) const fn new(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// The kernel's number of the set in force, or `None` before the first is published.
    pub(super) fn id(&self) -> Result<Option<u32>, KernelError> {
        let Some(sets) = open(&self.folder.join(maps::POLICY_SETS))? else {
            return Ok(None);
        };
        match sys::array_lookup::<u32>(&sets, IN_FORCE) {
            Ok(id) => Ok(Some(*id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(KernelError::call("read the policy set's number", error)),
        }
    }

    /// The map with this number among the pins, or `None` if none of them is it.
    pub(super) fn find(&self, id: u32) -> Result<Option<MapData>, KernelError> {
        for path in [self.next(), self.settled()] {
            if let Some(map) = open(&path)?
                && id_of(&map)? == id
            {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// Pins `next`, has it published, and makes its pin the one in force.
    ///
    /// Killed on the way, one of the two pins is the one in force and [`Self::find`] tells which.
    pub(super) fn replace(
        &self,
        next: &MapData,
        publish: impl FnOnce() -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        if let Some(left) = open(&self.next())? {
            if Some(id_of(&left)?) == self.id()? {
                pins::rename(&self.next(), &self.settled())?;
            } else {
                pins::remove(&self.next())?;
            }
        }
        next.pin(self.next()).map_err(|error| {
            KernelError::call(
                format!("pin {}", self.next().display()),
                io::Error::other(error),
            )
        })?;
        if let Err(error) = publish() {
            pins::remove(&self.next())?;
            return Err(error);
        }
        pins::rename(&self.next(), &self.settled())
    }

    fn settled(&self) -> PathBuf {
        self.folder.join("POLICY_SET")
    }

    fn next(&self) -> PathBuf {
        self.folder.join("POLICY_SET_NEXT")
    }
}

/// The pinned map, or `None` if there is no such pin.
fn open(path: &Path) -> Result<Option<MapData>, KernelError> {
    if !path.exists() {
        return Ok(None);
    }
    let map = MapData::from_pin(path)
        .map_err(|error| KernelError::map(format!("open {}", path.display()), error))?;
    Ok(Some(map))
}

fn id_of(map: &MapData) -> Result<u32, KernelError> {
    let info = map
        .info()
        .map_err(|error| KernelError::map("ask about a policy set", error))?;
    Ok(info.id())
}
