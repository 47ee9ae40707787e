//! A save, and the end of a session: everything dirty goes to the SSD while nobody may write.
//!
//! The work is shared by two threads. This one freezes blocks of pages, gives copied ones their place
//! in the log, and takes the SSD's answers; the one of the [`Copier`] copies and checksums, and this one
//! helps it when it has nothing else to do. So pages are copied while
//! later ones are still open: each is copied after it was protected, and grants are frozen before the
//! first, so the image is as consistent as if all were protected first (see `cut.rs`).
//!
//! Makes no step that waits without a bound, but for the SSD.

use std::time::Instant;

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::{CommitKind, Placed};
use wattkeep_sys::mutant::planted;

use super::complain::complain;
use super::copier::{Copier, Load, LoadPage};
use super::cut::{Cut, Freezing, Frozen};
use super::engine::{Keeper, KeeperError, Phase};
use super::pages::KeptRegion;
use super::write::{AS_IT_STOOD, Settled};
use crate::control::block::{Freeze, PageRef};
use crate::control::page_word::State;
use crate::limits::SAVE_ALONE_PAGES;
use crate::protocol::SaveReport;

impl<D: Disk> Keeper<D> {
    /// Saves every dirty page and commits: the power is going. Grants stay frozen.
    pub fn save(&mut self) -> Result<SaveReport, KeeperError> {
        let began = self.clock.now();
        self.quiesce();
        let quiesce_ms = self.ms_since(began);
        self.control.set_freeze(Freeze::Save);
        if !self.ask_client_to_protect() {
            // Its pages stay open: it must not run on while they are saved.
            self.stop_client();
        }
        let mut report = self.write_everything(CommitKind::Save, began)?;
        report.quiesce_ms = quiesce_ms;
        self.phase = Phase::Saved;
        self.digest_due = true;
        Ok(report)
    }

    /// Writes everything and commits, after the client let go of its mappings or died.
    pub fn close(&mut self) -> Result<SaveReport, KeeperError> {
        self.control.set_freeze(Freeze::Closed);
        self.regions.iter_mut().for_each(KeptRegion::forget_client);
        if self.counters.digest_failure.is_some() && self.control.ledger.0.permits().held == 0 {
            // The save before holds everything, and the store behind it takes nothing more.
            let epoch = self.store.last_commit().epoch.0;
            return Ok(SaveReport { epoch, ..SaveReport::default() });
        }
        let report = self.write_everything(CommitKind::Close, self.clock.now())?;
        if let Some(cause) = self.store.digest_failure() {
            complain(&format!(
                "everything is written and committed, but the digest of the index is not: {cause}"
            ));
        }
        Ok(report)
    }

    /// Lets writers go on after a save: the power is back.
    pub fn resume(&mut self) -> Result<(), KeeperError> {
        if self.client.stopped {
            return Err(std::io::Error::other(
                "the client was stopped for the save, with pages open: end it with SIGKILL and start it again",
            )
            .into());
        }
        if self.phase == Phase::Saved {
            // From the next store on, the save is not everything any more.
            if !planted("resume-still-complete") {
                self.store.mark_running()?;
            }
            self.refill_reserve()?;
            self.fit_permits();
            self.phase = Phase::Running;
            self.control.set_freeze(Freeze::None);
        }
        Ok(())
    }

    fn write_everything(&mut self, kind: CommitKind, began: Instant) -> Result<SaveReport, KeeperError> {
        let report_pages = self.control.ledger.0.permits().held;
        self.refuse_askers("a save or the end of the session overtook it: its commit holds the same image");
        self.queue.clear();
        let mut saving = Saving { freezing: self.begin_freeze(Cut::Final), taken: 0, done: false };
        let freed = self.copy_everything(&mut saving)?;
        let copy_ms = self.ms_since(began);
        self.give_back(freed);
        while self.in_flight_batches > 0 {
            self.reap(Wait::One)?;
        }
        let committing = self.clock.now();
        let commit = self.store.commit(kind)?;
        self.last_checkpoint = self.clock.now();
        Ok(SaveReport {
            pages: report_pages,
            total_ms: self.ms_since(began),
            quiesce_ms: 0.0,
            copy_ms,
            commit_ms: self.ms_since(committing),
            unsettled_pages: saving.freezing.frozen.unsettled.len() as u32,
            epoch: commit.epoch.0,
        })
    }

    /// Freezes, copies and submits every dirty page. Returns the permits of those that had not changed.
    fn copy_everything(&mut self, saving: &mut Saving) -> Result<u32, KeeperError> {
        let memories = self.regions.iter().map(|region| region.memory().clone()).collect();
        let worth_a_thread = self.control.ledger.0.permits().held as usize > SAVE_ALONE_PAGES;
        let mut copier = Copier::new(memories, self.store.hasher(), worth_a_thread);
        let mut freed = 0;
        loop {
            while copier.wants_more() {
                let Some(load) = self.next_load(saving) else { break };
                copier.hand_over(load);
            }
            let load = match copier.take_copied() {
                Some(load) => Some(load),
                // The thread is busy: lend it a hand.
                None => match self.next_load(saving) {
                    Some(mut load) => {
                        copier.copy(&mut load);
                        Some(load)
                    }
                    None => copier.wait_for_copied(),
                },
            };
            match load {
                Some(load) => {
                    freed += self.send(load)?;
                    self.reap(Wait::No)?;
                }
                None if saving.done => return Ok(freed),
                // Every buffer is on its way to the SSD.
                None => {
                    self.reap(Wait::One)?;
                }
            }
        }
    }

    /// The next pages, a segment of them while there are so many. `None` when there are none left, or no
    /// buffer for them.
    fn next_load(&mut self, saving: &mut Saving) -> Option<Load> {
        let staging = self.store.take_staging()?;
        let room = staging.room();
        while saving.settled_left() < room && self.freeze_on(&mut saving.freezing) {}
        let mut pages = Vec::with_capacity(room.min(saving.left()));
        while pages.len() < room {
            let Some((page, settled)) = saving.next() else { break };
            let region = &self.regions[page.region as usize];
            let word = region.word(page.page).load();
            if !settled || word.state() == State::Held {
                pages.push(LoadPage {
                    page,
                    id: region.page_id(page.page),
                    claimed: settled.then_some(word),
                });
            }
        }
        if pages.is_empty() {
            saving.done = true;
            self.store.put_back(staging);
            return None;
        }
        Some(Load { pages, staging })
    }

    /// Decides on the copies of a load and submits them. Returns the permits of those that had not
    /// changed.
    fn send(&mut self, load: Load) -> Result<u32, KeeperError> {
        let Load { pages, mut staging } = load;
        let mut freed = 0;
        staging.keep(|number, checksum| {
            let LoadPage { page, claimed, .. } = pages[number];
            let Some(claimed) = claimed else { return Some(AS_IT_STOOD) };
            match self.settle_copy(page, claimed, checksum) {
                Settled::Departs(cookie) => Some(cookie),
                Settled::Unchanged => {
                    freed += 1;
                    None
                }
                Settled::Outdated => None,
            }
        });
        if staging.is_empty() {
            self.store.put_back(staging);
            return Ok(freed);
        }
        loop {
            self.fit_permits_beside(1);
            staging = match self.store.place(staging)? {
                Placed::Batch(batch) => {
                    self.depart(batch);
                    return Ok(freed);
                }
                Placed::NoSpace(staging) if self.in_flight_batches > 0 => staging,
                Placed::NoSpace(_) => {
                    let message = "the log has no room for the save: its reserve was too small";
                    return Err(std::io::Error::other(message).into());
                }
            };
            self.reap(Wait::One)?;
        }
    }
}

/// How far a save has come.
struct Saving {
    freezing: Freezing,
    /// Pages that were taken of what the freeze found: the settled ones, then the others.
    taken: usize,
    /// All were taken.
    done: bool,
}

impl Saving {
    fn settled_left(&self) -> usize {
        self.freezing.frozen.pages.len().saturating_sub(self.taken)
    }

    fn left(&self) -> usize {
        let Frozen { pages, unsettled } = &self.freezing.frozen;
        pages.len() + unsettled.len() - self.taken
    }

    /// The next page, and whether it is settled. Those that are not come once all is frozen.
    fn next(&mut self) -> Option<(PageRef, bool)> {
        let Frozen { pages, unsettled } = &self.freezing.frozen;
        let (page, settled) = match pages.get(self.taken) {
            Some(page) => (*page, true),
            None => (*unsettled.get(self.taken - pages.len())?, false),
        };
        self.taken += 1;
        Some((page, settled))
    }
}
