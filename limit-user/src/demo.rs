//! The filter before one's eyes: real connections through it, configured against delivered.
//!
//! Two network namespaces and a cable between them, both of this process alone, with the filter at
//! the server's end. Each source has a thread that opens connections one after the other and reads
//! the filter's own clock before and after each, so it is known between which two instants the
//! kernel judged it; `bounds` has limit-common's arithmetic say what may come of those instants.
//! Delivered is what the server accepted and answered.
//!
//! Nothing made here has a name in the system, so all of it goes with the process, however it ends.

use core::time::Duration;
use std::{io, net::IpAddr, panic, thread, time::Instant};

use limit_common::{
    config::{Numbers, PolicySet},
    units::PolicyId,
};
use thiserror::Error;

use crate::{
    config::{Config, ConfigError, Facts, RawConfig, compile, name_of, policy_ids},
    interrupt::Interrupt,
    kernel::{
        Attached, Filter, KernelError, Lock, ModeChoice, Options,
        probe::{self, Capabilities, Capability},
    },
    metrics::{self, Totals},
};

mod bounds;
pub mod checks;
pub mod finding;
mod sender;
mod server;
mod stage;

pub use checks::Check;
pub use finding::Finding;

use sender::{Pace, Plan};
use server::Server;
use stage::Stage;

/// Why the demo could not be shown.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The kernel side failed.
    #[error("{0}")]
    Kernel(#[from] KernelError),
    /// The demo's own policies are not valid.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A system call failed.
    #[error("{action} failed: {source}")]
    Call {
        /// What was tried.
        action: String,
        /// The error.
        source: io::Error,
    },
    /// The two ends of the cable do not find each other.
    #[error("{address} did not reach the server within {} s", READY_WITHIN.as_secs())]
    Unreachable {
        /// The source.
        address: IpAddr,
    },
    /// What the kernel gives back is not what it was given.
    #[error("policy {0} is not in the policy set that the kernel gives back")]
    NoPolicy(&'static str),
}

impl DemoError {
    fn call(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Call { action, source }
    }
}

/// The filter on its stage.
#[derive(Debug)]
pub struct Demo {
    stage: Stage,
    lock: Lock,
    filter: Filter,
    attached: Attached,
}

/// What one part showed.
#[derive(Debug)]
pub struct Part {
    /// The name of its policy.
    pub policy: &'static str,
    /// The numbers of its policy, read back from the kernel.
    pub numbers: Numbers,
    /// What came of each source.
    pub findings: Vec<Finding>,
}

/// What the kernel counted in all parts.
#[derive(Debug)]
pub struct Counted {
    /// The sums.
    pub totals: Totals,
    /// Whether they add up, and agree with what the two ends of the cable saw.
    pub checks: Vec<Check>,
}

/// Errs on the first capability that the demo needs and this thread lacks.
pub fn require_capabilities() -> Result<(), KernelError> {
    probe::require_capabilities()?;
    if Capabilities::of_this_thread()?.has(Capability::SysAdmin) {
        return Ok(());
    }
    Err(KernelError::Capability {
        capability: Capability::SysAdmin,
        action: "make the demo's namespaces".to_owned(),
    })
}

/// Runs `show` on a thread of its own, whose namespaces it may change.
pub fn on_own_thread<T: Send>(show: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(show).join() {
        Ok(shown) => shown,
        Err(panic) => panic::resume_unwind(panic),
    })
}

impl Demo {
    /// Sets the stage and attaches the filter; the calling thread stays in namespaces of its own.
    ///
    /// # Errors
    ///
    /// Whatever the kernel refuses.
    pub fn set_up(interrupt: &Interrupt) -> Result<Self, DemoError> {
        require_capabilities()?;
        let stage = Stage::enter()?;
        let lock = Lock::acquire(stage.root(), Duration::ZERO, interrupt)?;
        let options = Options {
            max_sources: MAX_SOURCES,
        };
        let mut filter = Filter::create(&lock, &options)?;
        let facts = Facts {
            max_sources: MAX_SOURCES,
            namespace_cookie: Filter::namespace_cookie()?,
        };
        let set = compile(&policies()?, None, filter.now()?, facts)?;
        filter.publish(&lock, &set)?;
        let attached = filter.attach(&lock, stage.interface(), ModeChoice::Auto, interrupt)?;
        Ok(Self {
            stage,
            lock,
            filter,
            attached,
        })
    }

    /// How the filter is attached.
    #[must_use]
    pub const fn attached(&self) -> &Attached {
        &self.attached
    }

    /// Whether one of the sources has an IPv6 address: not where the kernel has none.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.stage.sources().iter().any(IpAddr::is_ipv6)
    }

    /// The numbers of a policy, read back from the kernel.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn numbers(&self, policy: &'static str) -> Result<Numbers, DemoError> {
        let set = self.set()?;
        Ok(set.policies[id_of(&set, policy)?.index()].current)
    }

    /// Sources that send all they have at once, with no refill meanwhile: each gets what its bucket
    /// holds, exactly.
    ///
    /// # Errors
    ///
    /// When the traffic cannot be made; what comes of it is a finding.
    pub fn burst(&self) -> Result<Part, DemoError> {
        self.play(BURST, BURST_PORT, BURST_SENDS.map(Pace::AtOnce))
    }

    /// Sources that send for `seconds` at half the rate, at the rate, and at ten times the rate.
    ///
    /// # Errors
    ///
    /// When the traffic cannot be made; what comes of it is a finding.
    pub fn steady(&self, seconds: u32) -> Result<Part, DemoError> {
        let lasts = Duration::from_secs(seconds.into());
        let [half, whole] = [2, 1].map(|times| Pace::Apart {
            gap: INTERVAL * times,
            lasts,
        });
        let tenfold = Pace::Every {
            gap: INTERVAL / 10,
            lasts,
        };
        self.play(STEADY, STEADY_PORT, [half, whole, tenfold, tenfold])
    }

    /// Compares what the kernel counted with what the two ends of the cable saw.
    ///
    /// # Errors
    ///
    /// When the counters cannot be read.
    pub fn count(&self, parts: &[Part]) -> Result<Counted, DemoError> {
        let set = self.set()?;
        let start = Instant::now();
        let mut previous = None;
        loop {
            let rows = self.filter.counters(self.stage.interface().index)?;
            let totals = metrics::totals(&rows);
            let policies = metrics::by_policy(&rows, &set);
            let checks = checks::all(&totals, &policies, parts);
            // The last segments of the last connections may be on their way still.
            let is_settled = previous.as_ref() == Some(&totals);
            if is_settled && checks.iter().all(|check| check.ok) || start.elapsed() > SETTLED_WITHIN
            {
                return Ok(Counted { totals, checks });
            }
            previous = Some(totals);
            thread::sleep(PAUSE);
        }
    }

    /// Takes the filter away; the rest goes with the thread.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn take_down(self) -> Result<(), DemoError> {
        Ok(self.filter.remove(&self.lock)?)
    }

    /// Has every source keep its pace at the same time against one port of the server.
    fn play(
        &self,
        policy: &'static str,
        port: u16,
        paces: [Pace; SOURCES],
    ) -> Result<Part, DemoError> {
        let numbers = self.numbers(policy)?;
        let sources = self.stage.sources().iter().copied().zip(paces);
        let plans: Vec<Plan> = sources
            .map(|(source, pace)| Plan { source, pace })
            .collect();
        let server = Server::start(&self.stage.servers(port))
            .map_err(DemoError::call("start the demo's server"))?;
        let sent = sender::send_all(&self.stage, port, &plans, &|| self.filter.now())?;
        let accepted = server.stop();
        let findings = plans.iter().zip(&sent).map(|(plan, sent)| {
            let delivered = accepted.get(&plan.source).copied().unwrap_or(0);
            Finding::new(plan, sent, delivered, &numbers)
        });
        Ok(Part {
            policy,
            findings: findings.collect(),
            numbers,
        })
    }

    /// The policy set in force, read back from the kernel.
    fn set(&self) -> Result<Box<PolicySet>, DemoError> {
        self.filter.policy_set()?.ok_or(DemoError::NoPolicy(BURST))
    }
}

/// The policies of both parts: a bucket that is not refilled meanwhile, and one that is.
fn policies() -> Result<Config, ConfigError> {
    let toml = format!(
        "[[policy]]\nname = '{BURST}'\nports = {BURST_PORT}\non_limit = 'reset'\n\
         capacity = {BURST_CAPACITY}\nrefill = {BURST_CAPACITY}\ninterval = '1h'\n\
         [[policy]]\nname = '{STEADY}'\nports = {STEADY_PORT}\non_limit = 'reset'\n\
         capacity = {STEADY_CAPACITY}\nrefill = 1\ninterval = '{}ms'\n",
        INTERVAL.as_millis()
    );
    RawConfig::from_toml(&toml, "the demo's policies")?.validate()
}

fn id_of(set: &PolicySet, policy: &'static str) -> Result<PolicyId, DemoError> {
    policy_ids(set)
        .into_iter()
        .find(|id| name_of(&set.policies[id.index()]) == policy)
        .ok_or(DemoError::NoPolicy(policy))
}

/// The policy of the part with no refill.
pub const BURST: &str = "burst";

/// The policy of the part that takes time.
pub const STEADY: &str = "steady";

/// Sources in all, with the IPv6 one.
const SOURCES: usize = 4;

/// Any port will do, in namespaces that nobody else is in.
const BURST_PORT: u16 = 8001;
const STEADY_PORT: u16 = 8002;

/// A bucket of 50: one source sends half of it, one all of it, the others ten times as much.
const BURST_CAPACITY: u32 = 50;
const BURST_SENDS: [u32; SOURCES] = [25, 50, 500, 500];

/// One token each 50 ms, 20 a second: slow enough to be far from what any machine can send.
const INTERVAL: Duration = Duration::from_millis(50);
const STEADY_CAPACITY: u32 = 4;

/// The fewest that the filter is made for, and more than there are.
const MAX_SOURCES: u32 = limit_common::layout::MIN_MAX_SOURCES;

/// Within this a new cable carries traffic, or never will.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// Within this every segment is where it was going.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Between two looks at something that will be so in a moment.
const PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_policies_that_are_valid_and_refill_as_the_paces_assume() {
        let config = policies().unwrap();
        let steady = config.policy(STEADY).unwrap().numbers;
        assert_eq!(
            (steady.refill.get(), u128::from(steady.interval.get())),
            (1, INTERVAL.as_nanos())
        );
        assert_eq!(
            config.policy(BURST).unwrap().numbers.capacity.get(),
            BURST_CAPACITY
        );
    }
}
