//! The filter itself: what is found, created, published, listed, read and removed.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use ipnet::IpNet;
use limit_common::{
    key::{Address, Key},
    layout::{BucketSlot, LIST_CAPACITY, MIN_MAX_SOURCES, VERSION},
    units::PolicyId,
};
use limit_user::{
    interrupt::Interrupt,
    kernel::{
        Filter, Interface, KernelError, List, Lock, Options, PinRoot, Presence,
        links::Kind,
        object::{self, LoadOptions, Variant},
        probe::{self, NativeSupport},
    },
};

use crate::{
    attach::{lock, one_policy, open},
    netns::{Cable, Namespace, Sandbox},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn reads_back_the_set_that_was_published() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let mut filter = created(&lock);
    let mut next = one_policy(Filter::namespace_cookie().unwrap(), filter.now().unwrap());
    next.revision = 2;
    next.tcp_ports[443] = 9;
    filter.publish(&lock, &next).unwrap();
    let read = open(sandbox.root()).policy_set().unwrap().unwrap();
    assert_eq!((read.revision, read.tcp_ports[443]), (2, 9));
    assert_eq!(read.policies[0].current, next.policies[0].current);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn leaves_no_trace_when_it_is_removed() {
    let sandbox = Sandbox::enter();
    assert!(Filter::open(sandbox.root()).unwrap().is_none());
    let lock = lock(sandbox.root());
    created(&lock).remove(&lock).unwrap();
    drop(lock);
    assert!(!sandbox.root().path().exists());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn keeps_filters_of_two_namespaces_apart() {
    let sandbox = Sandbox::enter();
    let (one, two) = (Namespace::new(), Namespace::new());
    one.run(|| drop(created(&lock(sandbox.root()))));
    assert!(two.run(|| Filter::open(sandbox.root()).unwrap().is_none()));
    assert!(one.run(|| Filter::open(sandbox.root()).unwrap().is_some()));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_a_dead_instance_and_replaces_it() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let mut filter = created(&lock);
    let set = one_policy(u64::MAX, filter.now().unwrap());
    filter.publish(&lock, &set).unwrap();
    assert!(matches!(
        Filter::presence(sandbox.root()).unwrap(),
        Presence::Dead
    ));
    let error = Filter::open(sandbox.root()).unwrap_err();
    assert!(matches!(error, KernelError::DeadInstance { .. }), "{error}");
    created(&lock);
    assert!(matches!(
        Filter::presence(sandbox.root()).unwrap(),
        Presence::Here(_)
    ));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_leftovers_of_a_crash_and_replaces_them() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    Filter::create(&lock, &OPTIONS).unwrap();
    assert!(matches!(
        Filter::presence(sandbox.root()).unwrap(),
        Presence::Incomplete
    ));
    let error = Filter::open(sandbox.root()).unwrap_err();
    assert!(matches!(error, KernelError::Incomplete { .. }), "{error}");
    let folder = created(&lock).folder();
    fs::remove_file(folder.join("BUCKETS")).unwrap();
    assert!(matches!(
        Filter::presence(sandbox.root()).unwrap(),
        Presence::Incomplete
    ));
    Filter::remove_leftovers(&lock).unwrap();
    assert!(matches!(
        Filter::presence(sandbox.root()).unwrap(),
        Presence::None
    ));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn names_another_layout_and_leaves_it() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let other = created(&lock)
        .folder()
        .with_file_name(format!("v{}", VERSION + 1));
    Filter::open(sandbox.root())
        .unwrap()
        .unwrap()
        .remove(&lock)
        .unwrap();
    fs::create_dir(&other).unwrap();
    for error in [
        Filter::open(sandbox.root()).unwrap_err(),
        Filter::create(&lock, &OPTIONS).unwrap_err(),
    ] {
        assert!(
            error
                .to_string()
                .contains(&format!("layout v{}", VERSION + 1)),
            "{error}"
        );
    }
    drop(lock);
    assert!(other.exists());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_a_second_filter_and_a_map_of_another_size() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let filter = created(&lock);
    let error = Filter::create(&lock, &OPTIONS).unwrap_err();
    assert!(matches!(error, KernelError::Exists { .. }), "{error}");

    let folder = filter.folder();
    let loaded = object::load(&LoadOptions {
        max_sources: 2 * MIN_MAX_SOURCES,
        injected_clock: false,
        variant: Variant::Plain,
        pins: Some(&|map| Some(folder.join(map)).filter(|path| path.exists())),
    });
    let error = loaded.unwrap_err();
    assert!(
        matches!(&error, KernelError::MapShape { map, .. } if map == "BUCKETS"),
        "{error}"
    );
}

#[test]
#[ignore = "needs CAP_BPF"]
fn tells_the_second_who_holds_the_lock() {
    let sandbox = Sandbox::enter();
    let held = lock(sandbox.root());
    let second = || Lock::acquire(sandbox.root(), Duration::ZERO, &Interrupt::default());
    let error = second().unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            Lock::acquire(
                sandbox.root(),
                Duration::from_secs(20),
                &Interrupt::default(),
            )
        });
        drop(held);
        waiting.join().unwrap().unwrap();
    });
    assert!(second().is_ok());
    assert!(!sandbox.root().path().exists());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn says_where_bpffs_is_missing() {
    let error = Filter::open(&PinRoot::new("/tmp/limit-test/limit")).unwrap_err();
    assert!(error.to_string().contains("mount -t bpf bpf"), "{error}");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn keeps_lists_and_their_sizes_in_step() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let mut filter = created(&lock);
    let some = nets(&[
        "203.0.113.0/24",
        "203.0.113.0/25",
        "2001:db8::/32",
        "0.0.0.0/0",
    ]);
    assert_eq!(filter.list_add(&lock, List::Allow, &some).unwrap(), 4);
    assert_eq!(filter.list_add(&lock, List::Allow, &some).unwrap(), 0);
    assert_eq!(filter.list_entries(List::Allow).unwrap().len(), 4);
    assert_eq!(filter.list_entries(List::Deny).unwrap(), []);

    let gone = nets(&["203.0.113.0/24", "198.51.100.1/32"]);
    assert_eq!(filter.list_remove(&lock, List::Allow, &gone).unwrap(), 1);
    let wanted = nets(&["203.0.113.77/25", "192.0.2.0/24"]);
    filter.list_replace(&lock, List::Allow, &wanted).unwrap();
    let entries: Vec<String> = filter
        .list_entries(List::Allow)
        .unwrap()
        .iter()
        .map(IpNet::to_string)
        .collect();
    assert_eq!(entries, ["192.0.2.0/24", "203.0.113.0/25"]);
    filter.list_replace(&lock, List::Allow, &[]).unwrap();
    assert_eq!(filter.list_entries(List::Allow).unwrap(), []);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_what_does_not_fit_a_list_by_name() {
    let sandbox = Sandbox::enter();
    let lock = lock(sandbox.root());
    let mut filter = created(&lock);
    let all: Vec<IpNet> = (0..=LIST_CAPACITY)
        .map(|number| IpNet::from(std::net::IpAddr::from(number.to_be_bytes())))
        .collect();
    let error = filter.list_add(&lock, List::Deny, &all).unwrap_err();
    assert!(
        error.to_string().starts_with("the deny list is full"),
        "{error}"
    );
    assert_eq!(
        filter.list_entries(List::Deny).unwrap().len(),
        LIST_CAPACITY as usize
    );
    let error = filter
        .list_replace(&lock, List::Deny, &nets(&["192.0.2.1/32"]))
        .unwrap_err();
    assert!(matches!(error, KernelError::ListFull { .. }), "{error}");
}

#[test]
#[ignore = "needs CAP_BPF"]
fn reads_every_bucket_of_a_full_map() {
    const SOURCES: u32 = 20_000;
    let mut loaded = object::load(&LoadOptions {
        max_sources: SOURCES,
        injected_clock: false,
        variant: Variant::Plain,
        pins: None,
    })
    .unwrap();
    let policy = PolicyId::new(3).unwrap();
    let key = |number: u32| Key::from_source(&Address::V4(number.to_be_bytes()), policy, 32, 64);
    for number in 0..SOURCES {
        let slot = BucketSlot {
            refusals: u64::from(number),
            ..BucketSlot::default()
        };
        loaded.tables.set_bucket(&key(number), &slot).unwrap();
    }
    let buckets = loaded.tables.buckets().unwrap();
    let numbers: BTreeSet<u64> = buckets
        .iter()
        .filter(|(found, slot)| *found == key(u32::try_from(slot.refusals).unwrap()))
        .map(|(_, slot)| slot.refusals)
        .collect();
    assert_eq!((buckets.len(), numbers.len()), (20_000, 20_000));
    let usage = loaded.tables.usage().unwrap();
    assert_eq!((usage.used, usage.capacity), (20_000, 20_000));
    assert_eq!(loaded.tables.bucket(&key(7)).unwrap().unwrap().refusals, 7);
    assert_eq!(loaded.tables.bucket(&key(SOURCES)).unwrap(), None);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn tells_time_that_goes_on_and_memory_that_is_taken() {
    let sandbox = Sandbox::enter();
    let filter = created(&lock(sandbox.root()));
    let first = filter.now().unwrap();
    thread::sleep(Duration::from_millis(2));
    let second = filter.now().unwrap();
    assert!(second.as_ns() >= first.as_ns() + 2_000_000);
    let memory = filter.memory_bytes().unwrap();
    assert!(
        memory > size_of::<limit_common::config::PolicySet>() as u64,
        "{memory}"
    );
    assert_eq!(filter.max_sources(), MIN_MAX_SOURCES);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn finds_every_feature_that_it_needs() {
    for feature in probe::features() {
        let is_fine = feature.outcome.is_ok() || !feature.is_needed;
        assert!(is_fine, "{}: {:?}", feature.name, feature.outcome);
    }
}

#[test]
#[ignore = "needs CAP_BPF"]
fn tells_what_a_device_can_do() {
    let _sandbox = Sandbox::enter();
    let cable = Cable::new();
    cable.server.run(|| {
        let device = Interface::find("server0").unwrap();
        assert_eq!((device.kind.clone(), device.mtu), (Kind::Veth, 1500));
        assert!(device.is_up && device.receive_queues >= 1 && device.programs.is_empty());
        assert_eq!(device.driver().as_deref(), Some("veth"));
        assert!(device.takes_vlan_tags().is_some());
        let native = probe::native_support(&device).unwrap();
        assert!(
            matches!(native, NativeSupport::Yes { .. } | NativeSupport::Unknown),
            "{native:?}"
        );
        cable.server.ip("link add bridge0 type bridge");
        let bridge = probe::native_support(&Interface::find("bridge0").unwrap()).unwrap();
        assert!(!matches!(bridge, NativeSupport::Yes { .. }), "{bridge:?}");
    });
}

/// Creates a filter and publishes its first set.
fn created(lock: &Lock) -> Filter {
    let mut filter = Filter::create(lock, &OPTIONS).unwrap();
    let set = one_policy(Filter::namespace_cookie().unwrap(), filter.now().unwrap());
    filter.publish(lock, &set).unwrap();
    filter
}

fn nets(text: &[&str]) -> Vec<IpNet> {
    text.iter().map(|net| net.parse().unwrap()).collect()
}

const OPTIONS: Options = Options {
    max_sources: MIN_MAX_SOURCES,
};
