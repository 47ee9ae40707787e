//! Announces stores to one region by hazard pointers.
//!
//! # Safety
//!
//! 1. What an announcer keeps has its words and slots at one address as long as it lives. `pages` words are there.
//!    All of them are atomics.
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::hazard::{Hazard, Slots, enrol, number};
use crate::page_word::PageWord;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Announces stores to the pages of a region.
#[derive(Clone)]
pub struct Announcer {
    words: *const PageWord,
    pages: usize,
    slots: *const Slots,
    /// Address of the region's first byte: different for all regions of a process.
    base: usize,
    _keeps: Arc<dyn Any + Send + Sync>,
}

// SAFETY: 1: atomics, which all threads may use.
unsafe impl Send for Announcer {}
// SAFETY: 1: as above.
unsafe impl Sync for Announcer {}

impl Announcer {
    /// For the region at `base` whose words these are.
    ///
    /// # Safety
    /// 1: of what `keeps` keeps.
    pub unsafe fn new(
        words: &[PageWord],
        slots: &Slots,
        base: usize,
        keeps: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { words: words.as_ptr(), pages: words.len(), slots, base, _keeps: keeps }
    }

    /// For words and slots of this process alone, as a model has them.
    #[cfg(any(loom, shuttle, test))]
    pub fn of(words: Arc<[PageWord]>, slots: Arc<Slots>, base: usize) -> Self {
        let keeps = Arc::new((Arc::clone(&words), Arc::clone(&slots)));
        // SAFETY: 1: what lies in an Arc stays where it is.
        unsafe { Self::new(&words, &slots, base, keeps) }
    }

    /// Announces a store to `len` bytes at offset `at`, which is over when the answer is dropped, if they lie in
    /// one page that is dirty already, and this thread announces no other. `None`: nothing was done.
    #[inline(always)]
    pub fn announce(&self, at: usize, len: usize) -> Option<Hazard<'_>> {
        self.announce_as(number(), at, len)
    }

    /// The same for the thread with that number.
    #[inline(always)]
    pub fn announce_as(&self, number: usize, at: usize, len: usize) -> Option<Hazard<'_>> {
        let page = at / PAGE;
        if len > PAGE - at % PAGE || page >= self.pages {
            return None;
        }
        // SAFETY: 1: kept, and a page that has a word.
        let (word, slots) = unsafe { (&*self.words.add(page), &*self.slots) };
        // A forked child has words of its own, by which nothing is dirty: it never comes to a slot.
        if !word.takes_stores() {
            return None;
        }
        let Some(slot) = slots.of(number) else {
            enrol();
            return None;
        };
        let hazard = slot.take(self.base.wrapping_add(at))?;
        // Behind the slot: either the keeper finds it, or it finds what the keeper did.
        (word.takes_stores() && slots.are_open()).then_some(hazard)
    }
}

impl fmt::Debug for Announcer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Announcer({} pages at {:#x})", self.pages, self.base)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::page_word::State;

    const NUMBER: usize = 5;

    fn announcer() -> (Announcer, Arc<[PageWord]>, Arc<Slots>) {
        let words: Arc<[PageWord]> = (0..2).map(|_| PageWord::fresh()).collect();
        let slots = Arc::new(Slots::default());
        slots.offer();
        // The first page is dirty, and marked as written.
        words[0].reset(State::Dirty);
        let now = words[0].load();
        assert!(words[0].exchange(now, now.pinned()));
        words[0].unpin();
        (Announcer::of(Arc::clone(&words), Arc::clone(&slots), 0x10_0000), words, slots)
    }

    #[test]
    fn only_a_store_to_one_dirty_page_needs_no_pin() {
        let (announcer, words, slots) = announcer();
        let hazard = announcer.announce_as(NUMBER, 4088, 8).expect("inside of a dirty page");
        assert_eq!(slots.glance(), [0x10_0000 + 4088]);
        assert!(announcer.announce_as(NUMBER, 0, 8).is_none(), "one at a time");
        drop(hazard);
        assert!(slots.glance().is_empty());
        for (at, len) in [(4089, 8), (0, 4097), (4096, 8), (8192, 8), (usize::MAX, 1), (0, usize::MAX)] {
            assert!(announcer.announce_as(NUMBER, at, len).is_none(), "{at} {len}");
        }
        assert!(announcer.announce_as(usize::MAX, 0, 8).is_none(), "no number");
        let now = words[0].load();
        assert!(words[0].exchange(now, now.to(State::Copying)));
        assert!(announcer.announce_as(NUMBER, 0, 8).is_none(), "a copy is made");
        assert!(slots.glance().is_empty());
    }

    #[test]
    fn a_page_that_the_keeper_looked_at_is_marked_again_before_it_needs_no_pin() {
        let (announcer, words, _slots) = announcer();
        assert!(words[0].take_written());
        assert!(announcer.announce_as(NUMBER, 0, 8).is_none());
    }

    #[test]
    fn no_store_begins_while_the_slots_are_closed() {
        let (announcer, _words, slots) = announcer();
        slots.close(true);
        assert!(announcer.announce_as(NUMBER, 0, 8).is_none());
        assert!(slots.glance().is_empty());
        slots.close(false);
        assert!(announcer.announce_as(NUMBER, 0, 8).is_some());
    }

    #[test]
    fn a_thread_gets_its_number_with_its_first_store() {
        let (announcer, _words, _slots) = announcer();
        assert!(announcer.announce(0, 8).is_none());
        assert!(announcer.announce(0, 8).is_some());
    }
}
