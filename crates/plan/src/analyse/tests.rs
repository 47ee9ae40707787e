//! The analyses on traces whose answers are known by hand.

use super::*;

const MINUTE_NS: u64 = 60_000_000_000;

fn findings(timed: bool, requests: &[(u64, bool, u64, u32)]) -> Findings {
    let mut analysis = Analysis::new(&Options { timed, sample_pages: 1 << 20 });
    for (time_ns, write, offset, length) in requests.iter().copied() {
        analysis.request(0, Request { time_ns, write, offset, length });
    }
    analysis.finish()
}

#[test]
fn figure_2_slices_from_the_first_request_and_takes_the_worst() {
    let start = 17 * MINUTE_NS + 5;
    let found = findings(
        true,
        &[
            (start, true, 0, 4096),
            (start + MINUTE_NS - 1, true, 0, 4096),
            // The second minute: pages 1, 2, 3, and 3 once more.
            (start + MINUTE_NS, true, 4096, 12_288),
            (start + MINUTE_NS + 1, true, 12_288, 1),
            (start + MINUTE_NS + 2, false, 40_960, 4096),
            // The eleventh.
            (start + 10 * MINUTE_NS, true, 0, 4096),
        ],
    );
    let worst = found.whole(100).worst_interval_percent.expect("there are times");
    let interval =
        |unique_pages, log_structured, whole| WorstInterval { unique_pages, log_structured, whole };
    assert_eq!(worst.minute, interval(3.0, 4.0, true));
    assert_eq!(worst.ten_minutes, interval(4.0, 6.0, true));
    assert_eq!(worst.hour, interval(4.0, 7.0, false));
}

#[test]
fn figures_3_and_4_divide_by_touched_and_by_all_pages() {
    // Page 0 takes 90 of 100 writes, pages 1 to 10 one each; pages 20 to 28 are only read.
    let mut requests = vec![(0, true, 0, 512); 90];
    requests.extend((1..=10).map(|page| (0, true, page * 4096, 4096)));
    requests.extend((20..29).map(|page| (0, false, page * 4096, 4096)));
    let found = findings(true, &requests);
    let summary = found.volume(0, 200);
    assert_eq!((summary.requests, summary.writes, summary.page_writes), (109, 100, 100));
    assert_eq!((summary.pages_touched, summary.pages_written), (20, 11));
    assert_eq!(summary.bytes_written, 90 * 512 + 10 * 4096);
    assert_eq!(
        [summary.p90_of_touched_percent, summary.p95_of_touched_percent, summary.p99_of_touched_percent],
        [5.0, 30.0, 50.0]
    );
    assert_eq!(
        [summary.p90_of_total_percent, summary.p95_of_total_percent, summary.p99_of_total_percent],
        [0.5, 3.0, 5.0]
    );
    assert_eq!(found.bytes_seen(0), 29 * 4096);
}

#[test]
fn volumes_are_apart_and_together() {
    let mut analysis = Analysis::new(&Options { timed: true, sample_pages: 1 << 20 });
    for (volume, write, page) in [(0, true, 0), (1, true, 0), (1, false, 5), (1, true, 0)] {
        analysis.request(volume, Request { time_ns: 0, write, offset: page * 4096, length: 4096 });
    }
    let found = analysis.finish();
    assert_eq!(found.volumes(), 2);
    let (first, second, whole) = (found.volume(0, 1), found.volume(1, 6), found.whole(7));
    assert_eq!((first.pages_touched, first.page_writes), (1, 1));
    assert_eq!((second.pages_touched, second.page_writes), (2, 2));
    assert_eq!((whole.pages_touched, whole.pages_written, whole.page_writes), (3, 2, 3));
    assert_eq!(found.curve.pages_written(), 2);
}

#[test]
fn without_times_there_are_no_intervals_and_no_pressure() {
    let found = findings(false, &[(0, true, 0, 1), (1, true, 4096, 1), (2, true, 0, 1)]);
    let summary = found.whole(10);
    assert_eq!((summary.worst_interval_percent, found.span_ns), (None, None));
    assert_eq!(summary.category.number, 4, "3 of 10 pages in all, 2 of 2 touched");
    assert!(found.curve.points.iter().all(|point| point.pressure_pages.is_none()));
}

#[test]
fn a_trace_that_only_reads_has_nothing_to_recommend() {
    let found = findings(true, &[(0, false, 0, 4096)]);
    let summary = found.whole(10);
    assert_eq!((summary.p90_of_touched_percent, summary.pages_written), (0.0, 0));
    assert!(found.curve.points.is_empty());
    assert_eq!(crate::curve::knee::recommended(&found.curve), None);
}
