//! Brings fresh pages of an explicit region into memory before they are touched, together.
//!
//! A fault tells nothing about an explicit region: its stores are announced. So a page may be there before
//! anybody touches it, zero, as the store has it. In every other region a page that is there is mapped
//! writable at its first touch, and its stores would go unseen.
//!
//! A region's own mapping gets its missing pages one by one from userfaultfd: a batch of them by one call. A
//! second mapping of the same memory, for loads only and without userfaultfd, gets them as the kernel has them:
//! in large pieces, where the machine's settings allow that for shared memory.

use std::os::fd::AsFd;

use wattkeep_sys::huge;
use wattkeep_sys::map::{Access, Mapping};

use super::grant::Tracked;
use crate::limits::PAGE_SIZE;

/// Bytes of the largest piece of memory, of which the mapping begins at a multiple.
const LARGEST_PIECE: usize = 2 << 20;

/// How they come.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The second mapping.
    other: Mapping,
    /// Larger pieces than pages may be had.
    in_pieces: bool,
}

impl Ahead {
    /// Of the first `len` bytes of a region's memory.
    pub(super) fn of(memory: impl AsFd, len: usize) -> rustix::io::Result<Self> {
        let other = Mapping::aligned(memory, len, LARGEST_PIECE, Access::Read)?;
        other.hide_from_children()?;
        // A kernel without large pieces gives pages.
        let _ = other.take_large_pieces(0, len);
        Ok(Self { other, in_pieces: !huge::shared_sizes_on_request().is_empty() })
    }

    /// The least size of pieces, from `at_least` bytes on, that shared memory comes in.
    pub(super) fn piece(at_least: usize) -> Option<usize> {
        let mut sizes = huge::shared_sizes_on_request().into_iter();
        sizes.find(|size| *size >= at_least && *size <= LARGEST_PIECE)
    }

    /// Brings in whole pages of the region mapped at `own`, if nobody ever stored to any of them. An
    /// absent page is the keeper's to fill: one that is not fresh refuses all.
    pub(super) fn populate(&self, own: &Mapping, tracked: &Tracked, at: usize, len: usize) -> bool {
        let (first, end) = ((at / PAGE_SIZE) as u32, ((at + len) / PAGE_SIZE) as u32);
        if !(first..end).all(|page| tracked.is_fresh(page)) {
            return false;
        }
        // Each page is made and mapped at once: a third of the time of three calls.
        if !self.in_pieces && tracked.install_fresh(first, end - first) {
            return true;
        }
        let populated = self.other.populate_readable(at, len).is_ok();
        // They are in memory: this mapping needs no entries for them, the region's own does.
        let _ = self.other.give_back(at, len);
        populated && own.populate(at, len).is_ok()
    }
}
