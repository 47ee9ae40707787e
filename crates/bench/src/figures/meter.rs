//! Processor time of the thread that measures: what is left of a figure when nobody waits.
//!
//! Wall time says what a program sees, and on a shared machine also what others took. Processor time of
//! one thread is nearly free of others, but it hides waiting: it is for notes, and never a figure.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Adds up the processor time of one side of a measurement.
#[derive(Default)]
pub(super) struct Meter {
    seconds: Cell<f64>,
    units: Cell<f64>,
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

impl Meter {
    /// Runs `work`, which does as many units as it answers beside its result.
    pub(super) fn run<T, E>(&self, work: impl FnOnce() -> Result<(T, u64), E>) -> Result<T, E> {
        let began = thread_time();
        let (result, units) = work()?;
        let spent = thread_time().saturating_sub(began);
        self.seconds.set(self.seconds.get() + spent.as_secs_f64());
        self.units.set(self.units.get() + units as f64);
        Ok(result)
    }

    fn micros_each(&self) -> f64 {
        self.seconds.get() * 1e6 / self.units.get()
    }

    /// The note: ours beside theirs.
    pub(super) fn beside(&self, theirs: &Self) -> String {
        let (ours, theirs) = (self.micros_each(), theirs.micros_each());
        format!(
            "processor time of the thread alone: {ours:.3} µs each beside {theirs:.3} µs ({:.2}x)",
            ours / theirs
        )
    }
}
