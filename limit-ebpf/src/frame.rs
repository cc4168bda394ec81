//! Packet memory: the only reads and writes of it.
//!
//! A read copies bytes out and a write copies bytes in; no reference into the packet is ever made,
//! so that moving the packet's head or tail cannot leave one behind.

use core::{mem::size_of, ptr};

use aya_ebpf::{
    helpers::{bpf_xdp_adjust_tail, bpf_xdp_get_buff_len},
    programs::XdpContext,
};
use limit_common::frame::Frame;

/// How the driver may lay out a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// In one buffer: what is readable is all there is.
    One,
    /// In several: only the first is readable in place.
    Many,
}

/// The frame of one program run.
pub(crate) struct XdpFrame<'a> {
    ctx: &'a XdpContext,
    length: u32,
}

impl<'a> XdpFrame<'a> {
    /// The frame of `ctx`.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no frame comes near 2^32 bytes"
    )]
    pub(crate) fn new(ctx: &'a XdpContext, buffers: Buffers) -> Self {
        let length = match buffers {
            Buffers::One => ctx.data_end().saturating_sub(ctx.data()) as u64,
            // SAFETY: `ctx` is the context that the kernel passed to this program.
            Buffers::Many => unsafe { bpf_xdp_get_buff_len(ctx.ctx) },
        };
        // No frame comes near 2^32 bytes. A saturating conversion would add a path on which the
        // verifier knows the length, and `forget` needs one that it never knows.
        Self {
            ctx,
            length: length as u32,
        }
    }

    /// Copies `bytes` into the frame at `offset`; false, and nothing written, if they do not fit in
    /// the readable part.
    #[inline(always)]
    #[must_use]
    pub(crate) fn write<const N: usize>(&self, offset: usize, bytes: [u8; N]) -> bool {
        let Some(start) = self.locate::<N>(offset) else {
            return false;
        };
        // SAFETY: `start + N <= data_end` (checked by `locate`); [u8; N] has alignment 1; the packet
        // is not aliased, since no reference into it exists.
        unsafe { ptr::write(start as *mut [u8; N], bytes) };
        true
    }

    /// Cuts the frame to `length` bytes; false if the kernel refuses.
    #[inline(always)]
    #[must_use]
    pub(crate) fn truncate(&self, length: usize) -> bool {
        let Ok(length) = i32::try_from(length) else {
            return false;
        };
        let Ok(current) = i32::try_from(self.length) else {
            return false;
        };
        // SAFETY: `ctx` is the context that the kernel passed to this program; no pointer into the
        // packet outlives this call, since reads and writes locate theirs anew.
        unsafe { bpf_xdp_adjust_tail(self.ctx.ctx, length.wrapping_sub(current)) == 0 }
    }

    /// The address of `N` bytes at `offset`, if all of them are readable.
    ///
    /// `N` is at least 2: for one byte the compiler tests `start >= data_end`, from which the verifier
    /// learns nothing when `start` is the very pointer that is read.
    #[inline(always)]
    fn locate<const N: usize>(&self, offset: usize) -> Option<usize> {
        const { assert!(N >= 2, "the verifier loses track of single bytes") };
        if offset > FARTHEST_BYTE {
            return None;
        }
        let start = self.ctx.data().wrapping_add(offset);
        if start.wrapping_add(size_of::<[u8; N]>()) > self.ctx.data_end() {
            return None;
        }
        Some(start)
    }
}

impl Frame for XdpFrame<'_> {
    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.locate::<N>(offset)?;
        // SAFETY: `start + N <= data_end` (checked by `locate`); the bytes are copied, so nothing
        // outlives a later change of head or tail.
        Some(unsafe { load(start) })
    }

    #[inline(always)]
    fn length(&self) -> u32 {
        self.length
    }

    #[inline(always)]
    fn forget(&self, offset: usize) -> usize {
        forget(offset, self.length) & FARTHEST_BYTE
    }
}

/// The `N` bytes at `address`, by the widest loads that fit.
///
/// A plain copy of bytes has alignment 1, and the compiler for BPF then loads, shifts and joins every
/// byte by itself: 100 instructions more for an IPv6 packet. The verifier takes wide loads from
/// any offset wherever the CPU does (x86-64, arm64, and most others).
///
/// # Safety
///
/// All of them are readable, and stay so while this runs.
#[inline(always)]
#[cfg(target_arch = "bpf")]
unsafe fn load<const N: usize>(address: usize) -> [u8; N] {
    const { assert!(N < 24 && N.is_multiple_of(2)) };
    let mut bytes = [0; N];
    if N >= 8 {
        // SAFETY: the first 8 of the bytes that the caller vouches for.
        let word = unsafe { load_word!("u64", address) };
        put(&mut bytes, 0, word.to_ne_bytes());
    }
    if N >= 16 {
        // SAFETY: the next 8 of them.
        let word = unsafe { load_word!("u64", address.wrapping_add(8)) };
        put(&mut bytes, 8, word.to_ne_bytes());
    }
    if N % 8 >= 4 {
        let done = N / 8 * 8;
        // SAFETY: 4 of them, after whole groups of 8.
        let word = unsafe { load_word!("u32", address.wrapping_add(done)) };
        put(&mut bytes, done, (word as u32).to_ne_bytes());
    }
    if N % 4 >= 2 {
        let done = N / 4 * 4;
        // SAFETY: 2 of them, after whole groups of 4.
        let word = unsafe { load_word!("u16", address.wrapping_add(done)) };
        put(&mut bytes, done, (word as u16).to_ne_bytes());
    }
    bytes
}

/// One load of this type, widened to 64 bits.
#[cfg(target_arch = "bpf")]
macro_rules! load_word {
    ($type:literal, $address:expr) => {{
        let word: u64;
        core::arch::asm!(
            concat!("{0} = *(", $type, " *)({1} + 0)"),
            out(reg) word,
            in(reg) $address,
            options(pure, readonly, nostack),
        );
        word
    }};
}
#[cfg(target_arch = "bpf")]
use load_word;

#[inline(always)]
#[cfg(target_arch = "bpf")]
fn put<const N: usize>(bytes: &mut [u8], offset: usize, word: [u8; N]) {
    if let Some(place) = bytes.get_mut(offset..offset.wrapping_add(N)) {
        place.copy_from_slice(&word);
    }
}

/// The `N` bytes at `address`.
///
/// # Safety
///
/// All of them are readable, and stay so while this runs.
#[cfg(not(target_arch = "bpf"))]
unsafe fn load<const N: usize>(address: usize) -> [u8; N] {
    // SAFETY: the caller's promise; [u8; N] has alignment 1 and takes any bits.
    unsafe { ptr::read(address as *const [u8; N]) }
}

/// `value` itself, as one that neither the compiler nor the verifier knows anything about, if the
/// verifier does not know `unknown`. The caller masks it to give it a bound again.
#[inline(always)]
#[cfg(target_arch = "bpf")]
pub(crate) fn forget(value: usize, unknown: u32) -> usize {
    let mut forgotten = value as u64;
    // SAFETY: two exclusive ors with the same value change nothing, and touch no memory.
    unsafe {
        core::arch::asm!(
            "{0} ^= {1}",
            "{0} ^= {1}",
            inout(reg) forgotten,
            in(reg) u64::from(unknown),
            options(pure, nomem, nostack),
        );
    }
    forgotten as usize
}

/// `value` itself.
#[cfg(not(target_arch = "bpf"))]
pub(crate) const fn forget(value: usize, _unknown: u32) -> usize {
    value
}

/// Beyond this no header is read: the verifier wants a bound, and a chain of eight IPv6 extension
/// headers of the greatest length ends before it.
const FARTHEST_BYTE: usize = 0x7fff;
