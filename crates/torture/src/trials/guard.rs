//! Runs one history of a trial: what goes wrong in it becomes a line of the outcome that names its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::outcome::Outcome;

/// What a history may end with, besides success.
pub(crate) enum Bad {
    /// Content that was promised is not there.
    Lost(String),
    /// A bound, an order or a check did not hold.
    Violated(String),
}

/// Runs `history`; `None`, and a failure in the outcome that begins with `story`, when it went wrong.
pub(crate) fn guarded<T>(
    outcome: &mut Outcome,
    story: &str,
    history: impl FnOnce() -> Result<T, Bad>,
) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(history)) {
        Ok(Ok(done)) => return Some(done),
        Ok(Err(Bad::Lost(cause))) => outcome.lose(1, format!("{story}: {cause}")),
        Ok(Err(Bad::Violated(cause))) => outcome.violate(format!("{story}: {cause}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            outcome.panic(format!("{story}: panicked: {}", text.unwrap_or_default()));
        }
    }
    None
}
