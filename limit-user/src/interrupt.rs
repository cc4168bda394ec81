//! SIGINT, SIGTERM and `--timeout`, so that no work is left half-applied and no read hangs for ever.
//!
//! A watcher thread waits for them. While the main thread holds a [`Guard`] it changes something:
//! the watcher only leaves a note, which the main thread finds at its next [`Interrupt::check`] and
//! rolls back. At any other time nothing can be half-done, and the watcher ends the process itself.
//!
//! # Concurrency
//!
//! One mutex orders the note against taking a guard and against finishing, so a stop is either seen
//! before the first change, or found at a check, or came too late and the work counts as done.

use core::time::Duration;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, SyncSender},
    },
    thread,
};

use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{config::text::format_duration, error::Exit};

/// Why the work stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Stopped {
    /// The timeout passed.
    #[error(
        "timeout of {} passed before the work was done: nothing was changed", format_duration(*ns)
    )]
    Timeout {
        /// The timeout in nanoseconds.
        ns: u64,
    },
    /// A signal came.
    #[error("{0} came before the work was done: nothing was changed")]
    Signal(&'static str),
}

impl Stopped {
    /// The kind, in kebab case; stable.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Signal(_) => "interrupted",
        }
    }

    /// What the program ends with.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Timeout { .. } => Exit::TimedOut,
            Self::Signal(_) => Exit::Interrupted,
        }
    }
}

/// How far the work was at a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not done.
    Working,
    /// Done; at most the result is not written yet.
    Finished,
}

/// The note between the watcher and the main thread; a default one is never stopped.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Option<Stopped>,
    guards: usize,
    finished: bool,
    /// The watcher is ending the process, and it alone says why.
    ending: bool,
}

impl Interrupt {
    /// Starts the watcher; `end` is called at a stop outside any guard, on the watcher's thread, and
    /// is meant to end the process. A stop that comes after [`Self::finish`] gives the process a
    /// second to write its result, in case the reader of its output is gone for good.
    ///
    /// # Errors
    ///
    /// When a thread cannot be started or a signal cannot be waited for.
    pub fn watch(
        timeout_ns: Option<u64>,
        end: impl Fn(Stopped, Stage) + Send + 'static,
    ) -> io::Result<Self> {
        let interrupt = Self::default();
        let watched = interrupt.clone();
        let (ready, started) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("interrupt".to_owned())
            .spawn(move || run(&watched, timeout_ns, &ready, &end))?;
        started.recv().map_err(io::Error::other)??;
        Ok(interrupt)
    }

    /// Whether the work may go on.
    ///
    /// # Errors
    ///
    /// [`Stopped`] once a signal came or the timeout passed; the timeout wins over a signal.
    pub fn check(&self) -> Result<(), Stopped> {
        match self.lock().stopped {
            Some(stopped) => Err(stopped),
            None => Ok(()),
        }
    }

    /// Begins a part that changes something: until the guard is dropped, only [`Self::check`] tells.
    ///
    /// # Errors
    ///
    /// [`Stopped`] when it is too late to begin.
    pub fn guard(&self) -> Result<Guard, Stopped> {
        let mut shared = self.lock();
        if let Some(stopped) = shared.stopped {
            return Err(stopped);
        }
        shared.guards += 1;
        drop(shared);
        Ok(Guard {
            interrupt: self.clone(),
        })
    }

    /// The work is done: whatever comes later changes nothing about the outcome.
    ///
    /// Does not return once the watcher is ending the process: it has the last word, so that a stop and
    /// a result, or a stop and its own error, are never told both.
    pub fn finish(&self) {
        while !self.try_finish() {
            thread::park();
        }
    }

    fn try_finish(&self) -> bool {
        let mut shared = self.lock();
        shared.finished = !shared.ending;
        shared.finished
    }

    /// Leaves a note; says where it found the work, unless a guard is held.
    fn stop(&self, stopped: Stopped) -> Option<Stage> {
        let mut shared = self.lock();
        if shared.finished {
            return Some(Stage::Finished);
        }
        shared.stopped = match (shared.stopped, stopped) {
            (Some(timeout @ Stopped::Timeout { .. }), _)
            | (_, timeout @ Stopped::Timeout { .. }) => Some(timeout),
            (Some(first), _) => Some(first),
            (None, signal) => Some(signal),
        };
        shared.ending = shared.guards == 0;
        shared.ending.then_some(Stage::Working)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While this lives, the process is not ended from outside the main thread.
#[derive(Debug)]
#[must_use = "the part that changes something lasts as long as its guard"]
pub struct Guard {
    interrupt: Interrupt,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.interrupt.lock().guards -= 1;
    }
}

fn run(
    interrupt: &Interrupt,
    timeout_ns: Option<u64>,
    ready: &SyncSender<io::Result<()>>,
    end: &impl Fn(Stopped, Stage),
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return report(ready, Err(error)),
    };
    runtime.block_on(async {
        let (mut interrupted, mut terminated) = match signals() {
            Ok(signals) => signals,
            Err(error) => return report(ready, Err(error)),
        };
        let timeout = tokio::time::sleep(Duration::from_nanos(timeout_ns.unwrap_or(u64::MAX)));
        tokio::pin!(timeout);
        let mut timed = timeout_ns.is_some();
        report(ready, Ok(()));
        loop {
            let stopped = tokio::select! {
                biased;
                () = &mut timeout, if timed => {
                    timed = false;
                    Stopped::Timeout { ns: timeout_ns.unwrap_or(u64::MAX) }
                }
                _ = interrupted.recv() => Stopped::Signal("SIGINT"),
                _ = terminated.recv() => Stopped::Signal("SIGTERM"),
            };
            if let Some(stage) = interrupt.stop(stopped) {
                if stage == Stage::Finished {
                    tokio::time::sleep(GRACE).await;
                }
                end(stopped, stage);
            }
        }
    });
}

fn signals() -> io::Result<(Signal, Signal)> {
    Ok((
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    ))
}

fn report(ready: &SyncSender<io::Result<()>>, outcome: io::Result<()>) {
    // The receiver waits for exactly this; if it is gone, so is the process.
    ready.send(outcome).ok();
}

/// What a finished process has to write its result after a stop.
const GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Stopped = Stopped::Timeout { ns: 1 };
    const SIGNAL: Stopped = Stopped::Signal("SIGINT");

    #[test]
    fn never_stops_by_default() {
        let interrupt = Interrupt::default();
        assert_eq!(interrupt.check(), Ok(()));
        assert!(interrupt.guard().is_ok());
    }

    #[test]
    fn ends_the_process_only_outside_a_guard() {
        let interrupt = Interrupt::default();
        let guard = interrupt.guard().unwrap();
        assert_eq!(interrupt.stop(SIGNAL), None);
        assert_eq!(interrupt.check(), Err(SIGNAL));
        assert!(interrupt.guard().is_err());
        drop(guard);
        assert_eq!(interrupt.stop(SIGNAL), Some(Stage::Working));
    }

    #[test]
    fn lets_the_timeout_win_whichever_comes_first() {
        for (first, second) in [(TIMEOUT, SIGNAL), (SIGNAL, TIMEOUT)] {
            let interrupt = Interrupt::default();
            interrupt.stop(first);
            interrupt.stop(second);
            assert_eq!(interrupt.check(), Err(TIMEOUT));
        }
    }

    #[test]
    fn stops_nothing_that_is_finished() {
        let interrupt = Interrupt::default();
        interrupt.finish();
        assert_eq!(interrupt.stop(SIGNAL), Some(Stage::Finished));
        assert_eq!(interrupt.check(), Ok(()));
    }

    #[test]
    fn leaves_the_last_word_to_the_one_that_ends_the_process() {
        let interrupt = Interrupt::default();
        let guard = interrupt.guard().unwrap();
        interrupt.stop(SIGNAL);
        drop(guard);
        assert!(
            interrupt.try_finish(),
            "found at a check, told by the main thread"
        );
        let interrupt = Interrupt::default();
        interrupt.stop(SIGNAL);
        assert!(!interrupt.try_finish(), "told by the watcher");
        assert!(!interrupt.try_finish());
    }

    #[test]
    fn heeds_signals_after_a_timeout_that_came_under_a_guard() {
        let (sender, ended) = mpsc::channel();
        let interrupt = Interrupt::watch(Some(1_000_000), move |stopped, stage| {
            sender.send((stopped, stage)).ok();
        })
        .unwrap();
        let guard = interrupt.guard();
        while interrupt.check().is_ok() {
            thread::yield_now();
        }
        drop(guard);
        assert!(ended.try_recv().is_err(), "left to the guard's holder");
        nix::sys::signal::raise(nix::sys::signal::SIGTERM).unwrap();
        let (stopped, _) = ended.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(stopped, Stopped::Signal("SIGTERM"));
    }

    #[test]
    fn calls_end_when_the_timeout_passes() {
        let (sender, ended) = mpsc::sync_channel(1);
        let interrupt = Interrupt::watch(Some(1_000_000), move |stopped, stage| {
            // Signals of other tests come here too.
            sender.try_send((stopped, stage)).ok();
        });
        let timeout = Stopped::Timeout { ns: 1_000_000 };
        assert_eq!(ended.recv().unwrap(), (timeout, Stage::Working));
        assert!(interrupt.unwrap().check().is_err());
    }
}
