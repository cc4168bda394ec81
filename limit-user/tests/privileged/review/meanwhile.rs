//! What changes between a look and the deed.

use std::{fs, thread};

use limit_user::{interrupt::Interrupt, kernel::ModeChoice};
use serde_json::Value;

use super::stand::Stand;
use crate::{
    attach::{attach, lock, open},
    netns::{Namespace, Sandbox, eventually},
};

#[test]
#[ignore = "needs CAP_BPF"]
fn takes_an_interface_as_it_is_once_it_holds_the_lock() {
    let stand = Stand::new();
    let (server, root) = (&stand.cable.server, stand.sandbox.root());
    attach(server, root, "server0", ModeChoice::Native).unwrap();
    stand.cable.add(1);
    let held = server.run(|| lock(root));
    let waiting = stand.start(stand.command("attach server1 --xdp-mode native --json"));
    eventually("the second waits for the lock", || sleeps(waiting.id()));
    let interface = server.interface("server1");
    server.run(|| {
        let mut filter = open(root);
        let native = ModeChoice::Native;
        filter
            .attach(&held, &interface, native, &Interrupt::default())
            .unwrap();
    });
    drop(held);
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let attached: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(attached["interfaces"][0]["xdp_mode"], "native");
    assert_eq!(attached["interfaces"][0]["replaced"], true);
}

#[test]
#[ignore = "needs CAP_BPF"]
fn refuses_an_interface_that_went_while_it_waited() {
    let stand = Stand::new();
    let (server, root) = (&stand.cable.server, stand.sandbox.root());
    attach(server, root, "server0", ModeChoice::Generic).unwrap();
    stand.cable.add(1);
    let stale = server.interface("server1");
    server.ip("link del server1");
    server.ip(&format!(
        "link add other index {} type veth peer name end",
        stale.index
    ));
    let error = server.run(|| {
        let held = lock(root);
        open(root)
            .attach(&held, &stale, ModeChoice::Auto, &Interrupt::default())
            .unwrap_err()
    });
    assert!(error.to_string().contains("server1 went away"), "{error}");
    assert!(server.interface("other").programs.is_empty());
}

#[test]
#[ignore = "needs CAP_BPF"]
fn takes_the_lock_while_others_remove_the_root() {
    const TIMES: u32 = 2_000;
    let sandbox = Sandbox::enter();
    let namespaces = [Namespace::new(), Namespace::new()];
    thread::scope(|scope| {
        for namespace in &namespaces {
            scope.spawn(|| {
                namespace.run(|| {
                    for _ in 0..TIMES {
                        drop(lock(sandbox.root()));
                    }
                });
            });
        }
    });
    assert!(!sandbox.root().path().exists(), "the root is left");
}

/// Whether the main thread of a process sleeps for a while, which `limitctl` does only for the lock.
fn sleeps(process: u32) -> bool {
    let call = fs::read_to_string(format!("/proc/{process}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|word| word.parse().ok());
    [libc::SYS_clock_nanosleep, libc::SYS_nanosleep]
        .map(Some)
        .contains(&number)
}
