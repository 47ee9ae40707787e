//! Tests of the keeper over a log that is short of room: at every step a save must find its place.
//!
//! The client is played here, on an explicit region, by the words and the ledger alone.

use std::time::Duration;

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_store::{CreateOptions, Store};
use wattkeep_sys::socket;

use super::engine::Keeper;
use super::notices::ClientLine;
use crate::clock::{Clock, SimulatedClock};
use crate::control::block::{Control, Event, Freeze, PageRef};
use crate::control::page_word::State;
use crate::limits::{CHECKPOINT_PATIENCE, PAGE_SIZE};
use crate::protocol::{Notice, RegionRequest, SessionOptions};
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

    /// What a grant does up to its claim, of pages whose stored version no commit covers yet and that
    /// cleaning would move next.
    fn claim_what_cleaning_wants(&mut self) -> Vec<u32> {
        if self.keeper.control.freeze() != Freeze::None {
            return Vec::new();
        }
        let wanted = self.keeper.store.cleaning_candidates();
        let current = wanted.into_iter().filter(|page| !self.keeper.store.is_committed(*page));
        let (region, ledger) = (&self.keeper.regions[0], &self.keeper.control.ledger.0);
        let claimed = current.map(|id| id.page).filter(|page| {
            let word = region.word(*page);
            let now = word.load();
            now.state() == State::Clean && ledger.take(1) == 1 && word.exchange(now, now.to(State::Granting))
        });
        claimed.collect()
    }

    /// The claim was made beside a freeze: the page is clean again, and the permit goes back.
    fn turn_back(&mut self, page: u32) {
        self.keeper.regions[0].word(page).advance(State::Granting, State::Clean);
        self.keeper.control.ledger.0.give_back(1);
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

/// The story: cleaning took a page that was being granted for a dirty one, whose newest version is in memory,
/// and dropped the stored one. The grant turned back at a freeze: the page was clean, nobody would write it
/// again, and no commit would accept the store.
#[test]
fn a_grant_that_turns_back_beside_cleaning_leaves_its_page_stored() {
    let mut struck = 0;
    for seed in 1..5 {
        println!("seed {seed}");
        let mut rig = Rig::new(seed);
        rig.keeper.set_budget_text("20").expect("a budget");
        for _ in 0..10_000 {
            // Some pages far more often than others: segments empty unevenly.
            let page = rig.below(PAGES).min(rig.below(PAGES)).min(rig.below(PAGES));
            if rig.keeper.control.ledger.0.permits().held <= 4 && rig.store_to(page) {
                continue;
            }
            let claimed = rig.claim_what_cleaning_wants();
            let moved_until = rig.keeper.moved_until;
            rig.clean();
            let cleaned = rig.keeper.moved_until != moved_until;
            for page in claimed {
                rig.turn_back(page);
                let id = rig.keeper.regions[0].page_id(page);
                assert!(rig.keeper.store.stored_checksum(id).is_some(), "{id} is clean and nowhere stored");
                struck += u32::from(cleaned);
            }
        }
        rig.keeper.save().expect("every page is stored");
        rig.keeper.resume().expect("resumes");
    }
    println!("{struck} grants beside cleaning");
    assert!(struck > 20, "{struck} grants beside cleaning");
}

/// The story: with mprotect only the client can close its pages. One that was slow was stopped for a
/// checkpoint; and a page that was granted beside the freeze was held while it was open, and written on,
/// untracked. Only the client's own word counts, and a checkpoint of a slow client gives up.
#[test]
fn a_checkpoint_never_holds_a_page_that_a_slow_client_left_open() {
    let (ours, theirs) = socket::pair().expect("sockets");
    let mut rig = Rig::new(1);
    rig.keeper.options.fault_mode = FaultMode::Mprotect;
    rig.keeper.regions[0].tracking = Tracking::Transparent;
    rig.keeper.attach(0, None).expect("the client has it");
    rig.keeper.client.notices = Some(ours);
    let word = |rig: &Rig, page: u32| rig.keeper.regions[0].word(page).load();
    let grant = |rig: &Rig, page: u32| {
        assert_eq!(rig.keeper.control.ledger.0.take(1), 1);
        let (now, region) = (word(rig, page), &rig.keeper.regions[0]);
        assert!(region.word(page).exchange(now, now.to(State::Dirty)));
    };
    grant(&rig, 3);
    grant(&rig, 4);
    // Page 3 was closed in time; page 4 is open, whatever the client answers, or although it does not.
    let close = |rig: &Rig, page: u32| {
        let now = word(rig, page);
        assert!(rig.keeper.regions[0].word(page).exchange(now, now.to(State::Queued)));
    };
    close(&rig, 3);
    let answer = |question: u64| {
        let answer = serde_json::to_vec(&Notice::Protected { question }).expect("plain data");
        socket::send(&theirs, &answer, &[]).expect("the keeper listens");
    };
    for (question, answers) in [(1, true), (2, false)] {
        if answers {
            answer(question);
        }
        let given_up = rig.keeper.counters.checkpoints_given_up;
        rig.keeper.begin_checkpoint(None);
        while rig.keeper.counters.checkpoints_given_up == given_up {
            assert_eq!(rig.keeper.counters.checkpoints, 0, "page 4 is open, and was committed");
            rig.turn();
        }
        assert_eq!(word(&rig, 4).state(), State::Dirty, "its client writes on");
        assert!(!rig.keeper.client.stopped && rig.keeper.control.freeze() == Freeze::None);
    }
    // In time, this time.
    close(&rig, 4);
    answer(3);
    rig.keeper.begin_checkpoint(None);
    for _ in 0..20_000 {
        rig.turn();
    }
    assert_eq!((rig.keeper.counters.checkpoints, word(&rig, 4).state()), (1, State::Clean));
}

/// The story: answers carried no number. A late one, to a checkpoint that had given up, was taken for the
/// answer to a save: the client was not stopped, and stored to open pages while they were copied.
#[test]
fn a_late_answer_is_not_taken_for_the_next_one() {
    let (ours, theirs) = socket::pair().expect("sockets");
    let mut rig = Rig::new(1);
    rig.keeper.options.fault_mode = FaultMode::Mprotect;
    rig.keeper.client.notices = Some(ours);
    assert!(!rig.keeper.ask_client_to_protect(), "nobody answered");
    for (question, is_late) in [(1, true), (3, false)] {
        let answer = serde_json::to_vec(&Notice::Protected { question }).expect("plain data");
        socket::send(&theirs, &answer, &[]).expect("the keeper listens");
        assert_eq!(rig.keeper.ask_client_to_protect(), !is_late, "answer {question}");
    }
}

/// The story: a program asked for a checkpoint while one was under way whose cut was made already. It was
/// told of that one's commit, and after the keeper's death its last stores were gone.
#[test]
fn a_checkpoint_asked_for_after_a_cut_holds_what_was_stored_before_it_was_asked_for() {
    let mut rig = Rig::new(1);
    rig.store_to_all();
    rig.keeper.begin_checkpoint(Some(1));
    while !rig.keeper.has_cut() {
        rig.turn();
    }
    assert!(!rig.keeper.begin_checkpoint(Some(2)), "one is under way");
    for _ in 0..20_000 {
        rig.turn();
    }
    let told: Vec<_> =
        rig.keeper.counters.reports.iter().map(|(asker, report)| (*asker, report.is_ok())).collect();
    assert_eq!((told, rig.keeper.counters.checkpoints), (vec![(1, true), (2, true)], 2));
}

/// The story: a thread was sent from its core amid a grant, for longer than a freeze waits. The program asked for a
/// checkpoint, and was told that it should end its announcement. It had made none.
#[test]
fn a_checkpoint_asked_for_waits_for_a_thread_that_has_lost_its_core() {
    let mut rig = Rig::new(1);
    rig.store_to_all();
    let busy = |rig: &Rig, from: State, to: State| rig.keeper.regions[0].word(3).advance(from, to);
    let told =
        |rig: &Rig| rig.keeper.counters.reports.iter().map(|(_, report)| report.is_ok()).collect::<Vec<_>>();
    for comes_back in [true, false] {
        rig.keeper.counters.reports.clear();
        let tries = rig.keeper.counters.checkpoints_given_up;
        rig.store_to(3);
        busy(&rig, State::Dirty, State::Granting);
        rig.keeper.begin_checkpoint(Some(1));
        // What went before its first try is not held against it.
        rig.clock.advance(2 * CHECKPOINT_PATIENCE);
        let first = rig.keeper.clock.now();
        while rig.keeper.counters.checkpoints_given_up < tries + 3 {
            rig.turn();
            assert!(told(&rig).is_empty(), "it is too early to say anything");
        }
        if comes_back {
            busy(&rig, State::Granting, State::Dirty);
        }
        while told(&rig).is_empty() {
            rig.turn();
        }
        assert_eq!(told(&rig), [comes_back]);
        assert!(comes_back || rig.keeper.clock.now() - first >= CHECKPOINT_PATIENCE);
        assert!(
            (3..12).contains(&(rig.keeper.counters.checkpoints_given_up - tries)),
            "tries are far between"
        );
        assert!(rig.keeper.late_askers.is_empty() && rig.keeper.checkpoint.is_none());
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
