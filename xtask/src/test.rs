//! `test`: `check`, the object built from source, and the tests that load it into a kernel.

use std::process::Command;

use anyhow::{Result, bail};

use crate::apt::{self, Package};
use crate::build::{self, Built};
use crate::record::{self, Record};
use crate::steps::{Steps, output, run as run_command, shown};
use crate::workspace::Workspace;
use crate::{ceilings, check, machine};

/// Options of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Install what is missing: the BPF toolchain and the programs that tests use (Debian, as root).
    #[arg(long)]
    install: bool,
    /// Add what takes long: more property cases, and the tests that are left out for their length.
    #[arg(long)]
    full: bool,
}

/// Runs everything that the project checks.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let mut steps = Steps::default();
    if args.install {
        steps.run("install what the tests use", || apt::install(&PACKAGES));
    }
    check::add_steps(workspace, &mut steps);
    if args.full {
        steps.run("long unprivileged tests", || {
            run_command(&mut long_tests(workspace))
        });
        steps.run("weight of the core", || ceilings::weigh(workspace));
    }
    let built = build_object(workspace, &mut steps, args.install);
    compare(workspace, &mut steps, built.as_ref())?;
    privileged(workspace, &mut steps, built.is_some(), args.full)?;
    steps.finish()
}

/// Without a toolchain there is nothing to build with, which `--install` would mend.
fn build_object(workspace: &Workspace, steps: &mut Steps, install: bool) -> Option<Built> {
    const STEP: &str = "build the kernel object";
    let toolchain = build::find_toolchain(workspace, install);
    if toolchain.is_err() && !install {
        let why = "no toolchain here can; add --install, or `cargo xtask build-ebpf` says more";
        steps.leave_out(STEP, why);
        return None;
    }
    let mut built = None;
    steps.run(STEP, || {
        built = Some(build::build(workspace, toolchain?)?);
        Ok(())
    });
    built
}

fn long_tests(workspace: &Workspace) -> Command {
    let mut command = workspace.cargo();
    command
        .args([
            "test",
            "--locked",
            "--release",
            "-p",
            "limit-common",
            "--",
            "--include-ignored",
        ])
        .env("PROPTEST_CASES", "20000")
        .env(FULL, "1");
    command
}

/// Equal sources and equal tools must give equal bytes. What differs is no ground to compare.
fn compare(workspace: &Workspace, steps: &mut Steps, built: Option<&Built>) -> Result<()> {
    const STEP: &str = "compare with the committed object";
    let (Some(built), Some(record)) = (built, Record::read(&workspace.record())?) else {
        steps.leave_out(STEP, "there are not two objects to compare");
        return Ok(());
    };
    if record.sources != record::sources(workspace)? {
        steps.not_due(STEP, "it was built from other sources");
    } else if !built.has_tools_of(&record) {
        steps.not_due(
            STEP,
            &format!("it was built with other tools: {}", record.tools),
        );
    } else {
        steps.run(STEP, || built.compare(workspace));
    }
    Ok(())
}

fn privileged(workspace: &Workspace, steps: &mut Steps, built: bool, full: bool) -> Result<()> {
    const FROM_SOURCE: &str = "privileged tests of the object built from source";
    const COMMITTED: &str = "privileged tests of the committed object";
    if let Some(why) = obstacle()? {
        steps.leave_out(FROM_SOURCE, &why);
        steps.leave_out(COMMITTED, &why);
        return Ok(());
    }
    if built {
        let mut command = privileged_tests(workspace, full);
        command
            .args(["--skip", COMMITTED_OBJECT])
            .env("LIMIT_BPF_OBJECT", workspace.built_object());
        steps.run(FROM_SOURCE, || run_some(&mut command));
    } else {
        steps.leave_out(FROM_SOURCE, "the object was not built");
    }
    let mut command = privileged_tests(workspace, full);
    command.arg(COMMITTED_OBJECT).env_remove("LIMIT_BPF_OBJECT");
    steps.run(COMMITTED, || run_some(&mut command));
    Ok(())
}

/// Runs tests; none at all is a failure, not a success.
fn run_some(tests: &mut Command) -> Result<()> {
    let mut list = Command::new(tests.get_program());
    list.args(tests.get_args()).arg("--list");
    if let Some(folder) = tests.get_current_dir() {
        list.current_dir(folder);
    }
    if !output(&mut list)?
        .lines()
        .any(|line| line.ends_with(": test"))
    {
        bail!("no test matches: {}", shown(tests));
    }
    run_command(tests)
}

/// One test at a time: they share the machine's interfaces, and some of them measure.
fn privileged_tests(workspace: &Workspace, full: bool) -> Command {
    let mut command = workspace.cargo();
    command
        .args([
            "test",
            "--locked",
            "-p",
            "limit-user",
            "--test",
            "privileged",
            "--",
        ])
        .args(["--ignored", "--test-threads=1"]);
    if full {
        command.env(FULL, "1");
    }
    command
}

/// Why the privileged tests cannot run here.
fn obstacle() -> Result<Option<String>> {
    let capabilities = machine::missing_capabilities()?;
    if !capabilities.is_empty() {
        let names = capabilities.join(", ");
        return Ok(Some(format!("this process lacks {names}; run as root")));
    }
    let missing = apt::missing(&PACKAGES);
    if !missing.is_empty() {
        let command = apt::by_hand(&missing);
        return Ok(Some(format!(
            "programs are missing; add --install, or: {command}"
        )));
    }
    Ok(None)
}

/// Tells tests that long ones are wanted.
const FULL: &str = "LIMIT_TEST_FULL";

/// What the names of the tests of the committed object contain.
const COMMITTED_OBJECT: &str = "committed_object";

const PACKAGES: [Package; 3] = [
    Package {
        name: "iproute2",
        program: Some("ip"),
        why: "tests make namespaces and veth pairs, and attach a foreign program",
    },
    Package {
        name: "ethtool",
        program: Some("ethtool"),
        why: "tests switch offloads of veth pairs off, so that frames are what they look like",
    },
    Package {
        name: "bpftool",
        program: Some("bpftool"),
        why: "tests look at programs and links as an operator would",
    },
];
