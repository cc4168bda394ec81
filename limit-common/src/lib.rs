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

pub mod bucket;
pub mod config;
pub mod counters;
pub mod frame;
pub mod gate;
pub mod key;
pub mod layout;
pub mod packet;
pub mod pipeline;
pub mod reset;
pub mod units;
pub mod verdict;
