//! The whole of client and keeper in a model: the real fault path in threads of the checker, the real
//! engine in another, over a page table and a disk in memory.
//!
//! The keeper sleeps here until it is rung, not for a nap: a ring that is lost is found.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use shuttle::rand::Rng;
use wattkeep_power::spec::BudgetSpec;
use wattkeep_sim::disk::MemoryDisk;
use wattkeep_store::{CreateOptions, NewRegion, RegionMode, Store};

use super::harness::thread;
use super::table::{ClientSide, Killed, Table};
use crate::client::announce::Unpinned;
use crate::client::grant::{Outcome, Tracked};
use crate::client::guard::Guard;
use crate::client::protect::Shared;
use crate::clock::{Clock, SimulatedClock};
use crate::control::block::{Control, Words};
use crate::control::page_word::State;
use crate::control::primitives::{AtomicU32, Ordering, yield_now};
use crate::keeper::engine::Keeper;
use crate::keeper::notices::ClientLine;
use crate::limits::{ADDRESS_BASE, PAGE_SIZE};
use crate::page_table::PageTable;
use crate::protocol::{RegionRequest, SessionOptions};
use crate::types::{FaultMode, PageId, PolicyName, Tracking};

/// Looks at a bell that nobody rings, before the model gives the clients up.
const PATIENCE: u32 = 3000;

/// What a turn of the keeper takes: short enough that clients protect their victims themselves at times.
const TURN: Duration = Duration::from_micros(300);

/// Pages of each region.
pub(super) const PAGES: u32 = 3;

/// A region as the client has it.
#[derive(Clone)]
pub(super) struct Mapped {
    pub(super) tracked: Arc<Tracked>,
    pub(super) table: Arc<Table>,
}

/// One session: the keeper, and what its clients share.
pub(super) struct Machine {
    pub(super) keeper: Keeper<MemoryDisk>,
    pub(super) shared: Arc<Shared>,
    pub(super) regions: Vec<Mapped>,
    clock: SimulatedClock,
    running: Arc<AtomicU32>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Machine {
    /// A new store with a region for each of `tracking`, opened, with `budget` permits.
    pub(super) fn new(budget: u32, tracking: &[Tracking]) -> Self {
        let disk = MemoryDisk::new(shuttle::rand::thread_rng().r#gen());
        let mut create = CreateOptions {
            uuid: Some([7; 16]),
            seed: Some(1),
            budget_pages: budget,
            segment_pages: Some(8),
            progress: None,
        };
        let mut store = Store::create(disk, &mut create).expect("a store");
        for (number, tracking) in tracking.iter().enumerate() {
            let mode = if tracking.protects() { RegionMode::Transparent } else { RegionMode::Explicit };
            let address = ADDRESS_BASE + ((number as u64) << 32);
            let name = format!("r{number}");
            let region = NewRegion { name, mode, pages: PAGES, reserve_pages: PAGES, address };
            store.create_region(region).expect("a region");
        }
        let options = SessionOptions {
            create_if_missing: false,
            budget: None,
            policy: PolicyName::Fifo,
            checkpoint_interval_ms: 0,
            quiesce_ms: 0,
            fault_mode: FaultMode::Signal,
            fault_mode_reason: "a model".into(),
            fill_ahead: false,
        };
        let (control, memory) = Control::create().expect("a control block");
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let shared = Arc::new(Shared::new(Control::map(&memory).expect("the same block"), bell));
        let clock = SimulatedClock::new();
        let (line, budget) = (ClientLine::default(), BudgetSpec::Pages(budget.into()));
        let keeper = Keeper::new(store, control, line, options, budget, Clock::Simulated(clock.clone()));
        let running = Arc::new(AtomicU32::new(0));
        let mut machine = Self { keeper, shared, regions: Vec::new(), clock, running, clients: Vec::new() };
        machine.keeper.arm().expect("permits");
        for (number, tracking) in tracking.iter().enumerate() {
            machine.open_region(format!("r{number}"), *tracking);
        }
        machine
    }

    fn open_region(&mut self, name: String, tracking: Tracking) {
        let request = RegionRequest { name, create_bytes: None, tracking, reserve_bytes: 0 };
        let reply = self.keeper.open_region(&request).expect("the region opens");
        let [memory, words] = self.keeper.region(reply.index).expect("it is open").descriptors();
        let words = Words::map(words, reply.reserve_pages).expect("the same words");
        let table =
            Table::map(memory, words.clone(), reply.address, reply.reserve_pages, tracking.protects());
        let table = Arc::new(table);
        let theirs = PageTable::Twin(Arc::new(ClientSide(table.clone())));
        let ours = PageTable::Twin(table.clone());
        self.keeper.attach(reply.index as usize, Some(ours)).expect("the keeper takes it over");
        let guard = Guard::Userfault { table: theirs, protects: tracking.protects() };
        let (shared, base) = (self.shared.clone(), reply.address as usize);
        let tracked = Tracked::new(shared, words, reply.index, base, reply.pages, tracking, guard);
        let tracked = Arc::new(tracked);
        self.shared.publish(Arc::as_ptr(&tracked).cast_mut(), reply.index);
        self.regions.push(Mapped { tracked, table });
    }

    /// Starts a thread of the client. One that is killed just ends.
    pub(super) fn client(&mut self, program: impl FnOnce(&[Mapped]) + Send + 'static) {
        self.running.fetch_add(1, Ordering::SeqCst);
        let (regions, running) = (self.regions.clone(), self.running.clone());
        self.clients.push(thread::spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| program(&regions)));
            running.fetch_sub(1, Ordering::SeqCst);
            match ended {
                Err(panic) if !panic.is::<Killed>() => resume_unwind(panic),
                _ => {}
            }
        }));
    }

    /// One turn of the keeper. True when anything moved, or is on its way to the SSD.
    pub(super) fn turn(&mut self) -> bool {
        self.clock.advance(TURN);
        let moved = self.keeper.turn().expect("the disk is sound");
        self.assert_clean_is_stored();
        moved || !self.keeper.is_idle()
    }

    /// A few turns.
    pub(super) fn some_turns(&mut self) {
        (0..shuttle::rand::thread_rng().gen_range(1..8)).for_each(|_| {
            self.turn();
        });
    }

    /// Keeps, as the keeper's process does, until the client's threads have ended.
    pub(super) fn keep(&mut self) {
        while self.running.load(Ordering::SeqCst) > 0 {
            if self.turn() {
                continue;
            }
            if self.keeper.awaits_stores() {
                // It naps.
                yield_now();
                continue;
            }
            self.shared.control.keeper_falls_asleep();
            if !self.turn() && !self.keeper.awaits_stores() {
                self.sleep();
            }
            self.shared.control.keeper_wakes();
        }
        self.join();
    }

    fn sleep(&self) {
        for _ in 0..PATIENCE {
            if rustix::io::read(&self.shared.bell, &mut [0; 8]).is_ok()
                || self.running.load(Ordering::SeqCst) == 0
            {
                return;
            }
            yield_now();
        }
        panic!("the keeper sleeps while clients wait for it: a ring was lost; {}", self.describe());
    }

    fn describe(&self) -> String {
        let control = &self.shared.control;
        let mut text = format!("{:?}, sleepers: {}", control.ledger.0.permits(), control.has_sleepers());
        for index in 0..self.regions.len() as u32 {
            let region = self.keeper.region(index).expect("an open region");
            let words: Vec<_> = (0..PAGES).map(|page| region.word(page).load()).collect();
            text += &format!(", region {index}: {words:?}");
        }
        text
    }

    /// The client is killed, before the keeper takes another turn. A thread of a model can die only at a
    /// store or a call: permits for all lead those there that sleep.
    pub(super) fn kill_client(&mut self) {
        self.regions.iter().for_each(|region| region.table.kill_client());
        self.shared.control.ledger.0.set_limit(PAGES * self.regions.len() as u32);
        while self.running.load(Ordering::SeqCst) > 0 {
            self.shared.control.announce_progress();
            yield_now();
        }
        self.join();
    }

    fn join(&mut self) {
        self.clients.drain(..).for_each(|client| client.join().expect("no client panics"));
    }

    /// Turns until nothing is left to do.
    pub(super) fn drain(&mut self) {
        while self.turn() {}
    }

    /// At any moment: a page that is clean equals the copy that the store has acknowledged. Its word and
    /// its bytes are looked at in one step of the model.
    fn assert_clean_is_stored(&self) {
        for (index, region) in self.regions.iter().enumerate() {
            let kept = self.keeper.region(index as u32).expect("an open region");
            for page in 0..PAGES {
                let clean = kept.word(page).load().state() == State::Clean;
                assert!(
                    !clean || self.is_stored(region, kept.page_id(page)),
                    "page {page} is clean, and lost"
                );
            }
        }
    }

    /// When nobody runs, permits held are the pages that hold one.
    pub(super) fn assert_sound(&self) {
        let mut holders = 0;
        for index in 0..self.regions.len() as u32 {
            let kept = self.keeper.region(index).expect("an open region");
            for page in 0..PAGES {
                holders += u32::from(kept.word(page).load().state().holds_permit());
            }
        }
        self.assert_clean_is_stored();
        assert_eq!(self.shared.control.ledger.0.permits().held, holders, "permits and pages differ");
    }

    /// Every page that holds anything is in the store as it is in memory.
    pub(super) fn assert_all_stored(&self) {
        for (index, region) in self.regions.iter().enumerate() {
            let kept = self.keeper.region(index as u32).expect("an open region");
            for page in 0..PAGES {
                assert!(
                    self.is_stored(region, kept.page_id(page)),
                    "page {page} of region {index} is not saved"
                );
            }
        }
    }

    /// What was never stored to is zeros, and needs no copy.
    fn is_stored(&self, region: &Mapped, id: PageId) -> bool {
        let store = self.keeper.store();
        let bytes = region.table.load(id.page);
        match store.stored_checksum(id) {
            Some(checksum) => checksum == store.hash(&bytes[..]),
            None => bytes.iter().all(|byte| *byte == 0),
        }
    }
}

impl Mapped {
    /// A store instruction: faults as long as the table does not let it.
    pub(super) fn store(&self, page: u32, value: u64) {
        while !self.table.store(page, value) {
            self.tracked.count_fault();
            assert_eq!(self.tracked.resolve(page, true), Outcome::Resolved);
        }
    }

    /// An announced store.
    pub(super) fn announced_store(&self, page: u32, value: u64) {
        while let Err(unpinned) = self.tracked.pin(page) {
            assert_eq!(unpinned, Unpinned::Wait);
            self.tracked.wait_for_permit();
        }
        self.store(page, value);
        self.tracked.unpin(page);
    }

    /// A store that thread `number` announces by a hazard pointer where it can. One that is killed leaves it.
    pub(super) fn hazardous_store(&self, number: usize, page: u32, value: u64) {
        let announcer = self.tracked.announcer().expect("an explicit region has one");
        match announcer.announce_as(number, page as usize * PAGE_SIZE, size_of_val(&value)) {
            Some(hazard) => {
                let hazard = ManuallyDrop::new(hazard);
                self.store(page, value);
                drop(ManuallyDrop::into_inner(hazard));
            }
            None => self.announced_store(page, value),
        }
    }
}
