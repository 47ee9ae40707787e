//! A page table in memory: what the kernel keeps of a region, as client and keeper meet it.
//!
//! A page of the table is missing (perhaps with a note that it is to be protected), protected, or
//! writable. Beside the table, the memory itself may hold the page already: an access then maps it
//! without a fault, writable unless the note is there. Errors are the kernel's: EEXIST for a fill of a
//! page that is there, ENOENT for a protection of a region that is not registered for it.
//!
//! # Safety
//!
//! 1. The mapping lives as long as the table, and pages are checked to lie inside it.
//! 2. One thread runs a simulation: nobody touches the bytes meanwhile, and no reference covers them.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use rustix::io::{Errno, Result};
use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_keep::page_table::TwinPageTable;
use wattkeep_sys::map::{Access, Mapping};

/// How one page stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing is mapped. `noted`: it is protected as soon as it is.
    Missing {
        /// The note.
        noted: bool,
    },
    /// Readable.
    Protected,
    /// Readable and writable.
    Writable,
}

/// One page: its entry, and whether the memory behind it was ever written.
#[derive(Clone, Copy, Debug)]
struct Page {
    entry: Entry,
    backed: bool,
}

/// The page table of one region, and the client's mapping.
#[derive(Debug)]
pub struct TwinTable {
    address: usize,
    mapping: Mapping,
    memory: OwnedFd,
    /// Registered for write-protection, too.
    protects: bool,
    /// A planted bug: every fourth page stays open when it is protected.
    leaks: bool,
    pages: Mutex<Vec<Page>>,
}

impl TwinTable {
    /// The client maps `pages` pages of `memory` at `address`, before the keeper seals it.
    pub fn map(
        memory: BorrowedFd<'_>,
        address: u64,
        pages: u32,
        protects: bool,
        leaks: bool,
    ) -> std::io::Result<Self> {
        let mapping = Mapping::anywhere(memory, pages as usize * PAGE_SIZE, Access::ReadWrite)?;
        let none = Page { entry: Entry::Missing { noted: false }, backed: false };
        let memory = memory.try_clone_to_owned()?;
        let pages = Mutex::new(vec![none; pages as usize]);
        Ok(Self { address: address as usize, mapping, memory, protects, leaks, pages })
    }

    /// The keeper filled a page behind the table, before the client mapped it.
    pub fn set_backed(&self, page: u32) {
        self.with(|pages| pages[page as usize].backed = true);
    }

    /// How the page stands.
    pub fn entry(&self, page: u32) -> Entry {
        self.with(|pages| pages[page as usize].entry)
    }

    /// An access maps a page whose memory is there. True when the access then succeeds.
    pub fn access(&self, page: u32, write: bool) -> bool {
        self.with(|pages| {
            let page = &mut pages[page as usize];
            if let (Entry::Missing { noted }, true) = (page.entry, page.backed) {
                page.entry = if noted { Entry::Protected } else { Entry::Writable };
            }
            match page.entry {
                Entry::Missing { .. } => false,
                Entry::Protected => !write,
                Entry::Writable => true,
            }
        })
    }

    /// Stores eight bytes at `offset` of a page, if the table lets it. False is a fault.
    pub fn store(&self, page: u32, offset: usize, value: u64) -> bool {
        let allowed = self.access(page, true);
        if allowed {
            // SAFETY: 1, 2; `access` found the page in the table.
            unsafe { self.at(page).add(offset).cast::<u64>().write_unaligned(value) };
        }
        allowed
    }

    /// The bytes of a page, if it is mapped.
    pub fn load(&self, page: u32) -> Option<Box<[u8; PAGE_SIZE]>> {
        let mapped = self.with(|pages| !matches!(pages[page as usize].entry, Entry::Missing { .. }));
        mapped.then(|| {
            let mut bytes = Box::new([0; PAGE_SIZE]);
            // SAFETY: 1, 2.
            unsafe { std::ptr::copy_nonoverlapping(self.at(page), bytes.as_mut_ptr(), PAGE_SIZE) };
            bytes
        })
    }

    /// Pages of memory that somebody filled without the table knowing: a read of a hole fills it, and
    /// the client would map it without a fault.
    pub fn filled_behind(&self) -> Result<i64> {
        let known = self.with(|pages| pages.iter().filter(|page| page.backed).count());
        let blocks = rustix::fs::fstat(self.memory.as_fd())?.st_blocks;
        Ok(blocks * 512 / PAGE_SIZE as i64 - known as i64)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<Page>) -> T) -> T {
        look(&mut self.pages.lock().expect("no test panics while it holds the table"))
    }

    fn at(&self, page: u32) -> *mut u8 {
        assert!((page as usize + 1) * PAGE_SIZE <= self.mapping.len());
        // SAFETY: 1: asserted.
        unsafe { self.mapping.start().add(page as usize * PAGE_SIZE) }
    }

    fn range(&self, start: usize, len: usize) -> Result<std::ops::Range<usize>> {
        let first = start.checked_sub(self.address).ok_or(Errno::NOENT)? / PAGE_SIZE;
        let end = first + len / PAGE_SIZE;
        let whole = start.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE) && len > 0;
        let inside = end * PAGE_SIZE <= self.mapping.len();
        if whole && inside { Ok(first..end) } else { Err(Errno::INVAL) }
    }
}

impl TwinPageTable for TwinTable {
    fn protect(&self, start: usize, len: usize, protect: bool) -> Result<()> {
        if !self.protects {
            return Err(Errno::NOENT);
        }
        let range = self.range(start, len)?;
        self.with(|pages| {
            for number in range.filter(|number| !(self.leaks && protect && number.is_multiple_of(4))) {
                let page = &mut pages[number];
                page.entry = match (page.entry, protect) {
                    (Entry::Missing { .. }, noted) => Entry::Missing { noted },
                    (_, true) => Entry::Protected,
                    (_, false) => Entry::Writable,
                };
            }
        });
        Ok(())
    }

    fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize> {
        let range = self.range(start, bytes.len())?;
        let entry = if protect { Entry::Protected } else { Entry::Writable };
        self.with(|pages| {
            let free = pages[range.clone()].iter().take_while(|page| !page.backed).count();
            if free == 0 {
                return Err(Errno::EXIST);
            }
            pages[range.start..range.start + free].fill(Page { entry, backed: true });
            let len = free * PAGE_SIZE;
            // SAFETY: 1: `range` checked it. 2.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(range.start as u32), len) };
            Ok(len)
        })
    }
}
