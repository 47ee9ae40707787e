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
