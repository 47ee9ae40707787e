//! What `wattkeep check` says of persistent heaps in regions.
//!
//! A heap is opened on a copy of its region in memory, as its program would open it after a restart: what
//! that finds is what the program would be told, and the store is not touched.

use std::sync::Arc;

use serde_json::{Value, json};
use wattkeep::heap::Heap;
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
    roots: Vec<String>,
    /// Bytes in pages that nobody has.
    free_bytes: u64,
    /// What is wrong; none of a sound heap.
    findings: Vec<String>,
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
    let mut checked =
        Checked { region: region.name.clone(), roots: Vec::new(), free_bytes: 0, findings: Vec::new() };
    match Heap::open(space) {
        Err(error) => checked.findings.push(error.to_string()),
        Ok(heap) => {
            checked.free_bytes = heap.free_bytes().0;
            match heap.roots() {
                Ok(roots) => checked.roots.extend(roots.into_iter().map(|root| root.name)),
                Err(error) => checked.findings.push(error.to_string()),
            }
        }
    }
    Ok(checked)
}

fn no_copy(region: &RegionRecord, why: &str) -> Failure {
    let cause =
        format!("the heap in region '{}' cannot be copied to check it: {why}; see 'free -h'", region.name);
    Failure::new(Exit::System, cause)
}

impl Checked {
    pub(crate) fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// A line for people, and one for each finding.
    pub(crate) fn text(&self) -> String {
        let name = &self.region;
        if self.is_sound() {
            let (roots, free) = (self.roots.len(), format_size(self.free_bytes));
            return format!("\nthe heap in region '{name}' is sound: {roots} roots, {free} in free pages");
        }
        let findings = self.findings.iter().map(|finding| format!("\n  {finding}"));
        format!("\nDAMAGED: the heap in region '{name}':{}", findings.collect::<String>())
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "region": self.region,
            "sound": self.is_sound(),
            "roots": self.roots,
            "free_bytes": self.free_bytes,
            "findings": self.findings,
        })
    }
}
