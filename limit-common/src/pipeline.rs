//! The flow as one function: frame -> packet -> key -> gate -> bucket -> verdict.
//!
//! [`judge`] decides; it reads the world through [`Frame`] and [`Tables`] and writes nothing itself
//! but the bucket it charges. The XDP program and every user-space voice call it, so they agree by
//! construction; what differs between them is only how a table is looked up.

use crate::{
    bucket::Outcome,
    config::{OnLimit, PolicyRecord, PolicySet, Unit},
    counters::Effect,
    frame::Frame,
    gate::has_room,
    key::{Address, Key},
    layout::MAX_FRAME_BYTES,
    packet::{Packet, Payload},
    units::{Instant, PolicyId},
    verdict::{Action, Reason, Verdict},
};

/// What a verdict is looked up in, besides the policy set.
pub trait Tables {
    /// The filter's clock.
    fn now(&self) -> Instant;

    /// Whether `source` is on `list`; an empty list costs no look-up.
    fn is_listed(&self, list: List, source: &Address) -> bool;

    /// Permits of `policy` that are out.
    fn in_flight(&self, policy: PolicyId) -> u32;

    /// Charges `cost` to the bucket of `key`, which is made full if there is none.
    fn charge(&self, key: &Key, policy: &PolicyRecord, now: Instant, cost: u32) -> Charge;
}

/// The lists that are judged before any policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Sources that bypass the filter.
    Allow,
    /// Sources that are blocked.
    Deny,
}

/// What came of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// The bucket decided.
    Decided(Outcome),
    /// Other CPUs changed the bucket at every attempt.
    Contended,
}

/// What was decided about a frame, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Why; the verdict is [`Reason::verdict`].
    pub reason: Reason,
    /// The policy that the packet met, if any.
    pub policy: Option<PolicyId>,
    /// What becomes of the packet.
    pub action: Action,
}

impl Judgement {
    /// The effect to count, or `None` where nothing was refused.
    ///
    /// A reset or an answer is counted by whoever sends it, since sending may fail.
    #[must_use]
    #[inline(always)]
    pub const fn effect(&self) -> Option<Effect> {
        match (self.reason.verdict(), self.action) {
            (Verdict::Limit | Verdict::Shed | Verdict::Block, Action::Pass) => {
                Some(Effect::Monitored)
            }
            (Verdict::Limit | Verdict::Shed | Verdict::Block, Action::Drop) => {
                Some(Effect::Dropped)
            }
            (Verdict::Undecidable, Action::Drop) => Some(Effect::UndecidableDropped),
            (Verdict::Undecidable, Action::Pass)
            | (Verdict::Admit | Verdict::Bypass | Verdict::Malformed, _)
            | (_, Action::Reset | Action::Answer) => None,
        }
    }
}

/// Judges one frame under `set`.
#[inline(always)]
pub fn judge<F, T>(frame: &F, set: &PolicySet, tables: &T) -> Judgement
where
    F: Frame + ?Sized,
    T: Tables,
{
    let packet = match Packet::parse(frame) {
        Ok(packet) => packet,
        Err(error) => return without_policy(error.reason(), set),
    };
    if matches!(packet.payload, Payload::Control) {
        return without_policy(Reason::Control, set);
    }
    if tables.is_listed(List::Allow, &packet.source) {
        return without_policy(Reason::Allowed, set);
    }
    if tables.is_listed(List::Deny, &packet.source) {
        return without_policy(Reason::Denied, set);
    }
    let number = match packet.payload {
        Payload::Unknown(reason) => return without_policy(reason, set),
        Payload::Tcp { port, .. } => named(&set.tcp_ports, port),
        Payload::Udp { port } => named(&set.udp_ports, port),
        Payload::Icmp => set.icmp,
        Payload::Other | Payload::Control => set.other,
        Payload::LaterFragment => PolicyId::FRAGMENTS.entry(),
    };
    let Some((id, policy)) = met(frame, set, number) else {
        return without_policy(Reason::NoPolicy, set);
    };
    let cost = match Unit::from_number(policy.unit) {
        Some(Unit::Connection) => {
            if !matches!(packet.payload, Payload::Tcp { opens: true, .. }) {
                return Judgement {
                    reason: Reason::OpensNothing,
                    policy: Some(id),
                    action: Action::Pass,
                };
            }
            1
        }
        Some(Unit::Byte) => frame.length().min(MAX_FRAME_BYTES),
        Some(Unit::Packet) | None => 1,
    };
    let reason = gate_then_bucket(&packet.source, id, policy, cost, tables);
    Judgement {
        reason,
        policy: Some(id),
        action: under_policy(reason, policy),
    }
}

/// Gate first, then bucket: a shed packet costs no token.
#[inline(always)]
fn gate_then_bucket<T: Tables>(
    source: &Address,
    id: PolicyId,
    policy: &PolicyRecord,
    cost: u32,
    tables: &T,
) -> Reason {
    if policy.max_in_flight != 0 && !has_room(tables.in_flight(id), policy.max_in_flight) {
        return Reason::InFlight;
    }
    let key = Key::from_source(source, id, policy.ipv4_prefix, policy.ipv6_prefix);
    match tables.charge(&key, policy, tables.now(), cost) {
        Charge::Decided(Outcome::Admit { .. }) => Reason::Paid,
        Charge::Decided(Outcome::Limit { .. }) => Reason::Rate,
        Charge::Decided(Outcome::CostExceedsCapacity { .. }) => Reason::CostExceedsCapacity,
        Charge::Contended => Reason::Contended,
    }
}

/// The action on a packet that a policy judged.
#[inline(always)]
const fn under_policy(reason: Reason, policy: &PolicyRecord) -> Action {
    match reason.verdict() {
        Verdict::Admit | Verdict::Bypass | Verdict::Malformed => Action::Pass,
        Verdict::Block | Verdict::Undecidable => Action::Drop,
        Verdict::Limit | Verdict::Shed => {
            if policy.monitor != 0 {
                return Action::Pass;
            }
            match OnLimit::from_number(policy.on_limit) {
                Some(OnLimit::Answer) => Action::Answer,
                Some(OnLimit::Reset) => Action::Reset,
                Some(OnLimit::Drop) | None => Action::Drop,
            }
        }
    }
}

/// The judgement on a packet that no policy judged.
#[inline(always)]
const fn without_policy(reason: Reason, set: &PolicySet) -> Judgement {
    let action = match reason.verdict() {
        Verdict::Block | Verdict::Limit | Verdict::Shed => Action::Drop,
        Verdict::Undecidable if set.drop_undecidable != 0 => Action::Drop,
        Verdict::Undecidable | Verdict::Admit | Verdict::Bypass | Verdict::Malformed => {
            Action::Pass
        }
    };
    Judgement {
        reason,
        policy: None,
        action,
    }
}

/// The entry of `port`: a policy's number plus one, or 0.
#[inline(always)]
fn named(ports: &[u8], port: u16) -> u8 {
    ports.get(usize::from(port)).copied().unwrap_or(0)
}

/// The policy whose number plus one is `number`, if that row is in use.
///
/// One comparison rules out 0, which wraps, and every row past the last; it stands on the very value
/// that indexes, where the verifier of the kernel can see it.
#[inline(always)]
fn met<'a, F: Frame + ?Sized>(
    frame: &F,
    set: &'a PolicySet,
    number: u8,
) -> Option<(PolicyId, &'a PolicyRecord)> {
    let row = frame.forget(usize::from(number)).wrapping_sub(1);
    let record = set.policies.get(row)?;
    if record.current.generation == 0 {
        return None;
    }
    Some((PolicyId::from_entry(number)?, record))
}
