//! Who gets a bucket when there are more sources than places: nobody is unlimited, and a bucket that
//! owes tokens is never forgotten.

use std::net::Ipv4Addr;

use limit_common::{
    counters::{Counter, Effect},
    verdict::Reason,
};
use limit_user::kernel::object::Variant;

use crate::{
    frames::{Frame, transport::udp},
    loaded::{FIRST, Kernel, Xdp, at_ms, compiled},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn ten_times_its_capacity_of_sources_over_days_never_overflow() {
    let mut kernel = filter();
    for day in 0..10 {
        kernel.at(at_ms(day * DAY_MS));
        for number in 0..u64::from(PLACES) {
            let source = day * u64::from(PLACES) + number;
            // A newcomer has its whole capacity and not a token more, whoever had its place before.
            let packets = if number % 64 == 0 { 2 * CAPACITY } else { 1 };
            assert_eq!(
                admitted(&mut kernel, source, packets),
                packets.min(CAPACITY)
            );
        }
        assert_eq!(
            kernel.loaded.tables.usage().unwrap().used,
            u64::from(PLACES)
        );
    }
    assert_eq!(times(&kernel, Effect::Overflow), 0);
    assert_eq!(times(&kernel, Effect::Reclaimed), 9 * u64::from(PLACES));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_drained_source_is_not_forgotten_for_four_thousand_others() {
    const OTHERS: u64 = 4_096;
    let mut kernel = filter();
    let drained = 0;
    assert_eq!(admitted(&mut kernel, drained, 10), CAPACITY);
    for hour in 0..3 {
        for other in 0..OTHERS {
            // Each hour others: their buckets lack one token and are full again an hour later.
            admitted(&mut kernel, 1 + hour * OTHERS + other, 1);
        }
        assert_eq!(admitted(&mut kernel, drained, 10), 0, "hour {hour}");
        kernel.at(at_ms((hour + 1) * HOUR_MS));
        assert_eq!(admitted(&mut kernel, drained, 10), 1, "hour {}", hour + 1);
    }
    assert!(times(&kernel, Effect::Reclaimed) > u64::from(PLACES));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn newcomers_without_room_share_one_bucket() {
    let mut kernel = filter();
    for source in 0..u64::from(PLACES) {
        assert_eq!(admitted(&mut kernel, source, 1), 1);
    }
    assert_eq!(times(&kernel, Effect::Overflow), 0);
    let newcomers = |kernel: &mut Kernel| -> u32 {
        (0..2_000)
            .map(|number| admitted(kernel, 100_000 + number, 1))
            .sum()
    };
    assert_eq!(newcomers(&mut kernel), CAPACITY);
    assert_eq!(times(&kernel, Effect::Overflow), 2_000);
    let rate = Counter::Reason(Reason::Rate);
    assert_eq!(kernel.count(Some(FIRST), rate), 2_000 - u64::from(CAPACITY));
    assert_eq!(kernel.overflow_level(FIRST).unwrap().tokens, 0);

    // Whoever has a bucket goes on as before.
    assert_eq!(admitted(&mut kernel, 7, 10), CAPACITY - 1);
    assert_eq!(times(&kernel, Effect::Overflow), 2_000);
    assert_eq!(
        kernel.loaded.tables.usage().unwrap().used,
        u64::from(PLACES)
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_newcomer_in_the_overflow_gets_a_bucket_once_there_is_room() {
    let mut kernel = filter();
    for source in 0..u64::from(PLACES) {
        admitted(&mut kernel, source, 1);
    }
    let newcomer = 100_000;
    assert_eq!(admitted(&mut kernel, newcomer, 2 * CAPACITY), CAPACITY);
    let before = times(&kernel, Effect::Overflow);
    assert_eq!(before, u64::from(2 * CAPACITY));
    kernel.at(at_ms(HOUR_MS));
    assert_eq!(admitted(&mut kernel, newcomer, 2 * CAPACITY), CAPACITY);
    assert_eq!(times(&kernel, Effect::Overflow), before);
    assert_eq!(times(&kernel, Effect::Reclaimed), 1);
}

/// Judges so many packets of the source one by one and says how many passed.
fn admitted(kernel: &mut Kernel, source: u64, packets: u32) -> u32 {
    let [.., a, b, c] = source.to_be_bytes();
    let frame = Frame::ipv4(udp(53))
        .sent_by(Ipv4Addr::new(10, a, b, c))
        .bytes();
    let passed = (0..packets).filter(|_| {
        let run = kernel.loaded.run(&frame, 1).unwrap();
        Xdp::from(run.action) == Xdp::Pass
    });
    passed.count() as u32
}

fn times(kernel: &Kernel, effect: Effect) -> u64 {
    kernel.count(Some(FIRST), Counter::Effect(effect))
}

fn filter() -> Kernel {
    Kernel::new(Variant::Plain, PLACES, &compiled(POLICY))
}

const POLICY: &str = "policy = [{ name = 'all', protocol = 'any', capacity = 4, refill = 1, \
                      interval = '1h' }]";
const CAPACITY: u32 = 4;
const PLACES: u32 = 1_024;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
