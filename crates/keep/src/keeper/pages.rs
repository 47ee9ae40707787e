//! One region as the keeper holds it: memory, page words, and the client's guard.
//!
//! The keeper reads region memory through a mapping of its own, and only pages that nobody may write
//! meanwhile, or whose copy it throws away when somebody did.
//!
//! # Safety
//!
//! 1. The mapping spans the whole reserve and lives as long as the region; pages are below it.
//! 2. Region memory is copied with raw pointers; no reference ever covers it.
//! 3. The client mapped its memory at `address` and registered it with the descriptor it handed over;
//!    the kernel checks both at every call.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::memfd;

use crate::control::block::Words;
use crate::control::page_word::{PageWord, State};
use crate::control::primitives::futex;
use crate::limits::PAGE_SIZE;
use crate::page_table::PageTable;
use crate::types::{PageId, RegionId, Tracking};

/// What the keeper notes of each page, apart from the shared word.
const LISTED: u8 = 1 << 0;
const FLIGHT_ONE: u8 = 1 << 1;

/// The bytes of a region's pages. A clone reads the same bytes, also on another thread.
#[derive(Clone)]
pub struct RegionMemory {
    mapping: Arc<Mapping>,
    pages: u32,
}

impl RegionMemory {
    /// Copies a page's bytes.
    #[inline]
    pub fn copy_page(&self, page: u32, into: &mut [u8; PAGE_SIZE]) {
        assert!(page < self.pages);
        // SAFETY: 1: inside the mapping, asserted. 2: a raw copy.
        unsafe {
            let from = self.mapping.start().add(page as usize * PAGE_SIZE);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), PAGE_SIZE);
        }
    }

    /// Plain stores of whole pages, into memory that nobody else has, or whose pages nobody may touch yet.
    pub(super) fn store(&self, page: u32, bytes: &[u8]) -> io::Result<()> {
        let at = page as usize * PAGE_SIZE;
        assert!(at + bytes.len() <= self.mapping.len());
        // Mapped before the seal, so that the kernel lets us write again.
        self.mapping.set_access(Access::ReadWrite)?;
        // SAFETY: 1: inside the mapping, asserted. 2: a raw copy.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.mapping.start().add(at), bytes.len()) }
        Ok(())
    }

    /// Whether a page that is there has exactly these bytes.
    fn holds(&self, page: u32, bytes: &[u8]) -> bool {
        let mut found = [0; PAGE_SIZE];
        self.copy_page(page, &mut found);
        found == bytes
    }

    /// Whether both are of one region, opened once.
    pub fn is_same(&self, other: &RegionMemory) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
    }

    /// Asks the processor to bring a page nearer, before [`Self::copy_page`].
    #[inline]
    pub fn prefetch(&self, page: u32) {
        #[cfg(target_arch = "x86_64")]
        if page < self.pages {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in (0..PAGE_SIZE).step_by(64) {
                // SAFETY: 1: inside the mapping. A prefetch reads nothing that a program can see.
                unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(
                        self.mapping.start().add(page as usize * PAGE_SIZE + line).cast(),
                    )
                };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = page;
    }
}

/// A region's pages as the client maps them: what can be done to them from outside, on any thread.
pub struct ClientPages {
    table: PageTable,
    /// Where the client maps the first one.
    address: u64,
    protects: bool,
}

impl ClientPages {
    /// Fills missing pages from `page` on with `bytes`, whole pages, protected where the region protects.
    /// Answers with the bytes that were filled, and what stopped it: EEXIST is a page that is there.
    pub fn fill(&self, page: u32, bytes: &[u8]) -> (usize, Option<Errno>) {
        let start = self.address as usize + page as usize * PAGE_SIZE;
        let mut done = 0;
        while done < bytes.len() {
            // SAFETY: 3.
            match unsafe { self.table.fill(start + done, &bytes[done..], self.protects) } {
                Ok(filled) => done += filled,
                Err(errno) => return (done, Some(errno)),
            }
        }
        (done, None)
    }

    /// Takes the right to store to `pages` pages away. A mapping that is gone is protected.
    fn protect(&self, page: u32, pages: u32) -> bool {
        let start = self.address as usize + page as usize * PAGE_SIZE;
        // SAFETY: 3.
        match unsafe { self.table.protect(start, pages as usize * PAGE_SIZE, true) } {
            Err(Errno::NOENT | Errno::SRCH) => true,
            answer => answer.is_ok(),
        }
    }
}

/// A region of the session.
pub struct KeptRegion {
    /// Its name in the store's entries.
    pub id: RegionId,
    /// Name for people.
    pub name: String,
    /// How its stores are noticed.
    pub tracking: Tracking,
    /// Present size in pages.
    pub pages: u32,
    /// Where the client maps it.
    pub address: u64,
    words: Words,
    memory: RegionMemory,
    memory_fd: OwnedFd,
    words_fd: OwnedFd,
    /// Through which it can be protected and filled from here.
    client: Option<Arc<ClientPages>>,
    /// The client has no mapping of it any more.
    detached: bool,
    sealed: bool,
    /// This session made it in the store, and nobody has mapped it yet.
    pub made_now: bool,
    /// Pages were filled before anybody mapped it: they are not protected yet.
    filled: bool,
    /// A listed mark and a count of copies in flight, per page.
    notes: Vec<u8>,
    /// Pages not yet filled from the store.
    pub absent: u32,
}

impl KeptRegion {
    /// Makes the memory and words of a region, all fresh.
    pub fn create(
        id: RegionId,
        name: &str,
        tracking: Tracking,
        pages: u32,
        reserve: u32,
        address: u64,
    ) -> io::Result<Self> {
        let len = reserve as usize * PAGE_SIZE;
        let memory_fd = memfd::create("wattkeep-region", len as u64)?;
        // Writable for the fill of a region that nobody maps yet; see `seal`.
        let memory = Mapping::anywhere(&memory_fd, len, Access::ReadWrite)?;
        memory.hide_from_children()?;
        let (words, words_fd) = Words::create(reserve)?;
        Ok(Self {
            id,
            name: name.to_owned(),
            tracking,
            pages,
            address,
            words,
            memory: RegionMemory { mapping: Arc::new(memory), pages: reserve },
            memory_fd,
            words_fd,
            client: None,
            detached: false,
            sealed: false,
            made_now: false,
            filled: false,
            notes: vec![0; pages as usize],
            absent: 0,
        })
    }

    /// Descriptors of the memory and the words, for the client.
    pub fn descriptors(&self) -> [std::os::fd::BorrowedFd<'_>; 2] {
        [self.memory_fd.as_fd(), self.words_fd.as_fd()]
    }

    /// The client has mapped the memory: nobody else may, and our own mapping becomes read-only.
    pub fn seal(&mut self, table: Option<PageTable>) -> io::Result<()> {
        let (address, protects) = (self.address, self.tracking.protects());
        self.client = table.map(|table| Arc::new(ClientPages { table, address, protects }));
        self.detached = false;
        self.sealed = true;
        self.made_now = false;
        self.memory.mapping.set_access(Access::Read)?;
        Ok(memfd::seal_writers(&self.memory_fd)?)
    }

    /// The client's mapping is gone: nothing can be protected, and nothing needs to be.
    pub fn forget_client(&mut self) {
        self.client = None;
        self.detached = true;
    }

    /// Nobody maps this memory, now or later.
    pub fn retire(&mut self) {
        self.forget_client();
        self.sealed = true;
    }

    /// Its stores are announced, and its pages never protected.
    pub fn is_announced(&self) -> bool {
        self.tracking == Tracking::Explicit
    }

    /// Everything of it is on the SSD, and nothing under way.
    pub fn is_drained(&self) -> bool {
        (0..self.pages)
            .all(|page| !self.word(page).load().state().holds_permit() && self.copies_in_flight(page) == 0)
    }

    /// Pages were filled before anybody mapped it.
    pub fn is_filled(&self) -> bool {
        self.filled
    }

    /// The client has no mapping of it any more.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// A client has, or had, its memory: nobody can map it for writing again.
    pub fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// A page's name in the store.
    #[inline]
    pub fn page_id(&self, page: u32) -> PageId {
        PageId { region: self.id, page }
    }

    /// The page of this region that the store calls `page`.
    pub fn word(&self, page: u32) -> &PageWord {
        self.words.of(page)
    }

    /// Pages of address space.
    pub fn reserve(&self) -> u32 {
        self.words.pages()
    }

    /// The region grew.
    pub fn set_pages(&mut self, pages: u32) {
        self.pages = pages;
        self.notes.resize(pages as usize, 0);
    }

    /// Whether the victim policy lists the page.
    #[inline]
    pub fn is_listed(&self, page: u32) -> bool {
        self.notes[page as usize] & LISTED != 0
    }

    /// Marks the page as listed by the victim policy, or not.
    #[inline]
    pub fn set_listed(&mut self, page: u32, listed: bool) {
        let note = &mut self.notes[page as usize];
        *note = if listed { *note | LISTED } else { *note & !LISTED };
    }

    /// Copies of the page in flight.
    #[inline]
    pub fn copies_in_flight(&self, page: u32) -> u8 {
        self.notes[page as usize] / FLIGHT_ONE
    }

    /// One more copy is in flight. At most as many as there are batches.
    #[inline]
    pub fn copy_departs(&mut self, page: u32) {
        let note = &mut self.notes[page as usize];
        *note = note.checked_add(FLIGHT_ONE).expect("fewer batches than 127 are in flight");
    }

    /// A copy has arrived.
    #[inline]
    pub fn copy_arrives(&mut self, page: u32) {
        self.notes[page as usize] -= FLIGHT_ONE;
    }

    /// The bytes of its pages, for whoever copies them.
    #[inline]
    pub fn memory(&self) -> &RegionMemory {
        &self.memory
    }

    /// Takes the right to store to `pages` pages away from the client. Without a descriptor (mprotect)
    /// only the client itself could: then this answers `false`. A mapping that is gone is protected.
    pub fn protect(&self, page: u32, pages: u32) -> bool {
        if self.detached {
            return true;
        }
        self.client.as_ref().is_some_and(|client| client.protect(page, pages))
    }

    /// The keeper can protect the client's pages from outside, or need not.
    pub fn has_guard(&self) -> bool {
        self.client.is_some() || self.detached
    }

    /// The client's mapping, for whoever fills pages on another thread. `None` while there is none.
    pub fn client(&self) -> Option<&Arc<ClientPages>> {
        self.client.as_ref()
    }

    /// Fills missing pages with `bytes`, whole pages, protected where the region protects.
    pub fn fill(&mut self, page: u32, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let (next, rest) = (page + (done / PAGE_SIZE) as u32, &bytes[done..]);
            let Some(client) = &self.client else { return self.fill_directly(next, rest) };
            let (filled, stopped) = client.fill(next, rest);
            let (next, rest) = (next + (filled / PAGE_SIZE) as u32, &rest[filled..]);
            done += filled;
            match stopped {
                None => {}
                // The mapping is gone, or the client is. Cleaning moves pages from memory: fill it all the same.
                Some(Errno::NOENT | Errno::SRCH) => return self.fill_directly(next, rest),
                // Another thread filled it from another read, or a hole was read that should hold the same.
                Some(Errno::EXIST) if self.memory.holds(next, &rest[..PAGE_SIZE]) => {
                    if client.protects && !client.protect(next, 1) {
                        return Err(io::Error::other("a page that was there already cannot be protected"));
                    }
                    done += PAGE_SIZE;
                }
                Some(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Before the client has the region, or after it let go.
    fn fill_directly(&mut self, page: u32, bytes: &[u8]) -> io::Result<()> {
        self.filled = true;
        self.memory.store(page, bytes)
    }

    /// Moves a page on from a state that only the keeper leaves, and wakes who waited for it.
    pub fn settle(&self, page: u32, from: State, to: State) {
        if self.words.of(page).advance(from, to).waited() {
            self.wake_waiters(page);
        }
    }

    /// Wakes everybody who sleeps on a page's word.
    pub fn wake_waiters(&self, page: u32) {
        let _ = futex::wake(self.words.of(page).futex(), u32::MAX >> 1);
    }

    /// Bytes of tracking memory that the keeper adds for this region: words and notes.
    pub fn tracking_bytes(&self) -> usize {
        self.pages as usize * (size_of::<u32>() + 1)
    }
}
