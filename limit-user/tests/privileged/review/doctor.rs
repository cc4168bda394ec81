//! What `doctor` says about interfaces.

use limit_user::kernel::{ModeChoice, PinRoot};
use serde_json::Value;

use super::stand::Stand;
use crate::attach::attach;

#[test]
#[ignore = "needs CAP_BPF"]
fn tells_its_own_program_from_a_foreign_one() {
    let stand = Stand::new();
    let (server, root) = (&stand.cable.server, stand.sandbox.root());
    attach(server, root, "server0", ModeChoice::Auto).unwrap();
    let id = server.interface("server0").programs[0].id;
    let report = stand.json("doctor server0", 0);
    assert_eq!(report["ok"], true);
    let program = check(&report, "server0: XDP program");
    assert_eq!(program["state"], "ok");
    assert!(found(program).starts_with(&format!("ours, id {id}")));

    let other = PinRoot::new(format!("{}-other", root.path().display()));
    let second = format!("doctor server0 --pin-root {}", other.path().display());
    let report = stand.json(&second, 1);
    assert_eq!(report["ok"], false);
    let program = check(&report, "server0: XDP program");
    assert_eq!(program["state"], "fail");
    assert!(found(program).starts_with(&format!("foreign, id {id}, name limit")));
    assert!(program["advice"].as_str().unwrap().contains("detach"));
}

#[test]
#[ignore = "needs CAP_BPF"]
fn describes_a_bridge_port() {
    let stand = Stand::new();
    let server = &stand.cable.server;
    server.ip("link add bridge0 type bridge");
    server.ip("link set server0 master bridge0");
    server.ip("link set server0 mtu 1400");
    let report = stand.json("doctor server0", 0);
    let place = check(&report, "server0: place");
    assert_eq!(place["state"], "warn");
    assert!(found(place).contains("belongs to bridge0"));
    let device = check(&report, "server0: device");
    assert_eq!(device["state"], "ok");
    let interface = server.interface("server0");
    let queues = format!(
        "driver veth, MTU 1400, {} receive and {} transmit queues, up",
        interface.receive_queues, interface.transmit_queues
    );
    assert_eq!(found(device), queues);
    assert!(stand.text("doctor server0").contains(&queues));
}

/// The line of a check.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    let line = checks.iter().find(|check| check["name"] == name);
    line.unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn found(check: &Value) -> &str {
    check["found"].as_str().unwrap()
}
