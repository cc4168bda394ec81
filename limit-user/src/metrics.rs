//! What the counters tell: rows of the kernel summed into decisions and actions, and exposition text.
//!
//! Every sum is over reasons and effects through their own `verdict`, so that no packet is counted
//! twice or left out.

use core::fmt::Write as _;

use limit_common::{
    config::PolicySet,
    counters::{Counter, Effect, ROWS, row},
    layout::CounterRow,
    units::PolicyId,
    verdict::{Reason, Verdict},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::{name_of, policy_ids};

/// The counter rows of one interface, or of several summed.
pub type Rows = [CounterRow; ROWS];

/// What one policy did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyCounts {
    /// Its name.
    pub name: String,
    /// Judged and let through.
    pub admitted: u64,
    /// Over the rate.
    pub limited: u64,
    /// Refused at the in-flight gate.
    pub shed: u64,
    /// Refused, but passed because the policy only monitors.
    pub monitored: u64,
    /// Refused and dropped.
    pub dropped: u64,
    /// Refused and answered with a reset.
    pub reset: u64,
    /// Refused and steered to the responder.
    pub steered: u64,
    /// 503s sent by XDP.
    pub answered_503: u64,
    /// Charged to the overflow bucket.
    pub overflow: u64,
    /// Newcomers that took the place of a full bucket.
    pub reclaimed: u64,
    /// Packets by reason.
    pub reasons: Map<String, Value>,
}

/// What the filter did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Packets seen.
    pub packets: u64,
    /// Bytes seen.
    pub bytes: u64,
    /// Judged and let through.
    pub admitted: u64,
    /// Over the rate.
    pub limited: u64,
    /// Refused at the in-flight gate.
    pub shed: u64,
    /// On the deny list.
    pub blocked: u64,
    /// Let through unjudged.
    pub bypassed: u64,
    /// Of connections that XDP answers.
    pub answering: u64,
    /// What the stack may accept and we cannot read.
    pub undecidable: u64,
    /// What the stack would discard too.
    pub malformed: u64,
    /// Refused, but passed by a monitor.
    pub monitored: u64,
    /// Refused and dropped.
    pub dropped: u64,
    /// Refused and answered with a reset.
    pub reset: u64,
    /// Refused and steered to the responder.
    pub steered: u64,
    /// Refused and answered with a SYN-ACK.
    pub syn_answered: u64,
    /// 503s sent by XDP.
    pub answered_503: u64,
    /// Repeats of them.
    pub answered_again: u64,
    /// Undecidable and dropped.
    pub undecidable_dropped: u64,
    /// Charged to an overflow bucket.
    pub overflow: u64,
    /// Newcomers that took the place of a full bucket.
    pub reclaimed: u64,
    /// Packets by reason.
    pub reasons: Map<String, Value>,
}

/// The policies of `set`, the built-in one last, each with its row.
#[must_use]
pub fn by_policy(rows: &Rows, set: &PolicySet) -> Vec<PolicyCounts> {
    policy_ids(set)
        .into_iter()
        .chain([PolicyId::FRAGMENTS])
        .map(|id| {
            let one = core::slice::from_ref(&rows[row(Some(id))]);
            PolicyCounts {
                name: name_of(&set.policies[id.index()]),
                admitted: decided(one, Verdict::Admit),
                limited: decided(one, Verdict::Limit),
                shed: decided(one, Verdict::Shed),
                monitored: effect(one, Effect::Monitored),
                dropped: effect(one, Effect::Dropped),
                reset: effect(one, Effect::Reset),
                steered: effect(one, Effect::Steered),
                answered_503: effect(one, Effect::Answered503),
                overflow: effect(one, Effect::Overflow),
                reclaimed: effect(one, Effect::Reclaimed),
                reasons: reasons(one),
            }
        })
        .collect()
}

/// The sums over every row, those of removed policies included.
#[must_use]
pub fn totals(rows: &Rows) -> Totals {
    Totals {
        packets: sum(rows, Counter::Packets),
        bytes: sum(rows, Counter::Bytes),
        admitted: decided(rows, Verdict::Admit),
        limited: decided(rows, Verdict::Limit),
        shed: decided(rows, Verdict::Shed),
        blocked: decided(rows, Verdict::Block),
        bypassed: decided(rows, Verdict::Bypass),
        answering: effect(rows, Effect::Answering),
        undecidable: decided(rows, Verdict::Undecidable),
        malformed: decided(rows, Verdict::Malformed),
        monitored: effect(rows, Effect::Monitored),
        dropped: effect(rows, Effect::Dropped),
        reset: effect(rows, Effect::Reset),
        steered: effect(rows, Effect::Steered),
        syn_answered: effect(rows, Effect::SynAnswered),
        answered_503: effect(rows, Effect::Answered503),
        answered_again: effect(rows, Effect::AnsweredAgain),
        undecidable_dropped: effect(rows, Effect::UndecidableDropped),
        overflow: effect(rows, Effect::Overflow),
        reclaimed: effect(rows, Effect::Reclaimed),
        reasons: reasons(rows),
    }
}

/// Adds `more` to `rows`.
pub fn add(rows: &mut Rows, more: &Rows) {
    for (row, more) in rows.iter_mut().zip(more) {
        for (value, more) in row.values.iter_mut().zip(more.values) {
            *value = value.saturating_add(more);
        }
    }
}

/// Exposition text of `interfaces` (name and rows) under the policies of `set`.
#[must_use]
pub fn exposition(
    interfaces: &[(String, Box<Rows>)],
    set: &PolicySet,
    used: u64,
    room: u64,
) -> String {
    let mut text = String::new();
    for (counter, name) in [
        (Counter::Packets, "limit_packets_total"),
        (Counter::Bytes, "limit_bytes_total"),
    ] {
        family(&mut text, name, "counter", counter.help());
        for (interface, rows) in interfaces {
            sample(
                &mut text,
                name,
                &[("interface", interface)],
                sum(&rows[..], counter),
            );
        }
    }
    family(
        &mut text,
        "limit_decisions_total",
        "counter",
        "packets by policy, verdict and reason",
    );
    for (interface, policy, row) in labelled(interfaces, set) {
        for reason in Reason::ALL {
            let labels = [
                ("interface", interface),
                ("policy", policy.as_str()),
                ("verdict", verdict_word(reason.verdict())),
                ("reason", Counter::Reason(reason).name()),
            ];
            sample(
                &mut text,
                "limit_decisions_total",
                &labels,
                row.values[Counter::Reason(reason).index()],
            );
        }
    }
    family(
        &mut text,
        "limit_effects_total",
        "counter",
        "what was done, by policy",
    );
    for (interface, policy, row) in labelled(interfaces, set) {
        for effect in Effect::ALL.map(Counter::Effect) {
            let labels = [
                ("interface", interface),
                ("policy", policy.as_str()),
                ("effect", effect.name()),
            ];
            sample(
                &mut text,
                "limit_effects_total",
                &labels,
                row.values[effect.index()],
            );
        }
    }
    for (name, help, value) in [
        ("limit_buckets_used", "sources that have a bucket", used),
        ("limit_buckets_capacity", "sources that fit", room),
    ] {
        family(&mut text, name, "gauge", help);
        sample(&mut text, name, &[], value);
    }
    text
}

/// Interface, policy name and row, for every policy and for packets that met none.
fn labelled<'a>(
    interfaces: &'a [(String, Box<Rows>)],
    set: &PolicySet,
) -> Vec<(&'a str, String, &'a CounterRow)> {
    let mut found = Vec::new();
    for (interface, rows) in interfaces {
        found.push((interface.as_str(), String::new(), &rows[row(None)]));
        for id in policy_ids(set).into_iter().chain([PolicyId::FRAGMENTS]) {
            let name = name_of(&set.policies[id.index()]);
            found.push((interface.as_str(), name, &rows[row(Some(id))]));
        }
    }
    found
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, value)| {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            format!("{label}=\"{value}\"")
        })
        .collect();
    let _ = if labels.is_empty() {
        writeln!(text, "{name} {value}")
    } else {
        writeln!(text, "{name}{{{}}} {value}", labels.join(","))
    };
}

/// The word for a verdict, as the totals name it.
const fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Admit => "admitted",
        Verdict::Bypass => "bypassed",
        Verdict::Limit => "limited",
        Verdict::Shed => "shed",
        Verdict::Block => "blocked",
        Verdict::Undecidable => "undecidable",
        Verdict::Malformed => "malformed",
    }
}

fn decided(rows: &[CounterRow], verdict: Verdict) -> u64 {
    let reasons = Reason::ALL
        .into_iter()
        .filter(|reason| reason.verdict() == verdict);
    reasons
        .map(|reason| sum(rows, Counter::Reason(reason)))
        .fold(0, u64::saturating_add)
}

fn effect(rows: &[CounterRow], effect: Effect) -> u64 {
    sum(rows, Counter::Effect(effect))
}

fn reasons(rows: &[CounterRow]) -> Map<String, Value> {
    let count = |reason| sum(rows, Counter::Reason(reason));
    Reason::ALL
        .into_iter()
        .map(|reason| {
            (
                Counter::Reason(reason).name().to_owned(),
                count(reason).into(),
            )
        })
        .collect()
}

fn sum(rows: &[CounterRow], counter: Counter) -> u64 {
    rows.iter()
        .map(|row| row.values[counter.index()])
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use limit_common::{counters::ROW_VALUES, units::Instant};

    use super::*;
    use crate::config::{Config, Facts, compile};

    /// Rows in which every counter has a value of its own.
    fn rows() -> Box<Rows> {
        let mut rows = Box::new(
            [CounterRow {
                values: [0; ROW_VALUES],
            }; ROWS],
        );
        let values = rows.iter_mut().flat_map(|row| row.values.iter_mut());
        values
            .enumerate()
            .for_each(|(position, value)| *value = position as u64 + 1);
        rows
    }

    fn set() -> Box<PolicySet> {
        let facts = Facts {
            max_sources: 64,
            namespace_cookie: 0,
        };
        compile(
            &Config::built_in().unwrap(),
            None,
            Instant::from_ns(1),
            facts,
        )
        .unwrap()
    }

    #[test]
    fn puts_every_reason_in_exactly_one_decision() {
        let rows = rows();
        let totals = totals(&rows);
        let decisions = totals.admitted
            + totals.limited
            + totals.shed
            + totals.blocked
            + totals.bypassed
            + totals.undecidable
            + totals.malformed;
        let every: u64 = Reason::ALL
            .into_iter()
            .map(|reason| sum(&rows[..], Counter::Reason(reason)))
            .sum();
        assert_eq!(decisions, every);
    }

    #[test]
    fn gives_each_policy_its_own_row() {
        let rows = rows();
        let policies = by_policy(&rows, &set());
        assert_eq!(policies.len(), 2);
        assert_eq!(
            (policies[0].name.as_str(), policies[1].name.as_str()),
            ("default", "fragments")
        );
        let paid = Counter::Reason(Reason::Paid).index();
        assert_eq!(policies[0].admitted, rows[1].values[paid]);
        assert_eq!(policies[1].admitted, rows[ROWS - 1].values[paid]);
        assert_eq!(policies[0].reasons["rate"], rows[1].values[paid + 1]);
    }

    #[test]
    fn adds_rows_without_wrapping() {
        let mut sums = rows();
        add(&mut sums, &rows());
        assert_eq!(sums[0].values[0], 2);
        sums[0].values[0] = u64::MAX;
        add(&mut sums, &rows());
        assert_eq!(sums[0].values[0], u64::MAX);
    }

    #[test]
    fn writes_exposition_text_that_reads_line_by_line() {
        let text = exposition(&[("eth0".to_owned(), rows())], &set(), 3, 64);
        assert!(text.contains("limit_packets_total{interface=\"eth0\"} "));
        assert!(text.contains(
            "limit_decisions_total{interface=\"eth0\",policy=\"default\",verdict=\"admitted\",\
             reason=\"paid\"} "
        ));
        assert!(text.contains("\n# TYPE limit_buckets_used gauge\nlimit_buckets_used 3\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().is_ok(), "{line}");
        }
    }
}
