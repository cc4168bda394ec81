//! Whether the bucket pays: one file per algorithm, each a pure step from state and time to state.
//!
//! [`step`] is the arithmetic, [`range`] the numbers it takes, [`slot`] the same arithmetic on words
//! that several CPUs share, [`generation`] what becomes of a bucket when the numbers change.

pub mod generation;
pub mod range;
pub mod slot;
pub mod step;

/// What a bucket answered to one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The bucket paid.
    Admit {
        /// Tokens left after the payment.
        remaining: u32,
    },
    /// The bucket holds less than the cost.
    Limit {
        /// Tokens it holds.
        remaining: u32,
    },
    /// The cost is above the capacity: no wait helps.
    CostExceedsCapacity {
        /// Tokens the bucket holds.
        remaining: u32,
    },
}

impl Outcome {
    /// Whether the bucket paid.
    #[must_use]
    #[inline(always)]
    pub const fn is_admitted(self) -> bool {
        matches!(self, Self::Admit { .. })
    }

    /// Tokens in the bucket after the answer.
    #[must_use]
    #[inline(always)]
    pub const fn remaining(self) -> u32 {
        match self {
            Self::Admit { remaining }
            | Self::Limit { remaining }
            | Self::CostExceedsCapacity { remaining } => remaining,
        }
    }
}
