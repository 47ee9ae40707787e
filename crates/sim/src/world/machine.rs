//! The parts of the simulated machine, put together as the real program does it.
//!
//! A region's memory and words are real shared memory; the page table in front of them is the twin.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use wattkeep_keep::client::grant::Tracked;
use wattkeep_keep::client::guard::Guard;
use wattkeep_keep::client::protect::Shared;
use wattkeep_keep::clock::{Clock, SimulatedClock};
use wattkeep_keep::control::block::{Control, Words};
use wattkeep_keep::keeper::engine::Keeper;
use wattkeep_keep::keeper::notices::ClientLine;
use wattkeep_keep::limits::ADDRESS_BASE;
use wattkeep_keep::page_table::PageTable;
use wattkeep_keep::protocol::{RegionRequest, SessionOptions};
use wattkeep_keep::types::{FaultMode, PolicyName, Tracking};
use wattkeep_power::spec::BudgetSpec;
use wattkeep_store::{CreateOptions, NewRegion, RegionMode, Store};

use super::audit::Auditor;
use super::steps::Recorded;
use super::threads::Thread;
use crate::disk::MemoryDisk;
use crate::oracle::Oracle;
use crate::page_table::TwinTable;
use crate::script::THREADS;

/// How a simulated machine is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pages of the region tracked by faults, and of the one tracked by announcements.
    pub pages: [u32; 2],
    /// Pages that each region may grow to.
    pub reserve: u32,
    /// Dirty budget in pages at the start.
    pub budget: u32,
    /// Pages of a segment of the log: small ones fill soon.
    pub segment_pages: u32,
    /// Which page is cleaned next.
    pub policy: PolicyName,
    /// Milliseconds between checkpoints that nobody asked for; 0 for none.
    pub checkpoint_interval_ms: u64,
    /// Fill regions before they are handed out.
    pub fill_ahead: bool,
    /// Count dirty pages after every step.
    pub audit: bool,
    /// Something that the checks must find.
    pub planted: Option<Planted>,
}

/// A bug in what the engine stands on: a campaign that does not find it checks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The SSD says that it flushed, and did not.
    LyingFlush,
    /// The kernel says that it protected a page, and did not.
    LeakyProtection,
    /// The budget counts on an SSD eight times as fast as it is.
    OptimisticBandwidth,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pages: [24, 8],
            reserve: 40,
            budget: 6,
            segment_pages: 8,
            policy: PolicyName::Fifo,
            checkpoint_interval_ms: 0,
            fill_ahead: false,
            audit: true,
            planted: None,
        }
    }
}

/// Why a history ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What was promised to be kept is not there, or not whole.
    Lost(String),
    /// Another promise is broken: the bound, an order of states.
    Violation(String),
    /// Somebody waits for ever.
    Hang(String),
    /// The engine stopped because of its SSD or its power. Not a fault of its own.
    Stopped(String),
}

impl Trouble {
    pub(super) fn stopped(error: impl std::fmt::Display) -> Self {
        Trouble::Stopped(error.to_string())
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Lost(what) => write!(f, "lost: {what}"),
            Trouble::Violation(what) => write!(f, "violation: {what}"),
            Trouble::Hang(what) => write!(f, "hang: {what}"),
            Trouble::Stopped(what) => write!(f, "stopped: {what}"),
        }
    }
}

/// A region as the simulated program has it.
pub(super) struct ClientRegion {
    pub(super) tracked: Arc<Tracked>,
    pub(super) table: Arc<TwinTable>,
}

/// The engine and the program of one session: what a power cut ends.
pub struct Session {
    pub(super) keeper: Keeper<MemoryDisk>,
    pub(super) shared: Arc<Shared>,
    pub(super) regions: Vec<ClientRegion>,
    pub(super) threads: Vec<Thread>,
    /// Cuts that checkpoints made.
    pub(super) cuts: u64,
    /// Checkpoints that were asked for: the last one's number.
    pub(super) asked: u64,
    /// Those of them that nobody has heard of yet, and the cuts that there were before.
    pub(super) unheard: BTreeMap<u64, u64>,
}

/// The machine.
pub struct World {
    pub(super) settings: Settings,
    pub(super) clock: SimulatedClock,
    pub(super) disk: MemoryDisk,
    pub(super) session: Session,
    pub(super) oracle: Oracle,
    pub(super) auditor: Auditor,
    /// A save completed, and writers were not let go on since.
    pub(super) saved: bool,
    /// Threads that had announced their stores went on after the save.
    pub(super) escaped: bool,
    pub(super) recorded: Vec<Recorded>,
    /// The store was opened again, and said whether it holds everything.
    pub(super) restarted: Option<bool>,
}

impl World {
    /// A new store, opened. `seed` is the chance of its disk.
    pub fn new(settings: Settings, seed: u64) -> Result<Self, Trouble> {
        let disk = MemoryDisk::new(seed);
        let mut options = CreateOptions {
            uuid: Some([7; 16]),
            seed: Some(1),
            budget_pages: settings.budget,
            segment_pages: Some(settings.segment_pages),
            progress: None,
        };
        let mut store = Store::create(disk.clone(), &mut options).map_err(Trouble::stopped)?;
        for (number, pages) in settings.pages.iter().enumerate() {
            let mode = if number == 0 { RegionMode::Transparent } else { RegionMode::Explicit };
            let address = ADDRESS_BASE + ((number as u64) << 32);
            let reserve_pages = settings.reserve;
            let new = NewRegion { name: region_name(number), mode, pages: *pages, reserve_pages, address };
            store.create_region(new).map_err(Trouble::stopped)?;
        }
        let image = settings.pages.iter().map(|pages| vec![[0; 4]; *pages as usize]).collect();
        let epoch = store.last_commit().epoch.0;
        Self::over(settings, SimulatedClock::new(), disk, store, Oracle::new(image, epoch))
    }

    /// The machine over a store that is open already.
    pub(super) fn over(
        settings: Settings,
        clock: SimulatedClock,
        disk: MemoryDisk,
        store: Store<MemoryDisk>,
        oracle: Oracle,
    ) -> Result<Self, Trouble> {
        disk.set_lying(settings.planted == Some(Planted::LyingFlush));
        let auditor = Auditor::new(&oracle, &store);
        let session = Session::start(&settings, &clock, store)?;
        Ok(Self {
            settings,
            clock,
            disk,
            session,
            oracle,
            auditor,
            saved: false,
            escaped: false,
            recorded: Vec::new(),
            restarted: None,
        })
    }

    /// The disk, to record its moments or to make it fail.
    pub fn disk(&self) -> &MemoryDisk {
        &self.disk
    }

    /// The clock of the machine.
    pub fn clock(&self) -> &SimulatedClock {
        &self.clock
    }

    /// What was stored and committed.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Independent counts of dirty pages so far.
    pub fn samples(&self) -> u64 {
        self.auditor.samples
    }
}

pub(super) fn region_name(number: usize) -> String {
    format!("r{number}")
}

impl Session {
    /// Starts the keeper over an open store, and a program that opens every region.
    pub fn start(
        settings: &Settings,
        clock: &SimulatedClock,
        store: Store<MemoryDisk>,
    ) -> Result<Self, Trouble> {
        let options = SessionOptions {
            create_if_missing: false,
            budget: None,
            policy: settings.policy,
            checkpoint_interval_ms: settings.checkpoint_interval_ms,
            quiesce_ms: 0,
            fault_mode: FaultMode::Signal,
            fault_mode_reason: "simulated".into(),
            fill_ahead: settings.fill_ahead,
        };
        let (control, control_fd) = Control::create().map_err(Trouble::stopped)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Trouble::stopped)?;
        let shared = Shared::new(Control::map(&control_fd).map_err(Trouble::stopped)?, bell);
        let (line, clock) = (ClientLine::default(), Clock::Simulated(clock.clone()));
        let budget = BudgetSpec::Pages(store.budget_pages().into());
        let mut session = Self {
            keeper: Keeper::new(store, control, line, options, budget, clock),
            shared: Arc::new(shared),
            regions: Vec::new(),
            threads: (0..THREADS).map(|_| Thread::default()).collect(),
            cuts: 0,
            asked: 0,
            unheard: BTreeMap::new(),
        };
        session.keeper.arm().map_err(Trouble::Stopped)?;
        for number in 0..settings.pages.len() {
            session.open_region(number, settings)?;
        }
        Ok(session)
    }

    fn open_region(&mut self, number: usize, settings: &Settings) -> Result<(), Trouble> {
        let tracking = if number == 0 { Tracking::Transparent } else { Tracking::Explicit };
        let name = region_name(number);
        let request = RegionRequest { name, create_bytes: None, tracking, reserve_bytes: 0 };
        let reply = self.keeper.open_region(&request).map_err(Trouble::Stopped)?;
        let region = self.keeper.region(reply.index).expect("a region that was just opened");
        let [memory, words] = region.descriptors();
        let protects = tracking.protects();
        let leaks = settings.planted == Some(Planted::LeakyProtection);
        let table = TwinTable::map(memory, reply.address, reply.reserve_pages, protects, leaks);
        let table = Arc::new(table.map_err(Trouble::stopped)?);
        let words = Words::map(words, reply.reserve_pages).map_err(Trouble::stopped)?;
        if settings.fill_ahead {
            let stored = self.keeper.store().stored_pages(region.id);
            stored.for_each(|page| table.set_backed(page.page));
        }
        self.keeper
            .attach(reply.index as usize, Some(PageTable::Twin(table.clone())))
            .map_err(Trouble::stopped)?;
        let guard = Guard::Userfault { table: PageTable::Twin(table.clone()), protects };
        let base = reply.address as usize;
        let tracked =
            Tracked::new(self.shared.clone(), words, reply.index, base, reply.pages, tracking, guard);
        let tracked = Arc::new(tracked);
        self.shared.publish(Arc::as_ptr(&tracked).cast_mut(), reply.index);
        self.regions.push(ClientRegion { tracked, table });
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for region in 0..self.regions.len() {
            self.shared.withdraw(region as u32);
        }
    }
}
