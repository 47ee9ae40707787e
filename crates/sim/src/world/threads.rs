//! The program's threads: stores, loads, announcements, and what they wait for.
//!
//! A store is done only if the page table says writable; else the fault path is asked, one look at a
//! time. A thread that must wait keeps its access and tries again after each turn of the keeper. It lets
//! go of what it announced first, as programs must.

use wattkeep_keep::client::announce::Unpinned;
use wattkeep_keep::client::grant::{Outcome, Step};
use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_keep::types::Tracking;

use super::machine::{Trouble, World};
use crate::oracle::{OFFSETS, holds};
use crate::script::Page;

/// Looks at a page's word before a thread counts as waiting.
const LOOKS: usize = 6;

/// What a thread wants to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Store { page: Page, place: u8, value: u64 },
    Read { page: Page },
    Announce { page: Page, pages: u8 },
}

/// One thread of the program.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// Pages announced and not yet released: the first, how many, and whether they are pinned. A page that is
    /// not has the thread's hazard pointer.
    announced: Option<(Page, u8, bool)>,
    blocked: Option<Access>,
    /// It sleeps for a permit, or for the end of a freeze.
    asleep: bool,
}

/// Why an access must be tried again later.
enum Blocked {
    Permit,
    Page,
}

type Tried = Result<Result<(), Blocked>, Trouble>;

impl Access {
    fn pages(self) -> (Page, u8) {
        match self {
            Access::Store { page, .. } | Access::Read { page } => (page, 1),
            Access::Announce { page, pages } => (page, pages),
        }
    }
}

impl World {
    /// A thread does something, unless it waits for something else.
    pub(super) fn access(&mut self, thread: u8, access: Access) -> Result<(), Trouble> {
        let (first, pages) = access.pages();
        let region = &self.session.regions[usize::from(first.region)];
        let inside = u32::from(first.page) + u32::from(pages) <= region.tracked.pages();
        if inside && pages > 0 && !self.is_blocked(thread) {
            self.try_access(thread, access)?;
        }
        Ok(())
    }

    /// The thread waits.
    pub fn is_blocked(&self, thread: u8) -> bool {
        self.session.threads[usize::from(thread)].blocked.is_some()
    }

    /// Threads that wait try again.
    pub(super) fn wake_threads(&mut self) -> Result<(), Trouble> {
        for number in 0..self.session.threads.len() {
            let thread = &mut self.session.threads[number];
            let Some(access) = thread.blocked.take() else { continue };
            if std::mem::take(&mut thread.asleep) {
                self.session.shared.control.client_wakes();
            }
            self.try_access(number as u8, access)?;
        }
        Ok(())
    }

    fn try_access(&mut self, thread: u8, access: Access) -> Result<(), Trouble> {
        let tried = match access {
            Access::Store { page, place, value } => self.try_store(thread, page, place, value)?,
            Access::Read { page } => self.try_read(page)?,
            Access::Announce { page, pages } => self.try_announce(thread, page, pages)?,
        };
        let Err(blocked) = tried else { return Ok(()) };
        self.release(thread);
        let waiting = &mut self.session.threads[usize::from(thread)];
        waiting.blocked = Some(access);
        if let Blocked::Permit = blocked {
            waiting.asleep = true;
            self.session.shared.protect_offered();
            self.session.shared.control.client_falls_asleep();
        }
        Ok(())
    }

    fn try_store(&mut self, thread: u8, page: Page, place: u8, value: u64) -> Tried {
        let tracked = self.session.regions[usize::from(page.region)].tracked.clone();
        let number = u32::from(page.page);
        if tracked.tracking() == Tracking::Transparent {
            return self.store_while_running(page, place, value);
        }
        if self.has_announced(thread, page) {
            // Announced before a save, it goes on during it, as a system call would.
            self.escaped |= self.saved;
            return self.store_now(page, place, value);
        }
        let announcer = tracked.announcer();
        let at = number as usize * PAGE_SIZE + OFFSETS[usize::from(place)];
        if let Some(_hazard) = announcer.and_then(|announcer| announcer.announce_as(thread.into(), at, 8)) {
            return self.store_while_running(page, place, value);
        }
        if let Err(blocked) = pinned(page, tracked.try_pin(number))? {
            return Ok(Err(blocked));
        }
        let stored = self.store_while_running(page, place, value);
        tracked.unpin(number);
        stored
    }

    /// A store that must wait while everything is saved.
    fn store_while_running(&mut self, page: Page, place: u8, value: u64) -> Tried {
        let stored = self.store_now(page, place, value)?;
        if self.saved && stored.is_ok() {
            return Err(Trouble::Violation(format!("a store to {page} was let through after a save")));
        }
        Ok(stored)
    }

    /// As the processor does it: a store, a fault, the store again.
    fn store_now(&mut self, page: Page, place: u8, value: u64) -> Tried {
        let region = &self.session.regions[usize::from(page.region)];
        let number = u32::from(page.page);
        for _ in 0..LOOKS {
            if region.table.store(number, OFFSETS[usize::from(place)], value) {
                self.oracle.store(page, place, value);
                self.auditor.stored(page);
                return Ok(Ok(()));
            }
            region.tracked.count_fault();
            if let Err(blocked) = looked(page, region.tracked.attempt(number, true))? {
                return Ok(Err(blocked));
            }
        }
        Ok(Err(Blocked::Page))
    }

    fn try_read(&mut self, page: Page) -> Tried {
        let region = &self.session.regions[usize::from(page.region)];
        let number = u32::from(page.page);
        for _ in 0..LOOKS {
            if region.table.access(number, false) {
                let bytes = region.table.load(number).expect("an access maps the page");
                return if holds(&bytes, self.oracle.values(page)) {
                    Ok(Ok(()))
                } else {
                    Err(Trouble::Lost(format!("{page} in memory is not what was stored")))
                };
            }
            region.tracked.count_fault();
            if let Err(blocked) = looked(page, region.tracked.attempt(number, false))? {
                return Ok(Err(blocked));
            }
        }
        Ok(Err(Blocked::Page))
    }

    fn try_announce(&mut self, thread: u8, first: Page, pages: u8) -> Tried {
        let limit = self.session.shared.control.ledger.0.permits().limit;
        if self.session.threads[usize::from(thread)].announced.is_some() || u32::from(pages) > limit {
            return Ok(Ok(()));
        }
        let tracked = self.session.regions[usize::from(first.region)].tracked.clone();
        let at = usize::from(first.page) * PAGE_SIZE;
        let announcer = tracked.announcer().filter(|_| pages == 1);
        if let Some(hazard) = announcer.and_then(|announcer| announcer.announce_as(thread.into(), at, 8)) {
            // Until it is released.
            std::mem::forget(hazard);
            self.session.threads[usize::from(thread)].announced = Some((first, pages, false));
            return Ok(Ok(()));
        }
        for done in 0..pages {
            let page = Page { page: first.page + done, ..first };
            if let Err(blocked) = pinned(page, tracked.try_pin(u32::from(page.page)))? {
                (0..done).for_each(|back| tracked.unpin(u32::from(first.page + back)));
                return Ok(Err(blocked));
            }
        }
        self.session.threads[usize::from(thread)].announced = Some((first, pages, true));
        Ok(Ok(()))
    }

    fn has_announced(&self, thread: u8, page: Page) -> bool {
        self.session.threads[usize::from(thread)].announced.is_some_and(|(first, pages, _)| {
            first.region == page.region && (first.page..first.page + pages).contains(&page.page)
        })
    }

    /// The announced stores of a thread are done.
    pub(super) fn release(&mut self, thread: u8) {
        let announced = self.session.threads[usize::from(thread)].announced.take();
        let Some((first, pages, pinned)) = announced else { return };
        if !pinned {
            self.session.shared.control.hazards.end(thread.into());
            return;
        }
        let tracked = &self.session.regions[usize::from(first.region)].tracked;
        (first.page..first.page + pages).for_each(|page| tracked.unpin(u32::from(page)));
    }
}

fn looked(page: Page, step: Step) -> Tried {
    match step {
        Step::Done | Step::Again => Ok(Ok(())),
        Step::Wait => Ok(Err(Blocked::Permit)),
        Step::Sleep(_) => Ok(Err(Blocked::Page)),
        Step::Lost => Err(Trouble::Lost(format!("{page} is damaged in the store"))),
        Step::Failed(refusal) => Err(Trouble::Violation(format!("{page} cannot be opened: {refusal:?}"))),
    }
}

fn pinned(page: Page, pin: Result<(), Unpinned>) -> Tried {
    match pin {
        Ok(()) => Ok(Ok(())),
        Err(Unpinned::Wait) => Ok(Err(Blocked::Permit)),
        Err(Unpinned::Sleep(_)) => Ok(Err(Blocked::Page)),
        Err(Unpinned::Failed(Outcome::Lost)) => Err(Trouble::Lost(format!("{page} is damaged in the store"))),
        Err(Unpinned::Failed(outcome)) => {
            Err(Trouble::Violation(format!("{page} cannot be pinned: {outcome:?}")))
        }
    }
}
