//! Who holds a region's page table: the kernel, through userfaultfd, or a twin of it in a simulation.
//!
//! Client and keeper ask it for the same two things: to change the protection of pages, and to fill
//! missing ones. What an error means is their business; a twin gives the errors that the kernel gives.
//!
//! Each call is one system call, fit for a signal handler; it is made again while the kernel answers
//! EAGAIN because the address space's mappings are being changed elsewhere.
//!
//! # Safety
//!
//! 1. The ranges handed in lie inside the client's live mapping, registered with the descriptor.
//! 2. The bytes of a region are only touched through raw pointers, never references.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, Result};
use wattkeep_sys::uffd;

/// The page table of one region.
#[derive(Debug)]
pub enum PageTable {
    /// The kernel's. Client and keeper hold duplicates of one descriptor.
    Userfault(OwnedFd),
    /// A simulation's. Client and keeper share it.
    Twin(Arc<dyn TwinPageTable>),
}

/// What a simulation does in the kernel's place. Addresses and lengths are the client's, in bytes.
pub trait TwinPageTable: Send + Sync + std::fmt::Debug {
    /// As [`PageTable::protect`].
    fn protect(&self, start: usize, len: usize, protect: bool) -> Result<()>;
    /// As [`PageTable::fill`].
    fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize>;
}

impl PageTable {
    /// Takes the right to store to a range away (`protect`), or gives it. Once it is taken, stores fault.
    ///
    /// # Safety
    /// 1 and 2 of the module.
    #[inline]
    pub unsafe fn protect(&self, start: usize, len: usize, protect: bool) -> Result<()> {
        match self {
            PageTable::Userfault(fd) => {
                // SAFETY: 1, 2 by the caller.
                again(|| unsafe { uffd::write_protect(fd.as_fd(), start, len, protect) })
            }
            PageTable::Twin(twin) => twin.protect(start, len, protect),
        }
    }

    /// Fills missing pages from `start` on with `bytes`, protected or writable. Returns the bytes
    /// filled: fewer than asked when a page was there already (EEXIST when it is the first).
    ///
    /// # Safety
    /// 1 and 2 of the module.
    #[inline]
    pub unsafe fn fill(&self, start: usize, bytes: &[u8], protect: bool) -> Result<usize> {
        match self {
            PageTable::Userfault(fd) => {
                // SAFETY: 1, 2 by the caller; a slice is readable for its length.
                again(|| unsafe { uffd::copy(fd.as_fd(), start, bytes.as_ptr(), bytes.len(), protect) })
            }
            PageTable::Twin(twin) => twin.fill(start, bytes, protect),
        }
    }

    /// The descriptor that stands for it; a twin has none.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            PageTable::Userfault(fd) => Some(fd.as_fd()),
            PageTable::Twin(_) => None,
        }
    }
}

#[inline]
fn again<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::AGAIN) => {}
            answer => return answer,
        }
    }
}
