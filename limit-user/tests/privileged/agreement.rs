//! The pure pipeline and the loaded programs side by side: what one does, all must do.

use std::sync::MutexGuard;

use ipnet::IpNet;
use limit_common::{
    config::PolicySet,
    units::{Instant, PolicyId},
};
use limit_user::kernel::{List, object::Variant};

use crate::{
    loaded::{Kernel, Levels, Observed, compiled, compiled_after, shared},
    pure::Pure,
};

/// One filter, three times: in this process, as the program for one buffer, and as that for many.
pub(crate) struct Agreement {
    pure: Pure,
    kernels: [MutexGuard<'static, Kernel>; 2],
    set: Box<PolicySet>,
    now: Instant,
}

impl Agreement {
    /// Begins with the set of this configuration, at [`EPOCH`](crate::loaded::EPOCH).
    pub(crate) fn on(config: &str) -> Self {
        Self::with(compiled(config))
    }

    /// Begins with `set`, at [`EPOCH`](crate::loaded::EPOCH).
    pub(crate) fn with(set: Box<PolicySet>) -> Self {
        Self {
            pure: Pure::new(&set),
            kernels: [Variant::Plain, Variant::Frags].map(|variant| shared(variant, &set)),
            now: crate::loaded::EPOCH,
            set,
        }
    }

    /// Sets the clock.
    pub(crate) fn at(&mut self, now: Instant) {
        self.now = now;
        self.pure.at(now);
        for kernel in &mut self.kernels {
            kernel.at(now);
        }
    }

    /// The set in force.
    pub(crate) const fn set(&self) -> &PolicySet {
        &self.set
    }

    /// The time that the clock shows.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Publishes the set that follows with this configuration.
    pub(crate) fn change(&mut self, config: &str) {
        self.set = compiled_after(&self.set, config, self.now);
        self.pure.publish(&self.set);
        for kernel in &mut self.kernels {
            kernel.publish(&self.set);
        }
    }

    /// Puts a prefix on a list.
    pub(crate) fn list(&mut self, list: List, prefix: IpNet) {
        self.pure.list(list, prefix);
        for kernel in &mut self.kernels {
            kernel.list(list, prefix);
        }
    }

    /// Sets the permits out under `policy`.
    pub(crate) fn set_in_flight(&mut self, policy: PolicyId, permits: u64) {
        self.pure.set_in_flight(policy, permits);
        for kernel in &mut self.kernels {
            kernel.set_in_flight(policy, permits);
        }
    }

    /// Judges `frame` and fails if any two disagree. The kernel takes no frame below
    /// [`SHORTEST`] bytes; shorter ones are judged here alone.
    #[track_caller]
    pub(crate) fn judge(&mut self, frame: &[u8]) -> Observed {
        let pure = self.pure.judge(frame);
        if frame.len() >= SHORTEST {
            for (kernel, program) in self.kernels.iter_mut().zip(PROGRAMS) {
                let observed = kernel.judge(frame);
                assert_eq!(observed, pure, "{program} differs on {frame:02x?}");
            }
        }
        pure
    }

    /// Every bucket, brought up to the present; fails if any two disagree.
    #[track_caller]
    pub(crate) fn levels(&self) -> Levels {
        let pure = self.pure.levels();
        for (kernel, program) in self.kernels.iter().zip(PROGRAMS) {
            assert_eq!(kernel.levels(), pure, "buckets of {program}");
            kernel.assert_nothing_else_rose();
        }
        pure
    }
}

/// Bytes of an Ethernet header.
pub(crate) const SHORTEST: usize = 14;

const PROGRAMS: [&str; 2] = ["limit", "limit_frags"];
