//! The keeper's state, and one turn of its loop.
//!
//! A turn takes the stages in the order a dirty page meets them: take in the clients' news, reap the
//! SSD's, estimate the pressure, choose victims, copy and submit, fill what is absent. Each stage is a
//! file beside this one; none calls another.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use wattkeep_power::spec::BudgetSpec;
use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::{Event, Store, StoreError};

use super::complain::complain;
use super::cut::{Asker, Checkpointing};
use super::fill::Filling;
use super::notices::ClientLine;
use super::pages::KeptRegion;
use super::status::Counters;
use crate::clock::Clock;
use crate::control::block::{Control, Freeze, PageRef};
use crate::limits::EPOCH;
use crate::protocol::SessionOptions;
use crate::types::Sequence;
use crate::victim::pressure::Pressure;
use crate::victim::{self, VictimPolicy};

/// Why the keeper stopped keeping.
#[derive(Debug)]
pub enum KeeperError {
    /// The store failed; its data is still in memory.
    Store(StoreError),
    /// The system refused something the keeper needs.
    System(io::Error),
}

impl std::fmt::Display for KeeperError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeeperError::Store(e) => write!(f, "{e}"),
            KeeperError::System(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for KeeperError {}

impl From<StoreError> for KeeperError {
    fn from(e: StoreError) -> Self {
        KeeperError::Store(e)
    }
}

impl From<io::Error> for KeeperError {
    fn from(e: io::Error) -> Self {
        KeeperError::System(e)
    }
}

/// What a session does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Keeping.
    Running,
    /// A save completed; writers stall until the power is back.
    Saved,
    /// The store failed, with the cause.
    Failed(String),
}

/// The engine of one open store.
pub struct Keeper<D: Disk> {
    pub(super) store: Store<D>,
    pub(super) clock: Clock,
    /// When the turn under way began.
    pub(super) now: Instant,
    pub(super) control: Control,
    pub(super) client: ClientLine,
    pub(super) options: SessionOptions,
    pub(super) regions: Vec<KeptRegion>,
    pub(super) budget: BudgetSpec,
    /// The budget in pages of the regions there are. The ledger's limit is lower while the log lacks room.
    pub(super) budget_pages: u32,
    pub(super) policy: Box<dyn VictimPolicy>,
    pub(super) pressure: Pressure,
    /// Victims that wait for their copy.
    pub(super) queue: VecDeque<PageRef>,
    /// Since when the oldest of them waits for company.
    pub(super) queue_waits: Option<Instant>,
    /// Pages whose copy is in flight, and the batches that carry them.
    pub(super) in_flight_pages: u32,
    pub(super) in_flight_batches: usize,
    /// A page that is to be cleaned is stored to, by a thread that will not ring.
    pub(super) awaits_stores: bool,
    /// Last batch of the last cleaning pass, and the newest batch that is on the SSD.
    pub(super) moved_until: Sequence,
    pub(super) acknowledged: Sequence,
    pub(super) filling: Filling,
    pub(super) checkpoint: Option<Checkpointing>,
    /// Who asked for a checkpoint when the cut of the one under way was made already, or of one that gave up.
    pub(super) late_askers: Vec<Asker>,
    pub(super) last_checkpoint: Instant,
    /// A checkpoint gave up, or won back little room: no other for the sake of room before this.
    pub(super) checkpoint_not_before: Instant,
    /// A checkpoint gave up: no other for those who asked for it before this.
    pub(super) try_again_at: Instant,
    pub(super) counters: Counters,
    pub(super) phase: Phase,
    /// A save was reported; the digest of its index is still to be written.
    pub(super) digest_due: bool,
    epoch_began: Instant,
    dirtied_before: u64,
    /// When the count of faults was last seen to rise, and the count.
    pub(super) last_fault: (Instant, u64),
    /// What the SSD has done and the stages have not taken yet, oldest first.
    events: Vec<Event>,
}

impl<D: Disk> Keeper<D> {
    /// An engine over an open store, without regions yet.
    pub fn new(
        store: Store<D>,
        control: Control,
        client: ClientLine,
        options: SessionOptions,
        budget: BudgetSpec,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        let policy = victim::policy(options.policy);
        Self {
            store,
            clock,
            now,
            control,
            client,
            options,
            regions: Vec::new(),
            budget,
            budget_pages: 0,
            policy,
            pressure: Pressure::default(),
            queue: VecDeque::new(),
            queue_waits: None,
            in_flight_pages: 0,
            in_flight_batches: 0,
            awaits_stores: false,
            moved_until: Sequence(0),
            acknowledged: Sequence(0),
            filling: Filling::default(),
            checkpoint: None,
            late_askers: Vec::new(),
            last_checkpoint: now,
            checkpoint_not_before: now,
            try_again_at: now,
            counters: Counters::default(),
            phase: Phase::Running,
            digest_due: false,
            epoch_began: now,
            dirtied_before: 0,
            last_fault: (now, 0),
            events: Vec::new(),
        }
    }

    /// Wins back what earlier saves used of their reserve, then gives out permits: before the first turn.
    pub fn arm(&mut self) -> Result<(), String> {
        self.refill_reserve().map_err(|e| e.to_string())?;
        self.apply_budget()
    }

    /// One turn of all stages. True when anything moved: then another turn is worth taking.
    pub fn turn(&mut self) -> Result<bool, KeeperError> {
        self.now = self.clock.now();
        self.awaits_stores = false;
        if self.counters.digest_failure.is_some() {
            // The save holds everything, and the store takes nothing more.
            return Ok(false);
        }
        let mut moved = self.take_in_news();
        moved |= self.reap(Wait::No)?;
        self.fit_permits();
        self.end_epoch()?;
        if self.phase == Phase::Running {
            moved |= self.offer_victims();
            moved |= self.protect_for_idle_clients();
            moved |= self.step_checkpoint()?;
            moved |= self.write_queued()?;
            moved |= self.make_room()?;
        }
        if std::mem::take(&mut self.digest_due) && self.phase == Phase::Saved {
            // Behind the save and its report: if the power goes first, the next opening scans.
            match self.store.write_digest() {
                Ok(written) => moved |= written,
                Err(e) => {
                    complain(&format!("the save is complete, but the digest of its index is not: {e}"));
                    self.counters.digest_failure = Some(e.to_string());
                    return Ok(false);
                }
            }
        }
        moved |= self.fill_ahead()?;
        Ok(moved)
    }

    /// Takes what the SSD has done, up to the first read; waits for it as told when nothing is left from
    /// before. Filling the pages of one read takes half a millisecond: the next read is submitted, and
    /// whoever waits for a page is heard, before the next one is filled.
    pub(super) fn reap(&mut self, wait: Wait) -> Result<bool, KeeperError> {
        let mut events = std::mem::take(&mut self.events);
        let wait = if events.is_empty() { wait } else { Wait::No };
        let polled = self.store.poll(wait, &mut events);
        let reads = |event: &Event| matches!(event, Event::Read { .. });
        let taken = events.iter().position(reads).map_or(events.len(), |read| read + 1);
        let behind_it = events[taken..].iter().any(reads);
        for event in events.drain(..taken) {
            match event {
                Event::Written { sequence, pages, .. } => {
                    self.acknowledged = sequence;
                    self.written(&pages);
                }
                Event::Read { token, buffer, first_slot, result } => {
                    self.was_read(token, buffer, first_slot, result, behind_it)?
                }
            }
        }
        self.events = events;
        polled?;
        Ok(taken > 0)
    }

    fn end_epoch(&mut self) -> Result<(), KeeperError> {
        let elapsed = self.now - self.epoch_began;
        if elapsed < EPOCH {
            return Ok(());
        }
        let dirtied = self.dirtied();
        // A keeper that slept through several epochs spreads what it missed over them.
        let epochs = (elapsed.as_nanos() / EPOCH.as_nanos()).clamp(1, 64) as u64;
        let each = (dirtied - self.dirtied_before).div_ceil(epochs);
        (0..epochs).for_each(|_| self.pressure.epoch(each));
        self.dirtied_before = dirtied;
        self.epoch_began = self.now;
        self.observe_epoch();
        // What one nap may dirty, twice: then a ring comes before the last permit goes.
        let limit = self.control.ledger.0.permits().limit;
        self.control.set_ring_at((self.pressure.expected() as u32 + 16).min(limit.div_ceil(2)));
        self.release_reserve()
    }

    /// The store failed: nobody may write any more, and everybody is told why.
    pub fn fail(&mut self, error: &KeeperError) {
        if !matches!(self.phase, Phase::Failed(_)) {
            complain(&error.to_string());
            self.phase = Phase::Failed(error.to_string());
            self.control.set_freeze(Freeze::Closed);
            self.refuse_askers(&error.to_string());
        }
    }

    /// The error that stopped the keeper.
    pub fn failure(&self) -> Option<&str> {
        match &self.phase {
            Phase::Failed(cause) => Some(cause),
            _ => None,
        }
    }

    /// Nothing is dirty, queued or in flight.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight_batches == 0 && self.checkpoint.is_none()
    }

    /// When the last turn began.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The store below.
    pub fn store(&self) -> &Store<D> {
        &self.store
    }

    /// A region of the session, by its place.
    pub fn region(&self, index: u32) -> Option<&KeptRegion> {
        self.regions.get(index as usize)
    }

    pub(super) fn region_of(&self, page: PageRef) -> Option<&KeptRegion> {
        self.regions.get(page.region as usize).filter(|region| page.page < region.pages)
    }
}
