//! Medians and spreads.

/// The middle of many rounds, and how far they lie apart.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// A tenth of the rounds lie below this.
    pub(crate) p10: f64,
    /// A tenth of the rounds lie above this.
    pub(crate) p90: f64,
}

impl Summary {
    /// The summary of at least one sample.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |tenths: usize| sorted[(sorted.len() - 1) * tenths / 10];
        Self {
            median: at(5),
            p10: at(1),
            p90: at(9),
        }
    }
}
