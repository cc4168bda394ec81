//! Interfaces join, are refused, get a newer program, and leave: through veth in own namespaces.

use std::{
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use limit_common::{
    config::PolicySet,
    counters::{Counter, row},
    layout::MIN_MAX_SOURCES,
    units::{Instant, PolicyId},
    verdict::Reason,
};
use limit_user::{
    config::{Facts, RawConfig, compile},
    interrupt::Interrupt,
    kernel::{Filter, KernelError, Lock, Mode, ModeChoice, Options, PinRoot, probe},
};

use crate::netns::{Cable, Namespace, Sandbox, eventually};

#[test]
#[ignore = "needs CAP_BPF"]
fn judges_every_packet_and_leaves_nothing_behind() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    let attached = attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
    assert_eq!((attached.mode, attached.replaced), (Mode::Native, false));
    assert_eq!(attached.fallback_reason, None);

    cable.send(PORT, 100, Duration::ZERO);
    eventually("100 packets judged", || {
        judged(&cable, sandbox.root()) == 100
    });
    let listed = cable
        .server
        .run(|| open(sandbox.root()).interfaces().unwrap());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name.as_deref(), Some("server0"));
    assert_eq!(listed[0].mode, Some(Mode::Native));

    cable.server.run(|| {
        let lock = lock(sandbox.root());
        let index = listed[0].index;
        let mut filter = open(sandbox.root());
        filter.detach(&lock, index).unwrap();
        assert_eq!(filter.interfaces().unwrap(), []);
        filter.remove(&lock).unwrap();
    });
    assert!(cable.server.interface("server0").programs.is_empty());
    assert!(!sandbox.root().path().exists(), "the pin root is left");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn replaces_its_program_under_load_with_no_packet_unjudged() {
    const SENT: u32 = 20_000;
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();

    let done = AtomicBool::new(false);
    let mut replaced = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            cable.send(PORT, SENT, Duration::from_micros(50));
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let attached =
                attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
            assert!(attached.replaced);
            replaced += 1;
        }
    });
    assert!(
        replaced >= 2,
        "the load was over before {replaced} replacements"
    );
    eventually("every packet judged", || {
        judged(&cable, sandbox.root()) == u64::from(SENT)
    });
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_a_foreign_program_and_leaves_it() {
    for mode in [ModeChoice::Native, ModeChoice::Generic] {
        let sandbox = Sandbox::enter();
        let cable = Cable::new();
        attach(&cable.server, sandbox.root(), "server0", mode).unwrap();
        let before = cable.server.interface("server0").programs;

        let second = PinRoot::new(format!("{}-second", sandbox.root().path().display()));
        let error = attach(&cable.server, &second, "server0", ModeChoice::Auto).unwrap_err();
        let KernelError::Foreign { id, name, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(Some(*id), before.first().map(|program| program.id));
        assert!(
            name.as_deref()
                .is_some_and(|name| name.starts_with("limit")),
            "{name:?}"
        );
        assert!(error.to_string().contains(&format!("id {id}")), "{error}");
        assert_eq!(cable.server.interface("server0").programs, before);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn takes_generic_mode_with_a_reason_where_the_driver_has_no_native() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    let attach = |mode| attach(&cable.server, sandbox.root(), "bridge0", mode);
    cable.server.ip("link add bridge0 type bridge");

    let error = attach(ModeChoice::Native).unwrap_err();
    assert!(matches!(error, KernelError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("no native XDP"), "{error}");
    assert_eq!(
        cable
            .server
            .run(|| open(sandbox.root()).interfaces().unwrap()),
        []
    );

    let attached = attach(ModeChoice::Auto).unwrap();
    assert_eq!(attached.mode, Mode::Generic);
    assert!(attached.fallback_reason.unwrap().contains("no native XDP"));
    let again = attach(ModeChoice::Auto).unwrap();
    assert_eq!((again.mode, again.replaced), (Mode::Generic, true));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn attaches_natively_at_an_mtu_of_9000() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    cable.server.ip("link set server0 mtu 9000");
    cable.client.ip("link set client0 mtu 9000");
    let attached = attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
    if probe::has_frags() {
        assert_eq!((attached.mode, attached.frags), (Mode::Native, true));
        assert_eq!(attached.fallback_reason, None);
    } else {
        // Without several buffers for one frame, no veth takes XDP at this MTU.
        assert!(attached.fallback_reason.unwrap().contains("MTU of 9000"));
    }
    cable.send(PORT, 1, Duration::ZERO);
    eventually("a packet judged", || judged(&cable, sandbox.root()) == 1);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn attaches_to_loopback_bridge_port_and_tap() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    cable.server.ip("link add bridge0 type bridge");
    cable.server.ip("link set server0 master bridge0");
    cable.server.ip("tuntap add dev tap0 mode tap");
    for device in ["lo", "server0", "tap0"] {
        attach(&cable.server, sandbox.root(), device, ModeChoice::Auto).unwrap();
    }
    let port = cable.server.interface("server0");
    let advice = cable.server.run(|| port.advice().unwrap());
    assert!(advice.unwrap().contains("belongs to bridge0"));
    let listed = cable
        .server
        .run(|| open(sandbox.root()).interfaces().unwrap());
    assert_eq!(listed.len(), 3);

    cable.send(PORT, 5, Duration::ZERO);
    eventually("5 packets judged on the port", || {
        judged_on(&cable, sandbox.root(), "server0") == 5
    });
    cable.server.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0], ("127.0.0.1", PORT)).unwrap();
    });
    eventually("1 packet judged on the loopback", || {
        judged_on(&cable, sandbox.root(), "lo") == 1
    });
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_a_device_without_ethernet_headers() {
    let sandbox = Sandbox::enter();
    let namespace = Namespace::new();
    namespace.ip("tuntap add dev tun0 mode tun");
    let error = attach(&namespace, sandbox.root(), "tun0", ModeChoice::Auto).unwrap_err();
    assert!(matches!(error, KernelError::Unsuitable { .. }), "{error}");
    assert!(
        error.to_string().contains("attach to the device"),
        "{error}"
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_to_change_the_mode_of_an_attached_interface() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    attach(&cable.server, sandbox.root(), "server0", ModeChoice::Native).unwrap();
    let before = cable.server.interface("server0").programs;
    let error = attach(
        &cable.server,
        sandbox.root(),
        "server0",
        ModeChoice::Generic,
    )
    .unwrap_err();
    assert!(matches!(error, KernelError::ModeDiffers { .. }), "{error}");
    assert_eq!(cable.server.interface("server0").programs, before);
    assert!(
        attach(&cable.server, sandbox.root(), "server0", ModeChoice::Native)
            .unwrap()
            .replaced
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn shows_and_clears_an_interface_that_is_gone() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
    let index = cable.server.interface("server0").index;
    cable.server.ip("link del server0");

    cable.server.run(|| {
        let mut filter = open(sandbox.root());
        let listed = filter.interfaces().unwrap();
        assert_eq!(
            (listed[0].index, &listed[0].name, listed[0].mode),
            (index, &None, None)
        );
        filter.counters(index).unwrap();
        filter.detach(&lock(sandbox.root()), index).unwrap();
        assert_eq!(filter.interfaces().unwrap(), []);
    });
}

#[test]
#[ignore = "needs CAP_BPF"]
fn attaches_to_a_new_device_that_has_the_index_of_a_gone_one() {
    let sandbox = Sandbox::enter();
    let namespace = Namespace::new();
    namespace.ip("link add one index 77 type veth peer name two");
    namespace.ip("link set one up");
    attach(&namespace, sandbox.root(), "one", ModeChoice::Auto).unwrap();
    namespace.ip("link del one");
    namespace.ip("link add again index 77 type veth peer name two");
    let attached = attach(&namespace, sandbox.root(), "again", ModeChoice::Auto).unwrap();
    assert!(!attached.replaced);
    let listed = namespace.run(|| open(sandbox.root()).interfaces().unwrap());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name.as_deref(), Some("again"));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn counts_per_interface_and_keeps_counters_over_a_replacement() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    cable.add(1);
    for device in ["server0", "server1"] {
        attach(&cable.server, sandbox.root(), device, ModeChoice::Auto).unwrap();
    }
    cable.send(PORT, 7, Duration::ZERO);
    eventually("7 packets judged", || judged(&cable, sandbox.root()) == 7);
    attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
    assert_eq!(judged(&cable, sandbox.root()), 7);
    let other = cable.server.interface("server1").index;
    let rows = cable
        .server
        .run(|| open(sandbox.root()).counters(other).unwrap());
    assert_eq!(
        rows[row(Some(POLICY))].values[Counter::Reason(Reason::Paid).index()],
        0
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn leaves_nothing_when_it_is_stopped_on_the_way() {
    let sandbox = Sandbox::enter();
    let cable = Cable::new();
    attach(&cable.server, sandbox.root(), "server0", ModeChoice::Auto).unwrap();
    let before = tree(sandbox.root());
    cable.server.ip("link add other type veth peer name end");

    let stopped = Interrupt::watch(Some(1), |_, _| {}).unwrap();
    eventually("the timeout", || stopped.check().is_err());
    for device in ["other", "server0"] {
        let interface = cable.server.interface(device);
        let error = cable.server.run(|| {
            let lock = lock(sandbox.root());
            open(sandbox.root())
                .attach(&lock, &interface, ModeChoice::Auto, &stopped)
                .unwrap_err()
        });
        assert!(matches!(error, KernelError::Stopped(_)), "{error}");
    }
    assert!(cable.server.interface("other").programs.is_empty());
    assert_eq!(tree(sandbox.root()), before);
    cable.send(PORT, 3, Duration::ZERO);
    eventually("3 packets judged", || judged(&cable, sandbox.root()) == 3);
}

/// Attaches as `limitctl attach` does: creates the filter if there is none.
pub(crate) fn attach(
    namespace: &Namespace,
    root: &PinRoot,
    device: &str,
    mode: ModeChoice,
) -> Result<limit_user::kernel::Attached, KernelError> {
    let interface = namespace.interface(device);
    namespace.run(|| {
        let lock = lock(root);
        let mut filter = match Filter::open(root)? {
            Some(filter) => filter,
            None => {
                let options = Options {
                    max_sources: MIN_MAX_SOURCES,
                };
                let mut filter = Filter::create(&lock, &options)?;
                let now = filter.now()?;
                filter.publish(&lock, &one_policy(Filter::namespace_cookie()?, now))?;
                filter
            }
        };
        filter.attach(&lock, &interface, mode, &Interrupt::default())
    })
}

pub(crate) fn lock(root: &PinRoot) -> Lock {
    Lock::acquire(root, Duration::from_secs(20), &Interrupt::default()).unwrap()
}

pub(crate) fn open(root: &PinRoot) -> Filter {
    Filter::open(root).unwrap().unwrap()
}

/// A policy that meets UDP datagrams to [`PORT`], far above any test's rate.
pub(crate) fn one_policy(namespace_cookie: u64, now: Instant) -> Box<PolicySet> {
    let text = format!(
        "policy = [{{ name = 'datagrams', protocol = 'udp', ports = '{PORT}', unit = 'packet', \
         on_limit = 'drop', capacity = 1000000000, refill = 1, interval = '1s' }}]"
    );
    let config = RawConfig::from_toml(&text, "test")
        .unwrap()
        .validate()
        .unwrap();
    let facts = Facts {
        max_sources: MIN_MAX_SOURCES,
        namespace_cookie,
    };
    compile(&config, None, now, facts).unwrap()
}

/// Datagrams that met the policy on `server0`.
fn judged(cable: &Cable, root: &PinRoot) -> u64 {
    judged_on(cable, root, "server0")
}

/// Datagrams that met the policy on this device.
fn judged_on(cable: &Cable, root: &PinRoot, device: &str) -> u64 {
    let index = cable.server.interface(device).index;
    let rows = cable.server.run(|| open(root).counters(index).unwrap());
    rows[row(Some(POLICY))].values[Counter::Reason(Reason::Paid).index()]
}

/// Every path under the pin root, in order.
fn tree(root: &PinRoot) -> Vec<String> {
    let mut folders = vec![root.path().to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.display().to_string());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

const POLICY: PolicyId = PolicyId::new(0).unwrap();
pub(crate) const PORT: u16 = 4711;
