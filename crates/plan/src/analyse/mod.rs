//! Everything that one pass over a trace finds out.
//!
//! Volumes are looked at apart, and together: one battery carries all volumes of a machine, so the budget
//! curve is that of all of them. Each page that a request touches counts as one access.
//!
//! - [`pages`]: what is remembered of a page
//! - [`interval`]: figure 2, [`skew`]: figures 3 and 4, [`zipf`]: figure 5 of Viyojit
//! - [`category`]: its four kinds of volumes

pub mod category;
pub mod interval;
pub mod pages;
pub mod skew;
pub mod zipf;

use serde::Serialize;

use crate::curve::{Curve, CurveBuilder};
use crate::request::Request;
use category::Category;
use interval::Intervals;
use pages::{INTERVALS, PageTable};
use skew::percent;

/// Interval lengths of figure 2, with their names.
pub const INTERVAL_LENGTHS: [(&str, u64); INTERVALS] =
    [("1_minute", 60_000_000_000), ("10_minutes", 600_000_000_000), ("60_minutes", 3_600_000_000_000)];

/// How to look at a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests have times and lengths; otherwise only an order, and a byte each.
    pub timed: bool,
    /// Written pages up to which the curve is exact, and sampled beyond.
    pub sample_pages: u32,
}

/// What was counted on one volume, or on all.
#[derive(Clone, Debug, Default)]
struct Counted {
    requests: u64,
    writes: u64,
    bytes_written: u64,
    page_writes: u64,
    touched: u64,
    written: u64,
    end: u64,
    intervals: [Intervals; INTERVALS],
}

/// The pass over one trace.
#[derive(Debug)]
pub struct Analysis {
    timed: bool,
    table: PageTable,
    volumes: Vec<Counted>,
    whole: Counted,
    curve: CurveBuilder,
    first_ns: Option<u64>,
    last_ns: u64,
}

/// What was found, sizes of the volumes aside.
#[derive(Debug)]
pub struct Findings {
    table: PageTable,
    volumes: Vec<Counted>,
    whole: Counted,
    /// From the first request to the last, where they have times.
    pub span_ns: Option<u64>,
    /// What each budget costs.
    pub curve: Curve,
}

/// Numbers of one volume, or of all together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Requests read.
    pub requests: u64,
    /// Those that write.
    pub writes: u64,
    /// Bytes they wrote.
    pub bytes_written: u64,
    /// Pages they wrote, each as often as it was written.
    pub page_writes: u64,
    /// Distinct pages read or written.
    pub pages_touched: u64,
    /// Distinct pages written.
    pub pages_written: u64,
    /// Pages of the volume.
    pub pages_total: u64,
    /// The fewest pages that take 90 % of the page writes, of those touched.
    pub p90_of_touched_percent: f64,
    /// 95 %.
    pub p95_of_touched_percent: f64,
    /// 99 %.
    pub p99_of_touched_percent: f64,
    /// The same, of all pages of the volume.
    pub p90_of_total_percent: f64,
    /// 95 %.
    pub p95_of_total_percent: f64,
    /// 99 %.
    pub p99_of_total_percent: f64,
    /// Data written in the worst interval, of the volume; `None` for a trace without times.
    pub worst_interval_percent: Option<WorstIntervals>,
    /// The paper's kind of volume.
    pub category: Category,
}

/// Figure 2, by interval length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorstIntervals {
    /// Slices of one minute.
    #[serde(rename = "1_minute")]
    pub minute: WorstInterval,
    /// Slices of ten minutes.
    #[serde(rename = "10_minutes")]
    pub ten_minutes: WorstInterval,
    /// Slices of one hour.
    #[serde(rename = "60_minutes")]
    pub hour: WorstInterval,
}

/// The worst slice of one length, in percent of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WorstInterval {
    /// Distinct pages written.
    pub unique_pages: f64,
    /// Each page write counted as a page of its own, as a log-structured file system would.
    pub log_structured: f64,
    /// Whether the trace lasts as long as the interval.
    pub whole: bool,
}

impl Analysis {
    /// Nothing seen yet.
    pub fn new(options: &Options) -> Self {
        Self {
            timed: options.timed,
            table: PageTable::default(),
            volumes: Vec::new(),
            whole: Counted::default(),
            curve: CurveBuilder::new(options.sample_pages, options.timed),
            first_ns: None,
            last_ns: 0,
        }
    }

    /// Takes the next request in; times do not go back.
    pub fn request(&mut self, volume: u32, request: Request) {
        let first_ns = *self.first_ns.get_or_insert(request.time_ns);
        let since_ns = request.time_ns - first_ns;
        self.last_ns = since_ns;
        let at = volume as usize;
        if at >= self.volumes.len() {
            self.volumes.resize_with(at + 1, Counted::default);
        }
        let intervals =
            INTERVAL_LENGTHS.map(|(_, length)| u32::try_from(since_ns / length).unwrap_or(u32::MAX - 1));
        let (of_volume, whole) = (&mut self.volumes[at], &mut self.whole);
        of_volume.request(&request);
        whole.request(&request);
        for page in request.pages() {
            let number = self.table.number(volume, page);
            let slot = self.table.slot(number);
            if slot.writes == 0 && !slot.read {
                of_volume.touched += 1;
                whole.touched += 1;
            }
            if !request.write {
                slot.read = true;
                continue;
            }
            let first = slot.writes == 0;
            slot.writes += 1;
            if self.timed {
                for (i, interval) in intervals.into_iter().enumerate() {
                    let new = std::mem::replace(&mut slot.written_in[i], interval + 1) != interval + 1;
                    of_volume.intervals[i].page_written(interval, new);
                    whole.intervals[i].page_written(interval, new);
                }
            }
            of_volume.page_written(first);
            whole.page_written(first);
            self.curve.write(&mut self.table, number, first, since_ns);
        }
    }

    /// The trace has ended.
    pub fn finish(self) -> Findings {
        Findings {
            span_ns: self.timed.then_some(self.last_ns),
            curve: self.curve.finish(self.timed.then_some(self.whole.bytes_written)),
            table: self.table,
            volumes: self.volumes,
            whole: self.whole,
        }
    }
}

impl Counted {
    fn request(&mut self, request: &Request) {
        self.requests += 1;
        self.end = self.end.max(request.offset.saturating_add(request.length.into()));
        if request.write {
            self.writes += 1;
            self.bytes_written += u64::from(request.length);
        }
    }

    fn page_written(&mut self, first: bool) {
        self.page_writes += 1;
        self.written += u64::from(first);
    }

    fn summary(&self, mut writes: Vec<u64>, pages_total: u64, span_ns: Option<u64>) -> Summary {
        let taking = skew::pages_taking(&mut writes);
        let touched = taking.map(|pages| percent(pages, self.touched));
        let total = taking.map(|pages| percent(pages, pages_total));
        let worst = |i: usize, span_ns: u64| {
            let worst = self.intervals[i].worst();
            WorstInterval {
                unique_pages: percent(worst.distinct_pages, pages_total),
                log_structured: percent(worst.written_pages, pages_total),
                whole: span_ns >= INTERVAL_LENGTHS[i].1,
            }
        };
        let in_an_hour =
            if span_ns.is_some() { self.intervals[2].worst().written_pages } else { self.page_writes };
        Summary {
            requests: self.requests,
            writes: self.writes,
            bytes_written: self.bytes_written,
            page_writes: self.page_writes,
            pages_touched: self.touched,
            pages_written: self.written,
            pages_total,
            p90_of_touched_percent: touched[0],
            p95_of_touched_percent: touched[1],
            p99_of_touched_percent: touched[2],
            p90_of_total_percent: total[0],
            p95_of_total_percent: total[1],
            p99_of_total_percent: total[2],
            worst_interval_percent: span_ns.map(|span_ns| WorstIntervals {
                minute: worst(0, span_ns),
                ten_minutes: worst(1, span_ns),
                hour: worst(2, span_ns),
            }),
            category: Category::of(in_an_hour, pages_total, taking[2], self.touched),
        }
    }
}

impl Findings {
    /// Volumes seen.
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// Bytes up to the highest one seen on a volume.
    pub fn bytes_seen(&self, volume: usize) -> u64 {
        self.volumes[volume].end
    }

    /// The numbers of one volume of `pages_total` pages.
    pub fn volume(&self, volume: usize, pages_total: u64) -> Summary {
        let writes = self.table.of_volume(volume).map(|slot| slot.writes).collect();
        self.volumes[volume].summary(writes, pages_total, self.span_ns)
    }

    /// The numbers of all volumes together, `pages_total` pages in all.
    pub fn whole(&self, pages_total: u64) -> Summary {
        let writes = self.table.slots().iter().map(|slot| slot.writes).collect();
        self.whole.summary(writes, pages_total, self.span_ns)
    }
}

#[cfg(test)]
mod tests;
