//! `limitctl allow` and `limitctl deny`: sources that are let through unexamined, and blocked ones.
//!
//! Every prefix is read before the first one is written; what the kernel refuses half-way is taken
//! back.

use std::{collections::BTreeSet, io, net::IpAddr};

use clap::{Args, Subcommand};
use ipnet::IpNet;
use serde::Serialize;

use super::{Context, context::attached, ssh::Session};
use crate::{
    bounded,
    config::text::format_number,
    error::Refusal,
    kernel::{Filter, List},
};

/// Flags of `allow` and `deny`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// An interface of the filter; lists belong to the filter, so it only has to be attached
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    #[command(subcommand)]
    command: ListCommand,
}

#[derive(Debug, Subcommand)]
enum ListCommand {
    /// Add prefixes; those that are there already stay
    Add(PrefixArgs),
    /// Remove prefixes; those that are not there are left out
    Remove(PrefixArgs),
    /// Print the prefixes
    List,
    /// Make the list equal to the prefixes
    Replace(ReplaceArgs),
}

#[derive(Args, Debug)]
struct PrefixArgs {
    /// Addresses and prefixes as 203.0.113.0/24 or 2001:db8::/32, or - for stdin, one a line
    #[arg(required = true, value_name = "CIDR")]
    prefixes: Vec<String>,
}

#[derive(Args, Debug)]
struct ReplaceArgs {
    /// Addresses and prefixes as 203.0.113.0/24 or 2001:db8::/32, or - for stdin, one a line
    #[arg(value_name = "CIDR")]
    prefixes: Vec<String>,

    /// Allow a replacement that leaves no prefix, which is otherwise taken for a feed that failed
    #[arg(long)]
    empty: bool,
}

/// Reads or changes a list.
///
/// # Errors
///
/// When a prefix is not valid or a replacement is empty unasked (nothing is changed), there is no
/// filter, or the list is full.
pub fn run(args: &ListArgs, list: List, ctx: &Context) -> anyhow::Result<()> {
    let (edit, prefixes) = match &args.command {
        ListCommand::List => return print(args, list, ctx),
        ListCommand::Add(args) => (Edit::Add, read(&args.prefixes)?),
        ListCommand::Remove(args) => (Edit::Remove, read(&args.prefixes)?),
        ListCommand::Replace(args) => (Edit::Replace, args.read(list)?),
    };
    let change = ctx.begin_change()?;
    let mut filter = open(args, ctx)?;
    let before: BTreeSet<IpNet> = filter.list_entries(list)?.into_iter().collect();
    let after = edit.apply(&before, &prefixes);
    ctx.check()?;
    // Every edit is a replacement: the kernel side adds what is missing before it removes.
    let wanted: Vec<IpNet> = after.iter().copied().collect();
    if let Err(error) = filter.list_replace(&change.lock, list, &wanted) {
        let kept: Vec<IpNet> = before.iter().copied().collect();
        let restored = filter.list_replace(&change.lock, list, &kept);
        return Err(match restored {
            Ok(()) => error.into(),
            Err(second) => anyhow::Error::from(error)
                .context(format!("the list could not be restored ({second})")),
        });
    }
    ctx.interrupt.finish();
    drop(change);
    let view = EditView {
        list: list.name(),
        added: after.difference(&before).count(),
        removed: before.difference(&after).count(),
        entries: after.len(),
    };
    ctx.output.result(&view, || view.text())?;
    if list == List::Deny {
        let warning = Session::of_this_shell().and_then(|session| session.denied_warning(&wanted));
        warning.iter().for_each(|warning| ctx.output.warn(warning));
    }
    Ok(())
}

fn print(args: &ListArgs, list: List, ctx: &Context) -> anyhow::Result<()> {
    let entries = open(args, ctx)?.list_entries(list)?;
    ctx.interrupt.finish();
    let view = EntriesView {
        list: list.name(),
        entries,
    };
    let text = || {
        view.entries
            .iter()
            .map(|prefix| format!("{prefix}\n"))
            .collect()
    };
    ctx.output.result(&view, text)?;
    Ok(())
}

fn open(args: &ListArgs, ctx: &Context) -> anyhow::Result<Filter> {
    let filter = ctx.filter()?;
    if let Some(name) = &args.interface {
        attached(&filter, name)?;
    }
    Ok(filter)
}

#[derive(Clone, Copy, Debug)]
enum Edit {
    Add,
    Remove,
    Replace,
}

impl Edit {
    fn apply(self, before: &BTreeSet<IpNet>, prefixes: &BTreeSet<IpNet>) -> BTreeSet<IpNet> {
        match self {
            Self::Add => before | prefixes,
            Self::Remove => before - prefixes,
            Self::Replace => prefixes.clone(),
        }
    }
}

impl ReplaceArgs {
    /// The prefixes; none of them only if that is asked for.
    fn read(&self, list: List) -> anyhow::Result<BTreeSet<IpNet>> {
        let prefixes = read(&self.prefixes)?;
        if prefixes.is_empty() && !self.empty {
            let message = format!(
                "no prefixes are given, which would empty the {} list: add `--empty` if that is \
                 what is meant",
                list.name()
            );
            return Err(Refusal::invalid("empty-list", message).on("cidr").into());
        }
        Ok(prefixes)
    }
}

fn read(words: &[String]) -> anyhow::Result<BTreeSet<IpNet>> {
    let mut prefixes = BTreeSet::new();
    for word in words {
        if word == "-" {
            prefixes.extend(parse_lines(&read_stdin()?)?);
        } else {
            prefixes.insert(parse(word)?);
        }
    }
    Ok(prefixes)
}

fn read_stdin() -> Result<String, Refusal> {
    let bytes = bounded::read(io::stdin().lock(), STDIN_MOST).map_err(|error| {
        Refusal::failed(
            "unreadable-stdin",
            format!("read prefixes from stdin: {error}"),
        )
        .on("cidr")
    })?;
    String::from_utf8(bytes)
        .map_err(|_| Refusal::failed("not-utf8", "stdin is not UTF-8 text").on("cidr"))
}

/// One prefix a line; `#` begins a comment.
fn parse_lines(text: &str) -> Result<Vec<IpNet>, Refusal> {
    text.lines()
        .enumerate()
        .map(|(number, line)| {
            (
                number + 1,
                line.split('#').next().unwrap_or_default().trim(),
            )
        })
        .filter(|(_, word)| !word.is_empty())
        .map(|(number, word)| {
            parse(word).map_err(|refusal| Refusal {
                message: format!("line {number}: {}", refusal.message),
                ..refusal
            })
        })
        .collect()
}

/// A prefix, or an address as the prefix that holds nothing else.
fn parse(word: &str) -> Result<IpNet, Refusal> {
    if let Ok(prefix) = word.parse::<IpNet>() {
        let whole = prefix.trunc();
        return if whole == prefix {
            Ok(prefix)
        } else {
            let message = format!("{word} has bits set past its prefix: write {whole}");
            Err(Refusal::invalid("bits-past-prefix", message).on("cidr"))
        };
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let parts = word
        .split_once('/')
        .map(|(ip, length)| (ip.parse::<IpAddr>(), length));
    match parts {
        Some((Ok(address), length)) if is_integer(length) => {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let message = format!("{word}: prefix length {length} is outside 0..={most}");
            Err(Refusal::invalid("out-of-range", message).on("cidr"))
        }
        _ => Err(Refusal::failed(
            "malformed-value",
            format!("{word:?} is not an address or prefix such as 203.0.113.0/24 or 2001:db8::/32"),
        )
        .on("cidr")),
    }
}

fn is_integer(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[derive(Serialize)]
struct EditView {
    list: &'static str,
    added: usize,
    removed: usize,
    entries: usize,
}

impl EditView {
    fn text(&self) -> String {
        format!(
            "{}: {} added, {} removed, {} in all\n",
            self.list,
            format_number(self.added as u64),
            format_number(self.removed as u64),
            format_number(self.entries as u64)
        )
    }
}

#[derive(Serialize)]
struct EntriesView {
    list: &'static str,
    entries: Vec<IpNet>,
}

/// Bytes of prefixes that stdin may bring: the lists hold far fewer.
const STDIN_MOST: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_and_prefixes_of_both_families() {
        assert_eq!(parse("203.0.113.7").unwrap().to_string(), "203.0.113.7/32");
        assert_eq!(parse("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        assert_eq!(parse("::1").unwrap().to_string(), "::1/128");
        assert_eq!(parse("0.0.0.0/0").unwrap().prefix_len(), 0);
    }

    #[test]
    fn says_what_is_wrong_with_a_prefix() {
        for (word, code) in [
            ("203.0.113.7/24", "bits-past-prefix"),
            ("203.0.113.0/33", "out-of-range"),
            ("2001:db8::/129", "out-of-range"),
            ("203.0.113.0/999", "out-of-range"),
            ("203.0.113.0/", "malformed-value"),
            ("203.0.113.0/-1", "malformed-value"),
            ("300.0.0.0/8", "malformed-value"),
            ("example.org", "malformed-value"),
            ("", "malformed-value"),
        ] {
            assert_eq!(parse(word).unwrap_err().code, code, "{word:?}");
        }
    }

    #[test]
    fn reads_lines_with_comments_and_names_the_bad_one() {
        let text = "# feed\n203.0.113.0/24 # one\n\n  2001:db8::/32\n";
        assert_eq!(parse_lines(text).unwrap().len(), 2);
        let refusal = parse_lines("203.0.113.0/24\nnonsense\n").unwrap_err();
        assert!(
            refusal.message.starts_with("line 2: "),
            "{}",
            refusal.message
        );
    }

    #[test]
    fn edits_sets() {
        let set = |words: &[&str]| words.iter().map(|word| parse(word).unwrap()).collect();
        let (before, prefixes) = (set(&["1.1.1.1", "2.2.2.2"]), set(&["2.2.2.2", "3.3.3.3"]));
        assert_eq!(Edit::Add.apply(&before, &prefixes).len(), 3);
        assert_eq!(Edit::Remove.apply(&before, &prefixes), set(&["1.1.1.1"]));
        assert_eq!(Edit::Replace.apply(&before, &prefixes), prefixes);
    }
}
