//! The controller of the limit filter: `limitctl` and everything it is made of.
//!
//! `main` -> [`cli`] -> one file per command; a command reads flags and files through [`config`],
//! touches the kernel through [`kernel`] alone, and stops where [`interrupt`] says so. [`metrics`] turns
//! counter rows into sums and exposition text. [`demo`] shows the filter at work.

mod bounded;
pub mod cli;
pub mod config;
pub mod demo;
pub mod error;
pub mod interrupt;
pub mod kernel;
pub mod metrics;
