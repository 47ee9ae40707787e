//! The keeper's clock: monotonic, or a simulation's.
//!
//! The engine reads it once per turn and hands that time on; only what measures or bounds a wait reads
//! it again. Knows nothing of dates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::control::primitives::yield_now;

/// Where the time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's.
    #[default]
    Monotonic,
    /// A simulation's.
    Simulated(SimulatedClock),
}

impl Clock {
    /// The time now.
    #[inline]
    pub fn now(&self) -> Instant {
        match self {
            Clock::Monotonic => Instant::now(),
            Clock::Simulated(clock) => clock.now(),
        }
    }

    /// Lets others run for a moment, in a wait that is bounded by this clock.
    pub fn yield_now(&self) {
        match self {
            Clock::Monotonic => yield_now(),
            Clock::Simulated(clock) => {
                clock.advance(SimulatedClock::YIELD);
                // The threads of a model are real enough to be waited for.
                #[cfg(shuttle)]
                yield_now();
            }
        }
    }
}

/// A clock that moves when it is told to. A clone shows the same time.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    origin: Instant,
    passed_ns: Arc<AtomicU64>,
}

impl SimulatedClock {
    /// What a thread that yields gives to others: long enough that bounded waits end soon.
    const YIELD: Duration = if cfg!(shuttle) { Duration::ZERO } else { Duration::from_millis(1) };

    /// A clock at zero.
    pub fn new() -> Self {
        Self { origin: Instant::now(), passed_ns: Arc::default() }
    }

    /// Time since the clock was made.
    pub fn passed(&self) -> Duration {
        Duration::from_nanos(self.passed_ns.load(Ordering::Relaxed))
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).expect("a simulation lasts less than 584 years");
        self.passed_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn now(&self) -> Instant {
        self.origin + self.passed()
    }
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_only_when_told_and_for_all_its_clones() {
        let twin = SimulatedClock::new();
        let clock = Clock::Simulated(twin.clone());
        let began = clock.now();
        assert_eq!(clock.now(), began);
        twin.advance(Duration::from_secs(3600));
        assert_eq!(clock.now() - began, Duration::from_secs(3600));
        clock.yield_now();
        assert_eq!(clock.now() - began, Duration::from_secs(3600) + SimulatedClock::YIELD);
    }
}
