//! What `wattkeep check` says of persistent heaps in regions.
//!
//! A heap is opened on a copy of its region in memory, as its program would open it after a restart: what
//! that finds is what the program would be told, and the store is not touched.

use std::sync::Arc;

use serde_json::{Value, json};
use wattkeep::heap::{Heap, HeapError, Report};
use wattkeep::persist::{Anonymous, Domain, Space};
use wattkeep_power::units::format_size;
use wattkeep_store::RegionRecord;
use wattkeep_store::types::{PAGE_SIZE, PageId};
use wattkeep_sys::huge;

use crate::failure::{Exit, Failure};
use crate::opened::{self, PageLog};

/// What one heap is like.
pub(crate) struct Checked {
    region: String,
    /// Or why its program cannot open it.
    found: Result<Report, HeapError>,
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
    // What its objects point to is known to its program alone: leaks are not looked for.
    let found = Heap::open(space).and_then(|heap| heap.check(None));
    Ok(Checked { region: region.name.clone(), found })
}

fn no_copy(region: &RegionRecord, why: &str) -> Failure {
    let cause =
        format!("the heap in region '{}' cannot be copied to check it: {why}; see 'free -h'", region.name);
    Failure::new(Exit::System, cause)
}

impl Checked {
    pub(crate) fn is_sound(&self) -> bool {
        self.found.as_ref().is_ok_and(Report::is_clean)
    }

    /// What a person should know: lines, each behind a line break.
    pub(crate) fn text(&self) -> String {
        let verdict = if self.is_sound() { "sound" } else { "DAMAGED" };
        let lines = match &self.found {
            Ok(report) => report.to_string(),
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
            "report": self.found.as_ref().ok(),
        })
    }
}
