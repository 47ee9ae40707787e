//! Mapped memory as a workload sees it: plain, or with every store announced.
//!
//! Bytes are copied through raw pointers: a keeper, or the kernel's writeback, reads them meanwhile.
//!
//! # Safety
//!
//! 1. The mapping behind a [`MappedMemory`] stays mapped, readable and writable, for `len` bytes, as
//!    long as the value is used; a page of it may fault, and whoever made the mapping resolves that.
//! 2. Only one thread writes through it.
#![allow(unsafe_code)]

use wattkeep::{Error, Region};

use crate::workload::Memory;

/// A mapping, by address. Does not own it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedMemory {
    start: *mut u8,
    len: usize,
}

impl MappedMemory {
    /// The `len` bytes at `start`.
    ///
    /// # Safety
    /// 1 and 2 of the module.
    pub(super) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Stores eight bytes at `offset`: the least that makes a page dirty.
    #[inline]
    pub(super) fn store(&mut self, offset: usize, value: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: 1, 2: aligned and inside the mapping, asserted above.
        unsafe { self.start.add(offset).cast::<u64>().write_volatile(value) }
    }

    /// Loads one byte at `offset`.
    #[inline]
    pub(super) fn load(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: 1: inside the mapping, asserted above.
        unsafe { self.start.add(offset).read_volatile() }
    }

    #[inline]
    fn inside(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).expect("an offset inside a mapping fits an index");
        assert!(offset + len <= self.len);
        // SAFETY: 1: inside the mapping, asserted above.
        unsafe { self.start.add(offset) }
    }
}

impl Memory for MappedMemory {
    #[inline]
    fn len(&self) -> u64 {
        self.len as u64
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.inside(offset, into.len());
        // SAFETY: 1: `inside` checked the range; `into` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let to = self.inside(offset, bytes.len());
        // SAFETY: 1, 2: `inside` checked the range; `bytes` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }
}

/// An explicit region: each write is announced first. Remembers the first refusal, and writes no
/// more after it.
pub(super) struct AnnouncedMemory<'a> {
    region: &'a Region,
    memory: MappedMemory,
    refused: Option<Error>,
}

impl<'a> AnnouncedMemory<'a> {
    /// All of `region`.
    pub(super) fn new(region: &'a Region, memory: MappedMemory) -> Self {
        Self { region, memory, refused: None }
    }

    /// The first refusal, if there was one.
    pub(super) fn finish(self) -> Result<(), Error> {
        self.refused.map_or(Ok(()), Err)
    }
}

impl Memory for AnnouncedMemory<'_> {
    #[inline]
    fn len(&self) -> u64 {
        self.memory.len()
    }

    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.memory.read(offset, into);
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self.region.will_write(offset as usize, bytes.len()) {
            Ok(_announced) => self.memory.write(offset, bytes),
            Err(error) => drop(self.refused.get_or_insert(error)),
        }
    }
}
