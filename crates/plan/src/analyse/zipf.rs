//! The share of pages that take most of the writes under Zipf's law, as pages become more (Viyojit,
//! section 3, figure 5).
//!
//! Not drawn at random but computed: with the constant θ, the k most written of N pages take
//! `zeta(k, θ) / zeta(N, θ)` of the writes, so k for a share is found by halving. The printed trend:
//! "the fraction of pages used at a given percentile of writes, say 90%, decreases proportionately as the
//! total number of pages increase".

use serde::Serialize;
use wattkeep_bench::workload::zipf::{ZIPF_CONSTANT, zeta};

use super::skew::SHARES_PERCENT;

/// One point of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ZipfPoint {
    /// Pages in all.
    pub pages: u64,
    /// Percent of them that take 90 % of the writes.
    pub p90_of_total_percent: f64,
    /// 95 %.
    pub p95_of_total_percent: f64,
    /// 99 %.
    pub p99_of_total_percent: f64,
}

/// The figure: from a thousand pages (4 MB) to a thousand million (4 TB), ten times more each step.
pub fn figure_5() -> Vec<ZipfPoint> {
    (3..=9).map(|power| point(10_u64.pow(power))).collect()
}

/// Whether the fraction falls with each step and for each share, as the paper prints it.
pub fn falls(points: &[ZipfPoint]) -> bool {
    points.windows(2).all(|pair| {
        let [a, b] = [&pair[0], &pair[1]];
        b.p90_of_total_percent < a.p90_of_total_percent
            && b.p95_of_total_percent < a.p95_of_total_percent
            && b.p99_of_total_percent < a.p99_of_total_percent
    })
}

fn point(pages: u64) -> ZipfPoint {
    let of_total = |share: u64| pages_taking(pages, share) as f64 * 100.0 / pages as f64;
    let [p90, p95, p99] = SHARES_PERCENT.map(of_total);
    ZipfPoint { pages, p90_of_total_percent: p90, p95_of_total_percent: p95, p99_of_total_percent: p99 }
}

/// The fewest of `pages` that take `share` percent of the writes.
fn pages_taking(pages: u64, share: u64) -> u64 {
    let wanted = zeta(pages, ZIPF_CONSTANT) * share as f64 / 100.0;
    let (mut low, mut high) = (1, pages);
    while low < high {
        let middle = low + (high - low) / 2;
        if zeta(middle, ZIPF_CONSTANT) >= wanted { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse::skew;

    #[test]
    fn the_fraction_falls_as_pages_become_more_as_in_figure_5() {
        let points = figure_5();
        assert!(falls(&points), "{points:?}");
        let (first, last) = (points[0], points[points.len() - 1]);
        assert!(last.p90_of_total_percent < first.p90_of_total_percent / 2.0, "{first:?} {last:?}");
        let mut rising = points;
        rising.reverse();
        assert!(!falls(&rising));
    }

    #[test]
    fn the_law_agrees_with_counting_writes_drawn_from_it() {
        const PAGES: u64 = 2_000;
        // The expected writes of each page, a million in all, instead of a drawing's chance.
        let scale = 1e9 / zeta(PAGES, ZIPF_CONSTANT);
        let mut writes: Vec<u64> =
            (1..=PAGES).map(|rank| ((rank as f64).powf(-ZIPF_CONSTANT) * scale) as u64).collect();
        let counted = skew::pages_taking(&mut writes);
        for (share, counted) in SHARES_PERCENT.into_iter().zip(counted) {
            assert!(pages_taking(PAGES, share).abs_diff(counted) <= 1, "{share} %: {counted}");
        }
    }
}
