//! How fast a disk in memory is, on a simulated clock.
//!
//! One queue: a request begins when the one before it has ended, takes its bytes at the bandwidth, and
//! completes a latency later. Waiting for a completion moves the clock.

use std::time::Duration;

use wattkeep_keep::clock::SimulatedClock;

/// Bandwidth and latency of a device.
#[derive(Clone, Debug)]
pub struct Pace {
    clock: SimulatedClock,
    bytes_per_s: u64,
    latency: Duration,
    /// When the requests so far will have been moved.
    busy_until: Duration,
}

impl Pace {
    /// A device that is idle now.
    pub fn new(clock: SimulatedClock, bytes_per_s: u64, latency: Duration) -> Self {
        assert!(bytes_per_s > 0, "a device that moves nothing never completes");
        Self { clock, bytes_per_s, latency, busy_until: Duration::ZERO }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.passed()
    }

    pub(crate) fn wait_until(&self, time: Duration) {
        self.clock.advance(time.saturating_sub(self.now()));
    }

    /// When a request of so many bytes completes that is made now.
    pub(crate) fn due(&mut self, bytes: usize) -> Duration {
        let moving = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_s);
        self.busy_until = self.busy_until.max(self.now()) + moving;
        self.busy_until + self.latency
    }
}
