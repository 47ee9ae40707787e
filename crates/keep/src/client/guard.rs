//! How a page is closed to stores and opened again: userfaultfd, or mprotect where that is refused.
//!
//! Each call is a system call, fit for a signal handler. Knows addresses, not pages' states.
//!
//! # Safety
//!
//! 1. The ranges handed in lie inside the region's live mapping, registered with the descriptor.
//! 2. The bytes of a region are only touched through raw pointers, never references.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use wattkeep_sys::map::{self, Access};
use wattkeep_sys::mutant::planted;

use crate::limits::{GRANT_RUN_MAX, PAGE_SIZE};
use crate::page_table::PageTable;

/// Zeros to install into pages that were never written.
static ZEROS: [u8; GRANT_RUN_MAX as usize * PAGE_SIZE] = [0; GRANT_RUN_MAX as usize * PAGE_SIZE];

/// Opens and closes the pages of one region.
#[derive(Debug)]
pub enum Guard {
    /// userfaultfd. The keeper has the same page table.
    Userfault {
        /// The region's.
        table: PageTable,
        /// Registered for write-protection, too; missing pages alone otherwise.
        protects: bool,
    },
    /// mprotect on the client's own mapping.
    Mprotect,
}

/// Why a page could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel is out of mappings or memory: fewer pages must be open at once.
    Exhausted,
    /// Anything else: the mapping is not what we think it is.
    Broken(Errno),
}

impl Guard {
    /// Lets `pages` pages from `start` be written.
    ///
    /// # Safety
    /// 1 and 2 of the module.
    #[inline]
    pub unsafe fn open(&self, start: usize, pages: u32) -> std::result::Result<(), Refusal> {
        let len = pages as usize * PAGE_SIZE;
        match self {
            // SAFETY: 1, 2 by the caller.
            Guard::Userfault { table, .. } => unsafe { table.protect(start, len, false) },
            // SAFETY: 1, 2 by the caller.
            Guard::Mprotect => unsafe { map::protect(start, len, Access::ReadWrite) },
        }
        .map_err(Refusal::of)
    }

    /// Takes the right to write `pages` pages from `start` away. When it returns, stores fault.
    ///
    /// # Safety
    /// 1 and 2 of the module.
    #[inline]
    pub unsafe fn close(&self, start: usize, pages: u32) -> std::result::Result<(), Refusal> {
        if planted("protect-after-copy") {
            return Ok(());
        }
        let len = pages as usize * PAGE_SIZE;
        match self {
            // SAFETY: 1, 2 by the caller.
            Guard::Userfault { table, .. } => unsafe { table.protect(start, len, true) },
            // SAFETY: 1, 2 by the caller.
            Guard::Mprotect => unsafe { map::protect(start, len, Access::Read) },
        }
        .map_err(Refusal::of)
    }

    /// Puts zeros where nothing is yet, writable or not. Pages that are already there stay as they
    /// are. With mprotect there is nothing to install: the kernel maps zeros by itself.
    ///
    /// # Safety
    /// 1 and 2 of the module.
    pub unsafe fn install_zeros(
        &self,
        start: usize,
        pages: u32,
        writable: bool,
    ) -> std::result::Result<(), Refusal> {
        let Guard::Userfault { table, protects } = self else {
            // SAFETY: 1, 2 by the caller.
            return if writable { unsafe { self.open(start, pages) } } else { Ok(()) };
        };
        let len = pages as usize * PAGE_SIZE;
        let mut done = 0;
        while done < len {
            // SAFETY: 1, 2 by the caller.
            match unsafe { table.fill(start + done, &ZEROS[..len - done], *protects && !writable) } {
                Ok(copied) => done += copied,
                // Somebody touched it first; make it what was asked for.
                Err(Errno::EXIST) if *protects => {
                    // SAFETY: 1, 2 by the caller.
                    unsafe { table.protect(start + done, PAGE_SIZE, !writable) }.map_err(Refusal::of)?;
                    done += PAGE_SIZE;
                }
                Err(Errno::EXIST) => done += PAGE_SIZE,
                Err(errno) => return Err(Refusal::of(errno)),
            }
        }
        Ok(())
    }

    /// The descriptor of the region's userfaultfd, if it has one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Guard::Userfault { table, .. } => table.descriptor(),
            Guard::Mprotect => None,
        }
    }
}

impl Refusal {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::NOMEM => Refusal::Exhausted,
            other => Refusal::Broken(other),
        }
    }
}
