//! Two CPUs at once, each pinned to its own: nothing is admitted twice, minted or mixed up.
//!
//! The clock is injected, so refills fall where the tests put them; the two CPUs meet in the middle of
//! each other's programs.

use std::{
    hint,
    net::Ipv4Addr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant as Deadline},
};

use limit_common::{
    bucket::step::Level,
    counters::{Counter, Effect, row},
    layout::MIN_MAX_SOURCES,
    units::Instant,
    verdict::Reason,
};
use limit_user::kernel::{Counters, object::Variant};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::{
    conformance::Random,
    frames::{Frame, transport::udp},
    loaded::{FIRST, Kernel, Xdp, at_ms, compiled, compiled_after, key, shared},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn admits_exactly_the_capacity_of_a_new_source_on_two_cpus() {
    for (variant, capacity) in [
        (Variant::Plain, 1_000),
        (Variant::Frags, 1_000),
        (Variant::Plain, 50_000),
    ] {
        let mut kernel = shared(variant, &compiled(&policy(capacity, 1, "1h")));
        for host in 0..8 {
            let frame = from(host).bytes();
            let before = paid(&kernel.loaded.counters);
            let programs = &kernel.loaded.programs;
            on_two_cpus(|_| assert!(programs.run(&frame, 100_000).is_ok()));
            let admitted = paid(&kernel.loaded.counters) - before;
            assert_eq!(admitted, u64::from(capacity), "source {host}");
            let level = kernel.level(&key(address(host).into(), FIRST)).unwrap();
            assert_eq!(level.tokens, 0);
        }
        let observed = kernel.judge(&from(200).bytes());
        assert_eq!(observed.times(Counter::Packets), 8 * 200_000 + 1);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn no_decision_mixes_two_sets_that_a_writer_flips() {
    // Slow but large, fast but small. Each mix of the two would admit more or less: the large capacity
    // with the fast interval, 50 in 50 ms; the small one with the slow interval, none.
    let (slow, fast) = (policy(1_000, 1_000, "1000s"), policy(1, 1, "1ms"));
    let mut set = compiled(&slow);
    let mut shared = shared(Variant::Plain, &set);
    let kernel = &mut *shared;
    let programs = &kernel.loaded.programs;
    let is_over = AtomicBool::new(false);
    let frame = from(1).bytes();
    let before = paid(&kernel.loaded.counters);
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        for cpu in 0..2 {
            let (is_over, frame) = (&is_over, &frame);
            scope.spawn(move || {
                pin_to(cpu);
                while !is_over.load(Ordering::Acquire) {
                    assert!(programs.run(frame, 200).is_ok());
                }
            });
        }
        let mut expected = before + 1_000;
        wait_for(&kernel.loaded.counters, expected);
        let mut ms = 0;
        for _ in 0..FLIPS {
            for (text, ticks, gained) in [(&fast, 4, 1), (&slow, 4, 0)] {
                set = compiled_after(&set, text, at_ms(ms));
                kernel.loaded.tables.publish(&set).unwrap();
                for _ in 0..ticks {
                    ms += 50;
                    kernel.loaded.clock.set(at_ms(ms)).unwrap();
                    expected += gained;
                    wait_for(&kernel.loaded.counters, expected);
                }
            }
        }
    });
    let expected = before + 1_000 + 4 * FLIPS;
    assert_eq!(paid(&kernel.loaded.counters), expected);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_tiny_table_full_of_strangers_admits_no_source_beyond_its_limit() {
    let sources = 4_096;
    let (capacity, refill) = (4, 1);
    let set = compiled(&policy(capacity, refill, "1s"));
    let mut kernel = Kernel::new(Variant::Plain, MIN_MAX_SOURCES, &set);
    let frames: Vec<Vec<u8>> = (0..sources).map(|source| from(source).bytes()).collect();
    let admitted: Vec<AtomicU32> = (0..sources).map(|_| AtomicU32::new(0)).collect();
    let programs = &kernel.loaded.programs;
    let clock = Mutex::new(&mut kernel.loaded.clock);
    on_two_cpus(|cpu| {
        let mut random = Random(cpu as u64);
        for number in 0..PACKETS {
            let among = if number % 2 == 0 { HOT } else { sources };
            let source = random.below(among.into()) as usize;
            let run = programs.run(&frames[source], 1).unwrap();
            if Xdp::from(run.action) == Xdp::Pass {
                admitted[source].fetch_add(1, Ordering::Relaxed);
            }
            if cpu == 0 && number % PACKETS_A_SECOND == PACKETS_A_SECOND - 1 {
                let second = u64::from((number + 1) / PACKETS_A_SECOND);
                clock.lock().unwrap().set(at_ms(1_000 * second)).unwrap();
            }
        }
    });
    let admitted: Vec<u32> = admitted.into_iter().map(AtomicU32::into_inner).collect();
    let seconds = PACKETS / PACKETS_A_SECOND;
    let bound = capacity + seconds * refill;
    let beyond: u32 = admitted
        .iter()
        .map(|admitted| admitted.saturating_sub(bound))
        .sum();
    // What a source has beyond its own bucket it had from the one overflow bucket.
    assert!(beyond <= bound, "{beyond} packets beyond the limits");
    let paid = kernel.count(Some(FIRST), Counter::Reason(Reason::Paid));
    assert_eq!(paid, u64::from(admitted.iter().sum::<u32>()));
    for effect in [Effect::Reclaimed, Effect::Overflow] {
        let times = kernel.count(Some(FIRST), Counter::Effect(effect));
        assert!(times > 500, "{effect:?} only {times} times");
    }
    let end = at_ms(1_000 * u64::from(seconds + capacity));
    assert_no_place_is_lost(&mut kernel, MIN_MAX_SOURCES, end);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_source_that_two_cpus_bring_at_once_gets_one_bucket() {
    // So many that the hand does not come round: it skips a place when both want one at once.
    const PLACES: u32 = 16_384;
    const NEW: usize = 4_000;
    let set = compiled(&policy(1, 1, "1h"));
    let mut kernel = Kernel::new(Variant::Plain, PLACES, &set);
    let frames: Vec<Vec<u8>> = (0..NEW).map(|source| from(source as u16).bytes()).collect();
    let programs = &kernel.loaded.programs;
    let arrived = AtomicUsize::new(0);
    on_two_cpus(|_| {
        for (number, frame) in frames.iter().enumerate() {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 * (number + 1) {
                hint::spin_loop();
            }
            programs.run(frame, 1).unwrap();
        }
    });
    assert_eq!(paid(&kernel.loaded.counters), NEW as u64);
    assert_eq!(kernel.loaded.tables.usage().unwrap().used, NEW as u64);
    assert_no_place_is_lost(&mut kernel, PLACES, at_ms(3_600_000));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_bucket_that_is_charged_while_its_place_is_wanted_pays_every_token_once() {
    const ROUNDS: u64 = 1_000;
    let capacity = 4;
    let set = compiled(&policy(capacity, 1, "1s"));
    let mut kernel = Kernel::new(Variant::Plain, MIN_MAX_SOURCES, &set);
    let places = MIN_MAX_SOURCES as u16;
    for round in 0..ROUNDS {
        // All buckets are full again. One CPU charges them, the other wants their places; both go
        // round the table in the same order.
        kernel.at(at_ms(1_000 * u64::from(capacity) * round));
        let before = paid(&kernel.loaded.counters);
        let programs = &kernel.loaded.programs;
        on_two_cpus(|cpu| {
            let first = (round + cpu as u64) as u16 % 64 * places;
            for source in first..first + places {
                let frame = from(source).bytes();
                for _ in 0..=capacity {
                    programs.run(&frame, 1).unwrap();
                }
            }
        });
        // What was admitted is what is missing: no bucket gave a token to two packets, and none was
        // thrown away with a token missing.
        let missing = |level: Option<Level>| u64::from(capacity - level.unwrap().tokens);
        let buckets = kernel.levels().into_values().map(missing).sum::<u64>();
        let missing = buckets + missing(kernel.overflow_level(FIRST));
        let admitted = paid(&kernel.loaded.counters) - before;
        assert_eq!(admitted, missing, "in round {round}");
    }
    for effect in [Effect::Reclaimed, Effect::Overflow] {
        let times = kernel.count(Some(FIRST), Counter::Effect(effect));
        assert!(times > ROUNDS, "{effect:?} only {times} times");
    }
    let end = at_ms(1_000 * u64::from(capacity) * ROUNDS);
    assert_no_place_is_lost(&mut kernel, MIN_MAX_SOURCES, end);
}

/// Once every bucket is full, as many newcomers as there are places find one each.
fn assert_no_place_is_lost(kernel: &mut Kernel, places: u32, when_all_are_full: Instant) {
    kernel.at(when_all_are_full);
    let overflow = Counter::Effect(Effect::Overflow);
    let before = kernel.count(Some(FIRST), overflow);
    for number in 0..places as u16 {
        kernel.judge(&from(NEWCOMERS + number).bytes());
    }
    assert_eq!(kernel.count(Some(FIRST), overflow), before);
    let usage = kernel.loaded.tables.usage().unwrap();
    assert_eq!(usage.used, u64::from(places));
    let levels = kernel.levels();
    let mut sources = levels
        .keys()
        .map(|(_, _, prefix)| u16::from_be_bytes([prefix[2], prefix[3]]));
    let all_new = sources.all(|source| source >= NEWCOMERS);
    assert!(all_new, "a bucket of an earlier source was left");
}

/// Runs `work` on two CPUs, from the same moment on.
fn on_two_cpus(work: impl Fn(usize) + Sync) {
    let ready = AtomicU32::new(0);
    thread::scope(|scope| {
        for cpu in 0..2 {
            let (ready, work) = (&ready, &work);
            scope.spawn(move || {
                pin_to(cpu);
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    hint::spin_loop();
                }
                work(cpu);
            });
        }
    });
}

/// Pins the calling thread to the first or the second CPU that this process may use.
fn pin_to(number: usize) {
    let this_thread = Pid::from_raw(0);
    let usable = sched_getaffinity(this_thread).unwrap();
    let mut usable = (0..CpuSet::count()).filter(|cpu| usable.is_set(*cpu).unwrap());
    let cpu = usable.nth(number).expect("these tests need two CPUs");
    let mut one = CpuSet::new();
    one.set(cpu).unwrap();
    sched_setaffinity(this_thread, &one).unwrap();
}

/// Waits until so many packets were admitted, and fails if one more was.
fn wait_for(counters: &Counters, expected: u64) {
    let start = Deadline::now();
    loop {
        let admitted = paid(counters);
        assert!(admitted <= expected, "{admitted} admitted, not {expected}");
        if admitted == expected {
            return;
        }
        let elapsed = start.elapsed();
        assert!(elapsed < DEADLINE, "{admitted} admitted, not {expected}");
    }
}

fn paid(counters: &Counters) -> u64 {
    let row = counters.read_row(row(Some(FIRST)) as u32).unwrap();
    row.values[Counter::Reason(Reason::Paid).index()]
}

/// Ends the threads of a scope, also when the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn policy(capacity: u32, refill: u32, interval: &str) -> String {
    format!(
        "policy = [{{ name = 'all', protocol = 'any', capacity = {capacity}, refill = {refill}, \
         interval = '{interval}' }}]"
    )
}

fn from(source: u16) -> Frame {
    Frame::ipv4(udp(53)).sent_by(address(source))
}

fn address(source: u16) -> Ipv4Addr {
    let [high, low] = source.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low)
}

const FLIPS: u64 = 50;

/// The first of the sources that only [`assert_no_place_is_lost`] sends from.
const NEWCOMERS: u16 = 10_000;

/// Sources of a crowd that are always over their limit, in most of the places.
const HOT: u16 = 40;
const PACKETS: u32 = 100_000;
const PACKETS_A_SECOND: u32 = 500;
const DEADLINE: Duration = Duration::from_secs(20);
