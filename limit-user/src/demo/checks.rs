//! The kernel's counters against themselves, and against what the two ends of the cable saw.

use core::fmt::Write as _;

use serde::Serialize;

use super::Part;
use crate::{
    config::text::format_number,
    metrics::{PolicyCounts, Totals},
};

/// One claim about the counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What is claimed.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// The numbers.
    pub found: String,
}

/// Every claim: each decision follows from its time, each packet has one verdict, each refusal one
/// action, and each part was counted as it was seen.
pub(super) fn all(totals: &Totals, policies: &[PolicyCounts], parts: &[Part]) -> Vec<Check> {
    let mut checks = vec![decisions(parts), verdicts(totals), actions(totals)];
    checks.extend(parts.iter().map(|part| as_seen(part, policies)));
    checks
}

fn decisions(parts: &[Part]) -> Check {
    let findings = || parts.iter().flat_map(|part| &part.findings);
    let sent: u64 = findings().map(|one| one.sent).sum();
    let count = format_number(sent);
    let ok = findings().all(|one| one.unexplained.is_none());
    Check {
        name: "decisions as computed".to_owned(),
        ok,
        found: if ok {
            format!("{count} decisions, each as computed for the time at which it was made")
        } else {
            format!("{count} decisions, not all as computed for their times")
        },
    }
}

fn verdicts(totals: &Totals) -> Check {
    let verdicts = [
        (totals.admitted, "admitted"),
        (totals.limited, "limited"),
        (totals.shed, "shed"),
        (totals.blocked, "blocked"),
        (totals.bypassed, "bypassed"),
        (totals.answering, "answering"),
        (totals.undecidable, "undecidable"),
        (totals.malformed, "malformed"),
    ];
    adds_up("one verdict a packet", totals.packets, "packets", &verdicts)
}

fn actions(totals: &Totals) -> Check {
    let refused = totals.limited + totals.shed + totals.blocked;
    let actions = [
        (totals.monitored, "monitored"),
        (totals.dropped, "dropped"),
        (totals.reset, "reset"),
        (totals.steered, "steered"),
        (totals.syn_answered, "answered"),
    ];
    adds_up("one action a refusal", refused, "refused", &actions)
}

/// `whole = part + part`, with the parts that are not 0.
fn adds_up(name: &str, whole: u64, word: &str, parts: &[(u64, &str)]) -> Check {
    let sum: u64 = parts.iter().map(|(count, _)| count).sum();
    let ok = sum == whole;
    let mut found = format!("{} {word}", format_number(whole));
    let mut sign = if ok { " = " } else { " but " };
    for (count, word) in parts.iter().filter(|(count, _)| *count > 0) {
        // Writing to a string cannot fail.
        write!(found, "{sign}{} {word}", format_number(*count)).ok();
        sign = " + ";
    }
    Check {
        name: name.to_owned(),
        ok,
        found,
    }
}

/// The policy admitted what was delivered, and reset what was refused.
fn as_seen(part: &Part, policies: &[PolicyCounts]) -> Check {
    let delivered: u64 = part.findings.iter().map(|one| one.delivered).sum();
    let refused: u64 = part.findings.iter().map(|one| one.refused).sum();
    let counted = policies.iter().find(|policy| policy.name == part.policy);
    let (admitted, limited, reset) = counted.map_or((0, 0, 0), |policy| {
        (policy.admitted, policy.limited, policy.reset)
    });
    let ok = (admitted, limited, reset) == (delivered, refused, refused);
    let mut found = format!(
        "{}: {} admitted and {} reset",
        part.policy,
        format_number(admitted),
        format_number(reset)
    );
    if ok {
        found.push_str(", as seen at the two ends");
    } else {
        // Writing to a string cannot fail.
        write!(
            found,
            " of {} limited; seen {} delivered and {} refused",
            format_number(limited),
            format_number(delivered),
            format_number(refused)
        )
        .ok();
    }
    Check {
        name: format!("{} as seen", part.policy),
        ok,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_up_in_words() {
        let totals = Totals {
            packets: 1_007,
            admitted: 1_000,
            bypassed: 7,
            ..Totals::default()
        };
        let check = verdicts(&totals);
        assert!(check.ok);
        assert_eq!(check.found, "1,007 packets = 1,000 admitted + 7 bypassed");
        assert!(actions(&totals).ok);
    }

    #[test]
    fn show_what_does_not_add_up() {
        let totals = Totals {
            limited: 3,
            reset: 2,
            ..Totals::default()
        };
        let check = actions(&totals);
        assert!(!check.ok);
        assert_eq!(check.found, "3 refused but 2 reset");
    }
}
