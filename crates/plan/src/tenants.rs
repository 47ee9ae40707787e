//! Several tenants, one battery: how much of it does sharing save?
//!
//! Viyojit, section 6.3: providers can "reallocate battery/dirty-budget among co-located tenants to benefit
//! from inherent statistical multiplexing effects". Two ways are compared, over the same traces, all begun
//! at the same moment:
//!
//! - static: each tenant has the budget that its own trace asks for, and cleans its own pages;
//! - on demand: one budget for all; whoever writes takes from it, and the page that was updated least
//!   recently is cleaned, whosever it is.
//!
//! The answer is the least common budget that copies no more pages than the static shares do together.

use std::path::PathBuf;

use serde::Serialize;
use wattkeep_bench::chart::thousands;

use crate::analyse::pages::PageTable;
use crate::curve::distance::Distance;
use crate::curve::{Curve, CurveBuilder, Rewrites, knee};
use crate::read::{ReadError, TraceReader, VOLUMES_MAX};
use crate::report::bytes;
use crate::request::Request;
use crate::study::{PROGRESS_EVERY, Study, StudyOptions};

/// What sharing saves.
#[derive(Clone, Debug, Serialize)]
pub struct SharedReport {
    /// Each tenant.
    pub tenants: Vec<TenantReport>,
    /// Sum of the static shares.
    pub static_budget_pages: u64,
    /// Copies with them.
    pub static_copies: u64,
    /// The least common budget with as few copies; `None` if not even one as large as all pages written.
    pub shared_budget_pages: Option<u64>,
    /// What that saves of the battery, in percent; below zero where sharing needs more.
    pub battery_saved_percent: Option<f64>,
    /// Copies with a common budget as large as the shares.
    pub shared_copies_at_static_budget: u64,
    /// Pages of which one was followed; 1: exact.
    pub sampled_one_of: u64,
    /// Both ways, by budget.
    pub points: Vec<SharedPoint>,
}

/// One tenant.
#[derive(Clone, Debug, Serialize)]
pub struct TenantReport {
    /// Its trace.
    pub trace: String,
    /// Its static share: the budget recommended for it alone.
    pub static_budget_pages: u64,
    /// Copies with it.
    pub copies_static: u64,
    /// Copies under the least common budget; under one as large as all shares if there is none.
    pub copies_shared: u64,
}

/// Both ways with one budget in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SharedPoint {
    /// The budget of all tenants.
    pub budget_pages: u64,
    /// Copies when it is divided in proportion to the static shares, at least a page each.
    pub copies_static: u64,
    /// Copies when it is shared on demand.
    pub copies_shared: u64,
}

/// Runs the traces of `studies` together. They have times, and write something.
///
/// # Errors
/// A trace cannot be read a second time.
///
/// # Panics
/// If a trace has no times: who writes while others write is then unknown.
pub fn share(
    studies: &[Study],
    options: &StudyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<SharedReport, ReadError> {
    assert!(studies.iter().all(|study| study.findings.span_ns.is_some()), "tenants need times");
    let shares: Vec<u64> = studies
        .iter()
        .map(|study| {
            knee::recommended(&study.findings.curve).map_or(1, |recommended| recommended.budget_pages)
        })
        .collect();
    let curves: Vec<&Curve> = studies.iter().map(|study| &study.findings.curve).collect();
    let paths: Vec<PathBuf> = studies.iter().map(|study| study.path.clone()).collect();
    let merged = run(&paths, options, progress)?;

    let static_budget_pages: u64 = shares.iter().sum();
    let static_copies = shares.iter().zip(&curves).map(|(share, curve)| curve.dirtied(*share)).sum();
    let shared_budget_pages = merged.curve.budget_for_copies(static_copies);
    let at = shared_budget_pages.unwrap_or(static_budget_pages);
    let tenants =
        studies.iter().zip(&shares).zip(&merged.tenants).map(|((study, share), tenant)| TenantReport {
            trace: study.path.display().to_string(),
            static_budget_pages: *share,
            copies_static: study.findings.curve.dirtied(*share),
            copies_shared: tenant.first_writes + tenant.rewrites.from(at),
        });
    let divided = |budget: u64| {
        let part =
            |share: u64| (u128::from(budget) * u128::from(share) / u128::from(static_budget_pages)) as u64;
        shares.iter().zip(&curves).map(|(share, curve)| curve.dirtied(part(*share).max(1))).sum()
    };
    Ok(SharedReport {
        tenants: tenants.collect(),
        static_budget_pages,
        static_copies,
        shared_budget_pages,
        battery_saved_percent: shared_budget_pages
            .map(|shared| 100.0 - shared as f64 * 100.0 / static_budget_pages as f64),
        shared_copies_at_static_budget: merged.curve.dirtied(static_budget_pages),
        sampled_one_of: 1 << merged.curve.shift(),
        points: merged
            .curve
            .points
            .iter()
            .filter(|point| point.budget_pages >= studies.len() as u64)
            .map(|point| SharedPoint {
                budget_pages: point.budget_pages,
                copies_static: divided(point.budget_pages),
                copies_shared: point.copies,
            })
            .collect(),
    })
}

impl SharedReport {
    /// The answer in a sentence.
    pub fn answer(&self) -> String {
        let shares = format!(
            "Apart, the {} tenants need budgets of {} pages ({}) together, and copy {} pages.",
            self.tenants.len(),
            thousands(self.static_budget_pages),
            bytes(self.static_budget_pages),
            thousands(self.static_copies)
        );
        match (self.shared_budget_pages, self.battery_saved_percent) {
            (Some(pages), Some(saved)) if saved > 0.0 => format!(
                "{shares} A common budget of {} pages ({}) copies no more: {saved:.1} % of the battery saved.",
                thousands(pages),
                bytes(pages)
            ),
            (Some(pages), _) => format!(
                "{shares} A common budget must have {} pages ({}) to copy no more: sharing saves nothing here.",
                thousands(pages),
                bytes(pages)
            ),
            (None, _) => format!("{shares} No common budget copies as few: sharing saves nothing here."),
        }
    }
}

impl TenantReport {
    /// As a row for people.
    pub fn row(&self) -> Vec<String> {
        let numbers = [self.static_budget_pages, self.copies_static, self.copies_shared].map(thousands);
        std::iter::once(self.trace.clone()).chain(numbers).collect()
    }
}

struct Merged {
    curve: Curve,
    tenants: Vec<Tenant>,
}

#[derive(Default)]
struct Tenant {
    first_writes: u64,
    rewrites: Rewrites,
}

/// One trace, its next request at hand; times count from its own first request.
struct Stream {
    reader: TraceReader,
    first_ns: u64,
    next: Option<(u32, Request)>,
}

impl Stream {
    fn take(&mut self) -> Result<(u32, Request), ReadError> {
        let (volume, request) = self.next.take().expect("chosen because it has one");
        self.next = self.reader.next_request()?;
        Ok((volume, Request { time_ns: request.time_ns - self.first_ns, ..request }))
    }

    fn due_ns(&self) -> Option<u64> {
        self.next.map(|(_, request)| request.time_ns - self.first_ns)
    }
}

fn run(
    paths: &[PathBuf],
    options: &StudyOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Merged, ReadError> {
    let mut streams = Vec::with_capacity(paths.len());
    for path in paths {
        let mut reader = TraceReader::open(path, options.format)?;
        let next = reader.next_request()?;
        let first_ns = next.map_or(0, |(_, request)| request.time_ns);
        streams.push(Stream { reader, first_ns, next });
    }
    let mut tenants: Vec<Tenant> = paths.iter().map(|_| Tenant::default()).collect();
    let mut table = PageTable::default();
    let mut curve = CurveBuilder::new(options.sample_pages, true);
    let (mut requests, mut bytes_written) = (0_u64, 0);
    loop {
        // Few tenants: looking at each is quicker than a heap. Equal times: the first tenant goes first.
        let due = streams.iter().enumerate().filter_map(|(at, stream)| Some((stream.due_ns()?, at)));
        let Some((_, at)) = due.min() else { break };
        let (volume, request) = streams[at].take()?;
        requests += 1;
        if requests.is_multiple_of(PROGRESS_EVERY) {
            let (done, all) = streams
                .iter()
                .map(|stream| stream.reader.progress())
                .fold((0, 0), |(done, all), (more_done, more)| (done + more_done, all + more));
            progress(done, all);
        }
        if !request.write {
            continue;
        }
        bytes_written += u64::from(request.length);
        for page in request.pages() {
            let number = table.number((at * VOLUMES_MAX) as u32 + volume, page);
            let slot = table.slot(number);
            let first = slot.writes == 0;
            slot.writes += 1;
            tenants[at].first_writes += u64::from(first);
            if let Distance::Pages(distance) = curve.write(&mut table, number, first, request.time_ns) {
                tenants[at].rewrites.add(distance, curve.shift());
            }
        }
    }
    Ok(Merged { curve: curve.finish(Some(bytes_written)), tenants })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::study;
    use std::fmt::Write as _;

    /// Writes round and round `pages` pages, one each millisecond, in the seconds that `awake` says.
    fn trace(pages: u64, awake: impl Fn(u64) -> bool) -> String {
        let mut text = String::from("time,operation,offset,length\n0,read,0,1\n");
        let times = (0..60_000).filter(|ms| awake(ms / 1_000));
        for (order, ms) in (0_u64..).zip(times) {
            writeln!(text, "{}.{:03},write,{},4096", ms / 1_000, ms % 1_000, order % pages * 4096)
                .expect("memory");
        }
        text
    }

    fn shared(traces: &[String]) -> SharedReport {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = StudyOptions::default();
        let studies: Vec<_> = traces
            .iter()
            .enumerate()
            .map(|(number, text)| {
                let path = directory.path().join(format!("{number}.csv"));
                std::fs::write(&path, text).expect("written");
                study(&path, &options, &mut |_, _| {}).expect("a trace")
            })
            .collect();
        share(&studies, &options, &mut |_, _| {}).expect("read again")
    }

    #[test]
    fn tenants_that_write_in_turn_need_one_share_and_not_two() {
        let report = shared(&[trace(1_000, |s| s < 30), trace(1_000, |s| s >= 30)]);
        assert!(report.static_budget_pages >= 2_000, "{report:?}");
        let saved = report.battery_saved_percent.expect("reachable");
        assert!((45.0..60.0).contains(&saved), "{saved}");
        assert!(report.answer().contains("of the battery saved"), "{}", report.answer());
        for tenant in &report.tenants {
            assert_eq!((tenant.copies_static, tenant.copies_shared), (1_000, 1_000));
        }
    }

    #[test]
    fn tenants_that_write_at_once_save_nothing() {
        let report = shared(&[trace(1_000, |_| true), trace(1_000, |_| true)]);
        let needed = report.shared_budget_pages.expect("reachable");
        assert_eq!(needed, 2_000, "both working sets, and not a page less");
        let point = report.points.iter().find(|point| point.budget_pages == 1_024).expect("on the scale");
        assert!(point.copies_shared >= 100_000 && point.copies_static >= 100_000, "{point:?}");
    }
}
