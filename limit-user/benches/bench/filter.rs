//! The filter under measurement: loaded without pins, its policies in force.

use anyhow::{Context as _, Result};
use limit_common::counters::Counter;
use limit_user::{
    config::{Facts, RawConfig, compile},
    kernel::object::{self, LoadOptions, Loaded, Variant},
};

/// Loads the filter with the policies of this text in force.
pub(crate) fn load(policies: &str, max_sources: u32) -> Result<Loaded> {
    let mut loaded = object::load(&LoadOptions {
        max_sources,
        injected_clock: false,
        variant: Variant::Frags,
        pins: None,
    })?;
    let config = RawConfig::from_toml(policies, "the benchmark")?.validate()?;
    let facts = Facts {
        max_sources,
        namespace_cookie: 0,
    };
    let set = compile(&config, None, loaded.now()?, facts)?;
    loaded.tables.publish(&set)?;
    Ok(loaded)
}

/// The sum of one counter over all policies.
pub(crate) fn count(loaded: &Loaded, counter: Counter) -> Result<u64> {
    let rows = loaded.counters().context("read the counters")?;
    Ok(rows.iter().map(|row| row.values[counter.index()]).sum())
}
