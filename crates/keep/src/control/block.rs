//! The control block: the layout of what client and keeper share, and how each tells the other.
//!
//! One block per session; every field is an atomic. The layout is versioned; sizes and offsets are
//! asserted below. The keeper believes nothing in it but its own page words and ledger.
//!
//! Sleeping and waking: whoever goes to sleep says so, then looks once more; whoever has news
//! publishes it, then looks for sleepers. A fence stands between the two steps on either side.
//! Does not know how it is mapped.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use wattkeep_announce::hazard::Slots;
use wattkeep_sys::mutant::planted;

use super::ledger::Ledger;
pub use super::mapped::{Control, Words};
use super::primitives::{AtomicU32, AtomicU64, Ordering, fence, futex};
use super::ring::Ring;
use crate::limits::{EVENTS_RING, VICTIMS_RING};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"WKCONTRL");
pub(super) const VERSION: u32 = 2;

/// Why no page may become writable now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Freeze {
    /// Grants run.
    None = 0,
    /// A checkpoint takes its cut: grants wait for milliseconds.
    Checkpoint = 1,
    /// The power is going: grants wait until the keeper says that it is back.
    Save = 2,
    /// The store failed or the keeper is gone: grants wait for ever.
    Closed = 3,
}

/// Counters that the client raises. Read by `wattkeep status`.
#[repr(C, align(64))]
#[derive(Default)]
pub struct ClientCounters {
    /// Faults that the handler resolved.
    pub faults: AtomicU64,
    /// Pages that became dirty, runs counted page by page.
    pub granted_pages: AtomicU64,
    /// Pages taken back while the keeper was writing them.
    pub rescued_pages: AtomicU64,
    /// Victims that a faulting thread protected.
    pub protected_pages: AtomicU64,
    /// Times a thread slept for a permit.
    pub permit_waits: AtomicU64,
    /// Nanoseconds slept for permits.
    pub permit_wait_ns: AtomicU64,
    /// Stores that nobody announced (checking mode).
    pub unannounced: AtomicU64,
}

/// What client and keeper share, apart from the pages' words and bytes.
#[repr(C, align(64))]
#[cfg_attr(any(loom, shuttle), derive(Default))]
pub struct ControlBlock {
    pub(super) magic: AtomicU64,
    pub(super) version: AtomicU32,
    /// [`Freeze`], as a number.
    freeze: AtomicU32,
    /// Raised at every event that may let a waiting client go on; clients sleep on it.
    progress: AtomicU32,
    /// Clients asleep on `progress`.
    sleepers: AtomicU32,
    /// 1 while the keeper sleeps, or is about to.
    keeper_asleep: AtomicU32,
    /// 1 when news did not fit into `events`: the keeper must read the page words.
    events_lost: AtomicU32,
    /// So few free permits, or fewer, ring a napping keeper. 0: the last permit does.
    ring_at: AtomicU32,
    /// The dirty budget. The ledger's limit is lower for the time that the log has less room.
    budget: AtomicU32,
    /// The permits.
    pub ledger: LedgerLine,
    /// What the client counts.
    pub counters: ClientCounters,
    /// Pages that the keeper wants protected next.
    pub victims: Ring<VICTIMS_RING>,
    /// News for the keeper: [`Event`]s.
    pub events: Ring<EVENTS_RING>,
    /// Where the client's threads are about to store.
    pub hazards: Slots,
}

/// The ledger on a cache line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub struct LedgerLine(pub Ledger);

// The atomics of a model checker are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(size_of::<Ledger>() == 16);
    assert!(std::mem::offset_of!(ControlBlock, ledger) == 64);
    assert!(std::mem::offset_of!(ControlBlock, counters) == 128);
    assert!(std::mem::offset_of!(ControlBlock, victims) == 192);
};

/// A page, as both sides name it: the region's place in the session, and the page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageRef {
    /// Place of the region in the session, counted from 0.
    pub region: u32,
    /// Page in the region, counted from 0.
    pub page: u32,
}

/// News for the keeper about one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It became dirty.
    Dirtied(PageRef),
    /// It was protected and waits for its copy.
    Queued(PageRef),
    /// Somebody waits until it is filled.
    Wanted(PageRef),
    /// Somebody waits until its part of the checkpoint is copied.
    Urgent(PageRef),
}

impl PageRef {
    /// As the rings carry it.
    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.region) << 32 | u64::from(self.page)
    }

    /// The reverse of [`PageRef::pack`].
    #[inline]
    pub fn unpack(value: u64) -> Self {
        Self { region: (value >> 32) as u32 & 0x0FFF_FFFF, page: value as u32 }
    }
}

impl Event {
    #[inline]
    fn pack(self) -> u64 {
        let (kind, page) = match self {
            Event::Dirtied(page) => (0u64, page),
            Event::Queued(page) => (1, page),
            Event::Wanted(page) => (2, page),
            Event::Urgent(page) => (3, page),
        };
        kind << 60 | page.pack()
    }

    fn unpack(value: u64) -> Self {
        let page = PageRef::unpack(value);
        match value >> 60 {
            0 => Event::Dirtied(page),
            1 => Event::Queued(page),
            2 => Event::Wanted(page),
            _ => Event::Urgent(page),
        }
    }
}

impl ControlBlock {
    /// What stops grants now.
    #[inline]
    pub fn freeze(&self) -> Freeze {
        match self.freeze.load(Ordering::SeqCst) {
            0 => Freeze::None,
            1 => Freeze::Checkpoint,
            2 => Freeze::Save,
            _ => Freeze::Closed,
        }
    }

    /// Stops or resumes grants. A grant that was begun before is seen in its page's word: whoever
    /// grants looks at the freeze again after it claimed the word.
    pub fn set_freeze(&self, freeze: Freeze) {
        self.freeze.store(freeze as u32, Ordering::SeqCst);
        self.hazards.close(freeze != Freeze::None);
        if freeze == Freeze::None {
            self.announce_progress();
        }
    }

    /// Wakes clients that wait for a permit or for the end of a freeze.
    pub fn announce_progress(&self) {
        self.progress.fetch_add(u32::from(!planted("progress-uncounted")), Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.progress, u32::MAX >> 1);
        }
    }

    /// Somebody waits for a permit or for the end of a freeze.
    #[inline]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Sleeps until progress is announced, unless `ready` holds, which is asked when this thread already
    /// counts as asleep. The caller looks again.
    pub fn wait_for_progress(&self, timeout: Duration, ready: impl Fn() -> bool) {
        self.client_falls_asleep();
        let seen = self.progress.load(Ordering::SeqCst);
        if !ready() {
            let _ = futex::wait(&self.progress, seen, Some(timeout));
        }
        self.client_wakes();
    }

    /// A client is about to sleep until progress is announced; it must look once more before it does.
    pub fn client_falls_asleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// It is awake.
    pub fn client_wakes(&self) {
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// So few free permits, or fewer, have a client ring the keeper.
    #[inline]
    pub fn ring_at(&self) -> u32 {
        self.ring_at.load(Ordering::Relaxed)
    }

    /// Sets [`Self::ring_at`].
    pub fn set_ring_at(&self, permits: u32) {
        self.ring_at.store(permits, Ordering::Relaxed);
    }

    /// The dirty budget in pages: what one announcement may ask for.
    pub fn budget(&self) -> u32 {
        self.budget.load(Ordering::Relaxed)
    }

    /// Sets [`Self::budget`].
    pub fn set_budget(&self, pages: u32) {
        self.budget.store(pages, Ordering::Relaxed);
    }

    /// Tells the keeper. A full queue loses the entry, not the fact: see [`Self::take_events_lost`].
    #[inline]
    pub fn tell(&self, event: Event) {
        if !self.events.push(event.pack()) && !planted("lost-news-unmarked") {
            self.events_lost.store(1, Ordering::SeqCst);
        }
    }

    /// The keeper's side of [`Self::tell`].
    pub fn next_event(&self) -> Option<Event> {
        self.events.pop().map(Event::unpack)
    }

    /// True once after news was lost.
    pub fn take_events_lost(&self) -> bool {
        self.events_lost.load(Ordering::Relaxed) != 0 && self.events_lost.swap(0, Ordering::SeqCst) != 0
    }

    /// The keeper is about to sleep; it must look for work once more before it does.
    pub fn keeper_falls_asleep(&self) {
        self.keeper_asleep.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The keeper is awake.
    pub fn keeper_wakes(&self) {
        self.keeper_asleep.store(0, Ordering::SeqCst);
    }

    /// Wakes the keeper if it sleeps. Fit for a signal handler.
    #[inline]
    pub fn wake_keeper(&self, bell: BorrowedFd<'_>) {
        // What was told must be visible before the keeper is seen awake.
        if !planted("bell-without-fence") {
            fence(Ordering::SeqCst);
        }
        if self.keeper_asleep.load(Ordering::SeqCst) != 0 && self.keeper_asleep.swap(0, Ordering::SeqCst) != 0
        {
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// Makes a block of zeroed memory that nobody else uses yet.
    pub(super) fn initialise(&self) {
        self.victims.initialise();
        self.events.initialise();
        self.hazards.offer();
        self.version.store(VERSION, Ordering::SeqCst);
        self.magic.store(MAGIC, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_one_block_and_other_versions_are_refused() {
        let (ours, memory) = Control::create().unwrap();
        let theirs = Control::map(&memory).unwrap();
        ours.ledger.0.set_limit(7);
        assert_eq!(theirs.ledger.0.permits().limit, 7);
        let page = PageRef { region: 3, page: 9 };
        for event in [Event::Dirtied(page), Event::Queued(page), Event::Wanted(page), Event::Urgent(page)] {
            theirs.tell(event);
            assert_eq!(ours.next_event(), Some(event));
        }
        ours.version.store(VERSION + 1, Ordering::SeqCst);
        assert!(Control::map(&memory).is_err());
    }

    #[test]
    fn lost_news_is_noticed() {
        let (control, _memory) = Control::create().unwrap();
        assert!(!control.take_events_lost());
        for page in 0..=EVENTS_RING as u32 {
            control.tell(Event::Dirtied(PageRef { region: 0, page }));
        }
        assert!(control.take_events_lost() && !control.take_events_lost());
    }
}
