//! The one source of chance: a seeded generator with the two draws that workloads need.
//!
//! Invariant: the same seed gives the same draws on every machine; only integer and exactly
//! rounded floating-point operations are used.
//!
//! Does not know what the draws decide.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream that belongs to `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number from 0 up to, not including, `bound`; each as likely, up to `bound` / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 up to, not including, 1, in steps of 2^-53.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}
