//! The pure part of the limit filter: bytes in, a verdict out, with no clock, allocation or I/O.
//!
//! A packet flows one way, and the modules follow it:
//!
//! ```text
//! frame -> packet -> key -> gate -> bucket -> verdict -> counters
//! bytes    headers   who    may we   can it   what we    what we
//!                           at all?  pay?     do         tell
//! ```
//!
//! [`pipeline::judge`] is that flow as one function. The XDP program, the tests and every user-space
//! tool call it over their own [`frame::Frame`] and [`pipeline::Tables`], so they decide alike.

#![no_std]
#![deny(clippy::float_arithmetic)]
#![warn(
    clippy::allow_attributes,
    clippy::arithmetic_side_effects,
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::doc_markdown,
    clippy::exit,
    clippy::indexing_slicing,
    clippy::let_underscore_must_use,
    clippy::manual_let_else,
    clippy::map_err_ignore,
    clippy::missing_const_for_fn,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::redundant_clone,
    clippy::semicolon_if_nothing_returned,
    clippy::significant_drop_tightening,
    clippy::std_instead_of_core,
    clippy::too_long_first_doc_paragraph,
    clippy::unnecessary_safety_comment,
    clippy::unnecessary_safety_doc,
    clippy::unused_async,
    clippy::use_self,
    clippy::wildcard_enum_match_arm,
    clippy::wildcard_imports
)]

pub mod bucket;
pub mod config;
pub mod counters;
pub mod frame;
pub mod gate;
pub mod key;
pub mod layout;
pub mod packet;
pub mod pipeline;
#[expect(
    clippy::cast_possible_truncation,
    reason = "checksums are made of the halves of words"
)]
pub mod reset;
pub mod units;
pub mod verdict;
