//! What a session's regions share in the client, and the protecting of victims.
//!
//! The thread that takes a fault protects the keeper's next victims: it is the one thread for which
//! that sends no interrupt to another core. A victim is closed only by whoever moved its word to
//! `Protecting`.
//!
//! Runs inside a signal handler: never allocates, locks, logs, or touches region memory.
//!
//! # Safety
//!
//! 1. A `Tracked` is published only while its region is mapped and guarded; it stays alive while
//!    `visitors` counts a thread. Pages below its size lie inside the mapping.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use wattkeep_sys::mutant::planted;

use super::grant::Tracked;
use crate::control::block::{Control, Event, PageRef};
use crate::control::page_word::State;
use crate::control::primitives::{AtomicPtr, AtomicU32, AtomicU64, Ordering, yield_now};
use crate::limits::{FREEZE_PATIENCE, REGIONS_MAX};

/// What the regions of one session share inside the client.
pub struct Shared {
    /// The control block.
    pub control: Control,
    /// Rings the keeper awake.
    pub bell: OwnedFd,
    regions: [AtomicPtr<Tracked>; REGIONS_MAX],
    /// Threads that may hold a pointer from `regions`.
    visitors: AtomicU32,
}

impl Shared {
    /// Shared state of a session without regions.
    pub fn new(control: Control, bell: OwnedFd) -> Self {
        Self {
            control,
            bell,
            regions: [const { AtomicPtr::new(std::ptr::null_mut()) }; REGIONS_MAX],
            visitors: 0.into(),
        }
    }

    /// Lets every faulting thread of the session protect this region's victims.
    pub fn publish(&self, tracked: *mut Tracked, index: u32) {
        self.regions[index as usize].store(tracked, Ordering::SeqCst);
    }

    /// Ends [`Self::publish`] and waits until no thread uses the region any more.
    pub fn withdraw(&self, index: u32) {
        self.regions[index as usize].store(std::ptr::null_mut(), Ordering::SeqCst);
        while self.visitors.load(Ordering::SeqCst) > 0 && !planted("withdrawn-while-visited") {
            yield_now();
        }
    }

    /// Rings the keeper awake if it sleeps.
    #[inline]
    pub fn wake_keeper(&self) {
        self.control.wake_keeper(self.bell.as_fd());
    }

    /// Gives back permits that found no page, and wakes who may have slept for them meanwhile.
    #[inline]
    pub(super) fn return_permits(&self, count: u32) {
        if count > 0 {
            self.control.ledger.0.give_back(count);
            self.control.announce_progress();
        }
    }

    /// Protects up to `count` pages that the keeper wants cleaned.
    #[inline]
    pub(super) fn protect_victims(&self, count: usize) {
        if self.control.victims.is_empty() {
            return;
        }
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let mut run: Option<Run<'_>> = None;
        for _ in 0..count {
            let Some(victim) = self.control.victims.pop().map(PageRef::unpack) else { break };
            let Some(claimed) =
                self.tracked(victim.region).and_then(|tracked| tracked.claim_victim(victim.page))
            else {
                continue;
            };
            run = match run {
                Some(run) if run.reaches(&claimed) => Some(run.longer()),
                other => {
                    self.close_run(other);
                    Some(claimed)
                }
            };
        }
        self.close_run(run);
        self.visitors.fetch_sub(1, Ordering::SeqCst);
    }

    /// Protects what the keeper offers now, for a keeper that cannot and a program that takes no faults.
    pub fn protect_offered(&self) {
        self.protect_victims(self.control.victims.len());
    }

    /// Protects every dirty page of every region, for a cut that only the client can make.
    /// Grants that had begun before the freeze are waited for, and their pages closed, too.
    pub fn protect_everything(&self) {
        let began = Instant::now();
        while self.protect_what_is_open() && began.elapsed() < FREEZE_PATIENCE {
            yield_now();
        }
    }

    /// One pass over all pages. True when some are still open, or about to be.
    fn protect_what_is_open(&self) -> bool {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let mut busy = false;
        for region in 0..REGIONS_MAX as u32 {
            let Some(tracked) = self.tracked(region).filter(|tracked| tracked.tracking.protects()) else {
                continue;
            };
            let mut run: Option<Run<'_>> = None;
            for page in 0..tracked.pages() {
                if let Some(claimed) = tracked.claim_victim(page) {
                    run = Some(run.map_or(claimed, Run::longer));
                } else {
                    let state = tracked.words.of(page).load().state();
                    busy |= matches!(state, State::Granting | State::Dirty | State::Protecting);
                    self.close_run(run.take());
                }
            }
            self.close_run(run);
        }
        self.visitors.fetch_sub(1, Ordering::SeqCst);
        busy
    }

    fn tracked(&self, region: u32) -> Option<&Tracked> {
        let tracked = self.regions.get(region as usize)?.load(Ordering::SeqCst);
        // SAFETY: 1: published regions stay alive while `visitors` counts us; see `withdraw`.
        unsafe { tracked.as_ref() }
    }

    pub(super) fn close_run(&self, run: Option<Run<'_>>) {
        let Some(Run { tracked, first, pages }) = run else { return };
        // SAFETY: 1: claimed pages of a region that cannot go while the run borrows it.
        let closed = planted("queued-unclosed")
            || unsafe { tracked.guard.close(tracked.address(first), pages) }.is_ok();
        for page in first..first + pages {
            if closed {
                tracked.words.of(page).advance(State::Protecting, State::Queued);
                self.control.tell(Event::Queued(tracked.page_ref(page)));
            } else {
                // Out of mappings: the page stays dirty and the keeper offers it again.
                tracked.words.of(page).advance(State::Protecting, State::Dirty);
            }
        }
        count(&self.control.counters.protected_pages, u64::from(pages));
        self.wake_keeper();
    }
}

/// Neighbours that this thread moved to `Protecting`: it is the only one to move them on, so the run keeps
/// the region it was claimed of, although that be withdrawn meanwhile.
pub(super) struct Run<'a> {
    tracked: &'a Tracked,
    first: u32,
    pages: u32,
}

impl Run<'_> {
    /// `next` is the page behind this run.
    fn reaches(&self, next: &Run<'_>) -> bool {
        std::ptr::eq(self.tracked, next.tracked) && self.first + self.pages == next.first
    }

    fn longer(self) -> Self {
        Self { pages: self.pages + 1, ..self }
    }
}

impl Tracked {
    /// Moves a dirty page that nobody pins to `Protecting`; [`Shared::close_run`] moves it on.
    pub(super) fn claim_victim(&self, page: u32) -> Option<Run<'_>> {
        if page >= self.pages() {
            return None;
        }
        let word = self.words.of(page);
        let now = word.load();
        let claimed =
            now.state() == State::Dirty && now.pins() == 0 && word.exchange(now, now.to(State::Protecting));
        claimed.then_some(Run { tracked: self, first: page, pages: 1 })
    }
}

/// Raises a counter that many threads raise: relaxed, for reading by people.
#[inline]
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
