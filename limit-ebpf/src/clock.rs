//! Kernel time as an [`Instant`]; the only reader of a clock in the program.
//!
//! In production [`INJECTED_CLOCK`] is the constant 0, and the verifier removes the branch that a
//! test takes.

use core::ptr;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use limit_common::units::Instant;

use crate::maps::INJECTED_CLOCKS;

/// 1 makes [`now`] read the time that a test wrote; set by the loader before verification.
#[unsafe(no_mangle)]
static INJECTED_CLOCK: u8 = 0;

/// The filter's clock.
#[inline(always)]
pub(crate) fn now() -> Instant {
    // SAFETY: a static of type u8; the read is volatile because the loader changes its bytes.
    if unsafe { ptr::read_volatile(&raw const INJECTED_CLOCK) } != 0 {
        return Instant::from_ns(INJECTED_CLOCKS.get(0).copied().unwrap_or(0));
    }
    // SAFETY: the helper takes no argument and has no precondition.
    Instant::from_ns(unsafe { bpf_ktime_get_ns() })
}
