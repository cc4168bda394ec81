//! How large `limitctl` may grow without its default features: crates, and bytes of the stripped binary.
//!
//! The figures are a decision (`docs/adr/0008-ceilings-for-the-core.md`) and stand here once.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::steps::{output, run};
use crate::workspace::Workspace;

/// Crates, `limitctl`'s own included.
const CRATES: usize = 95;

/// Bytes of the stripped binary, on x86-64.
const BYTES: u64 = 4_500_000;

/// Fails if the core is built from more crates than it may be.
pub(crate) fn count_crates(workspace: &Workspace) -> Result<()> {
    let mut tree = workspace.cargo();
    tree.args(
        "tree --locked -p limit-user --no-default-features -e normal --prefix none --no-dedupe \
         --format {p}"
            .split_whitespace(),
    );
    let count = distinct(&output(&mut tree)?);
    println!("{count} crates without default features, {CRATES} at most");
    if count > CRATES {
        bail!("the core is built from {count} crates, the ceiling is {CRATES}");
    }
    Ok(())
}

/// Builds the core and fails if it is larger than it may be.
pub(crate) fn weigh(workspace: &Workspace) -> Result<()> {
    let target = workspace.core_target();
    let mut build = workspace.cargo();
    build
        .args("build --locked --release -p limit-user --no-default-features".split(' '))
        .env("CARGO_TARGET_DIR", &target);
    run(&mut build)?;
    let binary = target.join("release/limitctl");
    let bytes = fs::metadata(&binary)
        .with_context(|| format!("weigh {}", binary.display()))?
        .len();
    println!("{bytes} bytes without default features, {BYTES} at most");
    if bytes > BYTES {
        bail!("the core weighs {bytes} bytes, the ceiling is {BYTES}");
    }
    Ok(())
}

/// Crates in a listing of one a line, a crate and its version each; repeats count once.
fn distinct(tree: &str) -> usize {
    let crates: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    crates.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_and_two_versions_of_it_twice() {
        let tree = "a v1.0.0 (/somewhere)\nb v2.0.0\n\nb v2.0.0\nb v2.1.0 (proc-macro)\n";
        assert_eq!(distinct(tree), 3);
    }
}
