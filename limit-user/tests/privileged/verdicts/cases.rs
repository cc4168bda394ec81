//! Small inputs that broke other limiters.

use std::net::Ipv6Addr;

use limit_common::{
    counters::{Counter, Effect},
    units::PolicyId,
    verdict::Reason,
};
use limit_user::kernel::object::Variant;

use crate::{
    agreement::Agreement,
    frames::{
        CUSTOMER_TAG, Extension, Frame, SERVICE_TAG,
        transport::{SYN, Transport, tcp, udp},
    },
    loaded::{FIRST, Observed, SECOND, Xdp, at_ms, compiled, shared},
    pure::Pure,
};

#[test]
#[ignore = "needs CAP_BPF"]
fn charges_double_tagged_frames_like_untagged_ones() {
    let tagged = Frame::ipv4(udp(53)).tagged(&[(SERVICE_TAG, 0x64), (CUSTOMER_TAG, 0xc8)]);
    let bytes = tagged.bytes();
    assert_eq!(bytes[12..22], [0x88, 0xa8, 0, 0x64, 0x81, 0, 0, 0xc8, 8, 0]);
    let mut filter = Agreement::on(&any(NUMBERS));
    let reasons: Vec<Reason> = (0..10).map(|_| filter.judge(&bytes).reason()).collect();
    assert_eq!(
        reasons,
        [[Reason::Paid; 4].as_slice(), &[Reason::Rate; 6]].concat()
    );
    let untagged = filter.judge(&Frame::ipv4(udp(53)).bytes());
    assert_eq!(untagged.reason(), Reason::Rate);
    assert_eq!(filter.levels().len(), 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn reads_the_port_behind_the_options_and_takes_no_other_bytes_for_it() {
    let mut filter = Agreement::on(&web(NUMBERS));
    // Where a parser that skips no options would read ports, they say 80.
    let options = [0, 80].repeat(20);
    let long =
        |port| Frame::ipv4(tcp(port, SYN)).with_ipv4(|packet| packet.options = options.clone());
    let bytes = long(80).bytes();
    assert_eq!((bytes[14], bytes.len()), (0x4f, 14 + 60 + 20));
    assert_eq!(filter.judge(&bytes).reason(), Reason::Paid);
    assert_eq!(filter.judge(&long(81).bytes()).reason(), Reason::NoPolicy);
    for words in [4, 15] {
        let frame = Frame::ipv4(tcp(80, SYN)).with_ipv4(|packet| packet.words = Some(words));
        assert_eq!(frame.bytes().len(), 54);
        let observed = filter.judge(&frame.bytes());
        assert_eq!(observed.reason(), Reason::NetworkHeader, "{words} words");
    }
    assert_eq!(filter.levels().len(), 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn never_takes_a_later_fragment_for_http() {
    let fragment = Frame::ipv4(Transport::Raw(6, vec![0, 0x50, 0, 0x50]))
        .with_ipv4(|packet| packet.fragment = 0x00b9);
    let mut filter = Agreement::on(&web(NUMBERS));
    let observed = filter.judge(&fragment.bytes());
    assert_eq!(observed.reason(), Reason::Paid);
    let policies: Vec<u8> = filter
        .levels()
        .keys()
        .map(|(_, policy, _)| *policy)
        .collect();
    assert_eq!(policies, [PolicyId::FRAGMENTS.number()]);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn charges_ten_thousand_sources_of_one_prefix_to_one_bucket() {
    let mut filter = Agreement::on(&any("capacity = 100, refill = 1, interval = '1h'"));
    let mut counted = [0, 0];
    for number in 0..10_000_u16 {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, number, !number, 7, number);
        let observed = filter.judge(&Frame::ipv6(udp(53)).sent_by(source).bytes());
        counted[usize::from(observed.action == Xdp::Drop)] += 1;
    }
    assert_eq!(counted, [100, 9_900]);
    assert_eq!(filter.levels().len(), 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn keeps_the_rest_of_an_interval() {
    let mut filter = Agreement::on(&any(NUMBERS));
    let frame = Frame::ipv4(udp(53)).bytes();
    for _ in 0..4 {
        assert_eq!(filter.judge(&frame).reason(), Reason::Paid);
    }
    let mut admitted = Vec::new();
    for ms in [600, 1200, 1800, 2400, 3000] {
        filter.at(at_ms(ms));
        if filter.judge(&frame).action == Xdp::Pass {
            admitted.push(ms);
        }
    }
    assert_eq!(admitted, [1200, 2400, 3000]);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn admits_fifteen_in_ten_minutes_of_one_a_minute() {
    let set = compiled(&any("capacity = 5, refill = 1, interval = '1m'"));
    let mut kernel = shared(Variant::Plain, &set);
    let mut pure = Pure::new(&set);
    let frame = Frame::ipv4(udp(53)).bytes();
    let mut admitted = 0;
    for ms in (0..=600_000).step_by(10) {
        kernel.at(at_ms(ms));
        pure.at(at_ms(ms));
        let action = Xdp::from(kernel.loaded.run(&frame, 1).unwrap().action);
        assert_eq!(action, pure.judge(&frame).action, "at {ms} ms");
        admitted += u32::from(action == Xdp::Pass);
    }
    assert_eq!(admitted, 15);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_smaller_capacity_takes_tokens_and_a_larger_one_gives_none() {
    let of = |capacity| {
        any(&format!(
            "capacity = {capacity}, refill = 1, interval = '1h'"
        ))
    };
    let mut filter = Agreement::on(&of(100));
    let frame = Frame::ipv4(udp(53)).bytes();
    let left = |filter: &Agreement| {
        filter
            .levels()
            .into_values()
            .next()
            .unwrap()
            .unwrap()
            .tokens
    };
    for _ in 0..20 {
        filter.judge(&frame);
    }
    assert_eq!(left(&filter), 80);
    filter.change(&of(10));
    assert_eq!(filter.judge(&frame).reason(), Reason::Paid);
    assert_eq!(left(&filter), 9);
    filter.change(&of(100));
    assert_eq!(left(&filter), 9);
    assert_eq!(filter.judge(&frame).reason(), Reason::Paid);
    assert_eq!(left(&filter), 8);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_switch_from_monitoring_to_enforcing_refills_nothing() {
    let mut filter = Agreement::on(&any(&format!("{NUMBERS}, monitor = true")));
    let frame = Frame::ipv4(udp(53)).bytes();
    let monitored: Vec<Observed> = (0..10).map(|_| filter.judge(&frame)).collect();
    assert!(monitored.iter().all(|packet| packet.action == Xdp::Pass));
    let would_be_limited = monitored
        .iter()
        .filter(|packet| packet.times(Counter::Effect(Effect::Monitored)) == 1);
    assert_eq!(would_be_limited.count(), 6);

    filter.change(&any(NUMBERS));
    let enforced = filter.judge(&frame);
    assert_eq!(
        (enforced.action, enforced.reason()),
        (Xdp::Drop, Reason::Rate)
    );
    filter.at(at_ms(1000));
    assert_eq!(filter.judge(&frame).action, Xdp::Pass);
    assert_eq!(filter.judge(&frame).action, Xdp::Drop);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_shed_connection_costs_no_token() {
    let mut filter = Agreement::on(&web(&format!("{NUMBERS}, max_in_flight = 1")));
    let frame = Frame::ipv4(tcp(80, SYN)).bytes();
    filter.judge(&frame);
    filter.set_in_flight(FIRST, 1);
    for _ in 0..10 {
        assert_eq!(filter.judge(&frame).reason(), Reason::InFlight);
    }
    filter.set_in_flight(FIRST, 0);
    let reasons: Vec<Reason> = (0..4).map(|_| filter.judge(&frame).reason()).collect();
    assert_eq!(
        reasons,
        [Reason::Paid, Reason::Paid, Reason::Paid, Reason::Rate]
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn never_admits_a_syn_behind_headers_beyond_the_limit() {
    let mut filter = Agreement::on(&web(NUMBERS));
    for headers in 0..=100_u16 {
        let options = Extension::Destination(vec![1, 4]);
        let frame = Frame::ipv6(tcp(80, SYN))
            .sent_by(Ipv6Addr::new(0x2001, 0xdb8, 9, headers, 0, 0, 0, 1))
            .extended(vec![options; headers.into()]);
        let bytes = frame.bytes();
        let passed = (0..10).filter(|_| filter.judge(&bytes).action == Xdp::Pass);
        let readable = headers <= 8;
        assert_eq!(
            passed.count(),
            if readable { 4 } else { 0 },
            "{headers} headers"
        );
    }
    // Sources that sent what cannot be read have no bucket to hide behind either.
    assert_eq!(filter.levels().len(), 9);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn a_clock_that_goes_back_mints_nothing() {
    let mut filter = Agreement::on(&any(NUMBERS));
    let frame = Frame::ipv4(udp(53)).bytes();
    let mut admitted = 0;
    for ms in [50_000, 3_000, 50_500, 0, 49_999, 50_999, 20_000, 50_000].repeat(5) {
        filter.at(at_ms(ms));
        admitted += u32::from(filter.judge(&frame).action == Xdp::Pass);
    }
    assert_eq!(admitted, 4);
    let level = filter.levels().into_values().next().unwrap().unwrap();
    assert_eq!(level.last, at_ms(0).as_ns() + 50 * SECOND);
}

fn any(fields: &str) -> String {
    format!("policy = [{{ name = 'any', protocol = 'any', {fields} }}]")
}

fn web(fields: &str) -> String {
    format!("policy = [{{ name = 'web', ports = '80', {fields}, on_limit = 'drop' }}]")
}

const NUMBERS: &str = "capacity = 4, refill = 1, interval = '1s'";
