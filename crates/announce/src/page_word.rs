//! The state of one page, in one 32-bit word that client and keeper exchange atomically.
//!
//! ```text
//!             read                      first store                victim
//!   Fresh ----------> Clean ---------> Granting -> Dirty ----> Protecting -> Queued
//!   Absent -(fill)--> Clean  (permit)   unprotect    ^  pins       protect      |
//!                       ^                            |                          v
//!                       |                            +------- store -------  Copying
//!                       +--- on the SSD (permit back) ----- InFlight <---------+
//! ```
//!
//! Invariants:
//! - A page is writable only in `Granting`, `Dirty` and `Protecting`, and then holds a permit.
//! - `Queued`, `Copying`, `InFlight`, `Held` hold a permit too: the SSD does not have the page yet.
//! - Who moves a page into `Granting`, `Protecting` or `Copying` is the only one to move it on,
//!   except that a writer may take a page back from `Copying` (the copy is then thrown away).
//! - Every change of state raises the version, so that an exchange made for an old version fails.
//!
//! The word also carries pins (announced stores in progress on an explicit region), a mark that
//! somebody sleeps on it, and a mark that it was written since the keeper last looked.
//! Does not know addresses or permits.

use wattkeep_sys::mutant::planted;

use crate::primitives::{AtomicU32, Ordering};

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Never written: zeros, neither in memory nor in the store.
    Fresh = 0,
    /// In the store, not yet in memory.
    Absent = 1,
    /// In memory, protected, equal to the store.
    Clean = 2,
    /// A thread holds the permit and is making the page writable.
    Granting = 3,
    /// Writable.
    Dirty = 4,
    /// A thread is taking the right to write away.
    Protecting = 5,
    /// Protected, waits for the keeper's copy.
    Queued = 6,
    /// The keeper is copying it.
    Copying = 7,
    /// Its copy is on the way to the SSD.
    InFlight = 8,
    /// Part of a checkpoint: protected, and not writable before the keeper copied it.
    Held = 9,
    /// The store's copy is damaged: never handed out.
    Lost = 10,
}

impl State {
    #[inline]
    fn of(bits: u32) -> Self {
        match bits {
            0 => State::Fresh,
            1 => State::Absent,
            2 => State::Clean,
            3 => State::Granting,
            4 => State::Dirty,
            5 => State::Protecting,
            6 => State::Queued,
            7 => State::Copying,
            8 => State::InFlight,
            9 => State::Held,
            // An unknown state, from a client that overwrote its words, is never good data.
            _ => State::Lost,
        }
    }

    /// The page holds a permit.
    pub fn holds_permit(self) -> bool {
        use State::*;
        matches!(self, Granting | Dirty | Protecting | Queued | Copying | InFlight | Held)
    }
}

const STATE_BITS: u32 = 4;
const STATE_MASK: u32 = (1 << STATE_BITS) - 1;
const PIN_ONE: u32 = 1 << STATE_BITS;
const PIN_MASK: u32 = 0xFF << STATE_BITS;
const WAITED: u32 = 1 << 12;
const WRITTEN: u32 = 1 << 13;
/// Versions count in the upper 18 bits. The keeper holds on to a word for one SSD write; a page would
/// have to change state 262,144 times meanwhile, each time through the keeper, to fool it.
const VERSION_ONE: u32 = 1 << 14;

/// Most announced stores in progress on one page at once.
pub const PINS_MAX: u32 = PIN_MASK / PIN_ONE - 1;

/// A value of a page's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u32);

impl Word {
    /// What the page is.
    #[inline]
    pub fn state(self) -> State {
        State::of(self.0 & STATE_MASK)
    }

    /// Announced stores in progress.
    #[inline]
    pub fn pins(self) -> u32 {
        (self.0 & PIN_MASK) / PIN_ONE
    }

    /// Somebody sleeps on the word.
    pub fn waited(self) -> bool {
        self.0 & WAITED != 0
    }

    /// Written, through announced stores, since the keeper last looked.
    #[inline]
    pub fn written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// The same page in another state: one version later, sleepers to be woken by whoever stores it.
    #[inline]
    pub fn to(self, state: State) -> Self {
        let kept = self.0 & !(STATE_MASK | WAITED);
        let version = if planted("version-stays") { 0 } else { VERSION_ONE };
        Word(kept.wrapping_add(version) | state as u32)
    }

    /// The same with one more announced store, marked as written.
    #[inline]
    pub fn pinned(self) -> Self {
        Word((self.0 + PIN_ONE) | WRITTEN)
    }

    /// The same, its sleepers marked.
    pub fn with_waiter(self) -> Self {
        Word(self.0 | WAITED)
    }

    fn without_written(self) -> Self {
        Word(self.0 & !WRITTEN)
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} v{} pins {}", self.state(), self.0 / VERSION_ONE, self.pins())
    }
}

/// The shared word of one page.
#[repr(transparent)]
pub struct PageWord(AtomicU32);

impl PageWord {
    /// A word of a page never written.
    pub fn fresh() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The word now.
    #[inline]
    pub fn load(&self) -> Word {
        Word(self.0.load(Ordering::SeqCst))
    }

    /// The page is dirty, and marked as written: a store changes nothing of the word. What was stored before the
    /// page became so is visible behind this.
    #[inline(always)]
    pub fn takes_stores(&self) -> bool {
        self.0.load(Ordering::Acquire) & (STATE_MASK | WRITTEN) == State::Dirty as u32 | WRITTEN
    }

    /// Replaces exactly `from`; false when the word changed meanwhile.
    #[inline]
    pub fn exchange(&self, from: Word, to: Word) -> bool {
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Moves the page on from a state that only the caller may leave; returns the word replaced.
    /// Pins and marks that others set meanwhile are kept.
    #[inline]
    pub fn advance(&self, from: State, to: State) -> Word {
        loop {
            let now = self.load();
            assert!(now.state() == from, "a page left {from:?} behind its owner's back: {now:?}");
            if self.exchange(now, now.to(to)) {
                return now;
            }
        }
    }

    /// Moves the page on if it is in `from`; returns the new word.
    #[inline]
    pub fn try_advance(&self, from: State, to: State) -> Option<Word> {
        loop {
            let now = self.load();
            if now.state() != from {
                return None;
            }
            if self.exchange(now, now.to(to)) {
                return Some(now.to(to));
            }
        }
    }

    /// Ends one announced store. A forked child ends those of its parent on words of its own, which are fresh.
    #[inline]
    pub fn unpin(&self) {
        let before = Word(self.0.fetch_sub(PIN_ONE, Ordering::SeqCst));
        debug_assert!(before.pins() > 0 || before.0 == 0, "an unpin without a pin");
    }

    /// Reads and clears the mark of announced stores.
    pub fn take_written(&self) -> bool {
        let now = self.load();
        now.written() && self.exchange(now, now.without_written())
    }

    /// Stores a word without looking: only before the other side sees the page.
    pub fn reset(&self, state: State) {
        self.0.store(state as u32, Ordering::SeqCst);
    }

    /// The futex that sleepers use.
    pub fn futex(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_state_keeps_pins_and_outdates_old_words() {
        let word = PageWord::fresh();
        let clean = word.load().to(State::Clean);
        assert!(word.exchange(word.load(), clean));
        assert!(word.exchange(clean, clean.to(State::Dirty).pinned()));
        assert_eq!((word.load().state(), word.load().pins()), (State::Dirty, 1));
        assert!(!word.exchange(clean, clean.to(State::Dirty)), "an old word must not match");
        word.unpin();
        assert_eq!((word.load().state(), word.load().pins(), word.load().written()), (State::Dirty, 0, true));
        assert!(word.take_written() && !word.take_written());
    }

    #[test]
    fn garbage_in_a_word_is_never_good_data() {
        for bits in 11..16 {
            assert_eq!(Word(bits).state(), State::Lost);
        }
    }

    #[test]
    fn versions_wrap_without_touching_the_state() {
        let mut word = Word(0);
        for _ in 0..600_000 {
            word = word.to(State::Dirty).to(State::Clean);
        }
        assert_eq!((word.state(), word.pins()), (State::Clean, 0));
    }
}
