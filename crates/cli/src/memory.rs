//! Raw memory of a drill: a region as a workload's memory, and a page that parent and child share.
//!
//! The only file here that touches raw pointers. Bytes of a region are copied in and out; no reference
//! ever covers them, because the keeper reads them and the fault handler stops in the middle of a copy.
//!
//! # Safety
//!
//! 1. A copy stays inside the region: asserted before each.
//! 2. The region is mapped as long as its memory lives, which owns it.
//! 3. The caller's buffer is a live slice of its own, so it does not overlap the region.
//! 4. The board's mapping is one page, lives as long as the board, starts at a page border, and is only
//!    ever seen as aligned atomics.
#![allow(unsafe_code)]

use std::cell::OnceCell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use wattkeep::{Region, Tracking};
use wattkeep_bench::Memory;
use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::memfd;

const PAGE_BYTES: usize = wattkeep_store::types::PAGE_SIZE;

/// The board, at the beginning of the memory that it lies in.
pub(crate) const BOARD_BYTES: usize = PAGE_BYTES;

/// A region as the memory of a workload. Announces its stores when the region is explicit.
pub(crate) struct RegionMemory {
    region: Region,
    start: *mut u8,
    len: u64,
    explicit: bool,
    refused: OnceCell<String>,
}

impl RegionMemory {
    /// Takes the region.
    pub(crate) fn new(region: Region) -> Self {
        let (start, len) = (region.as_ptr(), region.len() as u64);
        let explicit = region.tracking() != Tracking::Transparent;
        Self { region, start, len, explicit, refused: OnceCell::new() }
    }

    /// Why a store was refused, if one was. Nothing is stored from then on.
    #[inline]
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Gives the region back.
    pub(crate) fn into_region(self) -> Region {
        self.region
    }

    /// The region.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Where `len` bytes at `offset` lie.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} leave the region of {} bytes", self.len);
        // SAFETY: 1: asserted. 2.
        unsafe { self.start.add(offset as usize) }
    }

    #[inline]
    fn write_in_page(&self, offset: u64, bytes: &[u8]) {
        let target = self.at(offset, bytes.len());
        let announced = match self.explicit.then(|| self.region.will_write(offset as usize, bytes.len())) {
            None => None,
            Some(Ok(announced)) => Some(announced),
            Some(Err(error)) => return self.refuse(&error),
        };
        // SAFETY: 1, 2: `at`. 3.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        drop(announced);
    }

    #[cold]
    fn refuse(&self, error: &wattkeep::Error) {
        self.refused.get_or_init(|| error.to_string());
    }
}

impl Memory for RegionMemory {
    #[inline]
    fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.at(offset, into.len());
        // SAFETY: 1, 2: `at`. 3.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Page by page, in order: one store instruction across a border needs two permits at once, and a
    /// budget may be one page; and the oracle explains a write that was cut off by its pages in order.
    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let to_border = PAGE_BYTES - offset as usize % PAGE_BYTES;
        if bytes.len() <= to_border {
            return self.write_in_page(offset, bytes);
        }
        let (first, mut rest) = bytes.split_at(to_border);
        self.write_in_page(offset, first);
        let mut at = offset + to_border as u64;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES));
            self.write_in_page(at, piece);
            (at, rest) = (at + piece.len() as u64, later);
        }
    }
}

/// A page that a drill's parent and child share: how far the child has come. It survives the child.
pub(crate) struct Board(Mapping);

/// What the board says, by place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// Operations that are complete.
    Steps,
    /// Share of the load that is done, in millionths.
    Loaded,
    /// Not zero: the child may begin.
    Go,
}

impl Board {
    /// A new board with so many bytes behind it, and the descriptor by which another process opens it.
    pub(crate) fn create(behind: u64) -> io::Result<(Self, OwnedFd)> {
        let memory = memfd::create("wattkeep-drill", BOARD_BYTES as u64 + behind)?;
        Ok((Self(Mapping::anywhere(&memory, BOARD_BYTES, Access::ReadWrite)?), memory))
    }

    /// The other side's.
    pub(crate) fn open(memory: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(Mapping::anywhere(memory, BOARD_BYTES, Access::ReadWrite)?))
    }

    #[inline]
    fn word(&self, word: Word) -> &AtomicU64 {
        // SAFETY: 4: three words of eight bytes lie in the page.
        unsafe { &*self.0.start().cast::<AtomicU64>().add(word as usize) }
    }

    #[inline]
    pub(crate) fn set(&self, word: Word, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }

    pub(crate) fn get(&self, word: Word) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }
}
