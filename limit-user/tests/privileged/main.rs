//! Tests that need the kernel: run by `cargo xtask test`, as root or with CAP_BPF, CAP_NET_ADMIN and
//! CAP_SYS_ADMIN, without which they fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on is a failed test, and so are its helpers"
)]

mod attach;
mod filter;
mod killed;
mod netns;
