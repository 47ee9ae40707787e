//! Tests of the keeper over a log that is short of room: at every step a save must find its place.
//!
//! The client is played here, on an explicit region, by the words and the ledger alone.

use std::time::Duration;

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_store::{CreateOptions, Store};

use super::engine::Keeper;
use super::notices::ClientLine;
use crate::clock::{Clock, SimulatedClock};
use crate::control::block::{Control, Event, Freeze, PageRef};
use crate::control::page_word::State;
use crate::limits::PAGE_SIZE;
use crate::protocol::{RegionRequest, SessionOptions};
use crate::types::{FaultMode, PolicyName, Tracking};

const PAGES: u32 = 400;

struct Rig {
    keeper: Keeper<MemoryDisk>,
    clock: SimulatedClock,
    random: Random,
    stores: u64,
}

impl Rig {
    /// A region of [`PAGES`] pages over segments of 16.
    fn new(seed: u64) -> Self {
        let mut options = CreateOptions { segment_pages: Some(16), ..CreateOptions::default() };
        let store = Store::create(MemoryDisk::new(seed), &mut options).expect("no fault");
        let options = SessionOptions {
            create_if_missing: false,
            budget: None,
            policy: PolicyName::Fifo,
            checkpoint_interval_ms: 0,
            quiesce_ms: 0,
            fault_mode: FaultMode::Signal,
            fault_mode_reason: String::new(),
            fill_ahead: false,
        };
        let (control, _) = Control::create().expect("memory");
        let budget = "100%".parse().expect("a budget");
        let clock = SimulatedClock::new();
        let simulated = Clock::Simulated(clock.clone());
        let mut keeper = Keeper::new(store, control, ClientLine::default(), options, budget, simulated);
        let request = RegionRequest {
            name: "table".into(),
            create_bytes: Some(u64::from(PAGES) * PAGE_SIZE as u64),
            tracking: Tracking::Explicit,
            reserve_bytes: 0,
        };
        keeper.open_region(&request).expect("a region");
        Self { keeper, clock, random: Random::new(seed), stores: 0 }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.random.below(end.into()) as u32
    }

    /// What `will_write` does, without its waits: false when it would wait.
    fn store_to(&mut self, page: u32) -> bool {
        let control = &self.keeper.control;
        if control.freeze() != Freeze::None {
            return false;
        }
        let region = &self.keeper.regions[0];
        let (word, place) = (region.word(page), PageRef { region: 0, page });
        let now = word.load();
        match now.state() {
            State::Dirty => {}
            State::Clean | State::Fresh if control.ledger.0.take(1) == 0 => return false,
            State::Clean | State::Fresh | State::Queued | State::Copying | State::InFlight => {
                assert!(word.exchange(now, now.to(State::Dirty)), "nobody else moves it between turns");
                control.tell(Event::Dirtied(place));
            }
            _ => return false,
        }
        self.stores += 1;
        let at = u64::from(page) * PAGE_SIZE as u64;
        rustix::io::pwrite(region.descriptors()[0], &self.stores.to_le_bytes(), at).expect("not sealed");
        true
    }

    fn store_to_all(&mut self) {
        for page in 0..PAGES {
            self.store_to(page);
        }
    }

    /// A turn that finds everything dirty chosen as a victim.
    fn clean(&mut self) {
        let region = &self.keeper.regions[0];
        let dirty = (0..PAGES).filter(|page| region.word(*page).load().state() == State::Dirty);
        let dirty: Vec<_> = dirty.map(|page| PageRef { region: 0, page }).collect();
        if self.keeper.queue.is_empty() {
            self.keeper.queue.extend(dirty);
        }
        self.turn();
    }

    /// Writes under a small budget until little more is free than that budget keeps.
    fn fill_the_log(&mut self) {
        self.keeper.set_budget_text("3").expect("a budget");
        for turns in 0.. {
            assert!(turns < 100_000, "the log does not fill: {:?}", self.keeper.store.status());
            if self.keeper.store.status().free <= 12 {
                return;
            }
            let page = self.below(PAGES);
            if self.keeper.control.ledger.0.permits().held > 3 || !self.store_to(page) {
                self.clean();
            }
        }
    }

    fn turn(&mut self) {
        self.clock.advance(Duration::from_micros(500));
        self.keeper.turn().expect("a good store");
        self.check();
    }

    /// A save that began now would have to write these pages, and finds whole segments for them.
    fn check(&self) {
        let region = &self.keeper.regions[0];
        let unsaved = (0..PAGES).map(|page| region.word(page).load().state());
        let unsaved =
            unsaved.filter(|state| state.holds_permit() && *state != State::InFlight).count() as u32;
        let (permits, status) = (self.keeper.control.ledger.0.permits(), self.keeper.store.status());
        let segments = unsaved.div_ceil(self.keeper.store.segment_entries());
        assert!(
            segments <= status.free,
            "{unsaved} pages to save, {} segments free, {permits:?}",
            status.free
        );
        if self.keeper.control.freeze() == Freeze::None {
            let room = self.keeper.store.save_capacity(0);
            assert!(permits.limit <= room, "{} permits, room for {room} pages", permits.limit);
        }
    }

    fn rest(&mut self) {
        for _ in 0..20_000 {
            self.turn();
            if self.keeper.is_idle() && self.keeper.control.freeze() == Freeze::None {
                return;
            }
        }
        panic!("the keeper found no rest: {:?}", self.keeper.store.status());
    }
}

/// A large budget was lowered, so that the log filled up to the little that a small one keeps free, and
/// raised again: its permits were all there at once, and the room for them was not.
#[test]
fn a_raised_budget_gives_permits_only_as_the_log_has_room_to_save_them() {
    for seed in 1..4 {
        println!("seed {seed}");
        let mut rig = Rig::new(seed);
        for round in 0..3 {
            rig.fill_the_log();
            rig.keeper.set_budget_text("100%").expect("a budget");
            rig.check();
            let mut turns = 0;
            while rig.keeper.control.ledger.0.permits().held < PAGES {
                let page = rig.below(PAGES);
                if !rig.store_to(page) {
                    rig.turn();
                    turns += 1;
                    assert!(turns < 100_000, "seed {seed}, round {round}: the budget is never reached");
                }
            }
            rig.keeper.save().expect("the save has its room");
            rig.keeper.resume().expect("resumes");
            rig.check();
        }
    }
}

/// A checkpoint that wrote into the save's room let the program go on: pages that were written again
/// while their copies were in flight kept their permits, and the room for them was spent on the copies.
#[test]
fn a_checkpoint_in_the_save_s_room_leaves_a_place_for_every_permit() {
    for seed in 1..9 {
        println!("seed {seed}");
        let mut rig = Rig::new(seed);
        for _ in 0..4 {
            rig.fill_the_log();
            rig.keeper.set_budget_text("100%").expect("a budget");
            rig.store_to_all();
            rig.check();
            let before = rig.keeper.counters.checkpoints;
            rig.keeper.begin_checkpoint(None);
            let mut turns = 0;
            while rig.keeper.counters.checkpoints == before {
                rig.turn();
                turns += 1;
                assert!(turns < 100_000, "the checkpoint does not end: {:?}", rig.keeper.store.status());
                rig.store_to_all();
                rig.check();
            }
        }
        rig.keeper.save().expect("the save has its room");
        rig.keeper.resume().expect("resumes");
    }
}

/// The story: the digest behind a save could not be written, and the keeper said that it had failed.
#[test]
fn a_save_stays_saved_although_its_digest_fails() {
    let mut rig = Rig::new(1);
    rig.store_to_all();
    rig.keeper.save().expect("a save");
    let disk = rig.keeper.store.disk().clone();
    disk.set_fault(Some(Fault { at: disk.requests(), kind: FaultKind::Io, for_ever: true }));
    for _ in 0..3 {
        rig.turn();
        let status = rig.keeper.status(0);
        assert_eq!(status.state, "saved", "{}", status.reason);
        assert!(status.reason.contains("then the store failed"), "{}", status.reason);
    }
    assert!(rig.keeper.resume().is_err(), "nobody writes to a store that failed");
    rig.keeper.close().expect("the save holds everything");
    let disk = disk.after_cut(Cut::DropAll, 1);
    let (_, recovery) = Store::open(disk).expect("whole");
    assert!(recovery.clean && !recovery.by_digest);
}

/// Everything at once: budgets, checkpoints, cleaning, stores, by chance.
#[test]
fn a_save_finds_its_room_at_every_step() {
    for seed in 1..5 {
        println!("seed {seed}");
        let mut rig = Rig::new(seed);
        for _ in 0..4_000 {
            match rig.below(40) {
                0 => {
                    rig.keeper.begin_checkpoint(None);
                }
                1 => {
                    let budget = rig.below(PAGES) + 1;
                    rig.keeper.set_budget_text(&budget.to_string()).expect("a budget");
                }
                2..4 => rig.clean(),
                4..20 => rig.turn(),
                _ => {
                    for _ in 0..8 {
                        let page = rig.below(PAGES);
                        rig.store_to(page);
                    }
                }
            }
            rig.check();
        }
        rig.keeper.save().expect("the save has its room");
        rig.keeper.resume().expect("resumes");
        rig.rest();
    }
}
