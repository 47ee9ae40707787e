//! What a trial found. Zero is the only good count, except for `tried`.

use serde::{Deserialize, Serialize};

/// The outcome of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    /// Images, faults, kills, flips, samples: what the trial counts.
    pub(crate) tried: u64,
    /// Pages, or tries, whose promised content was not there.
    pub(crate) lost: u64,
    /// Instants at which a bound or an order did not hold, and damage that was not reported.
    pub(crate) violations: u64,
    pub(crate) hangs: u64,
    pub(crate) panics: u64,
    pub(crate) seed: u64,
    /// The first failure: its cause, and the command that replays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
    /// What else a person wants to know, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    #[serde(default)]
    pub(crate) seconds: f64,
}

impl Outcome {
    /// A trial that has tried nothing yet.
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        Self { name: name.to_owned(), seed, ..Self::default() }
    }

    /// Nothing was lost, and something was tried.
    pub(crate) fn is_clean(&self) -> bool {
        self.tried > 0 && self.bad() == 0
    }

    /// Everything that must be zero, in one number.
    pub(crate) fn bad(&self) -> u64 {
        self.lost + self.violations + self.hangs + self.panics
    }

    /// Notes a failure; the first one is kept.
    pub(crate) fn fail(&mut self, cause: impl Into<String>) {
        self.failure.get_or_insert_with(|| cause.into());
    }

    /// Content that was promised is gone.
    pub(crate) fn lose(&mut self, count: u64, cause: impl Into<String>) {
        self.lost += count;
        self.fail(cause);
    }

    /// A bound, an order or a check did not hold.
    pub(crate) fn violate(&mut self, cause: impl Into<String>) {
        self.violations += 1;
        self.fail(cause);
    }

    /// Something did not end in its time.
    pub(crate) fn hang(&mut self, cause: impl Into<String>) {
        self.hangs += 1;
        self.fail(cause);
    }

    /// Something panicked, or died of a signal that nobody sent.
    pub(crate) fn panic(&mut self, cause: impl Into<String>) {
        self.panics += 1;
        self.fail(cause);
    }
}
