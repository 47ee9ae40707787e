//! The control block and the page words in memory that both processes map.
//!
//! One memfd for the block of a session, made by the keeper and mapped by the client; one more for the
//! page words of each region. Does not know what the fields mean.
//!
//! # Safety
//!
//! 1. The mapping is at least as long as the struct read from it and lives as long as the borrow.
//! 2. Every field is an atomic, so no reference covers plain bytes that the other side writes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::memfd;

use super::block::{ControlBlock, Freeze, MAGIC, VERSION};
use super::page_word::PageWord;

/// A mapped control block.
#[derive(Clone)]
pub struct Control(Arc<Mapping>);

impl Control {
    /// Makes a control block and the memfd behind it.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let len = Self::len();
        let memory = memfd::create("wattkeep-control", len as u64)?;
        memfd::seal_size(&memory)?;
        let control = Self(Arc::new(Mapping::anywhere(&memory, len, Access::ReadWrite)?));
        control.initialise();
        Ok((control, memory))
    }

    /// Maps the block that the other side made; an error when it is not one of this version.
    pub fn map(memory: impl AsFd) -> io::Result<Self> {
        let size = rustix::fs::fstat(&memory)?.st_size;
        if size < Self::len() as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "control block too short"));
        }
        let control = Self(Arc::new(Mapping::anywhere(&memory, Self::len(), Access::ReadWrite)?));
        control.0.hide_from_children()?;
        let found = (control.magic.load(Ordering::SeqCst), control.version.load(Ordering::SeqCst));
        if found != (MAGIC, VERSION) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("control block of version {}, this program speaks {VERSION}", found.1),
            ));
        }
        Ok(control)
    }

    /// In a forked child: a block of its own, by which no store is granted. Fit for a signal handler.
    pub fn part_from_parent(&self) {
        // Once for all regions of a session. Where it fails the child has none, and dies of SIGSEGV there.
        if self.0.put_zeros_in_child().is_ok() {
            self.set_freeze(Freeze::Closed);
        }
    }

    fn len() -> usize {
        size_of::<ControlBlock>().next_multiple_of(4096)
    }
}

impl std::ops::Deref for Control {
    type Target = ControlBlock;

    #[inline]
    fn deref(&self) -> &ControlBlock {
        // SAFETY: 1: created or checked to be that long, alive with the Arc. 2: atomics only.
        unsafe { &*self.0.start().cast::<ControlBlock>() }
    }
}

/// The mapped page words of one region, long enough for all of its reserve.
#[derive(Clone)]
pub struct Words {
    mapping: Arc<Mapping>,
    pages: u32,
}

impl Words {
    /// Makes the words of `pages` pages, all fresh, and the memfd behind them.
    pub fn create(pages: u32) -> io::Result<(Self, OwnedFd)> {
        let memory = memfd::create("wattkeep-words", Self::len(pages) as u64)?;
        memfd::seal_size(&memory)?;
        let words = Self::map(&memory, pages)?;
        Ok((words, memory))
    }

    /// Maps the words of `pages` pages that the other side made.
    pub fn map(memory: impl AsFd, pages: u32) -> io::Result<Self> {
        let len = Self::len(pages);
        if rustix::fs::fstat(&memory)?.st_size < len as i64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "page words too short"));
        }
        let mapping = Mapping::anywhere(&memory, len, Access::ReadWrite)?;
        mapping.hide_from_children()?;
        Ok(Self { mapping: Arc::new(mapping), pages })
    }

    /// In a forked child: words of its own, all fresh. Fit for a signal handler.
    pub fn part_from_parent(&self) {
        // Where it fails the child has none, and dies of SIGSEGV there.
        let _ = self.mapping.put_zeros_in_child();
    }

    /// All of them.
    pub fn all(&self) -> &[PageWord] {
        // SAFETY: 1: the mapping is that long. 2: atomics.
        unsafe { std::slice::from_raw_parts(self.mapping.start().cast::<PageWord>(), self.pages as usize) }
    }

    /// The word of a page of the reserve.
    #[inline]
    pub fn of(&self, page: u32) -> &PageWord {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: 1: inside the mapping, asserted. 2: an atomic.
        unsafe { &*self.mapping.start().cast::<PageWord>().add(page as usize) }
    }

    /// Pages that have a word.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    fn len(pages: u32) -> usize {
        (pages as usize * size_of::<PageWord>()).next_multiple_of(4096)
    }
}
