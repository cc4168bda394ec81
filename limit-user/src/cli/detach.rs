//! `limitctl detach`: interfaces leave the filter; the last one removes it.

use clap::Args;
use serde::Serialize;

use super::{Context, context::attached};
use crate::{
    error::Refusal,
    kernel::{AttachedInterface, Filter, KernelError, Presence},
};

/// Flags of `detach`.
#[derive(Args, Debug)]
pub struct DetachArgs {
    /// Interfaces to detach
    #[arg(value_name = "IFACE", required_unless_present = "all")]
    interfaces: Vec<String>,

    /// Detach every interface and remove the filter, or what is left of one
    #[arg(long)]
    all: bool,
}

/// Detaches, and prints what.
///
/// # Errors
///
/// When an interface is not attached (nothing is changed), or the kernel refuses.
pub fn run(args: &DetachArgs, ctx: &Context) -> anyhow::Result<()> {
    if args.all && !args.interfaces.is_empty() {
        let message = "--all does not go with interfaces: give one of the two";
        return Err(Refusal::invalid("conflict", message).on("all").into());
    }
    let view = if args.all {
        detach_all(ctx)?
    } else {
        detach_named(&args.interfaces, ctx)?
    };
    ctx.output.result(&view, || view.text())?;
    Ok(())
}

fn detach_all(ctx: &Context) -> anyhow::Result<DetachView> {
    let change = ctx.begin_change()?;
    let mut view = DetachView {
        detached: Vec::new(),
        filter_removed: false,
        left_over: false,
    };
    match Filter::presence(&ctx.root)? {
        Presence::None => {}
        Presence::Here(filter) => {
            view.detached = filter.interfaces()?.iter().map(name).collect();
            ctx.check()?;
            filter.remove(&change.lock)?;
            view.filter_removed = true;
        }
        Presence::Dead => {
            Filter::remove_leftovers(&change.lock)?;
            view.left_over = true;
        }
        Presence::Incomplete => {
            view.detached = Filter::judged_by_leftovers(&ctx.root)?;
            Filter::remove_leftovers(&change.lock)?;
            view.left_over = true;
        }
        Presence::OtherLayout(_) => {
            // Opening it is what names the layout and the way out.
            Filter::open(&ctx.root)?;
        }
    }
    ctx.interrupt.finish();
    Ok(view)
}

fn detach_named(names: &[String], ctx: &Context) -> anyhow::Result<DetachView> {
    let change = ctx.begin_change()?;
    let Some(mut filter) = Filter::open(&ctx.root)? else {
        let name = names.first().cloned().unwrap_or_default();
        return Err(KernelError::NotAttached { name }.into());
    };
    let mut leaving: Vec<AttachedInterface> = Vec::with_capacity(names.len());
    for name in names {
        let interface = attached(&filter, name)?;
        if leaving.iter().all(|other| other.index != interface.index) {
            leaving.push(interface);
        }
    }
    ctx.check()?;
    let detached = leaving.iter().map(name).collect();
    let stays = |other: &AttachedInterface| {
        other.device != 0
            && leaving
                .iter()
                .all(|interface| interface.index != other.index)
    };
    let filter_removed = !filter.interfaces()?.iter().any(stays);
    if filter_removed {
        filter.remove(&change.lock)?;
    } else {
        for interface in &leaving {
            filter.detach(&change.lock, interface.index)?;
        }
    }
    ctx.interrupt.finish();
    Ok(DetachView {
        detached,
        filter_removed,
        left_over: false,
    })
}

fn name(interface: &AttachedInterface) -> String {
    interface.name.clone().unwrap_or_else(|| {
        let what = if interface.is_gone() {
            "gone"
        } else {
            "moved away"
        };
        format!("index {} ({what})", interface.index)
    })
}

#[derive(Serialize)]
struct DetachView {
    detached: Vec<String>,
    filter_removed: bool,
    /// What was removed belonged to a dead namespace or was never completed.
    left_over: bool,
}

impl DetachView {
    fn text(&self) -> String {
        let mut text = String::new();
        for name in &self.detached {
            text.push_str(&format!("{name}: detached\n"));
        }
        text.push_str(match (self.filter_removed, self.left_over) {
            (true, _) => "filter: removed\n",
            (false, true) => "filter: leftovers removed\n",
            (false, false) if self.detached.is_empty() => "nothing is attached\n",
            (false, false) => "",
        });
        text
    }
}
