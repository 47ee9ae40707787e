//! Turns a fault into a permit and a writable page.
//!
//! The rule: a permit is taken before a page becomes writable, and a page is opened only by whoever
//! moved its word to `Granting`. After that claim the freeze is looked at once more: either a
//! freezer sees the claim, or the claimer sees the freeze.
//!
//! Runs inside a signal handler: never allocates, locks, logs, or touches region memory.
//!
//! # Safety
//!
//! 1. A `Tracked` is published only while its region is mapped and guarded; pages below `pages` lie
//!    inside that mapping.
//! 2. Words and control block stay where they are as long as a clone of them lives.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use wattkeep_announce::announcer::Announcer;
use wattkeep_sys::mutant::planted;

use super::guard::{Guard, Refusal};
use super::predict::Predictor;
use super::protect::{Shared, count};
use crate::control::block::{Event, Freeze, PageRef, Words};
use crate::control::page_word::{State, Word};
use crate::control::primitives::{AtomicU32, Ordering, futex, yield_now};
use crate::limits::{CLIENT_WAIT, GRANT_RUN_MAX, PAGE_SIZE, VICTIMS_RING};
use crate::types::Tracking;

/// How a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The access may be tried again.
    Resolved,
    /// The store's copy of the page is damaged.
    Lost,
    /// The mapping is not guarded as it should be.
    Broken(Refusal),
}

/// One mapped region, as the fault path sees it.
pub struct Tracked {
    pub(super) shared: Arc<Shared>,
    pub(super) words: Words,
    index: u32,
    base: usize,
    pages: AtomicU32,
    pub(super) tracking: Tracking,
    pub(super) guard: Guard,
    predictor: Predictor,
    announcer: Option<Announcer>,
}

/// How far one look at a page's word came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The access may be tried again.
    Done,
    /// The word moved meanwhile: look again.
    Again,
    /// No permit is free, or grants are frozen.
    Wait,
    /// The keeper was told, and moves the page on: sleep while its word is this.
    Sleep(Word),
    /// The page could not be opened.
    Failed(Refusal),
    /// The store's copy of the page is damaged.
    Lost,
}

impl Tracked {
    /// The fault path's view of a region of `pages` pages mapped at `base`.
    pub fn new(
        shared: Arc<Shared>,
        words: Words,
        index: u32,
        base: usize,
        pages: u32,
        tracking: Tracking,
        guard: Guard,
    ) -> Self {
        let pages = AtomicU32::new(pages);
        let has_hazards = tracking == Tracking::Explicit && shared.control.hazards.take_part();
        let announcer = has_hazards.then(|| {
            let keeps = Arc::new((words.clone(), shared.control.clone()));
            // SAFETY: 2.
            unsafe { Announcer::new(words.all(), &shared.control.hazards, base, keeps) }
        });
        let predictor = Predictor::default();
        Self { shared, words, index, base, pages, tracking, guard, predictor, announcer }
    }

    /// Announces stores to dirty pages, where that needs no pins.
    #[inline]
    pub fn announcer(&self) -> Option<&Announcer> {
        self.announcer.as_ref()
    }

    /// The page that holds `address`; `None` outside the region's present size.
    #[inline]
    pub fn page_of(&self, address: usize) -> Option<u32> {
        let page = address.checked_sub(self.base)? / PAGE_SIZE;
        (page < self.pages.load(Ordering::Relaxed) as usize).then_some(page as u32)
    }

    /// Counts a fault, for status.
    #[inline]
    pub fn count_fault(&self) {
        count(&self.shared.control.counters.faults, 1);
    }

    /// A store to `page` would fault.
    pub fn is_closed(&self, page: u32) -> bool {
        use State::*;
        matches!(self.words.of(page).load().state(), Fresh | Clean | Queued | Copying | InFlight | Held)
    }

    /// Nobody ever stored to `page`.
    pub(super) fn is_fresh(&self, page: u32) -> bool {
        self.words.of(page).load().state() == State::Fresh
    }

    /// How the region is tracked.
    pub fn tracking(&self) -> Tracking {
        self.tracking
    }

    /// In a forked child: what it does to the region from now on, it does to words of its own. Its parent's stay
    /// what they are.
    pub(super) fn part_from_parent(&self) {
        self.words.part_from_parent();
        self.shared.control.part_from_parent();
    }

    /// The guard of the region's pages.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// What the session's regions share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Pages that the region has now.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// The region grew.
    pub fn set_pages(&self, pages: u32) {
        self.pages.store(pages, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn address(&self, page: u32) -> usize {
        self.base + page as usize * PAGE_SIZE
    }

    #[inline]
    pub(super) fn page_ref(&self, page: u32) -> PageRef {
        PageRef { region: self.index, page }
    }

    /// Makes `page` accessible: readable, and writable when `write`. Sleeps as long as it takes.
    #[inline]
    pub fn resolve(&self, page: u32, write: bool) -> Outcome {
        loop {
            match self.try_resolve(page, write) {
                Some(outcome) => return outcome,
                None => self.wait_for_permit(),
            }
        }
    }

    /// The same, but does not sleep for a permit or the end of a freeze: then it answers `None`.
    #[inline]
    pub fn try_resolve(&self, page: u32, write: bool) -> Option<Outcome> {
        loop {
            match self.attempt(page, write) {
                Step::Done => return Some(Outcome::Resolved),
                Step::Again => {}
                Step::Sleep(word) => self.sleep_on(page, word),
                Step::Wait | Step::Failed(Refusal::Exhausted) => return None,
                Step::Failed(refusal) => return Some(Outcome::Broken(refusal)),
                Step::Lost => return Some(Outcome::Lost),
            }
        }
    }

    /// One look at the page, and what follows from it. Never sleeps.
    #[inline]
    pub fn attempt(&self, page: u32, write: bool) -> Step {
        let now = self.words.of(page).load();
        match (now.state(), self.tracking) {
            (State::Lost, _) => Step::Lost,
            (State::Absent, _) => self.ask_keeper(page, now, Event::Wanted(self.page_ref(page))),
            (_, Tracking::Explicit) => self.install(page, true),
            (State::Fresh, _) if !write => self.show_zeros(page, now),
            (_, _) if !write => Step::Done,
            (State::Dirty, _) => self.reopen(page, now),
            (State::Granting | State::Protecting, _) => self.let_other_finish(),
            (State::Held, _) if planted("torn-cut") => self.rescue(page, now),
            (State::Held, _) => self.ask_keeper(page, now, Event::Urgent(self.page_ref(page))),
            (State::Clean | State::Fresh, _) => self.grant(page, now),
            (State::Queued | State::Copying | State::InFlight, _) => self.rescue(page, now),
        }
    }

    pub(super) fn let_other_finish(&self) -> Step {
        yield_now();
        Step::Done
    }

    /// A page never written is read: zeros, protected, so that its first store faults again.
    fn show_zeros(&self, page: u32, now: Word) -> Step {
        if !self.words.of(page).exchange(now, now.to(State::Granting)) {
            return Step::Again;
        }
        let step = self.install(page, false);
        let state = if matches!(step, Step::Done) { State::Clean } else { State::Fresh };
        self.words.of(page).advance(State::Granting, state);
        step
    }

    fn install(&self, page: u32, writable: bool) -> Step {
        // SAFETY: 1: a page of the region.
        match unsafe { self.guard.install_zeros(self.address(page), 1, writable) } {
            Ok(()) => Step::Done,
            Err(refusal) => Step::Failed(refusal),
        }
    }

    /// Brings fresh pages of an explicit region into memory, as their faults would. `false`: not all of them, or
    /// without userfaultfd, none.
    pub(super) fn install_fresh(&self, first: u32, pages: u32) -> bool {
        let installs = |done: u32| {
            let run = GRANT_RUN_MAX.min(pages - done);
            // SAFETY: 1: pages of the region.
            unsafe { self.guard.install_zeros(self.address(first + done), run, true) }.is_ok()
        };
        self.guard.descriptor().is_some() && (0..pages).step_by(GRANT_RUN_MAX as usize).all(installs)
    }

    /// A clean page, or one never written, is stored to: it, and pages that are likely next, each
    /// get a permit and become writable.
    #[inline]
    fn grant(&self, page: u32, now: Word) -> Step {
        let control = &*self.shared.control;
        let frozen = || control.freeze() != Freeze::None && !planted("grant-while-frozen");
        if frozen() {
            return Step::Wait;
        }
        let wanted = match self.tracking {
            // A guess would open pages that nobody announced.
            Tracking::Checking => 1,
            _ => self.predictor.run_at(page, control.ledger.0.permits().free()),
        };
        let taken = control.ledger.0.take(wanted);
        if taken == 0 {
            return Step::Wait;
        }
        let run = self.claim(page, now, taken);
        self.shared.return_permits(taken - run);
        if run == 0 {
            return Step::Again;
        }
        let from = now.state();
        let opened = if frozen() && !planted("freeze-seen-before-claim") {
            Err(Step::Wait)
        } else {
            self.open(page, run, from).map_err(Step::Failed)
        };
        if let Err(step) = opened {
            for page in page..page + run {
                self.words.of(page).advance(State::Granting, from);
            }
            self.shared.return_permits(run);
            return step;
        }
        for page in page..page + run {
            self.words.of(page).advance(State::Granting, State::Dirty);
            control.tell(Event::Dirtied(self.page_ref(page)));
        }
        self.predictor.granted(page, run);
        count(&control.counters.granted_pages, u64::from(run));
        self.shared.protect_victims(run as usize);
        self.wake_keeper_when_short();
        Step::Done
    }

    /// A keeper that naps would let the permits run out: it is rung when few are left.
    #[inline]
    pub(super) fn wake_keeper_when_short(&self) {
        let control = &*self.shared.control;
        if control.ledger.0.permits().free() <= control.ring_at() {
            self.shared.wake_keeper();
        }
    }

    /// Claims `page` and up to `most - 1` followers in the same state. Returns how many.
    fn claim(&self, page: u32, now: Word, most: u32) -> u32 {
        if !self.words.of(page).exchange(now, now.to(State::Granting)) {
            return 0;
        }
        let end = page.saturating_add(most).min(self.pages());
        for next in page + 1..end {
            let word = self.words.of(next);
            let seen = word.load();
            if seen.state() != now.state() || !word.exchange(seen, seen.to(State::Granting)) {
                return next - page;
            }
        }
        end - page
    }

    #[inline]
    fn open(&self, page: u32, run: u32, from: State) -> Result<(), Refusal> {
        let start = self.address(page);
        match from {
            // SAFETY: 1: claimed pages of the region.
            State::Fresh => unsafe { self.guard.install_zeros(start, run, true) },
            // SAFETY: 1: claimed pages of the region.
            _ => unsafe { self.guard.open(start, run) },
        }
    }

    /// A dirty page faulted: another thread opened it a moment ago, or a cut closed it under a thread
    /// that was stopped in the middle of a grant. It holds a permit: opening it again is always right.
    #[cold]
    fn reopen(&self, page: u32, now: Word) -> Step {
        let word = self.words.of(page);
        if self.shared.control.freeze() != Freeze::None {
            return Step::Wait;
        }
        if !word.exchange(now, now.to(State::Granting)) {
            return Step::Again;
        }
        let step = match self.open(page, 1, State::Dirty) {
            Ok(()) => Step::Done,
            Err(refusal) => Step::Failed(refusal),
        };
        word.advance(State::Granting, State::Dirty);
        // Meanwhile the page was no victim, and the keeper may have found no other.
        self.wake_keeper_when_short();
        step
    }

    /// A page on its way to the SSD is stored to: it keeps its permit and becomes writable again.
    /// What is in flight is an older version, and its arrival will not match the word any more.
    fn rescue(&self, page: u32, now: Word) -> Step {
        let control = &*self.shared.control;
        if control.freeze() != Freeze::None {
            return Step::Wait;
        }
        let word = self.words.of(page);
        if !word.exchange(now, now.to(State::Granting)) {
            return Step::Again;
        }
        let opened = if control.freeze() != Freeze::None {
            Err(Step::Wait)
        } else {
            self.open(page, 1, State::Queued).map_err(Step::Failed)
        };
        let (state, event) = match opened {
            Ok(()) => (State::Dirty, Event::Dirtied(self.page_ref(page))),
            Err(_) => (State::Queued, Event::Queued(self.page_ref(page))),
        };
        word.advance(State::Granting, state);
        control.tell(event);
        count(&control.counters.rescued_pages, 1);
        self.wake_keeper_when_short();
        match opened {
            Ok(()) => Step::Done,
            Err(step) => step,
        }
    }

    /// Marks that somebody waits until the keeper has filled or copied `page`, and tells it.
    pub(super) fn ask_keeper(&self, page: u32, now: Word, event: Event) -> Step {
        let word = self.words.of(page);
        let marked = now.with_waiter();
        if now != marked && !word.exchange(now, marked) {
            return Step::Again;
        }
        self.shared.control.tell(event);
        self.shared.wake_keeper();
        Step::Sleep(marked)
    }

    /// Sleeps while the page's word is `word`.
    pub(super) fn sleep_on(&self, page: u32, word: Word) {
        let _ = futex::wait(self.words.of(page).futex(), word.0, Some(CLIENT_WAIT));
    }

    /// Sleeps until a permit may be free, helping first: it protects victims, so that the keeper has
    /// something to clean.
    pub fn wait_for_permit(&self) {
        let control = &*self.shared.control;
        self.shared.protect_victims(VICTIMS_RING);
        let began = Instant::now();
        control.wait_for_progress(CLIENT_WAIT, || {
            // Rung only now that we count as asleep: the keeper cleans for sleepers, and looks for them.
            self.shared.wake_keeper();
            control.freeze() == Freeze::None && control.ledger.0.permits().free() > 0
        });
        count(&control.counters.permit_waits, 1);
        count(&control.counters.permit_wait_ns, began.elapsed().as_nanos() as u64);
    }
}
