//! Mappings of shared and private memory, and the advice that keeps them where they are.
//!
//! A [`Mapping`] owns an address range and unmaps it when dropped. It hands out raw pointers only:
//! other threads and processes write the same bytes.
//!
//! # Safety
//!
//! 1. A mapping is created at an address the kernel chose, or with MAP_FIXED_NOREPLACE: it never
//!    replaces another one, but for one that was made a moment ago to reserve its range.
//! 2. Whoever dereferences a pointer into it keeps the mapping alive, stays inside its length, and
//!    uses atomics or raw copies for bytes that others write.
//! 3. Changing access rights or advice affects only this mapping's own range.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use rustix::io::Result;
use rustix::mm::{
    Advice, MapFlags, MlockFlags, MprotectFlags, ProtFlags, madvise, mlock_with, mmap, mmap_anonymous,
    mprotect, munmap,
};

use crate::mutant::planted;

/// What the mapping's own process may do with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Access {
    fn prot(self) -> ProtFlags {
        match self {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// An address range that is mapped.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of `memory` where the kernel likes.
    pub fn anywhere(memory: impl AsFd, len: usize, access: Access) -> Result<Self> {
        // SAFETY: 1: the kernel chooses a free range.
        let start = unsafe { mmap(null_mut(), len, access.prot(), MapFlags::SHARED, memory, 0)? };
        Ok(Self { start: start.cast(), len })
    }

    /// Maps the first `len` bytes of `memory` at exactly `address`; EEXIST when any page of the
    /// range is taken.
    pub fn at(address: usize, memory: impl AsFd, len: usize, access: Access) -> Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: 1: FIXED_NOREPLACE fails rather than replace.
        let start =
            unsafe { mmap(with_exposed_provenance_mut(address), len, access.prot(), flags, memory, 0)? };
        Ok(Self { start: start.cast(), len })
    }

    /// Maps the first `len` bytes of `memory` at a multiple of `align`, a power of two.
    pub fn aligned(memory: impl AsFd, len: usize, align: usize, access: Access) -> Result<Self> {
        let reserved = Self::private(len, align)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: 1: takes the place of a range that was reserved for it, and that nobody else knows.
        unsafe { mmap(reserved.start.cast(), len, access.prot(), flags, memory, 0)? };
        Ok(reserved)
    }

    /// Maps `len` bytes of private memory, all zero, at a multiple of `align`, a power of two.
    pub fn private(len: usize, align: usize) -> Result<Self> {
        let reserved = len + align;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: 1: the kernel chooses a free range.
        let at = unsafe { mmap_anonymous(null_mut(), reserved, Access::ReadWrite.prot(), flags)? };
        let start = at.cast::<u8>().map_addr(|address| address.next_multiple_of(align));
        let before = start as usize - at as usize;
        let behind = reserved - before - len;
        for (surplus, bytes) in [(at.cast::<u8>(), before), (start.wrapping_add(len), behind)] {
            if bytes > 0 {
                // SAFETY: 1: the surplus of the range just mapped, which nobody else knows.
                unsafe { munmap(surplus.cast(), bytes)? };
            }
        }
        Ok(Self { start, len })
    }

    /// First byte.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a mapping of no bytes, which the kernel does not make.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the range out of forked children: a child must crash on it, not write untracked.
    pub fn hide_from_children(&self) -> Result<()> {
        if planted("child-shares-region") {
            return Ok(());
        }
        // SAFETY: 3.
        unsafe { madvise(self.start.cast(), self.len, Advice::LinuxDontFork) }
    }

    /// In a forked child, from whom the range was hidden: puts private zeros in its place. Elsewhere EEXIST. One
    /// system call.
    pub fn put_zeros_in_child(&self) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: 1: FIXED_NOREPLACE fails rather than replace.
        unsafe { mmap_anonymous(self.start.cast(), self.len, Access::ReadWrite.prot(), flags) }.map(drop)
    }

    /// Locks pages in DRAM as they are touched, so that a dirty page is never swapped out.
    pub fn lock_on_fault(&self) -> Result<()> {
        // SAFETY: 3.
        unsafe { mlock_with(self.start.cast(), self.len, MlockFlags::ONFAULT) }
    }

    /// Brings in single pages where one is missing, instead of those around it too.
    pub fn bring_in_single_pages(&self) -> Result<()> {
        // SAFETY: 3.
        unsafe { madvise(self.start.cast(), self.len, Advice::Random) }
    }

    fn part(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "a part lies inside its mapping");
        self.start.wrapping_add(at)
    }

    /// Asks for memory in larger pieces than pages, where a piece lies in the range and the machine's
    /// settings let a program ask: see [`crate::huge`].
    pub fn take_large_pieces(&self, at: usize, len: usize) -> Result<()> {
        // SAFETY: 3: a part, as asserted.
        unsafe { madvise(self.part(at, len).cast(), len, Advice::LinuxHugepage) }
    }

    /// Brings the pages of a range into memory, as loads do (Linux 5.14).
    pub fn populate_readable(&self, at: usize, len: usize) -> Result<()> {
        // SAFETY: 3: a part, as asserted.
        unsafe { madvise(self.part(at, len).cast(), len, Advice::LinuxPopulateRead) }
    }

    /// Brings the pages of a range into memory, writable, without storing to them (Linux 5.14).
    pub fn populate(&self, at: usize, len: usize) -> Result<()> {
        // SAFETY: 3: a part, as asserted.
        unsafe { madvise(self.part(at, len).cast(), len, Advice::LinuxPopulateWrite) }
    }

    /// Gives the memory of a range back. Private memory is zero afterwards.
    pub fn give_back(&self, at: usize, len: usize) -> Result<()> {
        // SAFETY: 3: a part, as asserted; 2: what others write there they may lose at any time.
        unsafe { madvise(self.part(at, len).cast(), len, Advice::LinuxDontNeed) }
    }

    /// Changes the access rights of the whole range.
    pub fn set_access(&self, access: Access) -> Result<()> {
        // SAFETY: 3; 2: losing write access can only fault.
        unsafe { protect(self.start as usize, self.len, access) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: 2: the owner gives the range up; a failure leaves it mapped, which is harmless.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}

// SAFETY: 2: the mapping is an address range; what is behind it is shared anyway.
unsafe impl Send for Mapping {}
// SAFETY: 2: as above.
unsafe impl Sync for Mapping {}

/// Changes the access rights of a part of a mapping. One system call, fit for a signal handler.
///
/// # Safety
/// 2 and 3: the range is page-aligned and inside a live mapping of the caller.
pub unsafe fn protect(start: usize, len: usize, access: Access) -> Result<()> {
    let flags = match access {
        Access::Read => MprotectFlags::READ,
        Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: 2, 3 by the caller.
    unsafe { mprotect(with_exposed_provenance_mut(start), len, flags) }
}

/// read(2) of up to `len` bytes from `fd` to `target`: the kernel stores there, and answers EFAULT
/// where it may not.
///
/// # Safety
/// 2: the target lies in a live mapping of the caller, and no reference covers it.
pub unsafe fn read_into(fd: std::os::fd::BorrowedFd<'_>, target: *mut u8, len: usize) -> Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: 2 by the caller.
    let answer = unsafe { libc::read(fd.as_raw_fd(), target.cast(), len) };
    if answer < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(rustix::io::Errno::from_raw_os_error(errno));
    }
    Ok(())
}
