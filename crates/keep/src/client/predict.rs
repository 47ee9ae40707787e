//! Guesses how many pages the next fault should make writable.
//!
//! A fault right behind the last run says that the program writes forward: the run doubles. A fault
//! elsewhere says that it does not: the run shrinks to a quarter. Every page of a run is charged, so a wrong
//! guess costs permits for a while, never the bound. Does not know states or permits.

use crate::control::primitives::{AtomicU32, Ordering};
use crate::limits::{GRANT_RUN_MAX, GRANT_RUN_SHARE};

/// Follows the faults of one region. Races between threads only spoil the guess.
#[derive(Debug, Default)]
pub struct Predictor {
    /// Page behind the last run.
    next: AtomicU32,
    /// Length of the last run.
    run: AtomicU32,
}

impl Predictor {
    /// Pages to ask for, from `page` on, with `free` permits left.
    #[inline]
    pub fn run_at(&self, page: u32, free: u32) -> u32 {
        let last = self.run.load(Ordering::Relaxed);
        let run = if page == self.next.load(Ordering::Relaxed) { last.saturating_mul(2) } else { last / 4 };
        run.clamp(1, GRANT_RUN_MAX).min((free / GRANT_RUN_SHARE).max(1))
    }

    /// Remembers that `run` pages from `page` on were granted.
    #[inline]
    pub fn granted(&self, page: u32, run: u32) {
        self.next.store(page.wrapping_add(run), Ordering::Relaxed);
        self.run.store(run, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_on_sequential_faults_and_collapse_on_random_ones() {
        let predictor = Predictor::default();
        let (mut page, mut faults) = (0, 0);
        while page < 4096 {
            let run = predictor.run_at(page, u32::MAX);
            predictor.granted(page, run);
            (page, faults) = (page + run, faults + 1);
        }
        assert!(faults < 4096 / 64, "{faults} faults for 4096 pages in order");
        for page in [9000, 70, 31_000, 5] {
            predictor.granted(page, predictor.run_at(page, u32::MAX));
        }
        assert_eq!(predictor.run_at(1234, u32::MAX), 1);
    }

    #[test]
    fn a_run_never_takes_more_than_its_share_of_the_free_permits() {
        let predictor = Predictor::default();
        predictor.granted(0, GRANT_RUN_MAX);
        assert_eq!(predictor.run_at(GRANT_RUN_MAX, 10 * GRANT_RUN_SHARE), 10);
        assert_eq!(predictor.run_at(GRANT_RUN_MAX, 0), 1);
    }
}
