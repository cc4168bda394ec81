//! The command line from outside: the real binary, without privileges, changing nothing.
//!
//! Every run has a pin root of its own that is no bpffs, so that not even root could change anything
//! there; runs that are about missing privileges give them up first.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod files;
mod flags;
mod help;
mod lists;
mod privileges;
mod program;
mod stopping;
mod usage;
