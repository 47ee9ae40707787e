//! Brings fresh pages of an explicit region into memory before they are touched, together.
//!
//! A fault tells nothing about an explicit region: its stores are announced. So a page may be there before
//! anybody touches it, zero, as the store has it. In every other region a page that is there is mapped
//! writable at its first touch, and its stores would go unseen.
//!
//! A region's own mapping gets its missing pages one by one from userfaultfd. A second mapping of the same
//! memory, for loads only and without userfaultfd, gets them as the kernel has them: in large pieces, where
//! the machine's settings allow that for shared memory.

use std::os::fd::AsFd;

use wattkeep_sys::huge;
use wattkeep_sys::map::{Access, Mapping};

use crate::control::block::Words;
use crate::control::page_word::State;
use crate::limits::PAGE_SIZE;

/// Bytes of the largest piece of memory, of which the mapping begins at a multiple.
const LARGEST_PIECE: usize = 2 << 20;

/// The second mapping.
#[derive(Debug)]
pub(super) struct Ahead(Mapping);

impl Ahead {
    /// Of the first `len` bytes of a region's memory.
    pub(super) fn of(memory: impl AsFd, len: usize) -> rustix::io::Result<Self> {
        let mapping = Mapping::aligned(memory, len, LARGEST_PIECE, Access::Read)?;
        mapping.hide_from_children()?;
        // A kernel without large pieces gives pages.
        let _ = mapping.take_large_pieces(0, len);
        Ok(Self(mapping))
    }

    /// The least size of pieces, from `at_least` bytes on, that shared memory comes in.
    pub(super) fn piece(at_least: usize) -> Option<usize> {
        let mut sizes = huge::shared_sizes_on_request().into_iter();
        sizes.find(|size| *size >= at_least && *size <= LARGEST_PIECE)
    }

    /// Brings in whole pages of the region mapped at `own`, if nobody ever stored to any of them. An
    /// absent page is the keeper's to fill: one that is not fresh refuses all.
    pub(super) fn populate(&self, own: &Mapping, words: &Words, at: usize, len: usize) -> bool {
        let mut pages = (at / PAGE_SIZE) as u32..((at + len) / PAGE_SIZE) as u32;
        if !pages.all(|page| words.of(page).load().state() == State::Fresh) {
            return false;
        }
        let populated = self.0.populate_readable(at, len).is_ok();
        // They are in memory: this mapping needs no entries for them, the region's own does.
        let _ = self.0.give_back(at, len);
        populated && own.populate(at, len).is_ok()
    }
}
