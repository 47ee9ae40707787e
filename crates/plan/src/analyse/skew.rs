//! How few pages take most of the writes (Viyojit, section 3, figures 3 and 4).
//!
//! "We first count the number of writes to logical pages in a given volume. Next, we count the number of
//! pages that contribute to (say) 90% of the total writes on that particular volume during the entire
//! trace duration. Finally, we divide this number of pages by the total number of pages touched (read or
//! written)." Figure 4 divides by all pages of the volume instead. A request that covers three pages
//! writes each of them once. The most written pages are taken first, until their sum reaches the share.

/// Shares of the writes, in percent.
pub const SHARES_PERCENT: [u64; 3] = [90, 95, 99];

/// Pages that take each of [`SHARES_PERCENT`] of the writes, from the writes of each page. Sorts `writes`.
pub fn pages_taking(writes: &mut [u64]) -> [u64; 3] {
    writes.sort_unstable_by(|a, b| b.cmp(a));
    let total: u128 = writes.iter().map(|writes| u128::from(*writes)).sum();
    let mut taking = [0; 3];
    if total == 0 {
        return taking;
    }
    let (mut sum, mut share) = (0_u128, 0);
    for (pages, writes) in (1..).zip(writes.iter()) {
        sum += u128::from(*writes);
        while share < taking.len() && sum * 100 >= total * u128::from(SHARES_PERCENT[share]) {
            taking[share] = pages;
            share += 1;
        }
        if share == taking.len() {
            break;
        }
    }
    taking
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_pages_that_reach_a_share_are_counted() {
        assert_eq!(pages_taking(&mut [1, 0, 90, 4, 5]), [1, 2, 3]);
        assert_eq!(pages_taking(&mut [1; 100]), [90, 95, 99]);
        assert_eq!(pages_taking(&mut [1; 10]), [9, 10, 10], "9.5 pages are 10");
        assert_eq!(pages_taking(&mut [7]), [1, 1, 1]);
        assert_eq!(pages_taking(&mut []), [0, 0, 0]);
        assert_eq!(pages_taking(&mut [0, 0]), [0, 0, 0], "nothing was written");
        assert_eq!(pages_taking(&mut [u64::MAX, u64::MAX, 1]), [2, 2, 2]);
    }
}
