//! What we tell, kept on the CPU that saw the packet.

use limit_common::{
    counters::{Counter, Effect, ROW_VALUES, row},
    layout::{CounterRow, Handover},
    pipeline::Judgement,
    units::PolicyId,
    verdict::Reason,
};

use crate::{
    answer::reset::Sent,
    frame::forget,
    maps::{COUNTERS, HANDOVERS},
};

/// Counts one judged packet of `length` bytes.
#[inline(always)]
pub(crate) fn record(judgement: &Judgement, length: u32) {
    if let Some(values) = values(row(None)) {
        add(values, Counter::Packets.index(), 1);
        add(values, Counter::Bytes.index(), u64::from(length));
    }
    if let Some(values) = values(row(judgement.policy)) {
        add(
            values,
            forget(Counter::Reason(judgement.reason).index(), length),
            1,
        );
        if let Some(effect) = judgement.effect() {
            add(values, forget(Counter::Effect(effect).index(), length), 1);
        }
    }
}

/// Counts what happened on the way to a verdict of `policy`.
#[inline(always)]
pub(crate) fn record_effect(policy: PolicyId, effect: Effect) {
    add_one(row(Some(policy)), Counter::Effect(effect));
}

/// Packets of `policy` that this CPU refused for their rate.
#[inline(always)]
pub(crate) fn limited_here(policy: PolicyId) -> u64 {
    let Some(values) = COUNTERS.get(u32::from(policy.entry())) else {
        return 0;
    };
    values
        .values
        .get(Counter::Reason(Reason::Rate).index())
        .copied()
        .unwrap_or(0)
}

/// Leaves the row of `policy` for the program that is tail-called next.
#[inline(always)]
pub(crate) fn hand_over(policy: Option<PolicyId>) {
    let Some(handover) = HANDOVERS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: a pointer that the map look-up returned, to this CPU's copy; u64-aligned, `Copy`.
    unsafe {
        *handover = Handover {
            row: policy.map_or(0, |policy| u32::from(policy.entry())),
            reserved: 0,
        }
    };
}

/// Counts a refusal of `policy` that no answer could be sent for.
#[inline(always)]
pub(crate) fn count_undelivered(policy: Option<PolicyId>) {
    add_one(row(policy), Counter::Effect(Effect::Dropped));
}

/// Counts what became of the reset whose row was handed over.
#[inline(always)]
pub(crate) fn count_reset(sent: Sent) {
    let Some(handover) = HANDOVERS.get(0) else {
        return;
    };
    let effect = match sent {
        Sent::Reset => Effect::Reset,
        Sent::Nothing => Effect::Dropped,
    };
    add_one(handover.row as usize, Counter::Effect(effect));
}

#[inline(always)]
fn add_one(row: usize, counter: Counter) {
    if let Some(values) = values(row) {
        add(values, counter.index(), 1);
    }
}

/// This CPU's copy of a row.
#[inline(always)]
fn values(row: usize) -> Option<*mut CounterRow> {
    COUNTERS.get_ptr_mut(u32::try_from(row).ok()?)
}

/// Adds to the value at `index`, which is masked: without `CAP_PERFMON` the verifier refuses an index
/// that is bounded in one way on one path and in another on the next.
#[inline(always)]
fn add(row: *mut CounterRow, index: usize, amount: u64) {
    // SAFETY: a pointer that the map look-up returned, to this CPU's copy; no other reference to it
    // lives, and no other program runs on this CPU until this one ends.
    let values = unsafe { &mut (*row).values };
    if let Some(value) = values.get_mut(index & (ROW_VALUES - 1)) {
        *value = value.wrapping_add(amount);
    }
}
