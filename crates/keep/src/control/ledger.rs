//! Counts the permits: how many pages may be dirty, and how many are.
//!
//! The limit is what we promise to write out after the power fails, so it is a durability promise,
//! not a tuning hint. Limit and count share one atomic word: a permit is taken only by an exchange
//! that saw `held < limit`, so no schedule of threads and budget changes can pass the limit.
//!
//! Invariant: `held` rises only in [`Ledger::take`], and never above the limit of that instant. A
//! lowered limit may lie below `held`; then nothing is taken until enough came back.
//!
//! Does not know pages, choose victims, or block.

use wattkeep_sys::mutant::planted;

use super::primitives::{AtomicU32, AtomicU64, Ordering};

/// The permits of one store. Lives in shared memory; all zero means: no permits at all.
#[repr(C)]
pub struct Ledger {
    /// Limit in the upper, held in the lower 32 bits.
    word: AtomicU64,
    /// Highest `held` ever reached.
    held_max: AtomicU32,
    reserved: AtomicU32,
}

/// Limit and count, seen at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    /// How many permits exist.
    pub limit: u32,
    /// How many are held: pages that are dirty or on their way to the SSD.
    pub held: u32,
}

impl Permits {
    /// Permits that can be taken now.
    pub fn free(self) -> u32 {
        let limit = if planted("budget-plus-one") { self.limit + 1 } else { self.limit };
        limit.saturating_sub(self.held)
    }

    fn of(word: u64) -> Self {
        Self { limit: (word >> 32) as u32, held: word as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.limit) << 32 | u64::from(self.held)
    }
}

impl Ledger {
    /// A ledger of no permits.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), held_max: AtomicU32::new(0), reserved: AtomicU32::new(0) }
    }

    /// Takes up to `wanted` permits; returns how many, 0 when none is free.
    #[inline]
    #[must_use = "a permit that is not stored with its page is lost budget"]
    pub fn take(&self, wanted: u32) -> u32 {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let now = Permits::of(word);
            let taken = wanted.min(now.free());
            if taken == 0 {
                return 0;
            }
            let next = Permits { held: now.held + taken, ..now };
            if planted("limit-looked-at-apart") {
                self.word.fetch_add(u64::from(taken), Ordering::SeqCst);
                return taken;
            }
            match self.word.compare_exchange_weak(word, next.word(), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    if next.held > self.held_max.load(Ordering::Relaxed) {
                        self.held_max.fetch_max(next.held, Ordering::Relaxed);
                    }
                    return taken;
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// Gives permits back: the pages that held them equal the store again.
    #[inline]
    pub fn give_back(&self, count: u32) {
        if count > 0 {
            let before = Permits::of(self.word.fetch_sub(u64::from(count), Ordering::SeqCst));
            assert!(
                before.held >= count,
                "more permits came back ({count}) than were held ({})",
                before.held
            );
        }
    }

    /// Sets how many permits exist. Nothing held is taken away; see the invariant.
    pub fn set_limit(&self, limit: u32) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = Permits { limit, ..Permits::of(word) };
            match self.word.compare_exchange_weak(word, next.word(), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// Limit and count now.
    #[inline]
    pub fn permits(&self) -> Permits {
        Permits::of(self.word.load(Ordering::SeqCst))
    }

    /// The highest count since the store was opened.
    pub fn held_max(&self) -> u32 {
        self.held_max.load(Ordering::Relaxed)
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn no_permit_beyond_the_limit_for_racing_takers_and_limit_changes() {
        let ledger = Ledger::new();
        ledger.set_limit(100);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..20_000u32 {
                        let got = ledger.take(round % 7);
                        assert!(ledger.permits().held <= 200);
                        ledger.give_back(got);
                    }
                });
            }
            scope.spawn(|| (0..20_000u32).for_each(|round| ledger.set_limit(1 + round % 200)));
        });
        assert_eq!(ledger.permits().held, 0);
        assert!(ledger.held_max() <= 200, "held {} of at most 200", ledger.held_max());
    }

    #[test]
    fn a_lowered_limit_stops_permits_until_enough_came_back() {
        let ledger = Ledger::new();
        ledger.set_limit(10);
        assert_eq!(ledger.take(12), 10);
        ledger.set_limit(4);
        assert_eq!(ledger.take(1), 0);
        ledger.give_back(6);
        assert_eq!(ledger.take(1), 0);
        ledger.give_back(1);
        assert_eq!(ledger.take(5), 1);
    }
}
