//! What the keeper counts, and what it says of itself.

use wattkeep_store::disk::Disk;

use super::engine::{Keeper, Phase};
use crate::control::primitives::{AtomicU64, Ordering};
use crate::limits::PAGE_SIZE;
use crate::protocol::{RegionStatus, SaveReport, Status};

/// The end of a checkpoint, for the connection that asked.
pub type Report = (u64, Result<SaveReport, String>);

/// The keeper's own counters.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) written_pages: u64,
    pub(super) unchanged_pages: u64,
    pub(super) protected_pages: u64,
    pub(super) checkpoints: u64,
    pub(super) checkpoints_given_up: u64,
    pub(super) lost_pages: u64,
    /// Quiesce callbacks that did not end in time.
    pub(super) quiesces_missed: u64,
    /// A save is complete, and its digest could not be written: the store failed behind it.
    pub(super) digest_failure: Option<String>,
    /// Why the budget is not what was asked for.
    pub(super) budget_note: Option<String>,
    /// Checkpoints that ended, by the connection that asked.
    pub(super) reports: Vec<Report>,
}

impl<D: Disk> Keeper<D> {
    /// How checkpoints ended since the last call, for the connections that asked for them.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.counters.reports)
    }

    /// Pages that became dirty since the session began.
    pub(super) fn dirtied(&self) -> u64 {
        self.control.counters.granted_pages.load(Ordering::Relaxed)
    }

    fn state(&self) -> (&'static str, String) {
        match &self.phase {
            Phase::Failed(cause) => ("failed", cause.clone()),
            Phase::Saved => match &self.counters.digest_failure {
                Some(cause) => ("saved", format!("a save completed; then the store failed: {cause}")),
                None => ("saved", "a save completed; writers wait for 'wattkeep resume' or a restart".into()),
            },
            Phase::Running => {
                let permits = self.control.ledger.0.permits();
                if permits.held > self.budget_pages {
                    let over = permits.held - self.budget_pages;
                    return (
                        "not_armed",
                        format!("the budget was lowered; {over} pages are still being written out"),
                    );
                }
                if self.counters.lost_pages > 0 {
                    return (
                        "not_armed",
                        format!(
                            "{} pages are damaged in the store: run 'wattkeep check'",
                            self.counters.lost_pages
                        ),
                    );
                }
                if permits.limit < self.budget_pages {
                    let note = format!(
                        "limited to {} pages until the log has more room for a save: a checkpoint makes it",
                        permits.limit
                    );
                    return ("armed", note);
                }
                ("armed", self.counters.budget_note.clone().unwrap_or_default())
            }
        }
    }

    /// A picture of the session.
    pub fn status(&self, client_pid: u32) -> Status {
        let (permits, client, store) =
            (self.control.ledger.0.permits(), &self.control.counters, self.store.status());
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (state, reason) = self.state();
        Status {
            state: state.into(),
            reason,
            client_pid,
            keeper_pid: std::process::id(),
            budget_pages: self.budget_pages,
            permits: permits.limit,
            dirty_pages: permits.held,
            max_dirty_pages: self.control.ledger.0.held_max(),
            threshold_pages: self.pressure.threshold(permits.limit),
            pressure_pages: self.pressure.expected(),
            fault_mode: self.options.fault_mode.to_string(),
            fault_mode_reason: self.options.fault_mode_reason.clone(),
            memory_locked: swap_note(),
            policy: self.policy.name().into(),
            faults: load(&client.faults),
            dirtied_pages: self.dirtied(),
            cleaned_pages: self.counters.written_pages + self.counters.unchanged_pages,
            unchanged_pages: self.counters.unchanged_pages,
            rescued_pages: load(&client.rescued_pages),
            protected_by_client: load(&client.protected_pages),
            protected_by_keeper: self.counters.protected_pages,
            permit_waits: load(&client.permit_waits),
            permit_wait_ms: load(&client.permit_wait_ns) as f64 / 1e6,
            ssd_bytes: store.bytes_written,
            ssd_cleaning_bytes: store.bytes_written_cleaning,
            segments: store.segments,
            segments_free: store.free,
            restore_pages_left: self.regions.iter().map(|region| u64::from(region.absent)).sum(),
            last_commit_epoch: store.last_commit.epoch.0,
            checkpoints: self.counters.checkpoints,
            checkpoints_given_up: self.counters.checkpoints_given_up,
            quiesces_missed: self.counters.quiesces_missed,
            unannounced_stores: load(&client.unannounced),
            tracking_bytes: self.tracking_bytes(),
            regions: self
                .regions
                .iter()
                .map(|region| RegionStatus {
                    name: region.name.clone(),
                    bytes: u64::from(region.pages) * PAGE_SIZE as u64,
                    address: region.address,
                    tracking: region.tracking,
                })
                .collect(),
        }
    }

    /// Bytes that tracking takes for the pages there are: words, notes, index, policy, queues. The
    /// control block and the staging buffers do not grow with the region; they come on top.
    fn tracking_bytes(&self) -> u64 {
        let regions: usize = self.regions.iter().map(super::pages::KeptRegion::tracking_bytes).sum();
        let queues = self.queue.capacity() * size_of::<crate::control::block::PageRef>();
        (regions + queues + self.policy.bytes()) as u64 + self.store.index_bytes()
    }
}

/// Whether a dirty page could be swapped out to a disk that the save does not count.
fn swap_note() -> String {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    match swaps.lines().count() {
        0 | 1 => "no swap is active".into(),
        lines => format!("not locked: {} swap areas are active; use 'swapoff -a'", lines - 1),
    }
}
