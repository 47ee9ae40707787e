//! Whose bytes a space is made of: plain memory, a mapped file, or (in the crate `wattkeep`) a region.
//!
//! # Safety
//!
//! 1. A backing keeps `start..start + len` mapped, readable and writable, at the same address, until it is
//!    dropped. Only copies by [`crate::words`] touch the bytes.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::fs::File;
use std::path::Path;
use std::ptr::NonNull;

use wattkeep_sys::map::{Access, Mapping};

use crate::space::Refused;

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

    /// The announced stores are done.
    fn end_write(&self, at: usize, len: usize) {
        let _ = (at, len);
    }

    /// Makes it `bytes` long; the new bytes are zero, the address stays.
    fn grow(&self, bytes: usize) -> Result<(), Refused>;

    /// Writes `len` bytes at `at` to the file behind them.
    fn sync(&self, at: usize, len: usize) -> Result<(), Refused> {
        let _ = (at, len);
        Ok(())
    }
}

/// Alignment of all backings.
const PAGE: usize = 4096;

/// Plain memory, all zero: survives nothing but a space. For tests, and to measure what a region costs.
pub struct Anonymous {
    start: NonNull<u8>,
    layout: Layout,
}

impl Anonymous {
    /// `bytes` of zeros, rounded up to whole pages.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1).next_multiple_of(PAGE), PAGE)
            .expect("a size that fits the address space");
        // SAFETY: 1: freed with the same layout in `drop`.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Self { start, layout }
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: 1: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: 1: the bytes are touched by atomic copies only.
unsafe impl Send for Anonymous {}
// SAFETY: 1: as above.
unsafe impl Sync for Anonymous {}

// SAFETY: 1: allocated until dropped.
unsafe impl Backing for Anonymous {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        if bytes <= self.len() { Ok(()) } else { Err(Refused::Full { bytes, most: self.len() }) }
    }
}

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
