//! What can go wrong between this process and the kernel: each error names the thing and the way out.

use std::{io, path::PathBuf};

use aya::{EbpfError, maps::MapError, pin::PinError, programs::ProgramError};
use limit_common::layout::programs;
use thiserror::Error;

use super::{
    attach::Mode,
    probe::{Capabilities, Capability},
};
use crate::interrupt::Stopped;

/// Why the kernel side did not do what was asked; the state before is unchanged.
#[derive(Debug, Error)]
pub enum KernelError {
    /// A signal or the timeout came first.
    #[error(transparent)]
    Stopped(#[from] Stopped),

    /// The pin root is on another file system.
    #[error(
        "bpffs is not mounted at {}: run `mount -t bpf bpf {}`", path.display(), path.display()
    )]
    NoBpffs {
        /// Where it is to be mounted.
        path: PathBuf,
    },

    /// bpffs keeps dots for itself.
    #[error("bpffs takes no dot in a name: choose a pin root without one ({})", path.display())]
    DottedPin {
        /// The folder that was refused.
        path: PathBuf,
    },

    /// The process may not do this.
    #[error("missing {capability}, needed to {action}: run as root or grant {capability}")]
    Capability {
        /// The capability that is missing.
        capability: Capability,
        /// What it is needed for.
        action: String,
    },

    /// The process has the capabilities, and was refused all the same.
    #[error(
        "not permitted to {action}, although no capability is missing: a user namespace, a security \
         module or kernel lockdown forbids it"
    )]
    Forbidden {
        /// What was refused.
        action: String,
    },

    /// No such interface in this network namespace.
    #[error("interface {name} not found in this network namespace: `ip link` lists what is there")]
    InterfaceNotFound {
        /// The name asked for.
        name: String,
    },

    /// The interface went away meanwhile.
    #[error("interface {name} went away: nothing is attached")]
    InterfaceGone {
        /// Its name.
        name: String,
    },

    /// The interface cannot carry the filter.
    #[error("interface {name} cannot carry the filter: {reason}")]
    Unsuitable {
        /// Its name.
        name: String,
        /// Why, and which device to use.
        reason: String,
    },

    /// The interface is not one of the filter's.
    #[error("interface {name} is not attached: `limitctl attach {name}` attaches it")]
    NotAttached {
        /// Its name, or its index if the device is gone.
        name: String,
    },

    /// Somebody else's XDP program is there.
    #[error(
        "interface {interface} has a foreign XDP program in {mode} mode, id {id}{}: it stays{}; \
         {} first (`ip link show dev {interface}` shows it)",
        name.as_ref().map(|name| format!(", name {name}")).unwrap_or_default(),
        perhaps_ours(name.as_deref()),
        way_out(interface, *link)
    )]
    Foreign {
        /// The interface.
        interface: String,
        /// The program's id.
        id: u32,
        /// The program's name, if it can be read.
        name: Option<String>,
        /// The link that holds it there, if one does.
        link: Option<u32>,
        /// How it is attached.
        mode: Mode,
    },

    /// Another mode than the one in force was asked for.
    #[error(
        "interface {interface} is attached in {attached} mode, and changing to {asked} would leave a \
         moment without a filter: detach it first, or leave the mode to `auto`"
    )]
    ModeDiffers {
        /// The interface.
        interface: String,
        /// The mode in force.
        attached: Mode,
        /// The mode asked for.
        asked: Mode,
    },

    /// The interface takes the program in no mode that was asked for.
    #[error("interface {interface} does not take the program: {reason}")]
    Refused {
        /// The interface.
        interface: String,
        /// The errors in words, by mode.
        reason: String,
    },

    /// Another limitctl changes this filter.
    #[error("{} is locked by {holder}: wait for it to end, or stop it", path.display())]
    Locked {
        /// The folder that is locked.
        path: PathBuf,
        /// Process id and command, as far as known.
        holder: String,
    },

    /// There is a filter already.
    #[error("this network namespace has a filter already, in {}", path.display())]
    Exists {
        /// Its folder.
        path: PathBuf,
    },

    /// Pins of another layout version.
    #[error(
        "{} holds a filter of layout {version}, which this limitctl cannot read: detach it with the \
         limitctl that made it (`limitctl detach --all`) or, without that one, by `rm -r {}`, then \
         attach again",
        path.display(), path.display()
    )]
    OtherLayout {
        /// The folder of this namespace.
        path: PathBuf,
        /// The other layout's folder name.
        version: String,
    },

    /// Pins of a namespace that is gone.
    #[error(
        "{} holds a filter of a network namespace that is gone: `limitctl attach` replaces it, \
         `limitctl detach --all` removes it",
        path.display()
    )]
    DeadInstance {
        /// The folder of this namespace.
        path: PathBuf,
    },

    /// Leftovers of a crash.
    #[error(
        "{} holds a filter that was never completed: `limitctl attach` replaces it, \
         `limitctl detach --all` removes it",
        path.display()
    )]
    Incomplete {
        /// The folder of this namespace.
        path: PathBuf,
    },

    /// Leftovers that lost a pin, with interfaces attached.
    #[error(
        "{} holds a filter that lost a part and still judges {interfaces}: `limitctl detach --all` \
         detaches and removes it, then attach again",
        path.display()
    )]
    IncompleteInUse {
        /// The folder of this namespace.
        path: PathBuf,
        /// The interfaces, separated by commas.
        interfaces: String,
    },

    /// A pinned map is not what this binary expects.
    #[error(
        "pinned map {map} has {what} {found}, expected {expected}: remove the filter with \
         `limitctl detach --all` and attach again"
    )]
    MapShape {
        /// The map.
        map: String,
        /// What differs.
        what: &'static str,
        /// As it is.
        found: u64,
        /// As it should be.
        expected: u64,
    },

    /// A list has no room.
    #[error("the {list} list is full ({capacity} {family} prefixes): remove some, or merge them")]
    ListFull {
        /// `allow` or `deny`.
        list: &'static str,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// Entries it holds.
        capacity: u32,
    },

    /// The BPF object does not fit this binary.
    #[error("the BPF object {origin} {problem}")]
    Object {
        /// Where it came from.
        origin: String,
        /// What is wrong with it.
        problem: String,
    },

    /// The kernel does not take the program.
    #[error("the kernel refuses program {program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// The error, with the end of the verifier's log.
        reason: String,
    },

    /// A call failed for a reason of its own.
    #[error("{action} failed: {source}")]
    Call {
        /// What was tried.
        action: String,
        /// The error.
        source: io::Error,
    },
}

impl KernelError {
    /// A name for machines, stable.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stopped(_) => "stopped",
            Self::NoBpffs { .. } => "no-bpffs",
            Self::DottedPin { .. } => "dotted-pin",
            Self::Capability { .. } => "missing-capability",
            Self::Forbidden { .. } => "forbidden",
            Self::InterfaceNotFound { .. } => "interface-not-found",
            Self::InterfaceGone { .. } => "interface-gone",
            Self::Unsuitable { .. } => "unsuitable-interface",
            Self::NotAttached { .. } => "not-attached",
            Self::Foreign { .. } => "foreign-program",
            Self::ModeDiffers { .. } => "mode-differs",
            Self::Refused { .. } => "attach-refused",
            Self::Locked { .. } => "locked",
            Self::Exists { .. } => "filter-exists",
            Self::OtherLayout { .. } => "other-layout",
            Self::DeadInstance { .. } => "dead-instance",
            Self::Incomplete { .. } => "incomplete-filter",
            Self::IncompleteInUse { .. } => "incomplete-filter-in-use",
            Self::MapShape { .. } => "map-shape",
            Self::ListFull { .. } => "list-full",
            Self::Object { .. } => "bpf-object",
            Self::Program { .. } => "bpf-program",
            Self::Call { .. } => "kernel-call",
        }
    }

    /// The error of a call, with a refused permission turned into the capability that is missing.
    pub(super) fn call(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        if source.raw_os_error() != Some(libc::EPERM) {
            return Self::Call { action, source };
        }
        match Capabilities::of_this_thread()
            .ok()
            .and_then(|have| have.first_missing())
        {
            Some(capability) => Self::Capability { capability, action },
            None => Self::Forbidden { action },
        }
    }

    /// The error of a map operation.
    pub(super) fn map(action: impl Into<String>, error: MapError) -> Self {
        Self::call(action, map_io(error))
    }

    /// The error of a program operation other than loading.
    pub(super) fn program(action: impl Into<String>, error: ProgramError) -> Self {
        Self::call(action, program_io(error))
    }
}

/// A word about a program that is named as ours are.
fn perhaps_ours(name: Option<&str>) -> &'static str {
    if matches!(name, Some(programs::LIMIT | programs::LIMIT_FRAGS)) {
        " (it may belong to a limitctl with another --pin-root)"
    } else {
        ""
    }
}

/// How a foreign program is made to leave.
fn way_out(interface: &str, link: Option<u32>) -> String {
    match link {
        Some(link) => format!("end what owns link {link}, or `bpftool link detach id {link}`,"),
        None => format!(
            "end the program or link that owns it, or `bpftool net detach xdp dev {interface}`,"
        ),
    }
}

/// The system's error inside an aya error; aya's own text hides it.
pub(super) fn map_io(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::CreateError { io_error, .. } | MapError::IoError(io_error) => io_error,
        MapError::PinError {
            error: PinError::SyscallError(error),
            ..
        } => error.io_error,
        MapError::KeyNotFound | MapError::ElementNotFound => {
            io::Error::from_raw_os_error(libc::ENOENT)
        }
        other => io::Error::other(other),
    }
}

/// The system's error inside an aya error; aya's own text hides it.
pub(super) fn program_io(error: ProgramError) -> io::Error {
    match error {
        ProgramError::SyscallError(error) => error.io_error,
        ProgramError::LoadError { io_error, .. } | ProgramError::IOError(io_error) => io_error,
        ProgramError::MapError(error) => map_io(error),
        other => io::Error::other(other),
    }
}

/// The error of reading or loading an object.
pub(super) fn from_object(origin: &str, error: EbpfError) -> KernelError {
    match error {
        EbpfError::MapError(error) => {
            let action = match &error {
                MapError::CreateError { name, .. } => format!("create map {name}"),
                MapError::PinError {
                    name: Some(name), ..
                } => format!("pin map {name}"),
                _ => "create the maps".to_owned(),
            };
            KernelError::map(action, error)
        }
        EbpfError::ProgramError(error) => KernelError::program("load the programs", error),
        other => KernelError::Object {
            origin: origin.to_owned(),
            problem: format!("cannot be read: {other}"),
        },
    }
}

/// The error of loading one program, with the end of the verifier's log.
pub(super) fn from_load(program: &str, error: ProgramError) -> KernelError {
    match error {
        ProgramError::LoadError { io_error, .. }
            if io_error.raw_os_error() == Some(libc::EPERM) =>
        {
            KernelError::call(format!("load program {program}"), io_error)
        }
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            let tail = lines
                .get(lines.len().saturating_sub(LOG_LINES)..)
                .unwrap_or_default();
            let mut reason = io_error.to_string();
            if !tail.is_empty() {
                reason.push_str("; the verifier ends with:\n");
                reason.push_str(&tail.join("\n"));
            }
            KernelError::Program {
                program: program.to_owned(),
                reason,
            }
        }
        other => KernelError::program(format!("load program {program}"), other),
    }
}

/// Lines of the verifier's log that an error shows: enough for the refusal and its instruction.
const LOG_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_a_foreign_program_leaves() {
        let of = |name: &str, link| {
            let foreign = KernelError::Foreign {
                interface: "eth0".to_owned(),
                id: 7,
                name: Some(name.to_owned()),
                link,
                mode: Mode::Native,
            };
            foreign.to_string()
        };
        let by_link = of("other", Some(9));
        assert!(by_link.contains("`bpftool link detach id 9`"), "{by_link}");
        assert!(!by_link.contains("net detach"), "{by_link}");
        assert!(!by_link.contains("--pin-root"), "{by_link}");
        let by_program = of("limit_frags", None);
        assert!(by_program.contains("bpftool net detach"), "{by_program}");
        assert!(by_program.contains("another --pin-root"), "{by_program}");
    }
}
