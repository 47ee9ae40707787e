//! Whose bytes a space is made of: plain memory, a mapped file, or (in the crate `wattkeep`) a region.
//!
//! # Safety
//!
//! 1. A backing keeps `start..start + len` mapped, readable and writable, at the same address, until it is
//!    dropped. Only copies by [`crate::words`] touch the bytes.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::FlockOperation;
use wattkeep_announce::announcer::Announcer;
use wattkeep_sys::huge;
use wattkeep_sys::map::{Access, Mapping};

#[cfg(miri)]
use crate::interpreted::Private;
#[cfg(not(miri))]
use wattkeep_sys::map::Mapping as Private;

use crate::PAGE;
use crate::refused::Refused;

/// Bytes that a space is made of.
///
/// # Safety
/// 1.
pub unsafe trait Backing: Send + Sync {
    /// First byte: page-aligned.
    fn start(&self) -> NonNull<u8>;

    /// Length in bytes: whole pages.
    fn len(&self) -> usize;

    /// There are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether stores are announced.
    fn announces(&self) -> bool {
        false
    }

    /// Announces stores to `len` bytes at `at`; they are over at the same call of [`Self::end_write`].
    fn begin_write(&self, at: usize, len: usize) -> Result<(), Refused> {
        let _ = (at, len);
        Ok(())
    }

    /// Announces stores that can be made at once, as most can, for as long as the backing lives. The others are
    /// announced by [`Self::begin_write`].
    fn announcer(&self) -> Option<Announcer> {
        None
    }

    /// The announced stores are done.
    fn end_write(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// Has the bytes for itself until [`Self::release`]. `false`: another opening of the same bytes has them.
    fn claim(&self) -> bool {
        true
    }

    /// Others may have the bytes.
    fn release(&self) {}

    /// Makes it `bytes` long; the new bytes are zero, the address stays.
    fn grow(&self, bytes: usize) -> Result<(), Refused>;

    /// The least number of bytes, from `at_least` on, that the kernel brings in as neighbouring frames
    /// when [`Self::populate`] asks for them, aligned to their number. None: single pages only.
    fn piece(&self, at_least: usize) -> Option<usize> {
        let _ = at_least;
        None
    }

    /// Brings whole pages into memory together that nobody ever stored to: they are zero before and after,
    /// or are made zero. `false`: not here, each comes with its first access.
    fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        let _ = (at, len);
        Ok(false)
    }

    /// Whole pages will be touched soon for the first time: they may come in larger pieces.
    fn expect(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// Writes `len` bytes at `at` to the file behind them.
    fn sync(&self, at: usize, len: usize) -> Result<(), Refused> {
        let _ = (at, len);
        Ok(())
    }
}

/// Plain memory, all zero: survives nothing but a space. For tests, and to measure what a region costs.
pub struct Anonymous(Private);

/// Bytes of the largest piece that memory comes in: plain memory begins at a multiple of it.
const LARGEST_PIECE: usize = 2 << 20;

impl Anonymous {
    /// `bytes` of zeros, rounded up to whole pages. Takes address space; memory comes with the first stores.
    pub fn new(bytes: usize) -> Self {
        let len = bytes.max(1).next_multiple_of(PAGE);
        let mapping = Private::private(len, LARGEST_PIECE);
        Self(mapping.unwrap_or_else(|errno| panic!("no address space for {len} bytes: {errno}")))
    }
}

// SAFETY: 1: mapped until dropped.
unsafe impl Backing for Anonymous {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.0.start()).expect("the kernel maps nothing at address zero")
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        if bytes <= self.len() { Ok(()) } else { Err(Refused::Full { bytes, most: self.len() }) }
    }

    fn piece(&self, at_least: usize) -> Option<usize> {
        huge::sizes_on_request().into_iter().find(|size| *size >= at_least && *size <= LARGEST_PIECE)
    }

    /// Asks for pieces no larger than the range: the kernel gives none that leaves the part of a mapping
    /// that asked.
    fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        self.expect(at, len);
        self.0.populate(at, len).map_err(|errno| Refused::Device(format!("no memory: {errno}")))?;
        Ok(true)
    }

    fn expect(&self, at: usize, len: usize) {
        // A kernel without large pieces gives pages.
        let _ = self.0.take_large_pieces(at, len);
    }
}

/// Bytes of a file that one call makes: the largest batch, and what stays in a cache.
const POPULATED_AT_ONCE: usize = 64 << 10;

/// A file, mapped and shared: what [`crate::Domain::File`] is made for.
pub struct MappedFile {
    mapping: Mapping,
    file: File,
}

impl MappedFile {
    /// Opens the file, or makes it, and maps `bytes` of it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn open(path: &Path, bytes: usize) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let len = file.metadata()?.len().max(bytes.next_multiple_of(PAGE) as u64);
        file.set_len(len)?;
        let mapping = Mapping::anywhere(&file, len as usize, Access::ReadWrite)?;
        // What is read around a missing page comes as one large folio, and a file system that keeps one
        // dirty mark for all of a folio writes all of it at every sync.
        mapping.bring_in_single_pages()?;
        Ok(Self { mapping, file })
    }
}

// SAFETY: 1: mapped until dropped.
unsafe impl Backing for MappedFile {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.mapping.start()).expect("the kernel maps no file at address zero")
    }

    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        if bytes <= self.len() { Ok(()) } else { Err(Refused::Full { bytes, most: self.len() }) }
    }

    fn piece(&self, at_least: usize) -> Option<usize> {
        Some(at_least.next_power_of_two())
    }

    /// Zeros, written with one call: file systems with large folios take one for it, where a store into a
    /// hole takes a page. The disk's room is taken now, so that no store finds the disk full.
    fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        let refused = |what: &str, why: String| Refused::Device(format!("{what}: {why}; {:?}", self.file));
        let zeros = [0u8; POPULATED_AT_ONCE];
        for from in (at..at + len).step_by(zeros.len()) {
            let part = &zeros[..zeros.len().min(at + len - from)];
            self.file
                .write_all_at(part, from as u64)
                .map_err(|error| refused("no room for more of the file", error.to_string()))?;
        }
        self.mapping.populate(at, len).map_err(|errno| refused("no memory", errno.to_string()))?;
        Ok(true)
    }

    /// The lock of the file that all programs see; another mapping of it is another opening.
    fn claim(&self) -> bool {
        rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    fn release(&self) {
        // A file that is closed is released anyway.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }

    fn sync(&self, at: usize, len: usize) -> Result<(), Refused> {
        let first = at / PAGE * PAGE;
        let last = (at + len).next_multiple_of(PAGE).min(self.len());
        // SAFETY: 1: whole pages inside the mapping.
        let synced = unsafe {
            rustix::mm::msync(
                self.mapping.start().add(first).cast(),
                last - first,
                rustix::mm::MsyncFlags::SYNC,
            )
        };
        synced.map_err(|errno| Refused::Device(format!("msync failed: {errno}; {:?}", self.file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that the kernel charged to this thread as written.
    fn charged() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/io").expect("this thread's accounts");
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.expect("the line").parse().expect("a number")
    }

    /// Read-around had brought the file in as folios of up to 2 MiB, and ext4 wrote 871 KiB, on average,
    /// for each page that was stored to and synced: 3 to 17 ms, where a page takes 0.1.
    #[test]
    fn a_sync_writes_the_page_that_was_stored_to_and_little_more() {
        // Folios grow with what was read ahead: 64 MiB.
        const PAGES: usize = 16_384;
        let directory = tempfile::tempdir().expect("a directory");
        let file = MappedFile::open(&directory.path().join("space"), PAGES * PAGE).expect("a mapped file");
        let space = crate::Space::new(std::sync::Arc::new(file), crate::DomainKind::File.domain());
        for page in 0..PAGES {
            space.store(page * PAGE, 1).expect("inside");
        }
        space.persist(0, PAGES * PAGE).expect("synced");
        let before = charged();
        for turn in 0..32 {
            let at = turn * 1237 % PAGES * PAGE;
            space.store(at, 2).expect("inside");
            space.persist(at, 8).expect("synced");
        }
        let each = (charged() - before) / 32;
        assert!(each <= 4 * PAGE as u64, "{each} bytes are written for each page");
    }
}
