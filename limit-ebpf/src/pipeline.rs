//! The flow, top to bottom: the frame is judged by `limit_common` over the kernel's maps, and counted.

use limit_common::{
    config::{PolicyRecord, PolicySet},
    frame::Frame as _,
    key::{Address, Key},
    layout::ListSizes,
    pipeline::{self, Charge, Judgement, List, Tables},
    units::{Instant, PolicyId},
    verdict::{Action, Reason},
};

use crate::{bucket, clock, counters, frame::XdpFrame, gate, maps::POLICY_SETS};

/// Judges one frame and counts it.
#[inline(always)]
pub(crate) fn judge(frame: &XdpFrame<'_>) -> Judgement {
    let judgement = match POLICY_SETS.get_value(0, &0) {
        Some(set) => pipeline::judge(
            frame,
            set,
            &KernelTables {
                set,
                sizes: gate::list_sizes(),
            },
        ),
        // The loader publishes a set before it attaches, so that this is a fault of the controller;
        // to pass the packet would be to fail open.
        None => Judgement {
            reason: Reason::NoConfiguration,
            policy: None,
            action: Action::Drop,
        },
    };
    counters::record(&judgement, frame.length());
    judgement
}

/// The kernel's maps, as the pipeline asks for them.
struct KernelTables<'a> {
    set: &'a PolicySet,
    sizes: Option<&'a ListSizes>,
}

impl Tables for KernelTables<'_> {
    #[inline(always)]
    fn now(&self) -> Instant {
        clock::now()
    }

    #[inline(always)]
    fn is_listed(&self, list: List, source: &Address) -> bool {
        self.sizes
            .is_some_and(|sizes| gate::is_listed(sizes, list, source))
    }

    #[inline(always)]
    fn in_flight(&self, policy: PolicyId) -> u32 {
        gate::in_flight(policy)
    }

    #[inline(always)]
    fn charge(&self, key: &Key, policy: &PolicyRecord, now: Instant, cost: u32) -> Charge {
        bucket::charge(key, policy, self.set, now, cost)
    }
}
