//! The bytes of a packet, as something that answers "N bytes at this offset".
//!
//! The header walk reads through [`Frame`] alone, so one parser runs over slices in user space and
//! over packet memory in the kernel. A read copies: nothing borrows from the frame.

/// A received frame, starting at its destination MAC address.
pub trait Frame {
    /// The `N` bytes at `offset`, or `None` if any of them is not readable.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// Length of the whole frame in bytes: tags included, frame check sequence not.
    fn length(&self) -> u32;

    /// `offset` itself.
    ///
    /// The kernel's verifier follows a header walk once for every value that it can tell the position
    /// apart by. A frame in the kernel returns the position as one that the verifier knows nothing
    /// about, so that all ways to reach a header continue as one.
    #[must_use]
    fn forget(&self, offset: usize) -> usize {
        offset
    }
}

impl Frame for [u8] {
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let end = offset.checked_add(N)?;
        self.get(offset..end)?.try_into().ok()
    }

    fn length(&self) -> u32 {
        u32::try_from(self.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_up_to_the_last_byte_and_no_further() {
        let frame: &[u8] = &[1, 2, 3, 4];
        assert_eq!(frame.read::<2>(2), Some([3, 4]));
        assert_eq!(frame.read::<2>(3), None);
        assert_eq!(frame.read::<2>(usize::MAX), None);
    }
}
