//! `check`: everything that needs no root and no BPF toolchain.

use anyhow::Result;

use crate::steps::{Steps, run as run_command};
use crate::workspace::Workspace;
use crate::{ceilings, record, tidy};

/// Runs all checks.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut steps = Steps::default();
    add_steps(workspace, &mut steps);
    steps.finish()
}

/// Runs all checks as part of a longer command.
pub(crate) fn add_steps(workspace: &Workspace, steps: &mut Steps) {
    steps.run("tidy", || tidy::run(workspace));
    steps.run("record of the committed object", || {
        record::check(workspace)
    });
    steps.run("crates of the core", || ceilings::count_crates(workspace));
    let mut cargo = |name: &str, arguments: &str, variable: Option<(&str, &str)>| {
        let mut command = workspace.cargo();
        command.args(arguments.split(' ')).envs(variable);
        steps.run(name, || run_command(&mut command));
    };
    cargo("format", "fmt --all --check", None);
    cargo(
        "clippy",
        "clippy --locked --workspace --all-targets -- -D warnings",
        None,
    );
    // The workspace builds with the features of all its members; each end of the core by itself:
    cargo(
        "clippy without features",
        "clippy --locked -p limit-common -p limit-user --no-default-features --all-targets -- -D warnings",
        None,
    );
    cargo(
        "documentation",
        "doc --locked --workspace --no-deps --document-private-items",
        Some(("RUSTDOCFLAGS", "-D warnings")),
    );
    cargo("unprivileged tests", "test --locked --workspace", None);
}
