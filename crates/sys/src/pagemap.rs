//! Which pages of a process may be written now: the kernel's own answer, from its page table.
//!
//! Names and layouts are the kernel's (`linux/fs.h`, PAGEMAP_SCAN, Linux 6.7 and newer).
//!
//! # Safety
//!
//! 1. The `ioctl` argument is a `repr(C)` struct of the layout that the opcode encodes; its size is
//!    asserted below. The vector that it names lives across the call.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::io::Result;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// Not write-protected by a userfaultfd. The kernel says so of a page that is nowhere, too.
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

#[repr(C)]
struct Scan {
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

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<PageRegion>() == 24);

const SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);

struct Call(Scan);

// SAFETY: 1: the argument is the struct that the opcode encodes, alive for the whole call.
unsafe impl Ioctl for &mut Call {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        SCAN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

/// Address ranges within `start..end` that are in memory and that no userfaultfd protects from stores,
/// of the process whose `/proc/PID/pagemap` this is. At most `most` ranges.
pub fn unprotected(
    pagemap: BorrowedFd<'_>,
    start: usize,
    end: usize,
    most: usize,
) -> Result<Vec<(usize, usize)>> {
    let mut found = vec![PageRegion::default(); most];
    // The kernel says by the return value how many entries it filled, which this wrapper does not see:
    // unused ones stay empty.
    let mut call = Call(Scan {
        size: size_of::<Scan>() as u64,
        flags: 0,
        start: start as u64,
        end: end as u64,
        walk_end: 0,
        vec: found.as_mut_ptr() as u64,
        vec_len: most as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_WRITTEN,
        category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_WRITTEN,
    });
    // SAFETY: 1.
    unsafe { ioctl(pagemap, &mut call) }?;
    let filled = found.iter().take_while(|region| region.end > region.start);
    Ok(filled.map(|region| (region.start as usize, region.end as usize)).collect())
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
}
