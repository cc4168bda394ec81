//! `limitctl buckets`: who has how many tokens left, and who was refused most.

use std::{
    cmp::Reverse,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use clap::Args;
use ipnet::IpNet;
use limit_common::{
    bucket::{
        slot::{self, Owner},
        step::Level,
    },
    config::{PolicyRecord, PolicySet},
    key::{Address, Key},
    layout::BucketSlot,
    units::{Instant, PolicyId},
};
use serde::Serialize;

use super::{
    Context,
    context::{attached, in_force},
    output::table,
};
use crate::{
    config::{
        ConfigError, name_of, number_up_to, policy_ids,
        text::{NS_PER_MS, format_number, format_wait},
    },
    error::Refusal,
    kernel::{Filter, List},
};

/// Flags of `buckets`.
#[derive(Args, Debug)]
pub struct BucketsArgs {
    /// An interface of the filter; buckets belong to the filter, so it only has to be attached
    #[arg(value_name = "IFACE")]
    interface: Option<String>,

    /// Sources to show, those refused most first [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    top: Option<String>,

    /// One source, under every policy, also when it has no bucket (a full one)
    #[arg(long, value_name = "IP")]
    source: Option<String>,
}

/// Prints buckets.
///
/// # Errors
///
/// When a flag is not valid, there is no filter, or a map cannot be read.
pub fn run(args: &BucketsArgs, ctx: &Context) -> anyhow::Result<()> {
    if args.top.is_some() && args.source.is_some() {
        let message = "--top does not go with --source, which shows every bucket it has";
        return Err(Refusal::invalid("conflict", message).on("top").into());
    }
    let top = args.top.as_deref().map_or(Ok(DEFAULT_TOP), top)?;
    let source = args.source.as_deref().map(address).transpose()?;
    let filter = ctx.filter()?;
    if let Some(name) = &args.interface {
        attached(&filter, name)?;
    }
    let (set, _) = in_force(&filter)?;
    match source {
        Some(source) => {
            let view = SourceView::read(&filter, &set, source)?;
            ctx.interrupt.finish();
            ctx.output.result(&view, || view.text())?;
        }
        None => {
            let view = BucketsView::read(&filter, &set, top)?;
            ctx.interrupt.finish();
            ctx.output.result(&view, || view.text())?;
        }
    }
    Ok(())
}

fn top(text: &str) -> Result<usize, ConfigError> {
    number_up_to(MAX_TOP, "top", text).map(|rows| rows as usize)
}

fn address(text: &str) -> Result<IpAddr, Refusal> {
    text.parse().map_err(|_| {
        let message = format!("{text:?} is not an address such as 203.0.113.7 or 2001:db8::1");
        Refusal::failed("malformed-value", message).on("source")
    })
}

/// One bucket, or the full one that a source without a bucket would begin with.
#[derive(Clone, Debug, Serialize)]
struct BucketView {
    /// Address or prefix; `null` for the bucket that sources without a place share.
    source: Option<String>,
    policy: String,
    /// `null` while the bucket is changing.
    tokens: Option<u32>,
    capacity: u32,
    /// `null` while the bucket is changing.
    full_in_ms: Option<u64>,
    /// Sampled: an estimate.
    refusals: u64,
    /// Whether there is a bucket in the map.
    bucket: bool,
}

impl BucketView {
    /// `None` if the slot is changing or another source's, or its policy was removed.
    fn new(
        source: Option<String>,
        slot: &BucketSlot,
        owner: Owner,
        record: &PolicyRecord,
        now: Instant,
    ) -> Option<Self> {
        let level = slot::read(slot, owner, record, now)?;
        Some(Self {
            refusals: slot.refusals,
            ..Self::at(source, level, record, now)?
        })
    }

    /// The bucket that a source begins with.
    fn full(source: String, record: &PolicyRecord, now: Instant) -> Option<Self> {
        let level = record.current.step()?.full(now.as_ns());
        Some(Self {
            bucket: false,
            ..Self::at(Some(source), level, record, now)?
        })
    }

    /// A bucket that is there and could not be read; `None` if its policy was removed.
    fn changing(source: String, record: &PolicyRecord) -> Option<Self> {
        let capacity = record.current.step()?.capacity.get();
        Some(Self {
            source: Some(source),
            policy: name_of(record),
            tokens: None,
            capacity,
            full_in_ms: None,
            refusals: 0,
            bucket: true,
        })
    }

    fn at(
        source: Option<String>,
        level: Level,
        record: &PolicyRecord,
        now: Instant,
    ) -> Option<Self> {
        let step = record.current.step()?;
        Some(Self {
            source,
            policy: name_of(record),
            tokens: Some(level.tokens),
            capacity: step.capacity.get(),
            full_in_ms: Some(step.until_full(level, now.as_ns()).div_ceil(NS_PER_MS)),
            refusals: 0,
            bucket: true,
        })
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.source
                .clone()
                .unwrap_or_else(|| "(overflow)".to_owned()),
            self.policy.clone(),
            self.tokens
                .map_or_else(|| "-".to_owned(), |tokens| format_number(tokens.into())),
            format_number(self.capacity.into()),
            match (self.bucket, self.full_in_ms) {
                (false, _) => "full, no bucket".to_owned(),
                (true, None) => "changing, ask again".to_owned(),
                (true, Some(0)) => "full".to_owned(),
                (true, Some(ms)) => format_wait(ms.saturating_mul(NS_PER_MS)),
            },
            format!("≈{}", format_number(self.refusals)),
        ]
    }
}

#[derive(Serialize)]
struct BucketsView {
    buckets: Vec<BucketView>,
    used: u64,
    capacity: u64,
}

impl BucketsView {
    fn read(filter: &Filter, set: &PolicySet, top: usize) -> anyhow::Result<Self> {
        let now = filter.now()?;
        let slots = filter.buckets()?;
        let mut buckets: Vec<BucketView> = slots
            .iter()
            .filter_map(|(key, slot)| {
                let record = set.policies.get(usize::from(key.policy))?;
                let owner = Owner::from_key(key);
                BucketView::new(Some(source_of(key, record)), slot, owner, record, now)
            })
            .collect();
        for id in policy_ids(set).into_iter().chain([PolicyId::FRAGMENTS]) {
            let slot = filter.overflow(id)?;
            if slot != BucketSlot::default() {
                let (owner, record) = (Owner::from_policy(id), &set.policies[id.index()]);
                buckets.extend(BucketView::new(None, &slot, owner, record, now));
            }
        }
        buckets.sort_by_cached_key(|bucket| {
            let left =
                u64::from(bucket.tokens.unwrap_or(0)) * 1_000 / u64::from(bucket.capacity.max(1));
            (
                Reverse(bucket.refusals),
                left,
                bucket.source.clone(),
                bucket.policy.clone(),
            )
        });
        buckets.truncate(top);
        Ok(Self {
            buckets,
            used: slots.len() as u64,
            capacity: filter.max_sources().into(),
        })
    }

    fn text(&self) -> String {
        let rows: Vec<_> = self.buckets.iter().map(BucketView::row).collect();
        format!(
            "{}{} of {} buckets in use\n",
            if rows.is_empty() {
                String::new()
            } else {
                table(&HEADER, &rows)
            },
            format_number(self.used),
            format_number(self.capacity)
        )
    }
}

#[derive(Serialize)]
struct SourceView {
    source: String,
    /// The entry of the allow list that lets it through, if any.
    allowed_by: Option<IpNet>,
    /// The entry of the deny list that blocks it, if any.
    denied_by: Option<IpNet>,
    buckets: Vec<BucketView>,
}

impl SourceView {
    fn read(filter: &Filter, set: &PolicySet, source: IpAddr) -> anyhow::Result<Self> {
        let mut buckets = Vec::new();
        for id in policy_ids(set).into_iter().chain([PolicyId::FRAGMENTS]) {
            buckets.extend(bucket_of(filter, source, id)?);
        }
        let holds = |list| -> anyhow::Result<Option<IpNet>> {
            let entries = filter.list_entries(list)?;
            let longest = entries
                .into_iter()
                .filter(|prefix| prefix.contains(&source));
            Ok(longest.max_by_key(IpNet::prefix_len))
        };
        let (allowed_by, denied_by) = (holds(List::Allow)?, holds(List::Deny)?);
        Ok(Self {
            source: source.to_string(),
            allowed_by,
            denied_by,
            buckets,
        })
    }

    fn text(&self) -> String {
        let rows: Vec<_> = self.buckets.iter().map(BucketView::row).collect();
        let mut text = table(&HEADER, &rows);
        if let Some(prefix) = self.allowed_by {
            text.push_str(&format!(
                "let through unexamined: the allow list has {prefix}\n"
            ));
        } else if let Some(prefix) = self.denied_by {
            text.push_str(&format!("blocked: the deny list has {prefix}\n"));
        }
        text
    }
}

/// The bucket of a source under a policy, `None` if the policy was removed.
///
/// A slot that is changing, or whose numbers are newer than the set, is read again with all that tells
/// what it means; only a source without a slot has a full bucket.
fn bucket_of(filter: &Filter, source: IpAddr, id: PolicyId) -> anyhow::Result<Option<BucketView>> {
    let mut tries = 1;
    loop {
        let (set, _) = in_force(filter)?;
        let record = &set.policies[id.index()];
        let key = Key::from_source(&wire(source), id, record.ipv4_prefix, record.ipv6_prefix);
        let name = source_of(&key, record);
        let slot = filter.bucket(&key)?;
        let now = filter.now()?;
        let Some(slot) = slot else {
            return Ok(BucketView::full(name, record, now));
        };
        let owner = Owner::from_key(&key);
        let view = BucketView::new(Some(name.clone()), &slot, owner, record, now);
        if view.is_some() {
            return Ok(view);
        }
        if tries == TRIES {
            return Ok(BucketView::changing(name, record));
        }
        tries += 1;
    }
}

const fn wire(source: IpAddr) -> Address {
    match source {
        IpAddr::V4(address) => Address::V4(address.octets()),
        IpAddr::V6(address) => Address::V6(address.octets()),
    }
}

/// The address or prefix of a key.
fn source_of(key: &Key, record: &PolicyRecord) -> String {
    let [a, b, c, d, ..] = key.prefix;
    let (address, length, whole) = if key.family == 4 {
        (
            IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            record.ipv4_prefix,
            32,
        )
    } else {
        (
            IpAddr::V6(Ipv6Addr::from(key.prefix)),
            record.ipv6_prefix,
            128,
        )
    };
    if length >= whole {
        address.to_string()
    } else {
        format!("{address}/{length}")
    }
}

const HEADER: [&str; 6] = [
    "source", "policy", "tokens", "capacity", "full in", "refusals",
];

/// Looks at a slot that is changing, before it is said to be.
const TRIES: u32 = 3;

/// Buckets that are shown unless `--top` says otherwise, and at most.
const DEFAULT_TOP: usize = 20;
const MAX_TOP: u32 = limit_common::layout::MAX_MAX_SOURCES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Facts, compile};

    #[test]
    fn shows_a_source_without_a_bucket_as_full() {
        let facts = Facts {
            max_sources: 64,
            namespace_cookie: 0,
        };
        let set = compile(
            &Config::built_in().unwrap(),
            None,
            Instant::from_ns(1),
            facts,
        )
        .unwrap();
        let view = BucketView::full("x".to_owned(), &set.policies[0], Instant::from_ns(5)).unwrap();
        assert_eq!(
            (view.tokens, view.capacity, view.full_in_ms, view.bucket),
            (Some(100), 100, Some(0), false)
        );
    }

    #[test]
    fn names_a_source_by_its_prefix() {
        let facts = Facts {
            max_sources: 64,
            namespace_cookie: 0,
        };
        let set = compile(
            &Config::built_in().unwrap(),
            None,
            Instant::from_ns(1),
            facts,
        )
        .unwrap();
        let record = &set.policies[0];
        let name = |ip: &str| {
            let key = Key::from_source(&wire(ip.parse().unwrap()), PolicyId::FRAGMENTS, 32, 64);
            source_of(&key, record)
        };
        assert_eq!(name("203.0.113.7"), "203.0.113.7");
        assert_eq!(name("2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
    }

    #[test]
    fn takes_a_number_of_rows_in_range_only() {
        assert_eq!(top("5").unwrap(), 5);
        for bad in ["0", "-1", "99999999999999999999"] {
            assert_eq!(top(bad).unwrap_err().code(), "out-of-range", "{bad}");
        }
        assert_eq!(top("all").unwrap_err().code(), "malformed-value");
        assert_eq!(address("eth0").unwrap_err().code, "malformed-value");
    }
}
