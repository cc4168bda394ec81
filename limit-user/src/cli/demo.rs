//! `limitctl demo`: the filter at work in namespaces of its own, configured against delivered.
//!
//! For a person each part is printed when it is over, so that something is there to see; for a
//! machine there is one object at the end.

use clap::Args;
use limit_common::config::Numbers;
use serde::Serialize;

use super::{Context, output};
use crate::{
    config::{
        ConfigError, number_up_to,
        text::{format_duration, format_number},
    },
    demo::{self, Check, Counted, Demo, Finding, Part, finding::range},
    error::Exit,
    kernel::Attached,
    metrics::Totals,
};

/// Flags of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Seconds of traffic in the part that takes time, 1 to 300
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        allow_negative_numbers = true
    )]
    seconds: String,
}

/// Shows the filter at work; ends with 1 if anything was not as configured.
///
/// Nothing is held back while it runs: a stop ends the process, and all that it made goes with it.
///
/// # Errors
///
/// When the demo could not be shown.
pub fn run(args: &DemoArgs, ctx: &Context) -> anyhow::Result<Exit> {
    let seconds = seconds(&args.seconds)?;
    demo::on_own_thread(|| show(seconds, ctx))
}

fn show(seconds: u32, ctx: &Context) -> anyhow::Result<Exit> {
    let tell = |text: String| match ctx.output.is_json() {
        true => Ok(()),
        false => ctx.output.text(&text),
    };
    let demo = Demo::set_up(&ctx.interrupt)?;
    tell(opening(&demo))?;
    tell(burst_title(&demo.numbers(demo::BURST)?))?;
    let burst = demo.burst()?;
    tell(burst_table(&burst))?;
    tell(steady_title(&demo.numbers(demo::STEADY)?, seconds))?;
    let steady = demo.steady(seconds)?;
    tell(steady_table(&steady))?;
    let parts = [burst, steady];
    let counted = demo.count(&parts)?;
    let view = DemoView::new(demo.attached(), seconds, &parts, counted);
    demo.take_down()?;
    ctx.interrupt.finish();
    ctx.output.verdict(view.is_ok(), &view, || view.ending())?;
    let Some(error) = &view.error else {
        return Ok(Exit::Done);
    };
    ctx.output.note(&format!("error: {}", error.message));
    Ok(Exit::Invalid)
}

fn seconds(text: &str) -> Result<u32, ConfigError> {
    number_up_to(MAX_SECONDS, "seconds", text)
}

/// What the demo showed, for machines.
#[derive(Serialize)]
struct DemoView {
    xdp_mode: String,
    /// Why native was refused, if it was.
    native_refused: Option<String>,
    seconds: u32,
    parts: Vec<PartView>,
    counters: Totals,
    checks: Vec<Check>,
    /// What is not as configured.
    faults: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

#[derive(Serialize)]
struct PartView {
    policy: &'static str,
    capacity: u32,
    refill: u32,
    interval_ns: u64,
    sources: Vec<Finding>,
}

#[derive(Serialize)]
struct ErrorView {
    code: &'static str,
    message: String,
}

impl DemoView {
    fn new(attached: &Attached, seconds: u32, parts: &[Part], counted: Counted) -> Self {
        let mut faults: Vec<String> = Vec::new();
        for part in parts {
            for one in &part.findings {
                let said = one.faults.iter();
                faults
                    .extend(said.map(|fault| format!("{}, {}: {fault}", part.policy, one.source)));
            }
        }
        let broken = counted.checks.iter().filter(|check| !check.ok);
        faults.extend(broken.map(|check| format!("counters: {}", check.found)));
        Self {
            xdp_mode: attached.mode.to_string(),
            native_refused: attached.fallback_reason.clone(),
            seconds,
            parts: parts.iter().map(PartView::from).collect(),
            counters: counted.totals,
            checks: counted.checks,
            error: ErrorView::of(&faults),
            faults,
        }
    }

    const fn is_ok(&self) -> bool {
        self.error.is_none()
    }

    /// What a person reads after the tables.
    fn ending(&self) -> String {
        let mut text = String::from("\nWhat the kernel decided and counted\n");
        for check in &self.checks {
            text.push_str(&format!("  {}  {}\n", word(check.ok), check.found));
        }
        text.push('\n');
        if self.is_ok() {
            text.push_str(
                "ok: at 10 times the rate a source gets its rate; up to it, it loses nothing\n",
            );
        }
        for fault in &self.faults {
            text.push_str(&format!("NO  {fault}\n"));
        }
        text
    }
}

impl ErrorView {
    /// The first fault, and how many more there are.
    fn of(faults: &[String]) -> Option<Self> {
        let (first, rest) = faults.split_first()?;
        let more = match rest.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Some(Self {
            code: "not-as-configured",
            message: format!("not as configured: {first}{more}"),
        })
    }
}

impl From<&Part> for PartView {
    fn from(part: &Part) -> Self {
        Self {
            policy: part.policy,
            capacity: part.numbers.capacity,
            refill: part.numbers.refill,
            interval_ns: part.numbers.interval_ns,
            sources: part.findings.clone(),
        }
    }
}

fn opening(demo: &Demo) -> String {
    let attached = demo.attached();
    let mut text = format!(
        "Two network namespaces and a cable, the filter at the server's end, {} mode\n",
        attached.mode
    );
    if let Some(reason) = &attached.fallback_reason {
        text.push_str(&format!("  ({reason})\n"));
    }
    if !demo.has_ipv6() {
        text.push_str("  (IPv6 is turned off here: the IPv6 source is left out)\n");
    }
    text
}

fn burst_title(numbers: &Numbers) -> String {
    format!(
        "\n1. All at once. Limit: {} connections for each source, no refill meanwhile\n",
        numbers.capacity
    )
}

fn burst_table(part: &Part) -> String {
    let rows = part.findings.iter().map(|one| {
        vec![
            one.source.to_string(),
            format_number(one.sent),
            format_number(one.delivered),
            range(one.least, one.most),
            word(one.ok).to_owned(),
        ]
    });
    indented(&["source", "sent", "delivered", "expected", ""], rows)
}

fn steady_title(numbers: &Numbers, seconds: u32) -> String {
    format!(
        "\n2. For {seconds} s. Limit: a burst of {}, then {} every {}, for each source\n",
        numbers.capacity,
        numbers.refill,
        format_duration(numbers.interval_ns)
    )
}

fn steady_table(part: &Part) -> String {
    let limit = per_second(part.numbers.refill.into(), part.numbers.interval_ns);
    let rows = part.findings.iter().map(|one| {
        vec![
            one.source.to_string(),
            limit.clone(),
            per_second(one.sent, one.took_ns),
            per_second(one.delivered, one.took_ns),
            format_number(one.sent),
            format_number(one.delivered),
            range(one.least, one.most),
            word(one.ok).to_owned(),
        ]
    });
    let header = [
        "source",
        "limit/s",
        "sends/s",
        "gets/s",
        "sent",
        "delivered",
        "expected",
        "",
    ];
    indented(&header, rows)
}

fn indented(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let table = output::table(header, &rows.collect::<Vec<_>>());
    table.lines().map(|line| format!("  {line}\n")).collect()
}

const fn word(ok: bool) -> &'static str {
    if ok { "ok" } else { "NO" }
}

/// A rate in tenths, rounded to the nearest.
fn per_second(count: u64, ns: u64) -> String {
    let ns = u128::from(ns).max(1);
    let tenths = (u128::from(count) * 10 * NS_PER_S + ns / 2) / ns;
    format!("{}.{}", tenths / 10, tenths % 10)
}

const NS_PER_S: u128 = 1_000_000_000;

/// More would show nothing that is not seen by then.
const MAX_SECONDS: u32 = 300;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::kernel::Mode;

    const NUMBERS: Numbers = Numbers {
        generation: 1,
        since_ns: 0,
        epoch_ns: 0,
        interval_ns: 50_000_000,
        capacity: 4,
        refill: 1,
    };

    fn part(faults: &[&str]) -> Part {
        let finding = Finding {
            source: IpAddr::from([198, 51, 100, 4]),
            sent: 60_000,
            delivered: 6_004,
            refused: 53_996,
            unanswered: 0,
            least: 6_003,
            most: 6_004,
            unexplained: None,
            took_ns: 300_000_000_000,
            ok: faults.is_empty(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        };
        Part {
            policy: demo::STEADY,
            numbers: NUMBERS,
            findings: vec![finding],
        }
    }

    fn view(parts: &[Part]) -> DemoView {
        let attached = Attached {
            mode: Mode::Native,
            fallback_reason: None,
            replaced: false,
            frags: true,
        };
        let counted = Counted {
            totals: Totals::default(),
            checks: Vec::new(),
        };
        DemoView::new(&attached, 300, parts, counted)
    }

    #[test]
    fn fits_80_columns_at_its_longest() {
        let texts = [
            burst_title(&NUMBERS),
            burst_table(&part(&[])),
            steady_title(&NUMBERS, MAX_SECONDS),
            steady_table(&part(&[])),
            view(&[part(&[])]).ending(),
        ];
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(texts[3].ends_with("60,000      6,004  6,003-6,004  ok\n"));
    }

    #[test]
    fn says_what_was_not_as_configured() {
        let view = view(&[part(&[]), part(&["one", "two"])]);
        assert!(!view.is_ok());
        let message = view.error.as_ref().map(|error| error.message.as_str());
        assert_eq!(
            message,
            Some("not as configured: steady, 198.51.100.4: one; and 1 more")
        );
        assert!(view.ending().ends_with("NO  steady, 198.51.100.4: two\n"));
    }

    #[test]
    fn takes_seconds_in_range_only() {
        assert_eq!(seconds("5").unwrap(), 5);
        for bad in ["0", "301", "-5", "99999999999999999999"] {
            assert_eq!(seconds(bad).unwrap_err().code(), "out-of-range", "{bad}");
        }
        assert_eq!(seconds("soon").unwrap_err().code(), "malformed-value");
    }

    #[test]
    fn rounds_a_rate_to_the_nearest_tenth() {
        assert_eq!(per_second(1, 50_000_000), "20.0");
        assert_eq!(per_second(104, 5_000_100_000), "20.8");
        assert_eq!(per_second(0, 0), "0.0");
    }
}
