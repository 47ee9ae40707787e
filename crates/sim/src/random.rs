//! Seeded chance: the same seed gives the same run on every machine.
//!
//! SplitMix64: one word of state, good enough to choose what to break. Not for secrets.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is positive.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True `part` times of `whole`.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }
}

/// The seed of a test: `WATTKEEP_SEED` when set, to replay a failure; `default` otherwise.
pub fn seed_from_environment(default: u64) -> u64 {
    std::env::var("WATTKEEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
