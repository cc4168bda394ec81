//! `limitctl set`: other numbers, or monitor and enforce, at run time; never structure.

use clap::Args;
use serde::Serialize;

use super::{
    Context,
    context::{attached, in_force},
    policy::{self, NumbersView, PolicyView},
};
use crate::{
    config::{
        Config, ConfigError, DEFAULT_POLICY, FRAGMENTS_POLICY, Facts, PolicyFlags, compile,
        text::nearest,
    },
    error::Refusal,
    kernel::Filter,
};

/// Flags of `set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    /// An interface of the filter; policies belong to the filter, so it only has to be attached
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    #[command(flatten)]
    policy: PolicyFlags,
}

/// Changes a policy, and prints it as it is in force.
///
/// # Errors
///
/// When the change is structure, unknown or not valid, or the kernel refuses; nothing is changed.
pub fn run(args: &SetArgs, ctx: &Context) -> anyhow::Result<()> {
    let flags = &args.policy;
    refuse_structure(flags)?;
    refuse_impossible(flags)?;

    let change = ctx.begin_change()?;
    let mut filter = ctx.filter()?;
    if let Some(name) = &args.interface {
        attached(&filter, name)?;
    }
    let (set, current) = in_force(&filter)?;
    let next = changed(&current, flags)?;
    if next != current {
        let facts = Facts {
            max_sources: filter.max_sources(),
            namespace_cookie: Filter::namespace_cookie()?,
        };
        let set = compile(&next, Some(&set), filter.now()?, facts)?;
        ctx.check()?;
        filter.publish(&change.lock, &set)?;
    }
    ctx.interrupt.finish();
    drop(change);
    report(flags.name(), &current, &next, ctx)
}

fn refuse_structure(flags: &PolicyFlags) -> Result<(), Refusal> {
    if let Some(flag) = flags.structural() {
        return Err(Refusal::invalid(
            "structural-flag",
            format!(
                "--{flag} changes what a policy is for, and set changes numbers and monitor or \
                 enforce only: `limitctl attach IFACE --policy {} --{flag} ...` changes it",
                flags.name()
            ),
        )
        .on("policy"));
    }
    if flags.is_empty() {
        return Err(Refusal::failed(
            "usage",
            "nothing to set: give --capacity, --refill, --interval, --rate and --burst, \
             --max-in-flight, --monitor or --enforce",
        ));
    }
    Ok(())
}

/// Refuses what is wrong whatever the policy is, before there is anything to look it up in.
fn refuse_impossible(flags: &PolicyFlags) -> Result<(), ConfigError> {
    let mut raw = flags.to_raw()?;
    if flags.name() == FRAGMENTS_POLICY {
        flags.to_fragments()?;
        raw.name = Some(DEFAULT_POLICY.to_owned());
    }
    raw.refuse_impossible()
}

fn changed(current: &Config, flags: &PolicyFlags) -> anyhow::Result<Config> {
    let name = flags.name();
    if name == FRAGMENTS_POLICY {
        return Ok(current.with_fragments(&flags.to_fragments()?)?);
    }
    if current.policy(name).is_none() {
        return Err(unknown(name, current).into());
    }
    Ok(current.with_policy(&flags.to_raw()?)?)
}

fn unknown(name: &str, current: &Config) -> Refusal {
    let names: Vec<&str> = current
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .chain([FRAGMENTS_POLICY])
        .collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean {near}? "),
        None => String::new(),
    };
    Refusal::invalid(
        "unknown-policy",
        format!(
            "no policy is named {name:?}: {hint}the filter has {}",
            names.join(", ")
        ),
    )
    .on("policy")
}

fn report(name: &str, current: &Config, next: &Config, ctx: &Context) -> anyhow::Result<()> {
    let changed = current != next;
    let suffix = if changed { "" } else { " (as it was)" };
    if name == FRAGMENTS_POLICY {
        let view = SetView {
            changed,
            policy: FragmentsView::from(next),
        };
        let line = policy::fragments_line(next);
        ctx.output
            .result(&view, || format!("{}{suffix}", line.trim_end()))?;
    } else if let Some(policy) = next.policy(name) {
        let view = SetView {
            changed,
            policy: PolicyView::from(policy),
        };
        ctx.output
            .result(&view, || format!("policy {}{suffix}", policy::Line(policy)))?;
    }
    for warning in policy::warnings(next) {
        if warning.starts_with(&format!("policy {name}:")) {
            ctx.output.warn(&warning);
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct SetView<P> {
    changed: bool,
    policy: P,
}

#[derive(Serialize)]
struct FragmentsView {
    name: &'static str,
    #[serde(flatten)]
    numbers: NumbersView,
}

impl From<&Config> for FragmentsView {
    fn from(config: &Config) -> Self {
        Self {
            name: FRAGMENTS_POLICY,
            numbers: NumbersView::from(config.fragments),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{config::Mode, error::Report};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        set: SetArgs,
    }

    fn flags(words: &str) -> PolicyFlags {
        Line::parse_from(["set"].into_iter().chain(words.split_whitespace()))
            .set
            .policy
    }

    fn code(words: &str) -> String {
        let current = Config::built_in().unwrap();
        Report::new(&changed(&current, &flags(words)).unwrap_err()).code
    }

    #[test]
    fn changes_numbers_and_mode_and_keeps_the_rest() {
        let current = Config::built_in().unwrap();
        let next = changed(&current, &flags("eth0 --capacity 9 --enforce")).unwrap();
        let policy = &next.policies[0];
        assert_eq!(
            (policy.numbers.capacity.get(), policy.mode),
            (9, Mode::Enforce)
        );
        assert_eq!(policy.numbers.refill, current.policies[0].numbers.refill);
        let next = changed(&next, &flags("--refill 7")).unwrap();
        assert_eq!(next.policies[0].mode, Mode::Enforce);
        let next = changed(&next, &flags("--policy fragments --capacity 5")).unwrap();
        assert_eq!(next.fragments.capacity.get(), 5);
    }

    #[test]
    fn keeps_the_capacity_beside_a_rate_and_takes_a_burst_for_it() {
        let numbers = |current: &Config, words| {
            let next = changed(current, &flags(words)).unwrap();
            let numbers = next.policies[0].numbers;
            let interval_s = numbers.interval.get() / 1_000_000_000;
            (
                next,
                (numbers.capacity.get(), numbers.refill.get(), interval_s),
            )
        };
        let current = Config::built_in().unwrap();
        let (next, found) = numbers(&current, "--rate 50/m");
        assert_eq!(found, (100, 50, 60));
        let (next, found) = numbers(&next, "--burst 7");
        assert_eq!(found, (7, 50, 60));
        let (next, found) = numbers(&next, "--burst 8 --refill 3");
        assert_eq!(found, (8, 3, 60));
        let (_, found) = numbers(&next, "--rate 5/s --burst 9");
        assert_eq!(found, (9, 5, 1));
        assert_eq!(code("--rate 5/s --capacity 9"), "conflict");
        assert_eq!(code("--capacity 5 --burst 9"), "conflict");
        assert!(refuse_impossible(&flags("--burst 9")).is_ok());
    }

    #[test]
    fn refuses_structure_and_nothing_at_all() {
        for words in [
            "--protocol udp",
            "--ports 22",
            "--unit packet",
            "--on-limit drop",
            "--status 429",
        ] {
            let refusal = refuse_structure(&flags(words)).unwrap_err();
            assert_eq!(refusal.code, "structural-flag", "{words}");
        }
        assert_eq!(
            refuse_structure(&flags("--policy x")).unwrap_err().code,
            "usage"
        );
    }

    #[test]
    fn names_the_nearest_of_the_policies_there_are() {
        let refusal = unknown("defautl", &Config::built_in().unwrap());
        assert!(
            refusal.message.contains("did you mean default?"),
            "{}",
            refusal.message
        );
        assert!(
            refusal
                .message
                .ends_with("the filter has default, fragments")
        );
        assert_eq!(code("--policy defautl --capacity 9"), "unknown-policy");
    }

    #[test]
    fn refuses_what_fragments_does_not_have() {
        assert_eq!(code("--policy fragments --enforce"), "conflict");
        assert_eq!(code("--policy fragments --capacity 0"), "out-of-range");
    }
}
