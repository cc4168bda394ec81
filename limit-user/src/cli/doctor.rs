//! `limitctl doctor`: what this host offers the filter, one line a check, each failing one with what
//! to do.

use clap::Args;
use limit_common::layout::VERSION;
use serde::Serialize;

use super::Context;
use crate::{
    error::Exit,
    kernel::{
        AttachedInterface, Filter, Interface, KernelError, Presence,
        links::{Kind, program_name},
        probe::{self, Capabilities, NativeSupport},
    },
};

/// Flags of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The interface to check [default: every device that could carry the filter]
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
}

/// Checks and prints; ends with 1 if a check failed.
///
/// # Errors
///
/// When the interface does not exist, or stdout cannot be written to.
pub fn run(args: &DoctorArgs, ctx: &Context) -> anyhow::Result<Exit> {
    let interfaces = match &args.interface {
        Some(name) => vec![Interface::find(name)?],
        None => Interface::all()?
            .into_iter()
            .filter(|device| device.kind != Kind::Loopback && device.has_ethernet)
            .collect(),
    };
    let mut checks = Checks::default();
    checks.host(ctx);
    let own = own_programs(ctx);
    for interface in &interfaces {
        checks.interface(interface, &own);
    }
    let failed = checks.0.iter().any(|check| check.state == State::Fail);
    let view = DoctorView { checks: checks.0 };
    ctx.interrupt.finish();
    ctx.output.verdict(!failed, &view, || view.text())?;
    Ok(if failed { Exit::Invalid } else { Exit::Done })
}

/// Ids of the programs that this filter has attached.
fn own_programs(ctx: &Context) -> Vec<u32> {
    // Whatever keeps it from being read has a check of its own.
    let filter = Filter::open(&ctx.root).ok().flatten();
    let interfaces = filter
        .and_then(|filter| filter.interfaces().ok())
        .unwrap_or_default();
    interfaces
        .into_iter()
        .map(|interface| interface.program_id)
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Ok,
    Warn,
    Fail,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: State,
    found: String,
    /// What to do; `null` if nothing is.
    advice: Option<String>,
}

#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn ok(&mut self, name: impl Into<String>, found: impl Into<String>) {
        self.0.push(Check {
            name: name.into(),
            state: State::Ok,
            found: found.into(),
            advice: None,
        });
    }

    fn bad(
        &mut self,
        state: State,
        name: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let advice = Some(advice.into());
        self.0.push(Check {
            name: name.into(),
            state,
            found: found.into(),
            advice,
        });
    }

    fn host(&mut self, ctx: &Context) {
        match probe::kernel_release() {
            Ok(release) => self.ok("kernel", release),
            Err(error) => self.bad(State::Warn, "kernel", error.to_string(), "mount /proc"),
        }
        let allowed = self.capabilities();
        self.bpffs(ctx);
        if allowed {
            self.features();
        }
        self.jit();
        match probe::cgroup2_mount() {
            Ok(Some(path)) => self.ok("cgroup2", format!("mounted at {}", path.display())),
            Ok(None) => self.bad(
                State::Warn,
                "cgroup2",
                "not mounted",
                "`mount -t cgroup2 none /sys/fs/cgroup`; only counting open connections needs it",
            ),
            Err(error) => self.bad(State::Warn, "cgroup2", error.to_string(), "mount /proc"),
        }
        if allowed {
            self.filter(ctx);
        }
    }

    fn capabilities(&mut self) -> bool {
        let name = "capabilities";
        match Capabilities::of_this_thread().map(Capabilities::first_missing) {
            Ok(None) => {
                self.ok(
                    name,
                    "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, or what stands for them",
                );
                true
            }
            Ok(Some(missing)) => {
                self.bad(
                    State::Fail,
                    name,
                    format!("{missing} is missing; kernel features were not tried"),
                    format!("run as root, or grant {missing}"),
                );
                false
            }
            Err(error) => {
                self.bad(State::Fail, name, error.to_string(), "mount /proc");
                false
            }
        }
    }

    fn bpffs(&mut self, ctx: &Context) {
        match ctx.root.require_bpffs() {
            Ok(()) if ctx.root.is_read_only() => self.bad(
                State::Fail,
                "bpffs",
                format!("{} is on one mounted read-only", ctx.root.path().display()),
                "`mount -o remount,rw` where it is mounted",
            ),
            Ok(()) => self.ok("bpffs", format!("holds {}", ctx.root.path().display())),
            Err(error) => {
                let found = format!("{} is not on a bpffs", ctx.root.path().display());
                self.bad(State::Fail, "bpffs", found, error.to_string());
            }
        }
    }

    fn features(&mut self) {
        for feature in probe::features() {
            match feature.outcome {
                Ok(()) => self.ok(feature.name, "works"),
                Err(reason) => {
                    let state = if feature.is_needed {
                        State::Fail
                    } else {
                        State::Warn
                    };
                    self.bad(state, feature.name, reason, feature.advice);
                }
            }
        }
    }

    fn jit(&mut self) {
        match probe::jit() {
            Some(0) => self.bad(
                State::Warn,
                "BPF compiler",
                "off: programs are interpreted, several times slower",
                "`sysctl net.core.bpf_jit_enable=1`",
            ),
            Some(_) => self.ok("BPF compiler", "on"),
            None => self.ok("BPF compiler", "its setting cannot be read here"),
        }
    }

    fn filter(&mut self, ctx: &Context) {
        let name = "filter";
        match Filter::presence(&ctx.root) {
            Ok(Presence::None) => self.ok(name, "none in this network namespace"),
            Ok(Presence::Here(filter)) => match filter.interfaces() {
                Ok(interfaces) if interfaces.is_empty() => self.bad(
                    State::Warn,
                    name,
                    "has no interface: an attach or a detach was cut off, or is at work",
                    "`limitctl attach` replaces it, `limitctl detach --all` removes it",
                ),
                Ok(interfaces) => {
                    self.ok(name, format!("in {}", filter.folder().display()));
                    self.troubles(&interfaces);
                }
                Err(error) => self.bad(State::Fail, name, error.to_string(), REMOVE_ADVICE),
            },
            Ok(Presence::OtherLayout(version)) => self.bad(
                State::Fail,
                name,
                format!("layout {version}, this limitctl has v{VERSION}"),
                "`limitctl detach --all` of the version that made it, then attach again",
            ),
            Ok(Presence::Dead) => self.leftovers(),
            Ok(Presence::Incomplete) => match Filter::judged_by_leftovers(&ctx.root) {
                Ok(judged) if judged.is_empty() => self.leftovers(),
                Ok(judged) => self.bad(
                    State::Fail,
                    name,
                    format!("lost a part and still judges {}", judged.join(", ")),
                    "`limitctl detach --all` detaches and removes it, then attach again",
                ),
                Err(error) => self.bad(State::Fail, name, error.to_string(), REMOVE_ADVICE),
            },
            Err(KernelError::NoBpffs { .. }) => {}
            Err(error) => self.bad(State::Fail, name, error.to_string(), REMOVE_ADVICE),
        }
    }

    /// Interfaces of the filter that it does not judge here.
    fn troubles(&mut self, interfaces: &[AttachedInterface]) {
        for interface in interfaces {
            if let Some(name) = interface.cut_off() {
                self.bad(
                    State::Fail,
                    format!("{name}: filter"),
                    format!("{name} is not filtered any more: its link was detached"),
                    format!("`limitctl attach {name}`"),
                );
            } else if let Some(trouble) = interface.trouble() {
                let (found, advice) = trouble
                    .split_once([':', ';'])
                    .unwrap_or((&trouble, LEFTOVERS_ADVICE));
                self.bad(State::Warn, "filter", found, advice.trim());
            }
        }
    }

    fn leftovers(&mut self) {
        self.bad(
            State::Warn,
            "filter",
            "leftovers that nothing uses",
            LEFTOVERS_ADVICE,
        );
    }

    fn interface(&mut self, device: &Interface, own: &[u32]) {
        let name = |what: &str| format!("{device}: {what}");
        let driver = device.driver().unwrap_or_else(|| "unknown".to_owned());
        let queues = format!(
            "driver {driver}, MTU {}, {} receive and {} transmit queues, {}",
            device.mtu,
            device.receive_queues,
            device.transmit_queues,
            if device.is_up { "up" } else { "down" }
        );
        self.ok(name("device"), queues);
        if !device.has_ethernet {
            self.bad(
                State::Fail,
                name("frames"),
                "have no Ethernet header",
                "attach to the device that carries its traffic",
            );
        }
        self.native(device);
        for program in &device.programs {
            if own.contains(&program.id) {
                self.ok(
                    name("XDP program"),
                    format!("ours, id {}, {}", program.id, program.mode),
                );
            } else {
                let known = program_name(program.id).map(|name| format!(", name {name}"));
                self.bad(
                    State::Fail,
                    name("XDP program"),
                    format!(
                        "foreign, id {}{}, {}",
                        program.id,
                        known.unwrap_or_default(),
                        program.mode
                    ),
                    "detach it with the tool that attached it; attach leaves it alone",
                );
            }
        }
        if device.takes_vlan_tags() == Some(true) {
            self.bad(
                State::Warn,
                name("VLAN tags"),
                "are taken out by the card: XDP sees no tag, and a reset it sends leaves untagged",
                format!("`ethtool -K {device} rxvlan off` where tagged traffic is answered"),
            );
        }
        if let Ok(Some(advice)) = device.advice() {
            self.bad(
                State::Warn,
                name("place"),
                advice,
                "attach where the traffic arrives",
            );
        }
    }

    fn native(&mut self, device: &Interface) {
        let name = format!("{device}: native XDP");
        match probe::native_support(device) {
            Ok(NativeSupport::Yes { frags: true }) => self.ok(name, "yes, any MTU"),
            Ok(NativeSupport::Yes { frags: false }) if device.mtu > ONE_PAGE_MTU => self.bad(
                State::Warn,
                name,
                format!("yes, but not with an MTU of {}", device.mtu),
                format!("lower the MTU to {ONE_PAGE_MTU} or less, or expect generic mode"),
            ),
            Ok(NativeSupport::Yes { frags: false }) => self.ok(name, "yes"),
            Ok(NativeSupport::No) => self.bad(
                State::Warn,
                name,
                "no: generic mode works, several times slower",
                "use a NIC whose driver has XDP where speed matters",
            ),
            Ok(NativeSupport::Unknown) => self.ok(name, "attach will tell: this kernel does not"),
            Err(error) => {
                self.bad(
                    State::Warn,
                    name,
                    error.to_string(),
                    "attach tries it in any case",
                );
            }
        }
    }
}

#[derive(Serialize)]
struct DoctorView {
    checks: Vec<Check>,
}

impl DoctorView {
    fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let word = match check.state {
                State::Ok => "ok  ",
                State::Warn => "warn",
                State::Fail => "fail",
            };
            text.push_str(&format!("{word}  {}: {}", check.name, check.found));
            if let Some(advice) = &check.advice {
                text.push_str(&format!("; {advice}"));
            }
            text.push('\n');
        }
        text
    }
}

const LEFTOVERS_ADVICE: &str =
    "`limitctl attach` replaces them, `limitctl detach --all` removes them";
const REMOVE_ADVICE: &str = "`limitctl detach --all` removes what is there";

/// Largest MTU whose frames fit one page beside the headroom, in most drivers.
const ONE_PAGE_MTU: u32 = 3_498;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_to_do_on_every_line_that_is_not_ok() {
        let mut checks = Checks::default();
        checks.ok("a", "fine");
        checks.bad(State::Fail, "b", "broken", "mend it");
        let text = DoctorView { checks: checks.0 }.text();
        assert_eq!(text, "ok    a: fine\nfail  b: broken; mend it\n");
    }
}
