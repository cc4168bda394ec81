//! What we tell, kept on the CPU that saw the packet.

use limit_common::{
    counters::{Counter, Effect, ROW_VALUES, row},
    layout::Handover,
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
    let none = row(None);
    add(none, Counter::Packets, 1);
    add(none, Counter::Bytes, u64::from(length));
    let row = row(judgement.policy);
    add_at(
        row,
        forget(Counter::Reason(judgement.reason).index(), length),
        1,
    );
    if let Some(effect) = judgement.effect() {
        add_at(row, forget(Counter::Effect(effect).index(), length), 1);
    }
}

/// Counts what happened on the way to a verdict of `policy`.
#[inline(always)]
pub(crate) fn record_effect(policy: PolicyId, effect: Effect) {
    add(row(Some(policy)), Counter::Effect(effect), 1);
}

/// Packets of `policy` that this CPU refused for their rate.
#[inline(always)]
pub(crate) fn limited_here(policy: PolicyId) -> u64 {
    let Some(values) = COUNTERS.get(row(Some(policy)) as u32) else {
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
            row: row(policy) as u32,
            reserved: 0,
        }
    };
}

/// Counts a refusal of `policy` that no answer could be sent for.
#[inline(always)]
pub(crate) fn count_undelivered(policy: Option<PolicyId>) {
    add(row(policy), Counter::Effect(Effect::Dropped), 1);
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
    add(handover.row as usize, Counter::Effect(effect), 1);
}

#[inline(always)]
fn add(row: usize, counter: Counter, amount: u64) {
    add_at(row, counter.index(), amount);
}

/// Adds to the value at `index`, which is masked: without CAP_PERFMON the verifier refuses an index
/// that is bounded in one way on one path and in another on the next.
#[inline(always)]
fn add_at(row: usize, index: usize, amount: u64) {
    let Ok(row) = u32::try_from(row) else { return };
    let Some(values) = COUNTERS.get_ptr_mut(row) else {
        return;
    };
    // SAFETY: a pointer that the map look-up returned, to this CPU's copy; no other reference to it
    // lives, and no other program runs on this CPU until this one ends.
    let values = unsafe { &mut (*values).values };
    if let Some(value) = values.get_mut(index & (ROW_VALUES - 1)) {
        *value = value.wrapping_add(amount);
    }
}
