//! Owns page-aligned memory for direct I/O.
//!
//! Large buffers are mappings of their own, which cost nothing before they are used; the largest lie on
//! huge pages where the kernel has some: each direct request pins the pages under it, and one huge page is
//! pinned faster than 512 small ones.
//!
//! Invariants: the address and the length are multiples of [`ALIGNMENT`]; the bytes are always
//! initialised. Does not know what the bytes mean.
//!
//! # Safety
//!
//! 1. A buffer shorter than [`MAPPED_FROM`] comes from `alloc_zeroed` with the layout of `len` bytes at
//!    [`ALIGNMENT`], and is freed once, with the same layout, by `Drop`. A longer one is an anonymous
//!    mapping of `len` bytes at an address that the kernel chose, unmapped once by `Drop`.
//! 2. The buffer is the only owner of its bytes: references into it follow Rust's own rules.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Alignment in bytes of address and length: what O_DIRECT asks of every device we know.
pub const ALIGNMENT: usize = 4096;

/// Bytes of a huge page on the processors we know; only speed depends on it.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes from which a buffer is a mapping: the allocator would write its zeros, page by page.
const MAPPED_FROM: usize = 1 << 20;

/// A zeroed, page-aligned buffer: the only memory that direct I/O reads from or writes into.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

impl AlignedBuffer {
    /// Allocates `len` zeroed bytes; `len` is a positive multiple of [`ALIGNMENT`].
    pub fn zeroed(len: usize) -> Self {
        assert!(len > 0 && len.is_multiple_of(ALIGNMENT), "direct I/O buffers are whole pages");
        let layout = Self::layout(len);
        let start = if len < MAPPED_FROM {
            // SAFETY: 1: the layout has a non-zero size, asserted above.
            unsafe { alloc_zeroed(layout) }
        } else {
            map(len)
        };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a buffer holds at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("a buffer is smaller than the address space")
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: 1, 2: `len` initialised bytes that we own.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: 1, 2: `len` initialised bytes that we own, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.len < MAPPED_FROM {
            // SAFETY: 1: allocated with this layout in `zeroed`.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        } else {
            // SAFETY: 1: mapped with this length in `zeroed`. A failure leaves it mapped: a leak.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Maps `len` zeroed bytes, on huge pages if they fill some; null when there is no memory.
fn map(len: usize) -> *mut u8 {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: 1: the kernel chooses a free range.
    let Ok(start) = (unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) }) else {
        return null_mut();
    };
    if len >= HUGE_PAGE {
        // A kernel without huge pages refuses: small ones do as well, only slower.
        // SAFETY: 1: the range was just mapped, and nothing else knows it.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    }
    start.cast()
}

// SAFETY: 2: a buffer owns its bytes, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: 2: shared access is read-only.
unsafe impl Sync for AlignedBuffer {}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_aligned_zeroed_and_writable_to_the_end() {
        for len in [ALIGNMENT, MAPPED_FROM - ALIGNMENT, MAPPED_FROM, HUGE_PAGE, 2 * HUGE_PAGE + ALIGNMENT] {
            let mut buffer = AlignedBuffer::zeroed(len);
            assert_eq!((buffer.as_ptr() as usize % ALIGNMENT, buffer.len()), (0, len));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer[len - 1] = 7;
            assert_eq!(buffer.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7);
        }
    }
}
