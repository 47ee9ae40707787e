//! What `wattkeep check` says of persistent heaps in regions.
//!
//! A heap is opened on a copy of its region in memory, as its program would open it after a restart: what
//! that finds is what the program would be told, and the store is not touched. Transactions that a cut
//! interrupted are recovered there, too: a store that needs that is not damaged.

use std::sync::Arc;

use serde_json::{Value, json};
use wattkeep::collections::Structures;
use wattkeep::heap::{Heap, HeapError, Report};
use wattkeep::persist::{Anonymous, Domain, Space};
use wattkeep::tx::{Manager, Options, Recovered, TxError};
use wattkeep_power::units::format_size;
use wattkeep_store::RegionRecord;
use wattkeep_store::types::{PAGE_SIZE, PageId};
use wattkeep_sys::huge;

use crate::failure::{Exit, Failure};
use crate::opened::{self, PageLog};
use crate::text;

/// What one heap is like.
pub(crate) struct Checked {
    region: String,
    /// Or why its program cannot open it.
    found: Result<Found, TxError>,
}

struct Found {
    /// What the heap is like when its transactions are recovered.
    report: Report,
    /// What recovery has to do; none: the heap has no transactions.
    recovered: Option<Recovered>,
}

/// Checks each region that a heap was made in.
pub(crate) fn run(store: &mut PageLog) -> Result<Vec<Checked>, Failure> {
    let mut checked = Vec::new();
    for region in store.regions().to_vec() {
        if holds_heap(store, &region)? {
            checked.push(check(store, &region)?);
        }
    }
    Ok(checked)
}

fn holds_heap(store: &mut PageLog, region: &RegionRecord) -> Result<bool, Failure> {
    let mut first = [0; PAGE_SIZE];
    store.read_page_blocking(PageId { region: region.id, page: 0 }, &mut first)?;
    let space = Space::new(Arc::new(Anonymous::new(PAGE_SIZE)), Domain::Battery);
    space.write_bytes(0, &first).map_err(|error| no_copy(region, &error.to_string()))?;
    Ok(Heap::is_in(&space))
}

fn check(store: &mut PageLog, region: &RegionRecord) -> Result<Checked, Failure> {
    let bytes = region.pages as usize * PAGE_SIZE;
    let stored = store.stored_pages(region.id).count() as u64 * PAGE_SIZE as u64;
    if let Some(free) = huge::available_bytes().filter(|free| *free < stored) {
        let why = format!("it takes {} of memory, {} are free", format_size(stored), format_size(free));
        return Err(no_copy(region, &why));
    }
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(bytes)), Domain::Battery));
    opened::each_page(store, region, "reading the heap", |page, bytes| {
        space
            .write_bytes(page as usize * PAGE_SIZE, bytes)
            .map_err(|error| no_copy(region, &error.to_string()))
    })?;
    Ok(Checked { region: region.name.clone(), found: examine(space) })
}

fn examine(space: Arc<Space>) -> Result<Found, TxError> {
    let heap = Arc::new(Heap::open(space)?);
    let recovered = if Manager::has_log(&heap)? {
        Some(Manager::open(Arc::clone(&heap), &Options::default())?.recovered())
    } else {
        None
    };
    Ok(Found { report: heap.check(Some(&Structures))?, recovered })
}

fn no_copy(region: &RegionRecord, why: &str) -> Failure {
    let cause =
        format!("the heap in region '{}' cannot be copied to check it: {why}; see 'free -h'", region.name);
    Failure::new(Exit::System, cause)
}

impl Checked {
    pub(crate) fn is_sound(&self) -> bool {
        self.found.as_ref().is_ok_and(|found| found.report.is_clean())
    }

    /// What a person should know: lines, each behind a line break.
    pub(crate) fn text(&self) -> String {
        let verdict = match &self.found {
            Ok(found) if found.report.is_clean() => "sound",
            Err(TxError::Heap(HeapError::NewerVersion { .. }) | TxError::Newer { .. }) => "UNKNOWN",
            _ => "DAMAGED",
        };
        let lines = match &self.found {
            Ok(found) => found.recovered.map_or_else(String::new, say) + &found.report.to_string(),
            Err(error) => error.to_string(),
        };
        let lines: String = lines.lines().map(|line| format!("\n  {line}")).collect();
        format!("\nheap in region '{}': {verdict}{lines}", self.region)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "region": self.region,
            "sound": self.is_sound(),
            "refused": self.found.as_ref().err().map(ToString::to_string),
            "recovery": self.found.as_ref().ok().and_then(|found| found.recovered).map(|recovered| json!({
                "applied": recovered.replayed,
                "rolled_back": recovered.dropped,
                "published": recovered.published,
            })),
            "report": self.found.as_ref().ok().map(|found| &found.report),
        })
    }
}

/// What the program will do with the transactions in the log when it opens the heap: done on the copy.
fn say(Recovered { replayed, dropped, published }: Recovered) -> String {
    let line = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!("opening it {what} {}\n", text::count(count, "transaction")),
    };
    line(replayed, "applies again what was committed:")
        + &line(dropped, "rolls back what was not:")
        + &line(published, "enters what was allocated and freed by")
}
