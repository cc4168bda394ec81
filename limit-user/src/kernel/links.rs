//! Network interfaces of the calling thread's namespace, and the XDP programs on them.

use std::fmt;

use aya::programs::{loaded_links, loaded_programs};

use super::{attach::Mode, error::KernelError, netlink, sys};

/// A network interface as it was when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// What it is.
    pub kind: Kind,
    /// Whether its frames begin with an Ethernet header.
    pub has_ethernet: bool,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Index of the bridge or bond that it belongs to.
    pub controller: Option<u32>,
    /// Index of the device below it (of a VLAN) or of its peer (of a veth).
    pub lower: Option<u32>,
    /// Receive queues.
    pub receive_queues: u32,
    /// Transmit queues.
    pub transmit_queues: u32,
    /// XDP programs attached, by mode.
    pub programs: Vec<AttachedProgram>,
}

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device of its own driver: hardware, or what a hypervisor offers as such.
    Device,
    /// The loopback.
    Loopback,
    /// One end of a virtual cable.
    Veth,
    /// A bridge.
    Bridge,
    /// A bond or team.
    Bond,
    /// A VLAN of another device.
    Vlan,
    /// A tun or tap.
    Tun,
    /// Another kind, as the kernel names it.
    Other(String),
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Its id.
    pub id: u32,
    /// How it is attached.
    pub mode: Mode,
}

impl Interface {
    /// The interface with this name.
    ///
    /// # Errors
    ///
    /// [`KernelError::InterfaceNotFound`] names it.
    pub fn find(name: &str) -> Result<Self, KernelError> {
        let not_found = || KernelError::InterfaceNotFound {
            name: name.to_owned(),
        };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0']) {
            return Err(not_found());
        }
        netlink::link_by_name(name)?.ok_or_else(not_found)
    }

    /// The interface with this index, if there is one.
    pub fn by_index(index: u32) -> Result<Option<Self>, KernelError> {
        netlink::link_by_index(index)
    }

    /// Every interface, by index.
    pub fn all() -> Result<Vec<Self>, KernelError> {
        netlink::links()
    }

    /// The mode in which the program with this id is attached.
    #[must_use]
    pub fn mode_of(&self, program: u32) -> Option<Mode> {
        self.programs
            .iter()
            .find(|attached| attached.id == program)
            .map(|attached| attached.mode)
    }

    /// The driver, as ethtool names it, if it tells.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        sys::driver(&self.name)
            .ok()
            .filter(|driver| !driver.is_empty())
    }

    /// Whether the device takes VLAN tags out before XDP sees a frame, if it tells.
    #[must_use]
    pub fn takes_vlan_tags(&self) -> Option<bool> {
        sys::takes_vlan_tags(&self.name).ok()
    }

    /// A word for people about a device that is better left for another one; `None` for most.
    ///
    /// The filter works there all the same.
    pub fn advice(&self) -> Result<Option<String>, KernelError> {
        let name = &self.name;
        let below = |index: Option<u32>| match index.map(Self::by_index).transpose() {
            Ok(device) => Ok(device.flatten().map(|device| device.name)),
            Err(error) => Err(error),
        };
        Ok(match self.kind {
            Kind::Vlan => below(self.lower)?.map(|device| {
                format!(
                    "{name} is a VLAN: only frames with its tag are judged, and in generic mode; \
                     {device} sees them all"
                )
            }),
            Kind::Bridge => Some(format!(
                "{name} is a bridge: it sees what the host itself receives, in generic mode; its \
                 ports see everything"
            )),
            _ => below(self.controller)?.map(|device| {
                format!("{name} belongs to {device}: frames that arrive elsewhere are not judged")
            }),
        })
    }

    /// Refuses an interface whose frames do not begin with an Ethernet header.
    pub(super) fn require_suitable(&self) -> Result<(), KernelError> {
        if self.has_ethernet {
            return Ok(());
        }
        let others = Self::all()?;
        let devices: Vec<&str> = others
            .iter()
            .filter(|device| device.has_ethernet && device.kind == Kind::Device)
            .map(|device| device.name.as_str())
            .collect();
        let instead = if devices.is_empty() {
            "the device that carries its tunnel".to_owned()
        } else {
            format!(
                "the device that carries its tunnel ({})",
                devices.join(", ")
            )
        };
        Err(KernelError::Unsuitable {
            name: self.name.clone(),
            reason: format!("its frames have no Ethernet header; attach to {instead}"),
        })
    }

    /// Refuses an interface that has an XDP program, by name.
    pub(super) fn refuse_foreign(&self) -> Result<(), KernelError> {
        let Some(program) = self.programs.first() else {
            return Ok(());
        };
        Err(KernelError::Foreign {
            interface: self.name.clone(),
            id: program.id,
            name: program_name(program.id),
            link: link_of_program(program.id),
            mode: program.mode,
        })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The name of the interface with this index, or the index in words if it is gone.
#[must_use]
pub fn name_or_index(index: u32) -> String {
    match Interface::by_index(index) {
        Ok(Some(interface)) => interface.name,
        _ => format!("index {index}"),
    }
}

/// The name of a loaded program, if it can be read.
#[must_use]
pub fn program_name(id: u32) -> Option<String> {
    let program = loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)?;
    let name = program.name_as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The link of a loaded program, if there is exactly one.
fn link_of_program(id: u32) -> Option<u32> {
    let mut links = loaded_links()
        .filter_map(Result::ok)
        .filter(|link| link.program_id() == id);
    let link = links.next()?;
    links.next().is_none().then(|| link.id())
}

/// Ids of the maps that a loaded program uses.
pub(super) fn maps_of_program(id: u32) -> Result<Vec<u32>, KernelError> {
    let action = || format!("ask about program {id}");
    let Some(program) = loaded_programs()
        .filter_map(Result::ok)
        .find(|found| found.id() == id)
    else {
        return Ok(Vec::new());
    };
    let maps = program
        .map_ids()
        .map_err(|error| KernelError::program(action(), error))?;
    Ok(maps.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_device_below_a_vlan_and_above_a_port() {
        let loopback = Interface::find("lo").unwrap();
        let vlan = Interface {
            name: "eth0.7".to_owned(),
            kind: Kind::Vlan,
            lower: Some(loopback.index),
            ..loopback.clone()
        };
        assert!(
            vlan.advice()
                .unwrap()
                .unwrap()
                .ends_with("lo sees them all")
        );
        let port = Interface {
            kind: Kind::Device,
            controller: Some(loopback.index),
            ..loopback.clone()
        };
        assert!(port.advice().unwrap().unwrap().contains("belongs to lo"));
        assert_eq!(loopback.advice().unwrap(), None);
    }

    #[test]
    fn names_what_it_does_not_find() {
        for name in ["eth99", "", "a/b", "longer-than-any-name"] {
            let error = Interface::find(name).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("interface {name} not found")),
                "{error}"
            );
        }
    }
}
