//! One slot in the memory of one CPU, for tests of the slot protocol.

use std::cell::Cell;

use limit_common::{
    bucket::slot::{Word, Words},
    layout::BucketSlot,
};

/// The slot's words in the order of its fields.
pub(crate) struct Memory(pub(crate) [Cell<u64>; 4]);

impl Memory {
    pub(crate) fn slot(&self) -> BucketSlot {
        let [state, base, meaning, owner] = [0, 1, 2, 3].map(|word| self.0[word].get());
        BucketSlot {
            state,
            base,
            meaning,
            owner,
            refusals: 0,
        }
    }

    pub(crate) fn overwrite(&self, slot: BucketSlot) {
        for (word, value) in self
            .0
            .iter()
            .zip([slot.state, slot.base, slot.meaning, slot.owner])
        {
            word.set(value);
        }
    }
}

impl From<BucketSlot> for Memory {
    fn from(slot: BucketSlot) -> Self {
        Self([slot.state, slot.base, slot.meaning, slot.owner].map(Cell::new))
    }
}

impl Words for Memory {
    fn load(&self, word: Word) -> u64 {
        self.0[word as usize].get()
    }

    fn store(&self, word: Word, value: u64) {
        self.0[word as usize].set(value);
    }

    fn swap(&self, expected: u64, new: u64) -> bool {
        let is_expected = self.0[0].get() == expected;
        if is_expected {
            self.0[0].set(new);
        }
        is_expected
    }
}

/// Memory that fails the test when it is written.
pub(crate) struct Unwritten<'a>(pub(crate) &'a Memory);

impl Words for Unwritten<'_> {
    fn load(&self, word: Word) -> u64 {
        self.0.load(word)
    }

    fn store(&self, word: Word, value: u64) {
        panic!("{word:?} written: {value:#x}");
    }

    fn swap(&self, expected: u64, new: u64) -> bool {
        panic!("state swapped: {expected:#x} to {new:#x}");
    }
}
