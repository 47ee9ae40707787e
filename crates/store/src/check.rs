//! Deep verification: reads every stored page and compares it with its checksum.
//!
//! Reads only; reports every damaged page instead of stopping at the first.

use crate::disk::{Disk, Wait};
use crate::error::StoreError;
use crate::read::SlotRun;
use crate::store::{Event, Store};
use crate::types::PageId;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Pages read.
    pub pages_checked: u64,
    /// Pages whose bytes are not those that were written, or cannot be read.
    pub damaged: Vec<DamagedPage>,
}

/// One damaged page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPage {
    /// The page.
    pub page: PageId,
    /// Where it is stored.
    pub slot: u32,
    /// The device's error; `None` when it returned wrong bytes.
    pub cause: Option<String>,
}

impl<D: Disk> Store<D> {
    /// Reads and verifies every stored page. `progress` is told the pages done and the pages to do.
    /// Nothing else may be in flight.
    pub fn check(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, StoreError> {
        let total = self.segments.latest();
        let (mut report, mut flying) = (CheckReport::default(), Vec::new());
        let mut runs = self.slots_in_log_order().peekable();
        let mut events = Vec::new();
        loop {
            while let Some(run) = runs.peek() {
                let pages = run.pages.len() as u32;
                if !self.start_read(run.first_slot, pages, run.first_slot)? {
                    break;
                }
                flying.extend(runs.next());
            }
            if flying.is_empty() {
                return Ok(report);
            }
            self.poll(Wait::One, &mut events)?;
            for event in events.drain(..) {
                self.check_run(event, &mut flying, &mut report);
                progress(report.pages_checked, total);
            }
        }
    }

    /// Recounts every segment from the index and compares: an invariant walker for tests and for
    /// `wattkeep check`. `Err` says what does not add up.
    pub fn audit(&self) -> Result<(), String> {
        let geometry = self.superblock.geometry;
        let mut counts = vec![(0u32, 0u32); geometry.segments() as usize];
        for (slot, _) in self.index.stored() {
            counts[geometry.segment_of(slot) as usize].0 += 1;
        }
        for slot in self.index.pinned() {
            counts[geometry.segment_of(slot) as usize].1 += 1;
        }
        for (number, (counted, kept)) in counts.into_iter().zip(self.segments.counts()).enumerate() {
            if counted != kept {
                return Err(format!("segment {number}: index {counted:?}, counters {kept:?}"));
            }
        }
        Ok(())
    }

    fn check_run(&mut self, event: Event, flying: &mut Vec<SlotRun>, report: &mut CheckReport) {
        let Event::Read { token, buffer, result, .. } = event else { return };
        let Some(at) = flying.iter().position(|run| run.first_slot == token) else { return };
        let run = flying.swap_remove(at);
        for (number, &page) in run.pages.iter().enumerate() {
            let slot = run.first_slot + number as u32;
            report.pages_checked += 1;
            let cause = match &result {
                Err(error) => Some(error.to_string()),
                Ok(_) => {
                    let bytes = Self::page_at(&buffer, number as u32);
                    if self.checksum_in(page, slot) == Some(self.hash(bytes)) {
                        continue;
                    }
                    None
                }
            };
            report.damaged.push(DamagedPage { page, slot, cause });
        }
        self.recycle(buffer);
    }
}
