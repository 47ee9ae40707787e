//! Announced stores: a page is pinned for the time of a store, and needs no fault.
//!
//! The writers of explicit regions pass here instead of through a fault, where a hazard pointer does not do; so
//! does every store of a system call that a program announces. A pinned page is neither protected nor copied. A
//! thread that must wait for a permit lets go of its pins first, so that waiting writers never hold up a cut.

use super::grant::{Outcome, Step, Tracked};
use super::guard::Refusal;
use super::protect::count;
use crate::control::block::{Event, Freeze};
use crate::control::page_word::{PINS_MAX, State, Word};
use crate::types::Tracking;

/// Why a page was not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpinned {
    /// No permit is free, or grants are frozen: let go of other pins, wait, try again.
    Wait,
    /// The keeper was told, and moves the page on: sleep while its word is this.
    Sleep(Word),
    /// It cannot be had.
    Failed(Outcome),
}

impl Tracked {
    /// Announces a store to `page` and pins it: until [`Self::unpin`] it is neither protected nor
    /// copied. Does not wait for permits: the caller may hold other pins, and lets go of them first.
    #[inline]
    pub fn pin(&self, page: u32) -> Result<(), Unpinned> {
        loop {
            match self.try_pin(page) {
                Err(Unpinned::Sleep(word)) => self.sleep_on(page, word),
                answer => return answer,
            }
        }
    }

    /// The same, but never sleeps.
    #[inline]
    pub fn try_pin(&self, page: u32) -> Result<(), Unpinned> {
        let word = self.words.of(page);
        loop {
            if self.pin_at_once(page) {
                return Ok(());
            }
            let now = word.load();
            if now.state() != State::Dirty {
                self.prepare(page, now)?;
            } else if now.pins() == PINS_MAX || self.shared.control.freeze() != Freeze::None {
                return Err(Unpinned::Wait);
            }
        }
    }

    /// Pins `page` if it is dirty and grants are not frozen. `false`: nothing was done.
    #[inline]
    fn pin_at_once(&self, page: u32) -> bool {
        let word = self.words.of(page);
        let now = word.load();
        if now.state() != State::Dirty || now.pins() == PINS_MAX || !word.exchange(now, now.pinned()) {
            return false;
        }
        // Behind the pin: either the cut finds it, or it finds the cut.
        if self.shared.control.freeze() == Freeze::None {
            return true;
        }
        word.unpin();
        false
    }

    /// Brings a page closer to dirty.
    #[cold]
    fn prepare(&self, page: u32, now: Word) -> Result<(), Unpinned> {
        let step = match now.state() {
            _ if self.tracking != Tracking::Explicit => self.attempt(page, true),
            State::Lost => Step::Lost,
            State::Absent => self.ask_keeper(page, now, Event::Wanted(self.page_ref(page))),
            State::Held => self.ask_keeper(page, now, Event::Urgent(self.page_ref(page))),
            State::Clean | State::Fresh => self.admit(page, now),
            State::Queued | State::Copying | State::InFlight => self.take_back(page, now),
            State::Granting | State::Protecting => self.let_other_finish(),
            State::Dirty => Step::Again,
        };
        match step {
            Step::Done | Step::Again => Ok(()),
            Step::Sleep(word) => Err(Unpinned::Sleep(word)),
            Step::Wait | Step::Failed(Refusal::Exhausted) => Err(Unpinned::Wait),
            Step::Lost => Err(Unpinned::Failed(Outcome::Lost)),
            Step::Failed(refusal) => Err(Unpinned::Failed(Outcome::Broken(refusal))),
        }
    }

    /// An explicit page becomes dirty: a permit and a word, no system call.
    fn admit(&self, page: u32, now: Word) -> Step {
        let control = &*self.shared.control;
        if control.freeze() != Freeze::None || control.ledger.0.take(1) == 0 {
            return Step::Wait;
        }
        if !self.words.of(page).exchange(now, now.to(State::Dirty)) {
            self.shared.return_permits(1);
            return Step::Again;
        }
        control.tell(Event::Dirtied(self.page_ref(page)));
        count(&control.counters.granted_pages, 1);
        self.wake_keeper_when_short();
        Step::Again
    }

    /// An explicit page on its way to the SSD is announced again: it keeps its permit.
    fn take_back(&self, page: u32, now: Word) -> Step {
        if self.shared.control.freeze() != Freeze::None {
            return Step::Wait;
        }
        if self.words.of(page).exchange(now, now.to(State::Dirty)) {
            self.shared.control.tell(Event::Dirtied(self.page_ref(page)));
            count(&self.shared.control.counters.rescued_pages, 1);
            self.wake_keeper_when_short();
        }
        Step::Again
    }

    /// Ends the store announced by [`Self::pin`]. In checking mode the page is closed again, so that
    /// the next store must be announced, too.
    #[inline]
    pub fn unpin(&self, page: u32) {
        self.words.of(page).unpin();
        if self.tracking == Tracking::Checking {
            self.shared.close_run(self.claim_victim(page));
        } else if self.shared.control.has_sleepers() {
            // The keeper found nothing to clean while this page was pinned.
            self.shared.wake_keeper();
        }
    }
}
