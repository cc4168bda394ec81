//! `limitctl show`: what is in force, read back from the kernel.

use clap::Args;
use serde::Serialize;

use super::{
    Context,
    context::in_force,
    policy::{self, NumbersView, PolicyView},
};
use crate::{
    config::{Config, text::format_bytes, text::format_number},
    error::Refusal,
    kernel::{AttachedInterface, Filter, List},
};

/// Flags of `show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Print a configuration file that `attach --config` reads back
    #[arg(long)]
    toml: bool,
}

/// Prints what is in force.
///
/// # Errors
///
/// When there is no filter, or it cannot be read.
pub fn run(args: &ShowArgs, ctx: &Context) -> anyhow::Result<()> {
    if args.toml && ctx.output.is_json() {
        let message = "--toml does not go with --json: give one of the two";
        return Err(Refusal::invalid("conflict", message).on("toml").into());
    }
    let filter = ctx.filter()?;
    let (set, config) = in_force(&filter)?;
    if args.toml {
        let file = config.to_raw().to_toml()?;
        ctx.interrupt.finish();
        ctx.output.text(&file)?;
        return Ok(());
    }
    let view = ShowView::read(&filter, set.revision, &config)?;
    ctx.interrupt.finish();
    ctx.output.result(&view, || view.text(&config))?;
    Ok(())
}

#[derive(Serialize)]
struct ShowView {
    revision: u64,
    folder: String,
    interfaces: Vec<InterfaceView>,
    keys: KeysView,
    policies: Vec<PolicyView>,
    fragments: NumbersView,
    lists: ListsView,
    max_sources: u32,
    memory_bytes: u64,
}

#[derive(Serialize)]
struct InterfaceView {
    /// `null` if the device is gone.
    interface: Option<String>,
    index: u32,
    xdp_mode: Option<String>,
    program_id: u32,
    /// Why it is not judged here, for people.
    #[serde(skip)]
    trouble: Option<String>,
}

#[derive(Serialize)]
struct KeysView {
    ipv4_prefix: u8,
    ipv6_prefix: u8,
}

#[derive(Serialize)]
struct ListsView {
    allow: usize,
    deny: usize,
}

impl From<AttachedInterface> for InterfaceView {
    fn from(interface: AttachedInterface) -> Self {
        Self {
            trouble: interface.trouble(),
            interface: interface.name,
            index: interface.index,
            xdp_mode: interface.mode.map(|mode| mode.to_string()),
            program_id: interface.program_id,
        }
    }
}

impl ShowView {
    fn read(filter: &Filter, revision: u64, config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            revision,
            folder: filter.folder().display().to_string(),
            interfaces: filter
                .interfaces()?
                .into_iter()
                .map(InterfaceView::from)
                .collect(),
            keys: KeysView {
                ipv4_prefix: config.keys.ipv4_prefix,
                ipv6_prefix: config.keys.ipv6_prefix,
            },
            policies: policy::views(config),
            fragments: NumbersView::from(config.fragments),
            lists: ListsView {
                allow: filter.list_entries(List::Allow)?.len(),
                deny: filter.list_entries(List::Deny)?.len(),
            },
            max_sources: filter.max_sources(),
            memory_bytes: filter.memory_bytes()?,
        })
    }

    fn text(&self, config: &Config) -> String {
        let mut text = String::new();
        for interface in &self.interfaces {
            let line = match (&interface.trouble, &interface.interface) {
                (None, Some(name)) => {
                    let mode = interface.xdp_mode.as_deref().unwrap_or("unknown");
                    format!("{name}: {mode} mode, program {}\n", interface.program_id)
                }
                (trouble, _) => format!("{}\n", trouble.as_deref().unwrap_or_default()),
            };
            text.push_str(&line);
        }
        text.push_str(&policy::lines(config));
        text.push_str(&policy::fragments_line(config));
        text.push_str(&format!(
            "sources: one for each IPv4 /{} and IPv6 /{}, room for {}\n",
            self.keys.ipv4_prefix,
            self.keys.ipv6_prefix,
            format_number(self.max_sources.into())
        ));
        text.push_str(&format!(
            "lists: {} allowed, {} denied\n",
            format_number(self.lists.allow as u64),
            format_number(self.lists.deny as u64)
        ));
        text.push_str(&format!(
            "filter: revision {}, {} of kernel memory, {}\n",
            self.revision,
            format_bytes(self.memory_bytes),
            self.folder
        ));
        text
    }
}
