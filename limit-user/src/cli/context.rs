//! What every command has: where to print, where the pins are, and when to stop.

use core::time::Duration;

use limit_common::config::PolicySet;

use super::output::Output;
use crate::{
    config::{Config, decompile},
    error::Refusal,
    interrupt::{Guard, Interrupt, Stopped},
    kernel::{AttachedInterface, Filter, Interface, KernelError, Lock, PinRoot, probe},
};

/// What every command has.
#[derive(Debug)]
pub struct Context {
    /// Where results go.
    pub output: Output,
    /// Where the pins are.
    pub root: PinRoot,
    /// When to stop.
    pub interrupt: Interrupt,
}

/// The right to change the filter: no stop cuts in, and no other limitctl changes it.
#[derive(Debug)]
pub struct Change {
    /// The lock that the kernel side asks for.
    pub lock: Lock,
    _guard: Guard,
}

impl Context {
    /// The context of one command.
    #[must_use]
    pub const fn new(output: Output, root: PinRoot, interrupt: Interrupt) -> Self {
        Self {
            output,
            root,
            interrupt,
        }
    }

    /// Begins a change.
    ///
    /// # Errors
    ///
    /// A missing capability by name, another holder of the lock, or a stop.
    pub fn begin_change(&self) -> anyhow::Result<Change> {
        probe::require_capabilities_to("change the filter")?;
        let guard = self.interrupt.guard()?;
        let lock = Lock::acquire(&self.root, LOCK_WAIT, &self.interrupt)?;
        Ok(Change {
            lock,
            _guard: guard,
        })
    }

    /// Goes on unless a stop came.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub fn check(&self) -> Result<(), Stopped> {
        self.interrupt.check()
    }

    /// The filter of this network namespace.
    ///
    /// # Errors
    ///
    /// A missing capability by name, that there is no filter, or that one is left with no interface.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        probe::require_capabilities_to("read the filter")?;
        let filter = Filter::open(&self.root)?.ok_or_else(|| {
            Refusal::failed(
                "no-filter",
                "no filter in this network namespace: `limitctl attach IFACE` makes one",
            )
        })?;
        if filter.interfaces()?.is_empty() {
            return Err(Refusal::failed(
                "filter-without-interface",
                "the filter has no interface: an attach or a detach was cut off, or is at work; \
                 `limitctl attach IFACE` makes it anew, `limitctl detach --all` removes it",
            )
            .into());
        }
        Ok(filter)
    }
}

/// The policy set in force and what it means.
///
/// # Errors
///
/// When the kernel's record is none of ours.
pub fn in_force(filter: &Filter) -> anyhow::Result<(Box<PolicySet>, Config)> {
    let set = filter.policy_set()?;
    set.and_then(|set| decompile(&set).map(|config| (set, config)))
        .ok_or_else(|| {
            Refusal::failed(
            "unreadable-policy-set",
            "the filter's policy set cannot be read: `limitctl detach --all` removes the filter",
        )
        .into()
        })
}

/// The filter's interface with this name.
///
/// # Errors
///
/// When there is no such interface, or it is not the filter's.
pub fn attached(filter: &Filter, name: &str) -> anyhow::Result<AttachedInterface> {
    let known = filter.interfaces()?;
    match known
        .into_iter()
        .find(|interface| interface.name.as_deref() == Some(name))
    {
        Some(interface) => Ok(interface),
        None => {
            let interface = Interface::find(name)?;
            Err(KernelError::NotAttached {
                name: interface.name,
            }
            .into())
        }
    }
}

/// How long a change waits for another limitctl to end.
const LOCK_WAIT: Duration = Duration::from_secs(2);
