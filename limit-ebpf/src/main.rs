//! The XDP side of limit: entry points, and the one place where a verdict becomes an XDP action.
//!
//! Thin by intent: memory and maps are read here, decisions are `limit_common`'s. Each entry point
//! exists twice, once for frames in one buffer and once for multi-buffer frames, since a kernel
//! either loads a program as `xdp.frags` or does not know the section.

#![cfg_attr(
    target_arch = "bpf",
    no_std,
    no_main,
    feature(asm_experimental_arch, core_intrinsics)
)]
#![cfg_attr(
    target_arch = "bpf",
    expect(
        internal_features,
        reason = "BPF `core` has no atomic read-modify-write but these"
    )
)]
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

mod answer;
mod atomic;
mod bucket;
mod clock;
mod counters;
mod frame;
mod gate;
mod maps;
mod pipeline;

use aya_ebpf::{bindings::xdp_action, macros::xdp, programs::XdpContext};
use limit_common::{layout::tails, verdict::Action};

use crate::{
    answer::reset::{Sent, send},
    frame::{Buffers, XdpFrame},
    maps::TAILS,
};

/// The licence that the kernel's GPL-only helpers ask for.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// The filter, over frames in one buffer.
#[xdp]
fn limit(ctx: XdpContext) -> u32 {
    filter(&ctx, Buffers::One)
}

/// The filter, over multi-buffer frames.
#[xdp(frags)]
fn limit_frags(ctx: XdpContext) -> u32 {
    filter(&ctx, Buffers::Many)
}

/// Answers the SYN that `limit` refused with a reset; entered by tail call.
#[xdp]
fn reset(ctx: XdpContext) -> u32 {
    refuse(&ctx, Buffers::One)
}

/// Answers the SYN that `limit_frags` refused with a reset; entered by tail call.
#[xdp(frags)]
fn reset_frags(ctx: XdpContext) -> u32 {
    refuse(&ctx, Buffers::Many)
}

/// Writes the filter's clock into the first 8 bytes of the packet; only ever test-run.
#[xdp]
fn filter_clock(ctx: XdpContext) -> u32 {
    let frame = XdpFrame::new(&ctx, Buffers::One);
    if frame.write(0, clock::now().as_ns().to_le_bytes()) {
        xdp_action::XDP_PASS
    } else {
        xdp_action::XDP_ABORTED
    }
}

/// Judges the frame, counts it, and says what becomes of it.
#[inline(always)]
fn filter(ctx: &XdpContext, buffers: Buffers) -> u32 {
    let frame = XdpFrame::new(ctx, buffers);
    let judgement = pipeline::judge(&frame);
    match judgement.action {
        Action::Pass => xdp_action::XDP_PASS,
        Action::Drop => xdp_action::XDP_DROP,
        Action::Reset => {
            counters::hand_over(judgement.policy);
            // SAFETY: nothing in this frame of the stack needs to be dropped, so that it may be left
            // for good; `ctx` is the context that the kernel passed to this program.
            unsafe { TAILS.tail_call(ctx, tails::RESET) };
            counters::count_undelivered(judgement.policy);
            xdp_action::XDP_DROP
        }
        Action::Answer => {
            counters::count_undelivered(judgement.policy);
            xdp_action::XDP_DROP
        }
    }
}

/// Sends the reset, or drops where none may or can be sent.
#[inline(always)]
fn refuse(ctx: &XdpContext, buffers: Buffers) -> u32 {
    let sent = send(&XdpFrame::new(ctx, buffers));
    counters::count_reset(sent);
    match sent {
        Sent::Reset => xdp_action::XDP_TX,
        Sent::Nothing => xdp_action::XDP_DROP,
    }
}

/// BPF has nothing to unwind to; the verifier proves that no path leads here.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The program runs in the kernel; on the host this crate is only checked and unit-tested.
#[cfg(not(target_arch = "bpf"))]
const fn main() {}
