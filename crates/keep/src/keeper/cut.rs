//! The cut: a consistent image of all regions, by freezing grants and protecting every dirty page.
//!
//! While grants are frozen, a store to a protected page waits; so no store that was made after a
//! waiting one, on any thread, can be in the image without it. A *checkpoint* lets writers go on as
//! soon as everything is protected, and keeps each page from being written until it is copied. A
//! *save* (`save.rs`) copies on while everything stands still, because the power is going.
//!
//! A thread that was stopped in the middle of a grant or an announced store is waited for only so
//! long. A save then takes its page as it stands, as if the program had been killed there; a
//! checkpoint gives up.

use std::time::{Duration, Instant};

use wattkeep_store::disk::Disk;
use wattkeep_store::{Begin, CommitKind, Purpose};
use wattkeep_sys::mutant::planted;

use super::engine::{Keeper, KeeperError};
use super::hazards::Amid;
use super::pages::KeptRegion;
use super::write::Copied;
use crate::clock::Clock;
use crate::control::block::{Freeze, PageRef};
use crate::control::page_word::{PageWord, State, Word};
use crate::limits::{
    BATCHES_IN_FLIGHT, CHECKPOINT_PATIENCE, CHECKPOINT_PAUSE, CHECKPOINT_PAUSE_MIN, FREEZE_PATIENCE,
};
use crate::protocol::SaveReport;
use crate::types::Tracking;

/// Pages of address space that are protected in one go: one page table of the processor.
const BLOCK: u32 = 512;

/// From so many dirty pages in a block on, one call over all of them is cheaper than one per run
/// (0.06 µs a page against 0.9 µs a call).
const DENSE: usize = 16;

/// A checkpoint under way.
pub(super) struct Checkpointing {
    /// Pages to copy before the commit; `None` until writeback has drained and the cut was made.
    pages: Option<Vec<PageRef>>,
    next: usize,
    looks_for_room: u32,
    urgent: Vec<PageRef>,
    copied: u32,
    /// It uses the room that is kept for a save: grants are frozen until its commit has won that back.
    on_reserve: bool,
    /// Who waits for the report.
    askers: Vec<Asker>,
}

/// A connection that asked for a checkpoint.
pub(super) struct Asker {
    connection: u64,
    asked: Instant,
    /// When a try for it gave up first.
    met: Option<Instant>,
}

/// What a freeze found.
#[derive(Default)]
pub(super) struct Frozen {
    /// Pages that are settled and wait for their copy.
    pub(super) pages: Vec<PageRef>,
    /// Pages that a stopped thread holds open.
    pub(super) unsettled: Vec<PageRef>,
}

/// A freeze under way, block by block.
pub(super) struct Freezing {
    cut: Cut,
    region: usize,
    next: u32,
    patience: Duration,
    /// Threads that are amid a store, and do not end it.
    amid: Amid,
    /// What it found so far.
    pub(super) frozen: Frozen,
}

impl<D: Disk> Keeper<D> {
    /// Starts a checkpoint, or joins the one under way. True when it was started.
    pub fn begin_checkpoint(&mut self, asker: Option<u64>) -> bool {
        let asker = asker.map(|connection| Asker { connection, asked: self.clock.now(), met: None });
        if let Some(running) = &mut self.checkpoint {
            // Once the cut is made, what was stored since is not in it: that takes another one.
            let joins = running.pages.is_none() || planted("checkpoint-answered-with-older");
            let askers = if joins { &mut running.askers } else { &mut self.late_askers };
            askers.extend(asker);
            return false;
        }
        let askers = asker.into_iter().chain(std::mem::take(&mut self.late_askers)).collect();
        self.checkpoint = Some(Checkpointing {
            pages: None,
            next: 0,
            looks_for_room: 0,
            urgent: Vec::new(),
            copied: 0,
            on_reserve: false,
            askers,
        });
        true
    }

    /// The checkpoint under way has made its cut: what it commits will not change any more.
    pub fn has_cut(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.pages.is_some())
    }

    /// Drops the checkpoint under way: whoever waits for it, or for the next one, is told why.
    pub(super) fn refuse_askers(&mut self, why: &str) {
        let running = self.checkpoint.take().map(|checkpoint| checkpoint.askers).unwrap_or_default();
        let late = std::mem::take(&mut self.late_askers);
        self.refuse(running.into_iter().chain(late), why);
    }

    fn refuse(&mut self, askers: impl IntoIterator<Item = Asker>, why: &str) {
        let refused = askers.into_iter().map(|asker| (asker.connection, Err(why.to_owned())));
        self.counters.reports.extend(refused);
    }

    /// A writer waits for this page of the checkpoint.
    pub(super) fn hurry(&mut self, page: PageRef) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.urgent.push(page);
        }
    }

    pub(super) fn step_checkpoint(&mut self) -> Result<bool, KeeperError> {
        if self.checkpoint.is_none() {
            let interval = u128::from(self.options.checkpoint_interval_ms);
            let due = interval > 0 && (self.now - self.last_checkpoint).as_millis() >= interval;
            let asked = !self.late_askers.is_empty() && self.now >= self.try_again_at;
            return Ok((due || asked) && self.begin_checkpoint(None));
        }
        if self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.pages.is_none()) {
            if self.in_flight_batches > 0 {
                return Ok(false);
            }
            return Ok(self.worth_making_room() && self.make_room_for_checkpoint()? || self.cut_checkpoint());
        }
        if self.copy_checkpoint()? {
            return Ok(true);
        }
        let done =
            self.checkpoint.as_ref().is_some_and(|c| c.pages.as_ref().is_some_and(|p| c.next >= p.len()));
        if !done || self.in_flight_batches > 0 {
            return Ok(false);
        }
        self.commit_checkpoint()?;
        Ok(true)
    }

    /// False once as many looks were taken as there are segments: then cleaning gains nothing.
    fn worth_making_room(&mut self) -> bool {
        let segments = self.store.status().segments;
        self.checkpoint.as_mut().is_some_and(|checkpoint| {
            checkpoint.looks_for_room += 1;
            checkpoint.looks_for_room <= segments
        })
    }

    fn cut_checkpoint(&mut self) -> bool {
        self.quiesce();
        self.control.set_freeze(Freeze::Checkpoint);
        self.ask_client_to_protect();
        let frozen = self.freeze(Cut::Checkpoint);
        let given_up = !frozen.unsettled.is_empty();
        if given_up {
            frozen.pages.iter().for_each(|page| self.release_held(*page));
        }
        self.control.set_freeze(Freeze::None);
        self.last_checkpoint = self.clock.now();
        if given_up {
            self.give_checkpoint_up();
        } else if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.pages = Some(frozen.pages);
        }
        true
    }

    /// The thread that is in the way may be in the middle of a long store, or only wait for a core: whoever asked is
    /// refused when several tries have met one. Each pause is as long as all before it together.
    fn give_checkpoint_up(&mut self) {
        let now = self.last_checkpoint;
        self.checkpoint_not_before = now + CHECKPOINT_PAUSE;
        self.counters.checkpoints_given_up += 1;
        let mut askers = self.checkpoint.take().map(|checkpoint| checkpoint.askers).unwrap_or_default();
        let tried = |asker: &mut Asker| now - *asker.met.get_or_insert(now);
        let longest = askers.iter_mut().map(tried).max().unwrap_or_default();
        self.try_again_at = now + longest.max(CHECKPOINT_PAUSE_MIN);
        let refused = askers.extract_if(.., |asker| tried(asker) >= CHECKPOINT_PATIENCE).collect::<Vec<_>>();
        self.late_askers.append(&mut askers);
        let why = "a thread holds pages announced or half granted: end its announcement, then try again";
        self.refuse(refused, why);
    }

    /// Undoes the hold on a page of a checkpoint that is given up.
    fn release_held(&mut self, page: PageRef) {
        let region = &self.regions[page.region as usize];
        let explicit = region.tracking == Tracking::Explicit;
        region.settle(page.page, State::Held, if explicit { State::Dirty } else { State::Queued });
        if !explicit {
            self.queue.push_back(page);
        }
    }

    fn copy_checkpoint(&mut self) -> Result<bool, KeeperError> {
        let Some(mut checkpoint) = self.checkpoint.take() else { return Ok(false) };
        let copied = self.copy_some_of(&mut checkpoint);
        self.checkpoint = Some(checkpoint);
        let freed = copied?;
        if let Some(freed) = freed {
            self.give_back(freed);
        }
        Ok(freed.is_some())
    }

    /// Fills one batch; `None` when there was nothing to copy or no batch to be had.
    fn copy_some_of(&mut self, checkpoint: &mut Checkpointing) -> Result<Option<u32>, KeeperError> {
        let pages = checkpoint.pages.take().unwrap_or_default();
        let left = pages.len() - checkpoint.next;
        let result = if left == 0 || self.in_flight_batches >= BATCHES_IN_FLIGHT {
            Ok(None)
        } else {
            self.fill_checkpoint_batch(checkpoint, &pages)
        };
        checkpoint.pages = Some(pages);
        result
    }

    fn fill_checkpoint_batch(
        &mut self,
        checkpoint: &mut Checkpointing,
        pages: &[PageRef],
    ) -> Result<Option<u32>, KeeperError> {
        let left = pages.len() - checkpoint.next;
        let purpose = if checkpoint.on_reserve { Purpose::Save } else { Purpose::Checkpoint };
        if checkpoint.on_reserve {
            self.fit_permits_beside(1);
        }
        let mut batch = match self.store.begin(purpose, left)? {
            Begin::Batch(batch) => batch,
            Begin::NoSpace if !checkpoint.on_reserve => {
                self.control.set_freeze(Freeze::Checkpoint);
                checkpoint.on_reserve = true;
                return Ok(Some(0));
            }
            Begin::NoSpace | Begin::Busy => return Ok(None),
        };
        let mut freed = 0;
        while batch.room() > 0 {
            let page = match checkpoint.urgent.pop() {
                Some(page) => page,
                None => match pages.get(checkpoint.next) {
                    Some(page) => {
                        checkpoint.next += 1;
                        *page
                    }
                    None => break,
                },
            };
            let word = self.regions[page.region as usize].word(page.page).load();
            if word.state() == State::Held {
                checkpoint.copied += 1;
                freed += u32::from(self.copy_claimed(page, word, &mut batch) == Copied::Unchanged);
            }
        }
        self.depart(batch);
        Ok(Some(freed))
    }

    fn commit_checkpoint(&mut self) -> Result<(), KeeperError> {
        let committing = self.clock.now();
        let commit = self.store.commit(CommitKind::Checkpoint)?;
        let Some(checkpoint) = self.checkpoint.take() else { return Ok(()) };
        let status = self.store.status();
        if checkpoint.on_reserve || status.free <= status.save_reserve_segments {
            // The commit let go of the old versions: what they held is won back before anybody writes.
            self.control.set_freeze(Freeze::Checkpoint);
            self.refill_reserve()?;
            self.fit_permits();
            self.control.set_freeze(Freeze::None);
            self.checkpoint_not_before = self.clock.now() + CHECKPOINT_PAUSE;
        }
        self.counters.checkpoints += 1;
        let (pages, commit_ms, epoch) = (checkpoint.copied, self.ms_since(committing), commit.epoch.0);
        for Asker { connection, asked, .. } in checkpoint.askers {
            let total_ms = self.ms_since(asked);
            let report = SaveReport { pages, total_ms, commit_ms, epoch, ..SaveReport::default() };
            self.counters.reports.push((connection, Ok(report)));
        }
        Ok(())
    }

    pub(super) fn ms_since(&self, began: Instant) -> f64 {
        (self.clock.now() - began).as_secs_f64() * 1000.0
    }

    /// Begins to freeze what grants that are frozen already will not touch any more.
    pub(super) fn begin_freeze(&self, cut: Cut) -> Freezing {
        let region = usize::from(planted("freeze-forgets-a-region"));
        let mut patience = FREEZE_PATIENCE;
        let amid = self.wait_for_hazards(&mut patience);
        Freezing { cut, region, next: 0, patience, amid, frozen: Frozen::default() }
    }

    /// Protects every dirty page and holds it. Copies in flight are left alone.
    fn freeze(&mut self, cut: Cut) -> Frozen {
        let mut freezing = self.begin_freeze(cut);
        while self.freeze_on(&mut freezing) {}
        freezing.frozen
    }

    /// The same for one block of pages. False when there is none left.
    pub(super) fn freeze_on(&self, freezing: &mut Freezing) -> bool {
        while let Some(region) = self.regions.get(freezing.region) {
            let first = freezing.next;
            if first < region.pages {
                self.freeze_block(freezing.region, first, freezing);
                freezing.next = first.saturating_add(BLOCK);
                return true;
            }
            (freezing.region, freezing.next) = (freezing.region + 1, 0);
        }
        false
    }

    fn freeze_block(&self, index: usize, first: u32, freezing: &mut Freezing) {
        let Freezing { cut, patience, amid, frozen, .. } = freezing;
        let region = &self.regions[index];
        let end = (first + BLOCK).min(region.pages);
        let mut open: Vec<u32> = Vec::new();
        for page in first..end {
            let place = PageRef { region: index as u32, page };
            if amid.holds(region, page) && region.word(page).load().state() == State::Dirty {
                frozen.unsettled.push(place);
                continue;
            }
            match freeze_page(region, page, &self.clock, patience, *cut) {
                Stand::Clean => {}
                Stand::Settled => frozen.pages.push(place),
                Stand::Open => open.push(page),
                Stand::Unsettled => {
                    frozen.unsettled.push(place);
                    if *cut == Cut::Final {
                        region.protect(page, 1);
                    }
                }
            }
        }
        if region.tracking.protects() && !planted("cut-leaves-open") {
            protect_pages(region, &open);
        }
        for page in open {
            region.settle(page, State::Protecting, State::Held);
            frozen.pages.push(PageRef { region: index as u32, page });
        }
    }
}

/// What a cut may do to a thread that is in the middle of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing: an announced store, by a system call too, goes on. The checkpoint gives up.
    Checkpoint,
    /// Close its page all the same: the power is going, or nobody is left.
    Final,
}

/// How a page stands in a cut.
enum Stand {
    /// It equals the store, or its copy is in flight.
    Clean,
    /// Protected, in the state asked for.
    Settled,
    /// Claimed, still open to stores.
    Open,
    /// A stopped thread is busy with it.
    Unsettled,
}

/// Claims a page for the cut. Grants that began before the freeze may still end or turn back, so the
/// word is exchanged for exactly what was seen, and looked at again when it moved.
fn freeze_page(region: &KeptRegion, page: u32, clock: &Clock, patience: &mut Duration, cut: Cut) -> Stand {
    let word = region.word(page);
    let client_lives = !region.is_detached();
    loop {
        let now = wait_until_settled(word, clock, patience, client_lives);
        match now.state() {
            State::Held => return Stand::Settled,
            State::Queued if word.exchange(now, now.to(State::Held)) => return Stand::Settled,
            // Only the client can close it, and it did not.
            State::Dirty if region.tracking.protects() && !region.has_guard() => return Stand::Unsettled,
            // A store that was announced to a protected page and is not done yet will fault, and wait.
            State::Dirty if now.pins() == 0 || cut == Cut::Final && region.tracking.protects() => {
                if word.exchange(now, now.to(State::Protecting)) {
                    return Stand::Open;
                }
            }
            State::Queued => {}
            State::Granting | State::Protecting | State::Dirty | State::Copying => return Stand::Unsettled,
            _ => return Stand::Clean,
        }
    }
}

/// Waits until nobody is in the middle of a grant or an announced store of this page. What it waits
/// is taken from the cut's patience, so that many busy pages together cost no more than one.
fn wait_until_settled(word: &PageWord, clock: &Clock, patience: &mut Duration, client_lives: bool) -> Word {
    let unsettled = |now: Word| matches!(now.state(), State::Granting | State::Protecting) || now.pins() > 0;
    let mut now = word.load();
    if !unsettled(now) || !client_lives {
        return now;
    }
    let began = clock.now();
    while unsettled(now) && clock.now() - began < *patience {
        clock.yield_now();
        now = word.load();
    }
    *patience = patience.saturating_sub(clock.now() - began);
    now
}

/// Protects claimed pages of one block: all in one call where they are dense, run by run elsewhere.
fn protect_pages(region: &KeptRegion, pages: &[u32]) {
    let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return };
    // Between dirty pages lie clean ones (protected already) and fresh or absent ones, where the
    // kernel notes the protection for later. An open page of an unsettled thread is never spanned:
    // it would be closed while its word says that it is open.
    let spannable = (*first..=*last).all(|page| {
        let word = region.word(page).load();
        !matches!(word.state(), State::Granting | State::Dirty)
    });
    if pages.len() >= DENSE && spannable {
        region.protect(*first, last - first + 1);
        return;
    }
    for run in pages.chunk_by(|a, b| a + 1 == *b) {
        region.protect(run[0], run.len() as u32);
    }
}
