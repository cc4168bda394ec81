//! The object that is built into the binary, whatever `LIMIT_BPF_OBJECT` says: it loads and decides.

use std::{thread, time::Duration};

use limit_common::verdict::Reason;
use limit_user::kernel::object::{LoadOptions, Variant, load_committed};

use crate::{
    frames::{
        Frame,
        transport::{ACK, SYN, tcp, udp},
    },
    loaded::{Kernel, Xdp, at_ms, compiled, options},
    pure::Pure,
    table,
};

#[test]
#[ignore = "needs CAP_BPF"]
fn committed_object_decides_like_the_library() {
    for variant in [Variant::Plain, Variant::Frags] {
        let set = compiled(POLICIES);
        let mut kernel = committed(variant);
        kernel.begin(&set);
        let mut pure = Pure::new(&set);
        for (number, row) in (0..).zip(table::table()) {
            kernel.at(at_ms(200 * number));
            pure.at(at_ms(200 * number));
            let frame = row.frame.bytes();
            if frame.len() >= crate::agreement::SHORTEST {
                assert_eq!(
                    kernel.judge(&frame),
                    pure.judge(&frame),
                    "{}",
                    row.description
                );
            }
        }
        assert_eq!(kernel.levels(), pure.levels());
        kernel.assert_nothing_else_rose();
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn committed_object_limits_and_resets() {
    for variant in [Variant::Plain, Variant::Frags] {
        let mut kernel = committed(variant);
        kernel.begin(&compiled(POLICIES));
        let mut judge = |frame: &Frame| {
            let observed = kernel.judge(&frame.bytes());
            (observed.action, observed.reason())
        };
        let syn = Frame::ipv4(tcp(80, SYN));
        for _ in 0..4 {
            assert_eq!(judge(&syn), (Xdp::Pass, Reason::Paid));
        }
        assert_eq!(judge(&syn), (Xdp::Tx, Reason::Rate));
        let ack = Frame::ipv4(tcp(80, ACK));
        assert_eq!(judge(&ack), (Xdp::Pass, Reason::OpensNothing));
        let other = Frame::ipv6(tcp(80, SYN));
        assert_eq!(judge(&other), (Xdp::Pass, Reason::Paid));
        let datagram = Frame::ipv4(udp(53));
        assert_eq!(judge(&datagram), (Xdp::Pass, Reason::Paid));
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn committed_object_reads_the_clock_of_the_kernel() {
    let loaded = load_committed(&LoadOptions {
        injected_clock: false,
        ..options(Variant::Plain)
    })
    .unwrap();
    let first = loaded.now().unwrap();
    thread::sleep(Duration::from_millis(1));
    let second = loaded.now().unwrap();
    assert!(second.as_ns() >= first.as_ns() + 1_000_000);
}

fn committed(variant: Variant) -> Kernel {
    Kernel::over(load_committed(&options(variant)).unwrap())
}

const POLICIES: &str = "policy = [
    { name = 'web', ports = '80', capacity = 4, refill = 1, interval = '1s', on_limit = 'reset' },
    { name = 'rest', protocol = 'any', capacity = 4, refill = 1, interval = '1s' },
]";
