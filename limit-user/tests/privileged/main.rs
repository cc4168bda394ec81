//! Tests that need the kernel: run by `cargo xtask test`, as root or with CAP_BPF, CAP_NET_ADMIN and
//! CAP_SYS_ADMIN, without which they fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on is a failed test, and so are its helpers"
)]

mod agreement;
mod attach;
mod committed_object;
mod conformance;
mod demo;
mod filter;
#[path = "../../../limit-common/tests/support/frames.rs"]
mod frames;
mod killed;
mod loaded;
mod netns;
mod operations;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "../../../limit-common/tests/support/plain.rs"]
mod plain;
mod pure;
mod races;
mod reclaim;
mod reset;
mod review;
#[path = "../../../limit-common/tests/support/table.rs"]
mod table;
mod verdicts;
