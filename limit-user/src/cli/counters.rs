//! `limitctl counters`: what was decided and done, once, as it changes, or for a scraper.

use core::time::Duration;
use std::{
    io::{self, IsTerminal as _},
    thread,
    time::Instant,
};

use clap::Args;
use limit_common::{
    config::PolicySet,
    counters::{ROW_VALUES, ROWS},
    layout::CounterRow,
};
use serde::Serialize;

use super::{
    Context,
    context::{attached, in_force},
    output::table,
};
use crate::{
    config::text::format_number,
    error::Refusal,
    kernel::{AttachedInterface, Filter},
    metrics::{self, PolicyCounts, Rows, Totals},
};

/// Flags of `counters`.
#[derive(Args, Debug)]
pub struct CountersArgs {
    /// One interface of the filter [default: the sum over all]
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    /// Print again each second, with rates per second, until Ctrl-C; buckets are counted each 10 s
    #[arg(long)]
    watch: bool,

    /// Print exposition text for a Prometheus scraper, by interface
    #[arg(long)]
    prometheus: bool,
}

impl CountersArgs {
    /// Whether it goes on until a signal.
    #[must_use]
    pub const fn is_watch(&self) -> bool {
        self.watch
    }
}

/// Prints the counters.
///
/// # Errors
///
/// When there is no filter, the interface is not its own, or a map cannot be read.
pub fn run(args: &CountersArgs, ctx: &Context) -> anyhow::Result<()> {
    refuse_conflicts(args, ctx)?;
    let filter = ctx.filter()?;
    let interfaces = match &args.interface {
        Some(name) => vec![attached(&filter, name)?],
        None => filter.interfaces()?,
    };
    for interface in interfaces.iter().filter(|one| !one.is_gone()) {
        let trouble = interface.trouble();
        trouble.iter().for_each(|trouble| ctx.output.warn(trouble));
    }
    if args.prometheus {
        return prometheus(&filter, &interfaces, ctx);
    }
    if args.watch {
        return watch(&filter, args.interface.as_deref(), ctx);
    }
    let sample = Sample::take(&filter, &interfaces)?;
    ctx.interrupt.finish();
    let view = sample.view(args.interface.as_deref(), &interfaces);
    ctx.output.result(&view, || view.text(None))?;
    Ok(())
}

fn refuse_conflicts(args: &CountersArgs, ctx: &Context) -> Result<(), Refusal> {
    let other = match (args.watch, ctx.output.is_json()) {
        _ if !args.prometheus => return Ok(()),
        (true, _) => "--watch: a scraper asks again by itself",
        (false, true) => "--json: give one of the two",
        (false, false) => return Ok(()),
    };
    let message = format!("--prometheus does not go with {other}");
    Err(Refusal::invalid("conflict", message).on("prometheus"))
}

fn prometheus(
    filter: &Filter,
    interfaces: &[AttachedInterface],
    ctx: &Context,
) -> anyhow::Result<()> {
    let (set, _) = in_force(filter)?;
    let usage = filter.usage()?;
    let mut named = Vec::with_capacity(interfaces.len());
    for interface in interfaces {
        let name = interface
            .name
            .clone()
            .unwrap_or_else(|| format!("index{}", interface.index));
        named.push((name, filter.counters(interface.index)?));
    }
    let text = metrics::exposition(&named, &set, usage.used, usage.capacity);
    ctx.interrupt.finish();
    ctx.output.text(&text)?;
    Ok(())
}

/// Prints each second until a signal or the timeout ends the process.
fn watch(filter: &Filter, name: Option<&str>, ctx: &Context) -> anyhow::Result<()> {
    let in_place = io::stdout().is_terminal() && !ctx.output.is_json();
    let mut before: Option<(Sample, Instant)> = None;
    let (mut lines, mut tick) = (0, 0_u64);
    loop {
        let interfaces = match name {
            Some(name) => vec![attached(filter, name)?],
            None => filter.interfaces()?,
        };
        let usage = match &before {
            Some((old, _)) if tick % TICKS_PER_COUNT != 0 => old.buckets,
            _ => count(filter)?,
        };
        tick += 1;
        let sample = Sample::with_usage(filter, &interfaces, usage)?;
        let at = Instant::now();
        let view = sample.view(name, &interfaces);
        let rates = before.as_ref().map(|(old, then)| Rates {
            totals: metrics::totals(&old.rows),
            policies: metrics::by_policy(&old.rows, &old.set),
            span: at.duration_since(*then),
        });
        if ctx.output.is_json() {
            ctx.output.result(&view, String::new)?;
        } else {
            let text = view.text(rates.as_ref());
            let back = if in_place && lines > 0 {
                format!("\x1b[{lines}A\x1b[J")
            } else {
                String::new()
            };
            lines = text.lines().count();
            ctx.output
                .text(&format!("{back}{text}{}", if in_place { "" } else { "\n" }))?;
        }
        before = Some((sample, at));
        thread::sleep(PERIOD);
    }
}

/// The counters at one moment.
struct Sample {
    rows: Box<Rows>,
    set: Box<PolicySet>,
    buckets: (u64, u64),
}

impl Sample {
    fn take(filter: &Filter, interfaces: &[AttachedInterface]) -> anyhow::Result<Self> {
        Self::with_usage(filter, interfaces, count(filter)?)
    }

    fn with_usage(
        filter: &Filter,
        interfaces: &[AttachedInterface],
        buckets: (u64, u64),
    ) -> anyhow::Result<Self> {
        let (set, _) = in_force(filter)?;
        let mut rows = Box::new(
            [CounterRow {
                values: [0; ROW_VALUES],
            }; ROWS],
        );
        for interface in interfaces {
            metrics::add(&mut rows, &*filter.counters(interface.index)?);
        }
        Ok(Self { rows, set, buckets })
    }

    fn view(&self, name: Option<&str>, interfaces: &[AttachedInterface]) -> CountersView {
        let mode = |interface: &AttachedInterface| interface.mode.map(|mode| mode.to_string());
        let mut modes: Vec<Option<String>> = interfaces.iter().map(mode).collect();
        modes.dedup();
        let totals = metrics::totals(&self.rows);
        CountersView {
            interface: match (name, interfaces) {
                (Some(name), _) => Some(name.to_owned()),
                (None, [only]) => only.name.clone(),
                (None, _) => None,
            },
            xdp_mode: if let [mode] = &modes[..] {
                mode.clone()
            } else {
                None
            },
            interfaces: interfaces
                .iter()
                .map(|one| InterfaceView {
                    interface: one.name.clone(),
                    xdp_mode: mode(one),
                })
                .collect(),
            policies: metrics::by_policy(&self.rows, &self.set),
            buckets: BucketsView {
                used: self.buckets.0,
                capacity: self.buckets.1,
                overflow: totals.overflow,
            },
            totals,
        }
    }
}

/// Buckets in use, and the room there is.
fn count(filter: &Filter) -> anyhow::Result<(u64, u64)> {
    let usage = filter.usage()?;
    Ok((usage.used, usage.capacity))
}

/// The sample before, and how long ago it was.
struct Rates {
    totals: Totals,
    policies: Vec<PolicyCounts>,
    span: Duration,
}

#[derive(Serialize)]
struct CountersView {
    /// `null` for the sum over several interfaces.
    interface: Option<String>,
    /// `null` if the interfaces differ.
    xdp_mode: Option<String>,
    interfaces: Vec<InterfaceView>,
    policies: Vec<PolicyCounts>,
    totals: Totals,
    buckets: BucketsView,
}

#[derive(Serialize)]
struct InterfaceView {
    interface: Option<String>,
    xdp_mode: Option<String>,
}

#[derive(Serialize)]
struct BucketsView {
    used: u64,
    capacity: u64,
    /// Packets charged to an overflow bucket.
    overflow: u64,
}

impl CountersView {
    fn text(&self, before: Option<&Rates>) -> String {
        let names: Vec<String> = self
            .interfaces
            .iter()
            .map(|one| {
                let name = one
                    .interface
                    .as_deref()
                    .unwrap_or("a device that is not here");
                format!("{name} ({})", one.xdp_mode.as_deref().unwrap_or("no mode"))
            })
            .collect();
        let mut text = format!("{}\n\n", names.join(" + "));
        text.push_str(&self.policies_text(before));
        text.push('\n');
        text.push_str(&self.totals_text(before));
        text.push_str(&format!(
            "\nbuckets: {} of {} in use, {} packets charged to overflow buckets\n",
            format_number(self.buckets.used),
            format_number(self.buckets.capacity),
            format_number(self.buckets.overflow)
        ));
        text
    }

    fn policies_text(&self, before: Option<&Rates>) -> String {
        let header = [
            "policy",
            "admitted",
            "limited",
            "shed",
            "monitored",
            "dropped",
            "reset",
            "steered",
            "503s",
        ];
        let values = |counts: &PolicyCounts| {
            [
                counts.admitted,
                counts.limited,
                counts.shed,
                counts.monitored,
                counts.dropped,
                counts.reset,
                counts.steered,
                counts.answered_503,
            ]
        };
        let mut rows = Vec::new();
        for counts in &self.policies {
            let mut row = vec![counts.name.clone()];
            row.extend(values(counts).map(format_number));
            rows.push(row);
            let old = before.and_then(|before| {
                before
                    .policies
                    .iter()
                    .find(|old| old.name == counts.name)
                    .map(|old| (old, before))
            });
            if let Some((old, before)) = old {
                let mut row = vec!["  a second".to_owned()];
                let pairs = values(counts).into_iter().zip(values(old));
                row.extend(pairs.map(|(new, old)| per_second(new, old, before.span)));
                rows.push(row);
            }
        }
        table(&header, &rows)
    }

    fn totals_text(&self, before: Option<&Rates>) -> String {
        let mut header = vec!["", "total"];
        if before.is_some() {
            header.push("a second");
        }
        let rows: Vec<Vec<String>> = lines(&self.totals)
            .into_iter()
            .enumerate()
            .filter(|(_, (_, value, always))| *always || *value > 0)
            .map(|(position, (name, value, _))| {
                let mut row = vec![name.to_owned(), format_number(value)];
                if let Some(before) = before {
                    let old = lines(&before.totals)[position].1;
                    row.push(per_second(value, old, before.span));
                }
                row
            })
            .collect();
        table(&header, &rows)
    }
}

/// Name and value of each total, and whether it is printed while it is 0.
fn lines(totals: &Totals) -> [(&'static str, u64, bool); 18] {
    [
        ("packets", totals.packets, true),
        ("bytes", totals.bytes, true),
        ("admitted", totals.admitted, true),
        ("limited", totals.limited, true),
        ("shed", totals.shed, false),
        ("blocked", totals.blocked, true),
        ("bypassed", totals.bypassed, true),
        ("answering", totals.answering, false),
        ("undecidable", totals.undecidable, true),
        ("malformed", totals.malformed, true),
        ("monitored", totals.monitored, false),
        ("dropped", totals.dropped, false),
        ("reset", totals.reset, false),
        ("steered", totals.steered, false),
        ("SYNs answered", totals.syn_answered, false),
        ("503s", totals.answered_503, false),
        ("503s again", totals.answered_again, false),
        ("undecidable, dropped", totals.undecidable_dropped, false),
    ]
}

/// The growth a second, rounded to a whole number; counters only grow, but an interface may leave.
fn per_second(new: u64, old: u64, span: Duration) -> String {
    let grown = u128::from(new.saturating_sub(old));
    let ns = span.as_nanos().max(1);
    let rate = grown.saturating_mul(1_000_000_000).saturating_add(ns / 2) / ns;
    format_number(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// Prints for which one count of the buckets holds: it reads every one of them.
const TICKS_PER_COUNT: u64 = 10;

/// Between two prints of `--watch`.
const PERIOD: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_rates_and_never_goes_below_zero() {
        let second = Duration::from_secs(1);
        assert_eq!(per_second(1_500, 500, second), "1,000");
        assert_eq!(per_second(3, 0, Duration::from_secs(2)), "2");
        assert_eq!(per_second(1, 0, Duration::from_secs(4)), "0");
        assert_eq!(per_second(0, 5, second), "0");
        assert_eq!(per_second(5, 0, Duration::ZERO), "5,000,000,000");
    }

    #[test]
    fn has_the_shape_that_scripts_rely_on() {
        let view = CountersView {
            interface: Some("eth0".to_owned()),
            xdp_mode: Some("native".to_owned()),
            interfaces: Vec::new(),
            policies: Vec::new(),
            totals: Totals::default(),
            buckets: BucketsView {
                used: 0,
                capacity: 64,
                overflow: 0,
            },
        };
        let value = serde_json::to_value(&view).unwrap();
        for name in [
            "packets",
            "bytes",
            "admitted",
            "limited",
            "shed",
            "blocked",
            "bypassed",
            "answering",
            "undecidable",
            "malformed",
            "monitored",
            "dropped",
            "reset",
            "steered",
            "syn_answered",
            "answered_503",
            "answered_again",
        ] {
            assert_eq!(value["totals"][name], 0, "{name}");
        }
        assert_eq!(value["buckets"]["capacity"], 64);
        assert_eq!(
            (&value["interface"], &value["xdp_mode"]),
            (&"eth0".into(), &"native".into())
        );
    }
}
