//! Back from the SSD alone: a fresh keeper, the region mapped again, every page compared, a heap opened.

use std::time::{Duration, Instant};

use wattkeep::{RegionOptions, Store};
use wattkeep_bench::Memory;

use super::heap::HeapFacts;
use super::oracle::{Comparison, Image, Oracle};
use super::plan::{Plan, Work};
use super::run::Ran;
use super::scratch::{REGION, Scratch};
use super::stage;
use crate::answer::Output;
use crate::failure::Failure;
use crate::memory::RegionMemory;
use crate::progress;
use crate::text::{self, PAGE};

/// How often the restore in the background is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What came back.
pub(crate) struct Restored {
    /// Why the store could not be opened, if so.
    pub(crate) refused: Option<String>,
    /// What recovery said.
    pub(crate) recovered: String,
    pub(crate) first_touch_ms: f64,
    pub(crate) restore_ms: f64,
    pub(crate) comparison: Comparison,
    /// What a heap in the region is like.
    pub(crate) heap: Option<HeapFacts>,
}

/// Opens, waits for the whole region, compares it with the oracle.
pub(crate) fn restore(
    plan: &Plan,
    scratch: &Scratch,
    ran: &Ran,
    output: Output,
) -> Result<Restored, Failure> {
    match open_and_compare(plan, scratch, ran, output) {
        Ok(restored) => Ok(restored),
        Err(error) => {
            stage(output, "restore", &format!("REFUSED: {error}"));
            let lost = (0..plan.region_pages).collect();
            let comparison = Comparison { pages_verified: 0, lost, half_done: false };
            let refused = Some(error.to_string());
            let recovered = String::new();
            let (first_touch_ms, restore_ms) = (0.0, 0.0);
            Ok(Restored { refused, recovered, first_touch_ms, restore_ms, comparison, heap: None })
        }
    }
}

fn open_and_compare(
    plan: &Plan,
    scratch: &Scratch,
    ran: &Ran,
    output: Output,
) -> Result<Restored, wattkeep::Error> {
    let began = Instant::now();
    let store = Store::options().checkpoint_interval_ms(0).open(scratch.path())?;
    let options = if plan.explicit { RegionOptions::explicit() } else { RegionOptions::transparent() };
    let memory = RegionMemory::new(store.region(REGION, options)?);
    memory.region().will_read(0, 1)?;
    let first_touch_ms = began.elapsed().as_secs_f64() * 1e3;
    wait_until_whole(&store, plan)?;
    let restore_ms = began.elapsed().as_secs_f64() * 1e3;
    let recovered = store.recovered().unwrap_or("a new store").to_owned();
    let bandwidth = plan.region_bytes as f64 / (restore_ms / 1e3) / 1e6;
    let what = format!(
        "{recovered}; first page after {}, all {} pages after {} ({bandwidth:.0} MB/s)",
        text::millis(first_touch_ms),
        text::thousands(plan.region_pages.into()),
        text::millis(restore_ms)
    );
    stage(output, "restore", &what);
    let comparison = compare(plan, ran, &memory);
    let half = if comparison.half_done { ", and half of another" } else { "" };
    let what = format!(
        "{} pages compared with an oracle that did {} operations{half}: {} lost",
        text::thousands(comparison.pages_verified.into()),
        text::thousands(ran.steps),
        text::thousands(comparison.lost.len() as u64)
    );
    stage(output, "verify", &what);
    // The region is closed here, as the store wants it.
    let region = memory.into_region();
    let heap = match &plan.work {
        Work::Bytes(_) => {
            drop(region);
            None
        }
        Work::Heap(heap) => Some(HeapFacts::examine(heap, region, ran, output)),
    };
    store.close()?;
    Ok(Restored { refused: None, recovered, first_touch_ms, restore_ms, comparison, heap })
}

fn compare(plan: &Plan, ran: &Ran, memory: &RegionMemory) -> Comparison {
    let bar = progress::bar("comparing every page");
    let mut tick = |done, all| progress::set(&bar, done, all);
    let comparison = match &plan.work {
        Work::Bytes(workload) => {
            bar.set_message("replaying the oracle");
            let mut oracle = Oracle::replay(workload.clone(), plan.region_bytes, ran.steps, &mut tick);
            bar.set_message("comparing every page");
            oracle.compare(memory, &mut tick)
        }
        Work::Heap(_) => {
            let unsettled = ran.save.as_ref().map_or(0, |save| save.unsettled_pages);
            let mirror = ran.mirror.as_ref().expect("a heap's stores are mirrored");
            mirror.compare(memory, unsettled, &mut tick)
        }
    };
    bar.finish_and_clear();
    comparison
}

fn wait_until_whole(store: &Store, plan: &Plan) -> Result<(), wattkeep::Error> {
    let bar = progress::bar("restoring");
    loop {
        let left = store.status()?.restore_pages_left;
        if left == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        progress::set(&bar, u64::from(plan.region_pages).saturating_sub(left), plan.region_pages.into());
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Image for RegionMemory {
    fn page(&self, page: u32, into: &mut [u8]) -> bool {
        let offset = u64::from(page) * PAGE;
        let there = self.region().will_read(offset as usize, into.len()).is_ok();
        if there {
            self.read(offset, into);
        }
        there
    }
}
