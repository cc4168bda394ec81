//! `limitctl attach`: interfaces join the filter of their namespace, which is made if there is none.
//!
//! Whole or not at all: what is asked for is checked before anything changes; an interface that
//! fails takes those before it back with it; policies of a filter that exists change last.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{
    Context,
    policy::{self, PolicyView},
    ssh::Session,
};
use crate::{
    config::{Config, PolicyFlags, text},
    kernel::{Attached, Interface, Mode, ModeChoice, probe},
};

mod job;
mod wish;

use job::{Done, Job};
use wish::Wish;

/// Flags of `attach`.
#[derive(Args, Debug)]
pub struct AttachArgs {
    /// Interfaces to attach to; all of them or none
    #[arg(required = true, value_name = "IFACE")]
    interfaces: Vec<String>,

    /// TOML file with the policies, in place of policy flags [default: none]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where XDP runs: in the driver, in the network stack, or the first that works
    #[arg(long, value_name = "MODE", default_value = "auto")]
    xdp_mode: XdpModeWord,

    /// Sources that have a bucket of their own at once, 64 to 16777216 [default: 262144]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_sources: Option<String>,

    #[command(flatten)]
    policy: PolicyFlags,
}

/// Values of `--xdp-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum XdpModeWord {
    /// Native, else generic
    Auto,
    /// In the driver
    Native,
    /// In the network stack
    Generic,
}

/// Attaches, and prints how.
///
/// # Errors
///
/// Whatever is wrong with the input or refused by the kernel; the state before is unchanged.
pub fn run(args: &AttachArgs, ctx: &Context) -> anyhow::Result<()> {
    let wish = Wish::from_args(args)?;
    let max_sources = args
        .max_sources
        .as_deref()
        .map(wish::max_sources)
        .transpose()?;
    let interfaces = find_all(&args.interfaces)?;
    probe::require_capabilities()?;
    let job = Job {
        wish,
        max_sources,
        choice: choice(args.xdp_mode),
        interfaces,
        ctx,
    };
    job.warn_of_flap();

    let change = ctx.begin_change()?;
    let done = job.carry_out(&change)?;
    ctx.interrupt.finish();
    drop(change);
    report(&job, &done)
}

/// The interfaces by name, each once.
fn find_all(names: &[String]) -> anyhow::Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::with_capacity(names.len());
    for name in names {
        let interface = Interface::find(name)?;
        if found.iter().all(|other| other.index != interface.index) {
            found.push(interface);
        }
    }
    Ok(found)
}

const fn choice(word: XdpModeWord) -> ModeChoice {
    match word {
        XdpModeWord::Auto => ModeChoice::Auto,
        XdpModeWord::Native => ModeChoice::Native,
        XdpModeWord::Generic => ModeChoice::Generic,
    }
}

/// Prints what came of it.
fn report(job: &Job<'_>, done: &Done) -> anyhow::Result<()> {
    let mut warnings = policy::warnings(&done.config);
    for (interface, attached) in job.interfaces.iter().zip(&done.attached) {
        if attached.mode == Mode::Generic && attached.fallback_reason.is_some() {
            warnings.push(format!(
                "{interface} runs in generic mode, several times slower"
            ));
        }
        let resets = policy::reset_warning(&interface.kind, attached.mode, &done.config);
        warnings.extend(resets.map(|warning| format!("{interface}: {warning}")));
        warnings.extend(interface.advice()?);
    }
    if let Some(session) = Session::of_this_shell() {
        warnings.extend(session.warning(&done.set, &done.allowed));
    }
    let interfaces = job
        .interfaces
        .iter()
        .zip(&done.attached)
        .map(InterfaceView::from);
    let view = AttachView {
        interfaces: interfaces.collect(),
        created: done.created,
        max_sources: done.max_sources,
        memory_bytes: done.memory_bytes,
        policies: policy::views(&done.config),
        warnings: warnings.clone(),
    };
    job.ctx.output.result(&view, || view.text(&done.config))?;
    for warning in &warnings {
        job.ctx.output.warn(warning);
    }
    Ok(())
}

#[derive(Serialize)]
struct AttachView {
    interfaces: Vec<InterfaceView>,
    created: bool,
    max_sources: u32,
    memory_bytes: u64,
    policies: Vec<PolicyView>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct InterfaceView {
    interface: String,
    xdp_mode: String,
    /// Why native was refused, if it was tried.
    native_refused: Option<String>,
    replaced: bool,
    multi_buffer: bool,
}

impl From<(&Interface, &Attached)> for InterfaceView {
    fn from((interface, attached): (&Interface, &Attached)) -> Self {
        Self {
            interface: interface.name.clone(),
            xdp_mode: attached.mode.to_string(),
            native_refused: attached.fallback_reason.clone(),
            replaced: attached.replaced,
            multi_buffer: attached.frags,
        }
    }
}

impl AttachView {
    fn text(&self, config: &Config) -> String {
        let mut text = String::new();
        for view in &self.interfaces {
            let verb = if view.replaced {
                "program replaced in place"
            } else {
                "attached"
            };
            text.push_str(&format!(
                "{}: {verb} in {} mode",
                view.interface, view.xdp_mode
            ));
            if let Some(reason) = &view.native_refused {
                text.push_str(&format!(" ({reason})"));
            }
            text.push('\n');
        }
        text.push_str(&format!(
            "filter: {}, room for {} sources, {} of kernel memory\n",
            if self.created { "made" } else { "joined" },
            text::format_number(self.max_sources.into()),
            text::format_bytes(self.memory_bytes),
        ));
        text.push_str(&policy::lines(config));
        text
    }
}
