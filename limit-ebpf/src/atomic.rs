//! Read-modify-write of words that CPUs share.
//!
//! `core`'s atomics have only load and store on BPF; the instructions for the rest exist (with
//! `-Ctarget-cpu=v3`) and are reached through the intrinsics. Both are full barriers.

#[cfg(target_arch = "bpf")]
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

/// Stores `new` in `*word` if it holds `expected`; whether it did.
///
/// # Safety
///
/// `word` is valid for reads and writes and aligned to 8 bytes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub(crate) unsafe fn compare_and_swap(word: *mut u64, expected: u64, new: u64) -> bool {
    // SAFETY: the caller's promise is the intrinsic's requirement.
    let (_, swapped) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
            word, expected, new,
        )
    };
    swapped
}

/// Adds `amount` to `*word`, wrapping; what it held before.
///
/// # Safety
///
/// `word` is valid for reads and writes and aligned to 8 bytes.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub(crate) unsafe fn fetch_add(word: *mut u64, amount: u64) -> u64 {
    // SAFETY: the caller's promise is the intrinsic's requirement.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(word, amount) }
}

/// Stores `new` in `*word` if it holds `expected`; whether it did.
///
/// # Safety
///
/// `word` is valid for reads and writes and aligned to 8 bytes.
#[cfg(not(target_arch = "bpf"))]
pub(crate) unsafe fn compare_and_swap(word: *mut u64, expected: u64, new: u64) -> bool {
    use core::sync::atomic::{AtomicU64, Ordering};
    // SAFETY: the caller's promise; every other access to the word is atomic too.
    let word = unsafe { AtomicU64::from_ptr(word) };
    word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

/// Adds `amount` to `*word`, wrapping; what it held before.
///
/// # Safety
///
/// `word` is valid for reads and writes and aligned to 8 bytes.
#[cfg(not(target_arch = "bpf"))]
pub(crate) unsafe fn fetch_add(word: *mut u64, amount: u64) -> u64 {
    use core::sync::atomic::{AtomicU64, Ordering};
    // SAFETY: the caller's promise; every other access to the word is atomic too.
    let word = unsafe { AtomicU64::from_ptr(word) };
    word.fetch_add(amount, Ordering::SeqCst)
}
