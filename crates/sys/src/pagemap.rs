//! PAGEMAP_SCAN: which pages of a process may be written now, and which were written, asked and protected
//! again in one step: the kernel's own answer, from its page table.
//!
//! Names and layouts are the kernel's (`linux/fs.h`, ioctl_pagemap_scan(2)); Linux 6.7 or newer.
//! Holds no policy and never retries.
//!
//! # Safety
//!
//! 1. The `ioctl` argument is the `repr(C)` struct that the opcode encodes, alive for the whole call.
//! 2. `vec` and `vec_len` are those of a slice that is borrowed mutably for the whole call.
//! 3. Only pages under asynchronous write protection match: the kernel lifts that by itself at the
//!    next write, so no store is ever refused or delivered to anybody.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::io::{Result, pread};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

const IS_WPALLOWED: u64 = 1 << 0;
/// Not write-protected by a userfaultfd. Some kernels say so of a page that is nowhere, too.
const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_PFNZERO: u64 = 1 << 5;
const WP_MATCHING: u64 = 1 << 0;

const PAGE: usize = 4096;

/// Neighbouring pages: `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRun {
    /// Address of the first byte.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// The kernel's word on all of them.
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Arguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const _: () = assert!(size_of::<PageRun>() == 24);
const _: () = assert!(size_of::<Arguments>() == 96);

const SCAN: Opcode = opcode::read_write::<Arguments>(b'f', 16);

// SAFETY: 1: the argument is the struct that SCAN encodes.
unsafe impl Ioctl for &mut Arguments {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        SCAN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut **self).cast()
    }

    unsafe fn output_from_ptr(answer: IoctlOutput, _: *mut c_void) -> Result<usize> {
        Ok(usize::try_from(answer).unwrap_or(0))
    }
}

/// How far a scan came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Runs found, at the front of the caller's slice.
    pub runs: usize,
    /// Where to go on: the end that was asked for, or less when the slice was full.
    pub next: u64,
}

/// Finds the private pages in `start..end` that were written since they were last found, and protects
/// them again, atomically for each page. Ranges that no asynchronous userfaultfd watches are passed by,
/// as are the shared zero page and pages of a file that were only read.
///
/// `pagemap` is a `/proc/PID/pagemap`, of any process. ENOTTY before Linux 6.7.
pub fn take_written(pagemap: BorrowedFd<'_>, start: u64, end: u64, runs: &mut [PageRun]) -> Result<Scanned> {
    let mut arguments = Arguments {
        size: size_of::<Arguments>() as u64,
        flags: WP_MATCHING,
        start,
        end,
        vec: runs.as_mut_ptr() as u64,
        vec_len: runs.len() as u64,
        category_inverted: IS_FILE | IS_PFNZERO,
        category_mask: IS_WPALLOWED | IS_WRITTEN | IS_FILE | IS_PFNZERO,
        category_anyof_mask: IS_PRESENT | IS_SWAPPED,
        return_mask: IS_WRITTEN,
        ..Arguments::default()
    };
    // SAFETY: 1 above; 2 `runs` is borrowed until the call is over; 3 IS_WPALLOWED is in the mask.
    let found = unsafe { ioctl(pagemap, &mut arguments) }?;
    Ok(Scanned { runs: found.min(runs.len()), next: arguments.walk_end })
}

/// Address ranges within `start..end` that are in memory and that no userfaultfd protects from stores,
/// of the process whose `/proc/PID/pagemap` this is. At most `most` ranges.
pub fn unprotected(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    most: usize,
) -> Result<Vec<(usize, usize)>> {
    let mut runs = vec![PageRun::default(); most];
    let mut arguments = Arguments {
        size: size_of::<Arguments>() as u64,
        start: start as u64,
        end: end as u64,
        vec: runs.as_mut_ptr() as u64,
        vec_len: runs.len() as u64,
        category_mask: IS_WRITTEN,
        category_anyof_mask: IS_PRESENT | IS_SWAPPED,
        return_mask: IS_WRITTEN,
        ..Arguments::default()
    };
    // SAFETY: 1 above; 2 `runs` is borrowed until the call is over; nothing is protected.
    let found = unsafe { ioctl(pagemap, &mut arguments) }?;
    Ok(runs.iter().take(found).map(|run| (run.start as usize, run.end as usize)).collect())
}

/// Bits of a `/proc/PID/pagemap` entry that hold the frame number of a page in memory.
const FRAME: u64 = (1 << 55) - 1;
const IN_MEMORY: u64 = 1 << 63;

/// Frame numbers of the pages from address `start` on, as many as `frames` has room for: 0 for a page
/// that is not mapped to memory now, and for all without CAP_SYS_ADMIN. Answers how many were told.
pub fn frame_numbers(pagemap: BorrowedFd<'_>, start: usize, frames: &mut [u64]) -> Result<usize> {
    let mut entries = [0u8; 64 * size_of::<u64>()];
    let mut told = 0;
    while told < frames.len() {
        let room = entries.len().min((frames.len() - told) * size_of::<u64>());
        let from = (start / PAGE + told) * size_of::<u64>();
        let read = pread(pagemap, &mut entries[..room], from as u64)?;
        let (whole, _) = entries[..read].as_chunks::<{ size_of::<u64>() }>();
        if whole.is_empty() {
            break;
        }
        for entry in whole.iter().map(|entry| u64::from_ne_bytes(*entry)) {
            frames[told] = if entry & IN_MEMORY == 0 { 0 } else { entry & FRAME };
            told += 1;
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::map::{Access, Mapping};
    use crate::{memfd, uffd};

    #[test]
    fn pages_are_named_while_no_userfaultfd_protects_them() {
        let memory = memfd::create("pagemap-test", 8 * 4096).unwrap();
        let mapping = Mapping::anywhere(&memory, 8 * 4096, Access::ReadWrite).unwrap();
        let start = mapping.start() as usize;
        let features = uffd::FEATURE_WP_SHMEM | uffd::FEATURE_PAGEFAULT_WP | uffd::FEATURE_MISSING_SHMEM;
        let fd = uffd::open(features, false).unwrap();
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let open = || {
            unprotected(pagemap.as_fd(), start, start + 8 * 4096, 8)
                .unwrap()
                .iter()
                .flat_map(|(from, to)| (*from - start) / 4096..(*to - start) / 4096)
                .collect::<Vec<_>>()
        };
        // SAFETY: uffd's 1 and 2: our own mapping, which nobody else touches.
        unsafe {
            uffd::register(fd.as_fd(), start, 8 * 4096, uffd::MODE_MISSING | uffd::MODE_WP).unwrap();
            let zeros = [0u8; 4 * 4096];
            uffd::copy(fd.as_fd(), start, zeros.as_ptr(), zeros.len(), false).unwrap();
            uffd::write_protect(fd.as_fd(), start + 4096, 2 * 4096, true).unwrap();
        }
        assert_eq!(open(), [0, 3]);
    }

    #[test]
    fn frames_are_told_of_pages_in_memory_only() {
        let mapping = Mapping::private(100 * PAGE, PAGE).unwrap();
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        mapping.populate(3 * PAGE, 80 * PAGE).unwrap();
        let mut frames = [u64::MAX; 100];
        assert_eq!(frame_numbers(pagemap.as_fd(), mapping.start() as usize, &mut frames), Ok(100));
        assert!(frames[..3].iter().chain(&frames[83..]).all(|frame| *frame == 0));
        // Without the capability all are 0; with it no two pages share a frame.
        let mut told: Vec<u64> = frames.into_iter().filter(|frame| *frame != 0).collect();
        told.sort_unstable();
        told.dedup();
        assert!(told.is_empty() || told.len() == 80, "{told:?}");
    }
}
