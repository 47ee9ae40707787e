//! Request distributions of the YCSB: zipfian, scrambled zipfian, latest.
//!
//! Zipf's law gives the item of rank r (from 0) a share of (r + 1)^-θ / zeta(n, θ). Ranks are
//! drawn by the method of Gray and others ("Quickly generating billion-record synthetic
//! databases", SIGMOD 1994), as the YCSB does: one uniform draw and one power, no table. The
//! first two ranks are exact; the others follow the continuous curve, within a per cent of the law
//! for any large set of ranks.
//!
//! Ranks are scattered over the records by the FNV hash of the rank modulo the number of records,
//! as the YCSB does. Hashing gives some records several ranks and others none: with as many ranks
//! as records, some 40 % are never asked for (pure chance would leave 1/e, 37 %), and the skew is
//! a little stronger than the law's.
//!
//! One thing the YCSB's Java code does differently, and we offer as [`Universe::Stock`]: it draws
//! ranks from 10^10 items, whatever the number of records, and folds them onto the records. That
//! is much flatter (of a million records, the hottest tenth gets 54 % of the requests instead of
//! 84 %) and leaves no record out. [`Universe::Loaded`] is the law over the records there are.
//!
//! Invariants: drawn ranks are below the number of items. The same seed draws the same ranks with
//! the same mathematics library; libraries that round a power differently in its last bit could
//! move one draw in some 10^13, because zeta is computed with it.
//!
//! Does not know records, offsets or time.

use super::random::Random;

/// The YCSB's zipfian constant θ.
pub const ZIPF_CONSTANT: f64 = 0.99;

/// Items the YCSB's scrambled zipfian generator draws from, whatever the number of records.
const STOCK_ITEMS: u64 = 10_000_000_000;

/// Which items the zipfian ranks range over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Universe {
    /// The records that were loaded: Zipf's law as written.
    #[default]
    Loaded,
    /// 10^10 items folded onto the records, as the YCSB's Java code does.
    Stock,
}

impl Universe {
    /// Items to draw from when `records` were loaded.
    pub fn items(self, records: u64) -> u64 {
        match self {
            Self::Loaded => records,
            Self::Stock => STOCK_ITEMS,
        }
    }
}

/// Draws ranks by Zipf's law; rank 0 is the most wanted.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    /// 1 / (1 - θ) where that is a whole number, as for 0.99: then powers are products, which are
    /// faster than a general power and equal on every machine.
    alpha_whole: Option<u32>,
    alpha: f64,
    eta: f64,
    /// u × zeta below this draws rank 0 or 1.
    first_two: f64,
}

impl Zipf {
    /// Zipf's law over `items` with the constant `theta`.
    ///
    /// # Panics
    /// If there are fewer than three items, or `theta` is not between 0 and 1.
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(items > 2, "Gray's method needs three items");
        assert!(theta > 0.0 && theta < 1.0, "Gray's method needs 0 < theta < 1");
        let alpha = 1.0 / (1.0 - theta);
        let whole = alpha.round();
        let mut zipf = Self {
            items,
            theta,
            zeta: zeta(items, theta),
            alpha_whole: ((alpha - whole).abs() < 1e-9 && whole < 1e6).then_some(whole as u32),
            alpha,
            eta: 0.0,
            first_two: 1.0 + 0.5_f64.powf(theta),
        };
        zipf.set_eta();
        zipf
    }

    /// Items the ranks range over.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Adds one item, at the cold end.
    pub fn grow(&mut self) {
        self.items += 1;
        self.zeta += (self.items as f64).powf(-self.theta);
        self.set_eta();
    }

    fn set_eta(&mut self) {
        let items = self.items as f64;
        self.eta = (1.0 - (2.0 / items).powf(1.0 - self.theta)) / (1.0 - self.first_two / self.zeta);
    }

    /// The rank that the uniform draw `u` from [0, 1) stands for.
    #[inline]
    pub fn rank(&self, u: f64) -> u64 {
        let place = u * self.zeta;
        if place < 1.0 {
            return 0;
        }
        if place < self.first_two {
            return 1;
        }
        let base = self.eta * u - self.eta + 1.0;
        let power = match self.alpha_whole {
            Some(exponent) => whole_power(base, exponent),
            None => base.powf(self.alpha),
        };
        // Rounding may reach the number of items itself when u is next to 1.
        ((self.items as f64 * power) as u64).min(self.items - 1)
    }

    #[inline]
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        self.rank(random.unit())
    }
}

/// zeta(n, θ): the sum of i^-θ for i from 1 to n.
///
/// Sums the first terms and integrates the rest (Euler and Maclaurin), to within 1e-12: a region
/// of any size is ready at once.
pub fn zeta(items: u64, theta: f64) -> f64 {
    const SUMMED: u64 = 1000;
    let term = |i: u64| (i as f64).powf(-theta);
    let summed: f64 = (1..=items.min(SUMMED)).map(term).sum();
    if items <= SUMMED {
        return summed;
    }
    let (from, to) = (SUMMED as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (term(items) - term(SUMMED)) / 2.0;
    let slope = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    summed + integral + ends + slope
}

/// Scatters a rank over `records`, as the YCSB's scrambled zipfian generator does.
#[inline]
pub fn scramble(rank: u64, records: u64) -> u64 {
    fnv64(rank) % records
}

/// The YCSB's `fnvhash64`: FNV-1a over the eight bytes, lowest first, as a positive number.
#[inline]
fn fnv64(value: u64) -> u64 {
    const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let mut hash = OFFSET_BASIS;
    for byte in value.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    }
    (hash as i64).unsigned_abs()
}

/// `base` to a whole power, by squaring: the same products in the same order everywhere.
#[inline]
fn whole_power(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        square *= square;
        left >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_equals_the_plain_sum() {
        for items in [1, 2, 999, 1000, 1001, 1_000_000] {
            let plain: f64 = (1..=items).map(|i| (i as f64).powf(-ZIPF_CONSTANT)).sum();
            assert!((zeta(items, ZIPF_CONSTANT) - plain).abs() < 1e-9, "{items}");
        }
    }

    #[test]
    fn zeta_of_the_stock_universe_equals_the_constant_in_the_ycsb_source() {
        assert!((zeta(STOCK_ITEMS, ZIPF_CONSTANT) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    #[test]
    fn growing_equals_starting_larger() {
        let mut grown = Zipf::new(1000, ZIPF_CONSTANT);
        for _ in 0..500 {
            grown.grow();
        }
        let fresh = Zipf::new(1500, ZIPF_CONSTANT);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9);
        assert!((grown.eta - fresh.eta).abs() < 1e-9);
    }

    #[test]
    fn the_hot_tenth_gets_the_share_that_the_law_gives_it() {
        const ITEMS: u64 = 1_000_000;
        const DRAWS: u64 = 2_000_000;
        let zipf = Zipf::new(ITEMS, ZIPF_CONSTANT);
        let mut random = Random::new(1);
        let hot = (0..DRAWS).filter(|_| zipf.draw(&mut random) < ITEMS / 10).count();
        let drawn = hot as f64 / DRAWS as f64;
        let law = zeta(ITEMS / 10, ZIPF_CONSTANT) / zeta(ITEMS, ZIPF_CONSTANT);
        assert!((drawn / law - 1.0).abs() < 0.01, "drawn {drawn}, law {law}");
    }

    #[test]
    fn the_hottest_item_gets_the_share_that_the_law_gives_it() {
        const DRAWS: u64 = 2_000_000;
        let zipf = Zipf::new(1_000_000, ZIPF_CONSTANT);
        let mut random = Random::new(2);
        let first = (0..DRAWS).filter(|_| zipf.draw(&mut random) == 0).count();
        let drawn = first as f64 / DRAWS as f64;
        assert!((drawn * zipf.zeta - 1.0).abs() < 0.02, "{drawn}");
    }

    #[test]
    fn products_and_the_general_power_agree() {
        let whole = Zipf::new(1_000_000, ZIPF_CONSTANT);
        let mut general = whole.clone();
        general.alpha_whole = None;
        for i in 0..10_000 {
            let u = f64::from(i) / 10_000.0;
            assert!(whole.rank(u).abs_diff(general.rank(u)) <= 1, "{u}");
        }
    }

    #[test]
    fn ranks_stay_below_the_number_of_items() {
        for items in [3, 4, 10, 1_000_000, STOCK_ITEMS] {
            let zipf = Zipf::new(items, ZIPF_CONSTANT);
            assert_eq!(zipf.rank(0.0), 0);
            assert!(zipf.rank(1.0 - f64::EPSILON / 2.0) < items);
        }
    }

    #[test]
    fn the_hash_is_fnv_1a_of_the_eight_bytes() {
        // The YCSB's first key is user6284781860667377211.
        assert_eq!(fnv64(0), 6_284_781_860_667_377_211);
        assert_eq!(fnv64(1_234_567), 4_406_382_118_621_181_934);
    }
}
