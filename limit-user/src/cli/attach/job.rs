//! Carries an attach out, whole or not at all.

use ipnet::IpNet;
use limit_common::{config::PolicySet, layout::DEFAULT_MAX_SOURCES};

use super::wish::Wish;
use crate::{
    cli::{
        Context,
        context::{Change, in_force},
    },
    config::{Config, Facts, compile},
    error::Refusal,
    kernel::{
        Attached, Filter, Interface, KernelError, List, ModeChoice, Options, Presence, links::Kind,
    },
};

/// One attach: everything it needs.
pub(super) struct Job<'a> {
    pub(super) wish: Wish,
    pub(super) max_sources: Option<u32>,
    pub(super) choice: ModeChoice,
    pub(super) interfaces: Vec<Interface>,
    pub(super) ctx: &'a Context,
}

/// What came of it.
pub(super) struct Done {
    pub(super) created: bool,
    pub(super) attached: Vec<Attached>,
    pub(super) config: Config,
    pub(super) set: Box<PolicySet>,
    pub(super) allowed: Vec<IpNet>,
    pub(super) memory_bytes: u64,
    pub(super) max_sources: u32,
}

impl Job<'_> {
    /// Says first that a link may flap, where a driver of its own will be asked.
    pub(super) fn warn_of_flap(&self) {
        let asked: Vec<&str> = self
            .interfaces
            .iter()
            .filter(|device| may_flap(device))
            .map(|device| device.name.as_str())
            .collect();
        if self.choice != ModeChoice::Generic && !asked.is_empty() {
            self.ctx.output.warn(&format!(
                "attaching in native mode resets the link of some NICs for a moment ({}); \
                 `--xdp-mode generic` never does",
                asked.join(", ")
            ));
        }
    }

    pub(super) fn carry_out(&self, change: &Change) -> anyhow::Result<Done> {
        match Filter::presence(&self.ctx.root)? {
            // The last interface takes the filter with it, so this one was cut off.
            Presence::Here(filter) if filter.interfaces()?.is_empty() => {
                self.note_leftovers();
                filter.remove(&change.lock)?;
                self.create(change)
            }
            Presence::Here(filter) => self.join(*filter, change),
            Presence::None => self.create(change),
            Presence::Dead => {
                self.note_leftovers();
                self.create(change)
            }
            Presence::Incomplete => {
                if Filter::judged_by_leftovers(&self.ctx.root)?.is_empty() {
                    self.note_leftovers();
                }
                self.create(change)
            }
            Presence::OtherLayout(_) => {
                // Opening it is what names the layout and the way out.
                Filter::open(&self.ctx.root)?;
                self.create(change)
            }
        }
    }

    fn note_leftovers(&self) {
        self.ctx
            .output
            .note("replacing the leftovers of a filter that nothing uses");
    }

    fn create(&self, change: &Change) -> anyhow::Result<Done> {
        let config = self.wish.for_new()?;
        let max_sources = self.max_sources.unwrap_or(DEFAULT_MAX_SOURCES);
        let mut filter = Filter::create(&change.lock, &Options { max_sources })?;
        let outcome = self
            .publish(&mut filter, None, &config, change)
            .and_then(|set| {
                let attached = self.attach_all(&mut filter, change)?;
                self.done(&filter, true, attached, &config, set)
            });
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => Err(undone(error, filter.remove(&change.lock))),
        }
    }

    /// Interfaces come before the policies: a refusal there is what is likely, and takes itself back,
    /// while a set that was in force for a moment cannot be undone for the buckets that met it. Until
    /// the new set is in force, an interface that joins is judged by the one before.
    fn join(&self, mut filter: Filter, change: &Change) -> anyhow::Result<Done> {
        let has = filter.max_sources();
        if let Some(asked) = self.max_sources.filter(|asked| *asked != has) {
            return Err(Refusal::invalid(
                "max-sources-differ",
                format!(
                    "the filter has room for {has} sources, not {asked}: leave --max-sources out to \
                     keep it, or `limitctl detach --all` and attach again to resize it"
                ),
            )
            .on("max_sources")
            .into());
        }
        let (set, current) = in_force(&filter)?;
        let next = self.wish.over(&current)?;
        let attached = self.attach_all(&mut filter, change)?;
        let outcome = if next == current {
            Ok(set)
        } else {
            self.publish(&mut filter, Some(&set), &next, change)
        };
        match outcome {
            Ok(set) => {
                if let Err(error) = self.forget_gone(&mut filter, change) {
                    self.ctx
                        .output
                        .warn(&format!("pins of a device that is gone stay: {error}"));
                }
                self.done(&filter, false, attached, &next, set)
            }
            Err(error) => Err(self.take_back(error, &mut filter, &attached, change)),
        }
    }

    /// Drops the pins of devices that are gone, so that they do not pile up; names those that are not
    /// judged here for another reason, and keeps theirs.
    fn forget_gone(&self, filter: &mut Filter, change: &Change) -> anyhow::Result<()> {
        for interface in filter.interfaces()? {
            if interface.is_gone() {
                filter.detach(&change.lock, interface.index)?;
            } else if let Some(trouble) = interface.trouble() {
                self.ctx.output.warn(&trouble);
            }
        }
        Ok(())
    }

    fn publish(
        &self,
        filter: &mut Filter,
        previous: Option<&PolicySet>,
        config: &Config,
        change: &Change,
    ) -> anyhow::Result<Box<PolicySet>> {
        let facts = Facts {
            max_sources: filter.max_sources(),
            namespace_cookie: Filter::namespace_cookie()?,
        };
        let set = compile(config, previous, filter.now()?, facts)?;
        self.ctx.check()?;
        filter.publish(&change.lock, &set)?;
        Ok(set)
    }

    /// Attaches every interface, or none.
    fn attach_all(&self, filter: &mut Filter, change: &Change) -> anyhow::Result<Vec<Attached>> {
        let mut done: Vec<Attached> = Vec::with_capacity(self.interfaces.len());
        for interface in &self.interfaces {
            let outcome = self
                .ctx
                .check()
                .map_err(anyhow::Error::from)
                .and_then(|()| {
                    let interrupt = &self.ctx.interrupt;
                    Ok(filter.attach(&change.lock, interface, self.choice, interrupt)?)
                });
            match outcome {
                Ok(attached) => done.push(attached),
                Err(error) => return Err(self.take_back(error, filter, &done, change)),
            }
        }
        Ok(done)
    }

    /// Detaches the interfaces that joined just now, and says so if one will not.
    fn take_back(
        &self,
        mut error: anyhow::Error,
        filter: &mut Filter,
        attached: &[Attached],
        change: &Change,
    ) -> anyhow::Error {
        for (interface, attached) in self.interfaces.iter().zip(attached) {
            if !attached.replaced {
                let detached = filter.detach(&change.lock, interface.index);
                error = undone(error, detached);
            }
        }
        error
    }

    fn done(
        &self,
        filter: &Filter,
        created: bool,
        attached: Vec<Attached>,
        config: &Config,
        set: Box<PolicySet>,
    ) -> anyhow::Result<Done> {
        Ok(Done {
            created,
            attached,
            config: config.clone(),
            set,
            allowed: filter.list_entries(List::Allow)?,
            memory_bytes: filter.memory_bytes()?,
            max_sources: filter.max_sources(),
        })
    }
}

/// Whether the link of a device, or of those below it, may go down for a moment at a native attach.
fn may_flap(device: &Interface) -> bool {
    matches!(device.kind, Kind::Device | Kind::Bond) && device.programs.is_empty()
}

/// An error after which the state before was restored, or not.
fn undone(error: anyhow::Error, outcome: Result<(), KernelError>) -> anyhow::Error {
    match outcome {
        Ok(()) => error,
        Err(second) => error.context(format!(
            "not everything could be taken back ({second}); `limitctl detach --all` removes the rest"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expects_the_links_of_cards_and_bonds_to_flap() {
        let of = |kind| Interface {
            kind,
            ..Interface::find("lo").unwrap()
        };
        assert!(may_flap(&of(Kind::Device)) && may_flap(&of(Kind::Bond)));
        assert!(!may_flap(&of(Kind::Veth)) && !may_flap(&of(Kind::Bridge)));
    }
}
