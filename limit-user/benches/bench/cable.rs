//! The receiver's CPU time for one refused packet, through a veth.
//!
//! The sender runs an XDP program over live frames that sends them to the cable; the kernel
//! receives them on the same CPU, in softirq, and the time that this CPU spent in softirq is the
//! receiver's. The kernel samples it (250 or 1,000 times a second), so a round lasts a while.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use limit_user::kernel::{Interface, assembled::Attachment, object::Loaded};

use crate::{
    Effort,
    assembly::{DROP, PASS, answer, redirect},
    filter,
    frames::{
        Frame,
        transport::{SYN, tcp},
    },
    network::{Cable, RECEIVER, SENDER},
    statistics::Summary,
};

/// What drops packets at the receiver, measured.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Dropping {
    pub(crate) case: &'static str,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    #[serde(flatten)]
    pub(crate) cost: Option<Cost>,
}

/// What one packet costs the receiver.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Cost {
    /// Nanoseconds of softirq time.
    pub(crate) nanoseconds: f64,
    /// In packets that an empty XDP program drops.
    pub(crate) ratio: Summary,
}

/// Measures every way to drop, the empty XDP program first.
pub(crate) fn measure(effort: Effort, cpu: usize) -> Result<Vec<Dropping>> {
    let bench = Bench {
        cable: Cable::new()?,
        loaded: filter::load(POLICY, 4096)?,
        cpu,
    };
    let mut measured: Vec<Result<Vec<f64>>> = WAYS.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..effort.cable_rounds {
        for (way, samples) in WAYS.iter().zip(&mut measured) {
            let Ok(before) = samples else { continue };
            match bench.sample(*way) {
                Ok(sample) => before.push(sample),
                Err(error) => *samples = Err(error),
            }
        }
    }
    let empty = match measured.first() {
        Some(Ok(samples)) => samples.clone(),
        _ => Vec::new(),
    };
    Ok(WAYS
        .iter()
        .zip(measured)
        .map(|(way, samples)| Dropping::new(*way, samples, &empty))
        .collect())
}

impl Dropping {
    fn new(way: Way, samples: Result<Vec<f64>>, empty: &[f64]) -> Self {
        let (problem, cost) = match samples {
            Err(error) => (Some(format!("{error:#}")), None),
            Ok(_) if empty.is_empty() => (Some("nothing to compare with".to_owned()), None),
            Ok(samples) => {
                let ratios = samples.iter().zip(empty).map(|(own, base)| own / base);
                let ratio = Summary::of(ratios);
                let nanoseconds = Summary::of(samples.iter().copied()).median;
                (None, Some(Cost { nanoseconds, ratio }))
            }
        };
        Self {
            case: way.name(),
            problem,
            cost,
        }
    }
}

/// Something that drops the packets of one source over 100 a second.
#[derive(Clone, Copy)]
enum Way {
    /// An XDP program that drops everything.
    Empty,
    /// The filter.
    Filter,
    /// nftables at ingress, its rate kept in a dynamic set.
    Nftables,
    /// iptables in its earliest table, by hashlimit.
    Iptables,
}

const WAYS: [Way; 4] = [Way::Empty, Way::Filter, Way::Nftables, Way::Iptables];

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty XDP program that drops",
            Self::Filter => "the filter, hot source refused",
            Self::Nftables => "nftables: ingress, dynamic set with limit",
            Self::Iptables => "iptables: raw PREROUTING, hashlimit",
        }
    }
}

struct Bench {
    cable: Cable,
    loaded: Loaded,
    cpu: usize,
}

impl Bench {
    /// Nanoseconds of softirq for one packet.
    fn sample(&self, way: Way) -> Result<f64> {
        let _attached = self.set_up(way)?;
        let sample = self.send();
        self.take_down(way)?;
        sample
    }

    /// Puts the receiver's defence in place.
    ///
    /// A veth takes redirected frames only at an end with a program, so the ones that have none get
    /// an empty one that passes.
    fn set_up(&self, way: Way) -> Result<Attachment> {
        let namespace = &self.cable.receiver;
        let program = match way {
            Way::Empty => Some(answer(DROP)?),
            Way::Filter => None,
            Way::Nftables => {
                namespace.command_with_input("nft", "-f -", NFTABLES)?;
                Some(answer(PASS)?)
            }
            Way::Iptables => {
                namespace.command("iptables", &format!("-A {IPTABLES}"))?;
                Some(answer(PASS)?)
            }
        };
        // Indexes mean an interface only inside its namespace.
        namespace.run(|| {
            let receiver = Interface::find(RECEIVER)?;
            Ok(match &program {
                Some(program) => program.attach(&receiver)?,
                None => self.loaded.attach(&receiver)?,
            })
        })
    }

    fn take_down(&self, way: Way) -> Result<()> {
        let namespace = &self.cable.receiver;
        match way {
            Way::Empty | Way::Filter => Ok(()),
            Way::Nftables => namespace.command("nft", "delete table netdev bench"),
            Way::Iptables => namespace.command("iptables", &format!("-D {IPTABLES}")),
        }
    }

    /// Sends for [`ROUND`]; softirq nanoseconds for one packet.
    fn send(&self) -> Result<f64> {
        let Cable { sender, receiver } = &self.cable;
        let frame = Frame::ipv4(tcp(PORT, SYN)).bytes();
        let redirect = redirect(sender.run(|| Ok(Interface::find(SENDER)?.index))?)?;
        sender.run(|| Ok(redirect.run_live(&frame, BATCH)?))?;

        let counts =
            || Ok::<_, anyhow::Error>((receiver.received(RECEIVER)?, receiver.delivered()?));
        let (received, delivered) = counts()?;
        let softirq = softirq_time(self.cpu)?;
        let start = Instant::now();
        sender.run(|| {
            while start.elapsed() < ROUND {
                redirect.run_live(&frame, BATCH)?;
            }
            Ok(())
        })?;
        let spent = softirq_time(self.cpu)?.saturating_sub(softirq);
        let after = counts()?;
        let packets = after.0 - received;
        ensure!(packets > 0, "no packet arrived");
        ensure!(
            after.1 - delivered <= packets / 20,
            "{} of {packets} packets were let through",
            after.1 - delivered,
        );
        Ok(spent.as_nanos() as f64 / packets as f64)
    }
}

/// The time that a CPU has spent in softirq.
///
/// # Source
///
/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, in units of `USER_HZ`, 100 a second.
fn softirq_time(cpu: usize) -> Result<Duration> {
    let name = format!("cpu{cpu}");
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks: u64 = stat
        .lines()
        .map(|line| line.split_whitespace())
        .find_map(|mut words| words.next().filter(|word| *word == name).and(words.nth(6)))
        .with_context(|| format!("/proc/stat has no {name}"))?
        .parse()?;
    Ok(Duration::from_millis(ticks * 10))
}

const ROUND: Duration = Duration::from_millis(500);

/// Frames sent between two looks at the time: enough to outweigh what the kernel sets up for them.
const BATCH: u32 = 1_000_000;

const PORT: u16 = 80;

const POLICY: &str =
    "policy = [{ name = 'web', ports = '80', capacity = 100, refill = 100, on_limit = 'drop' }]";

const NFTABLES: &str = "table netdev bench {
    set sources { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m; }
    chain ingress {
        type filter hook ingress device receiver0 priority 0; policy accept;
        tcp dport 80 tcp flags syn / syn,rst,ack update @sources \
            { ip saddr limit rate over 100/second burst 100 packets } drop
    }
}
";

const IPTABLES: &str = "PREROUTING -t raw -p tcp --syn --dport 80 -m hashlimit --hashlimit-name bench \
    --hashlimit-mode srcip --hashlimit-above 100/second --hashlimit-burst 100 -j DROP";
