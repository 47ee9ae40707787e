//! Turns samples into what is drawn: columns no narrower than a pixel, steps, a summary.
//!
//! Invariant: no column shows fewer dirty pages, or more budget, than any of its samples had.
//!
//! Does not know pixels or colours.

use super::{Sample, Timeline};

/// Columns in a picture: about the pixels of a panel's width. More could not be seen.
const COLUMNS_MAX: usize = 1000;

/// What one column of the picture shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) t_s: f64,
    pub(super) dirty_pages: f64,
    pub(super) budget_pages: f64,
    pub(super) faults_per_s: f64,
    pub(super) ssd_bytes_per_s: f64,
}

/// Joins neighbouring samples where there are more than columns.
pub(super) fn columns(samples: &[Sample]) -> Vec<Column> {
    let per_column = samples.len().div_ceil(COLUMNS_MAX).max(1);
    samples.chunks(per_column).filter_map(column).collect()
}

fn column(samples: &[Sample]) -> Option<Column> {
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    Some(Column {
        t_s: samples.first()?.t_s,
        dirty_pages: samples.iter().map(|s| s.dirty_pages).max()? as f64,
        budget_pages: samples.iter().map(|s| s.budget_pages).min()? as f64,
        faults_per_s: mean(|s| s.faults_per_s),
        ssd_bytes_per_s: mean(|s| s.ssd_bytes_per_s),
    })
}

/// The budget as steps: it holds until it changes, and never slopes.
pub(super) fn steps(columns: &[Column]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for column in columns {
        let point = (column.t_s, column.budget_pages);
        match points.last() {
            Some(&(_, before)) if before == point.1 => {}
            Some(&(_, before)) => points.extend([(point.0, before), point]),
            None => points.push(point),
        }
    }
    if let (Some(&(_, budget)), Some(last)) = (points.last(), columns.last()) {
        points.push((last.t_s, budget));
    }
    points
}

/// Where the time axis ends: after the last sample, the cut and the save.
pub(super) fn end_s(timeline: &Timeline) -> f64 {
    let first = timeline.samples.first().map_or(0.0, |s| s.t_s);
    let last = timeline.samples.last().map_or(0.0, |s| s.t_s);
    let marks = [timeline.cut_t_s, timeline.saved_t_s];
    let end = marks.into_iter().flatten().fold(last, f64::max);
    if end > first { end } else { first + 1.0 }
}

/// One line below the title: the bound, and the save.
pub(super) fn summary(timeline: &Timeline) -> String {
    // The sample that came nearest to its budget, or went furthest beyond it.
    let headroom = |s: &&Sample| s.budget_pages as i128 - s.dirty_pages as i128;
    let mut parts = Vec::new();
    if let Some(peak) = timeline.samples.iter().min_by_key(headroom) {
        parts.push(format!(
            "nearest to the budget: {} of {} pages ({} of {} MiB)",
            thousands(peak.dirty_pages),
            thousands(peak.budget_pages),
            thousands(peak.dirty_pages / 256),
            thousands(peak.budget_pages / 256),
        ));
    }
    match (timeline.cut_t_s, timeline.saved_t_s) {
        (Some(cut), Some(saved)) if saved >= cut => {
            parts.push(format!("saved in {:.2} s", saved - cut));
        }
        (Some(_), _) => parts.push("not saved".to_owned()),
        (None, _) => {}
    }
    parts.join("  \u{b7}  ")
}

/// A number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(i: u32, dirty_pages: u64, budget_pages: u64) -> Sample {
        Sample {
            t_s: f64::from(i),
            dirty_pages,
            budget_pages,
            faults_per_s: f64::from(i % 2),
            ssd_bytes_per_s: 7.0,
        }
    }

    #[test]
    fn a_peak_of_one_sample_among_thousands_is_drawn() {
        let mut samples: Vec<Sample> = (0..50_000).map(|i| sample(i, 10, 100)).collect();
        samples[31_234].dirty_pages = 99;
        samples[41_234].budget_pages = 12;
        let columns = columns(&samples);
        assert!(columns.len() <= COLUMNS_MAX);
        assert_eq!(columns.iter().filter(|c| c.dirty_pages == 99.0).count(), 1);
        assert_eq!(columns.iter().filter(|c| c.budget_pages == 12.0).count(), 1);
        assert!(columns.iter().all(|c| c.faults_per_s == 0.5));
    }

    #[test]
    fn the_budget_holds_until_it_changes() {
        let samples = [(0, 9), (1, 9), (2, 5), (3, 5)].map(|(i, budget)| sample(i, 1, budget));
        assert_eq!(steps(&columns(&samples)), [(0.0, 9.0), (2.0, 9.0), (2.0, 5.0), (3.0, 5.0)]);
    }

    #[test]
    fn the_summary_tells_the_nearest_approach_and_the_save() {
        let timeline = Timeline {
            samples: vec![sample(0, 2_000, 9_000), sample(1, 4_000, 4_500)],
            cut_t_s: Some(1.0),
            saved_t_s: Some(1.25),
            ..Timeline::default()
        };
        let text = summary(&timeline);
        assert!(text.contains("4,000 of 4,500 pages (15 of 17 MiB)"), "{text}");
        assert!(text.ends_with("saved in 0.25 s"), "{text}");
        let unsaved = Timeline { saved_t_s: None, ..timeline };
        assert!(summary(&unsaved).ends_with("not saved"));
    }

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1_000, 1_234_567].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
