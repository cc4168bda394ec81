//! What becomes of a frame: one table, judged by the pure pipeline over its bytes and by the loaded
//! programs through `BPF_PROG_TEST_RUN`, which must agree on verdict, key and counters.

use std::collections::BTreeSet;

use limit_common::{
    counters::{Counter, Effect, row},
    key::Key,
    layout::BucketSlot,
    packet::Payload,
    units::PolicyId,
    verdict::Reason,
};
use limit_user::kernel::{
    List,
    object::{self, Variant},
};

use crate::{
    agreement::Agreement,
    frames::{
        Extension, Frame,
        transport::{SYN, tcp},
    },
    loaded::{FIRST, Kernel, Observed, Xdp, at_ms, compiled, key, options, ordered, shared},
    table,
};

mod cases;
mod rows;

use rows::rows;

/// One frame, and what becomes of it.
struct Row {
    description: &'static str,
    frame: Frame,
    config: String,
    allowed: &'static [&'static str],
    denied: &'static [&'static str],
    /// Permits out under the first policy.
    in_flight: u64,
    /// How often the same frame came before.
    already: u32,
    /// A capacity that no configuration gives: one below the largest frame.
    capacity: Option<u32>,
    /// An entry of port 80 that no configuration makes.
    entry: Option<u8>,
    expected: Expected,
}

/// What becomes of a frame.
struct Expected {
    reason: Reason,
    policy: Option<PolicyId>,
    action: Xdp,
    effect: Option<Effect>,
    /// The one bucket there is, and its tokens.
    bucket: Option<(Key, u32)>,
}

#[test]
#[ignore = "needs CAP_BPF"]
fn decides_every_row_as_expected_and_alike() {
    for row in rows() {
        let mut filter = row.prepared();
        let bytes = row.frame.bytes();
        assert_eq!(filter.judge(&bytes), row.observed(), "{}", row.description);
        let tokens: Vec<_> = filter
            .levels()
            .into_iter()
            .map(|(key, level)| (key, level.unwrap().tokens))
            .collect();
        let bucket = row.expected.bucket.iter();
        let expected: Vec<_> = bucket
            .map(|(key, tokens)| (ordered(key), *tokens))
            .collect();
        assert_eq!(tokens, expected, "{}", row.description);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn decides_every_kind_of_frame_as_its_headers_ask() {
    let mut filter = Agreement::on(STANDARD);
    for (number, row) in (0..).zip(table::table()) {
        // Far enough apart for every bucket to be full again.
        filter.at(at_ms(number * 10_000));
        let observed = filter.judge(&row.frame.bytes());
        let expected = match row.expected {
            Err(error) => error.reason(),
            Ok(packet) => match packet.payload {
                Payload::Tcp { opens: false, .. } => Reason::OpensNothing,
                Payload::Tcp { .. }
                | Payload::Udp { .. }
                | Payload::Icmp
                | Payload::Other
                | Payload::LaterFragment => Reason::Paid,
                Payload::Control => Reason::Control,
                Payload::Unknown(reason) => reason,
            },
        };
        assert_eq!(observed.reason(), expected, "{}", row.description);
    }
    filter.levels();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn agrees_on_every_truncation_of_every_row() {
    for row in rows() {
        let mut filter = row.prepared();
        truncate(&mut filter, &row.frame);
        filter.levels();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn agrees_on_every_truncation_of_every_kind_of_frame() {
    let mut filter = Agreement::on(STANDARD);
    for row in table::table() {
        truncate(&mut filter, &row.frame);
    }
    filter.levels();
}

#[test]
#[ignore = "needs CAP_BPF"]
fn has_a_row_for_every_reason() {
    let met: BTreeSet<usize> = rows()
        .iter()
        .map(|row| row.expected.reason as usize)
        .collect();
    let elsewhere = [
        Reason::Contended,
        Reason::Unreadable,
        Reason::NoConfiguration,
    ];
    let missing: Vec<Reason> = Reason::ALL
        .into_iter()
        .filter(|reason| !met.contains(&(*reason as usize)))
        .collect();
    assert_eq!(missing, elsewhere);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn drops_what_comes_before_the_first_set() {
    for variant in [Variant::Plain, Variant::Frags] {
        let mut kernel = Kernel::over(object::load(&options(variant)).unwrap());
        let observed = kernel.judge(&Frame::ipv4(tcp(80, SYN)).bytes());
        assert_eq!(observed.action, Xdp::Drop);
        assert_eq!(observed.reason(), Reason::NoConfiguration);
        assert_eq!(
            observed.times(Counter::Effect(Effect::UndecidableDropped)),
            1
        );
        kernel.assert_nothing_else_rose();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn drops_a_syn_behind_headers_that_lie_outside_the_first_buffer() {
    let long = Extension::Destination(vec![1; 2046]);
    let frame = Frame::ipv6(tcp(80, SYN)).extended(vec![long.clone(), long]);
    let mut kernel = shared(Variant::Frags, &compiled(STANDARD));
    let observed = kernel.judge(&frame.bytes());
    assert_eq!(observed.action, Xdp::Drop);
    assert_eq!(observed.reason(), Reason::Unreadable);
    assert_eq!(observed.times(Counter::Bytes), frame.bytes().len() as u64);
    assert!(kernel.levels().is_empty());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn charges_the_bytes_of_every_buffer() {
    let frame = Frame::ipv4(tcp(80, SYN)).padded(8_946);
    let mut kernel = shared(Variant::Frags, &compiled(BYTES));
    for left in [91_000, 82_000] {
        assert_eq!(kernel.judge(&frame.bytes()).reason(), Reason::Paid);
        let level = kernel.level(&key(V4.into(), FIRST)).unwrap();
        assert_eq!(level.tokens, left);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_as_contended_what_has_a_slot_that_is_not_its_own_to_change() {
    let syn = Frame::ipv4(tcp(80, SYN));
    let with_intervals = |slot: BucketSlot, intervals: u64| BucketSlot {
        state: (slot.state & !(0xff << 32)) | (intervals << 32),
        ..slot
    };
    for variant in [Variant::Plain, Variant::Frags] {
        let mut kernel = shared(variant, &compiled(STANDARD));
        let stranger = key([198, 51, 100, 8].into(), FIRST);
        let key = key(V4.into(), FIRST);
        kernel.judge(&syn.clone().sent_by([198, 51, 100, 8]).bytes());
        kernel.judge(&syn.bytes());
        let tables = &kernel.loaded.tables;
        let slot = tables.bucket(&key).unwrap().unwrap();
        let stranger = tables.bucket(&stranger).unwrap().unwrap();
        let torn = BucketSlot {
            state: slot.state ^ 1 << 40,
            ..slot
        };
        for (description, slot) in [
            ("another CPU is changing it", with_intervals(slot, 254)),
            ("it is dead", with_intervals(slot, 255)),
            ("its words are of two sequences", torn),
            ("it passed to another source", stranger),
        ] {
            kernel.loaded.tables.set_bucket(&key, &slot).unwrap();
            let observed = kernel.judge(&syn.bytes());
            assert_eq!(observed.reason(), Reason::Contended, "{description}");
            assert_eq!(observed.action, Xdp::Drop, "{description}");
            assert_eq!(observed.times(Counter::Effect(Effect::Dropped)), 1);
            let after = kernel.loaded.tables.bucket(&key).unwrap();
            assert_eq!(after, Some(slot), "{description}");
        }
    }
}

impl Row {
    /// A filter in the row's situation.
    fn prepared(&self) -> Agreement {
        let mut set = compiled(&self.config);
        if let Some(capacity) = self.capacity {
            set.policies[FIRST.index()].current.capacity = capacity;
        }
        if let Some(entry) = self.entry {
            set.tcp_ports[80] = entry;
        }
        let mut filter = Agreement::with(set);
        for (list, prefixes) in [(List::Allow, self.allowed), (List::Deny, self.denied)] {
            for prefix in prefixes {
                filter.list(list, prefix.parse().unwrap());
            }
        }
        if self.in_flight != 0 {
            filter.set_in_flight(FIRST, self.in_flight);
        }
        let bytes = self.frame.bytes();
        for _ in 0..self.already {
            filter.judge(&bytes);
        }
        filter
    }

    /// The action and every counter that rises, and no other.
    fn observed(&self) -> Observed {
        let Expected {
            reason,
            policy,
            action,
            effect,
            ..
        } = self.expected;
        let bytes = self.frame.bytes().len() as u64;
        let mut rose = vec![
            (row(None), Counter::Packets, 1),
            (row(None), Counter::Bytes, bytes),
            (row(policy), Counter::Reason(reason), 1),
        ];
        rose.extend(effect.map(|effect| (row(policy), Counter::Effect(effect), 1)));
        Observed { action, rose }
    }
}

/// Judges the frame at every length, with refills in between so that some are paid and some refused.
fn truncate(filter: &mut Agreement, frame: &Frame) {
    let bytes = frame.bytes();
    for length in 0..=bytes.len() {
        filter.at(at_ms(300 * length as u64));
        filter.judge(&bytes[..length]);
    }
}

/// SYNs to port 80 by connection, everything else by packet.
const STANDARD: &str = "policy = [
    { name = 'web', ports = '80', capacity = 4, refill = 1, interval = '1s', on_limit = 'drop' },
    { name = 'rest', protocol = 'any', capacity = 4, refill = 1, interval = '1s' },
]";

/// Bytes to port 80.
const BYTES: &str = "policy = [{ name = 'bytes', ports = '80', unit = 'byte', capacity = 100000, \
                     refill = 1, interval = '1s' }]";

const V4: [u8; 4] = crate::frames::SOURCE_V4;
