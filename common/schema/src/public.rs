//! Values that no one has to protect, and test records among them.
//!
//! Held-out metrics are a release like any other unless the records they are computed on are public. The type says so:
//! `metrics::evaluate` of dp-pvi-posterior takes only `Public` records, and what it returns,
//! `PublicMetrics`, is the only thing that an evaluator can report.

/// One row of features with its target: public test data, or a new row to predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example<'a> {
    /// Ascending positions of the non-zero features, below d.
    pub indices: &'a [u32],
    /// Their values.
    pub values: &'a [f64],
    /// Class 0 or 1, or the number to be predicted.
    pub target: f64,
    /// What is added to the linear predictor without a coefficient.
    pub offset: f64,
    /// What else is known of the record.
    pub extra: Extra,
}

/// What a record has beside features, target and offset: nothing, for most tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extra {
    /// So many times the record's log likelihood counts.
    pub weight: f64,
    /// Survival: the time from which on the record was watched. The target is the time at which that ended.
    pub entry: f64,
    /// Survival: whether it ended with the event.
    pub event: bool,
}

impl Extra {
    /// Counts once; no survival time.
    pub const NONE: Self = Self { weight: 1.0, entry: 0.0, event: false };
}

impl Default for Extra {
    fn default() -> Self {
        Self::NONE
    }
}

/// A value that no one has to protect.
///
/// # Privacy
/// No mechanism is between a `Public` value and the network. The one place that may declare a value public is the loader of public
/// files, which refuses data that has a privacy ledger; a test over the sources holds this.
#[derive(Clone)]
pub struct Public<T>(T);

impl<T> Public<T> {
    /// States that a value is public. For the loader of public files only.
    #[must_use]
    pub fn declare(value: T) -> Self {
        Self(value)
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }

    /// The value; it is no longer marked as public.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Records that a posterior can be evaluated on.
pub trait TestRecords {
    /// All records, in any order.
    fn examples(&self) -> impl Iterator<Item = Example<'_>>;
}

impl TestRecords for Vec<Example<'_>> {
    fn examples(&self) -> impl Iterator<Item = Example<'_>> {
        self.iter().copied()
    }
}
