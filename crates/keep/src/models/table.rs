//! The kernel in a model: the page table of one region, and the memory behind it.
//!
//! A store and the look at its page's entry are one step, as in the processor; a call over several pages
//! changes them one after the other, as the kernel does. Whoever changes an entry must own the page's
//! word: that is asserted here, at every call.
//!
//! # Safety
//!
//! 1. The mapping lives as long as the table, and pages are checked to lie inside it.
//! 2. A model runs on one thread of the system: nobody touches the bytes meanwhile.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};

use rustix::io::{Errno, Result};
use wattkeep_sys::map::{Access, Mapping};

use crate::control::block::Words;
use crate::control::page_word::State;
use crate::control::primitives::{AtomicU32, Ordering};
use crate::limits::PAGE_SIZE;
use crate::page_table::TwinPageTable;

const MISSING: u32 = 0;
const PROTECTED: u32 = 1;
const WRITABLE: u32 = 2;

/// A thread that was killed unwinds with this.
pub(super) struct Killed;

/// The page table as the client calls it: each call may be its last.
#[derive(Debug)]
pub(super) struct ClientSide(pub(super) Arc<Table>);

/// The page table of one region, and the client's mapping.
pub(super) struct Table {
    address: usize,
    mapping: Mapping,
    words: Words,
    protects: bool,
    entries: Vec<AtomicU32>,
    killed: AtomicBool,
    gone: AtomicBool,
}

impl Table {
    /// The client maps `pages` pages of `memory` at `address`, before the keeper seals it.
    pub(super) fn map(
        memory: BorrowedFd<'_>,
        words: Words,
        address: u64,
        pages: u32,
        protects: bool,
    ) -> Self {
        let len = pages as usize * PAGE_SIZE;
        let mapping = Mapping::anywhere(memory, len, Access::ReadWrite).expect("a mapping");
        let entries = (0..pages).map(|_| AtomicU32::new(MISSING)).collect();
        let (killed, gone) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { address: address as usize, mapping, words, protects, entries, killed, gone }
    }

    /// Stores `value` at the beginning of a page, if the table lets it. False is a fault.
    pub(super) fn store(&self, page: u32, value: u64) -> bool {
        let writable = self.entries[page as usize].load(Ordering::SeqCst) == WRITABLE;
        self.die_if_killed();
        if writable {
            // SAFETY: 1, 2.
            unsafe { self.at(page).cast::<u64>().write(value) };
        }
        writable
    }

    /// The bytes of a page.
    pub(super) fn load(&self, page: u32) -> Box<[u8; PAGE_SIZE]> {
        let mut bytes = Box::new([0; PAGE_SIZE]);
        // SAFETY: 1, 2.
        unsafe { std::ptr::copy_nonoverlapping(self.at(page), bytes.as_mut_ptr(), PAGE_SIZE) };
        bytes
    }

    /// From now on each thread of the client dies at its next store, or around its next call.
    pub(super) fn kill_client(&self) {
        self.killed.store(true, StdOrdering::SeqCst);
    }

    /// The client unmaps the region: nobody may touch it any more.
    pub(super) fn unmap(&self) {
        self.gone.store(true, StdOrdering::SeqCst);
    }

    fn die_if_killed(&self) {
        assert!(!self.gone.load(StdOrdering::SeqCst), "a page of a region that is unmapped");
        if self.killed.load(StdOrdering::SeqCst) {
            std::panic::resume_unwind(Box::new(Killed));
        }
    }

    fn at(&self, page: u32) -> *mut u8 {
        assert!((page as usize + 1) * PAGE_SIZE <= self.mapping.len());
        // SAFETY: 1: asserted.
        unsafe { self.mapping.start().add(page as usize * PAGE_SIZE) }
    }

    fn pages(&self, start: usize, len: usize) -> std::ops::Range<u32> {
        let first = (start - self.address) / PAGE_SIZE;
        first as u32..(first + len / PAGE_SIZE) as u32
    }

    /// A page is opened by whoever claimed it for a grant; nobody closes one that is being granted, or
    /// whose word says that it is open.
    fn assert_owned(&self, page: u32, protect: bool) {
        let state = self.words.of(page).load().state();
        match protect {
            true => assert!(
                !matches!(state, State::Granting | State::Dirty),
                "page {page} is closed while its word says {state:?}"
            ),
            false => {
                assert_eq!(state, State::Granting, "page {page} is opened by somebody who does not own it")
            }
        }
    }
}

impl TwinPageTable for Table {
    fn protect(&self, start: usize, len: usize, protect: bool) -> Result<()> {
        if !self.protects {
            return Err(Errno::NOENT);
        }
        for page in self.pages(start, len) {
            self.assert_owned(page, protect);
            let entry = &self.entries[page as usize];
            if entry.load(Ordering::SeqCst) != MISSING {
                entry.store(if protect { PROTECTED } else { WRITABLE }, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize> {
        let pages = self.pages(start, bytes.len());
        for page in pages.clone() {
            let entry = if protect { PROTECTED } else { WRITABLE };
            let at = &self.entries[page as usize];
            if at.compare_exchange(MISSING, entry, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                let done = (page - pages.start) as usize * PAGE_SIZE;
                return if done == 0 { Err(Errno::EXIST) } else { Ok(done) };
            }
            let from = (page - pages.start) as usize * PAGE_SIZE;
            // SAFETY: 1, 2.
            unsafe { std::ptr::copy_nonoverlapping(bytes[from..].as_ptr(), self.at(page), PAGE_SIZE) };
        }
        Ok(bytes.len())
    }
}

impl TwinPageTable for ClientSide {
    fn protect(&self, start: usize, len: usize, protect: bool) -> Result<()> {
        self.0.die_if_killed();
        let answer = self.0.protect(start, len, protect);
        self.0.die_if_killed();
        answer
    }

    fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize> {
        self.0.die_if_killed();
        let answer = self.0.fill(start, bytes, protect);
        self.0.die_if_killed();
        answer
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the page table at {:#x}", self.address)
    }
}
