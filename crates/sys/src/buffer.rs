//! Owns page-aligned memory for direct I/O.
//!
//! Large buffers are mapped, one or several together, and cost nothing before they are used. Where they fill
//! huge pages they lie on them, if the kernel has some: each direct request pins the pages under it, and one
//! huge page is pinned faster than 512 small ones; and a request on scattered small pages is cut in two where
//! the device takes fewer pieces than it has pages.
//!
//! Invariants: the address and the length are multiples of [`ALIGNMENT`]; the bytes are always
//! initialised. Does not know what the bytes mean.
//!
//! # Safety
//!
//! 1. A buffer without a mapping comes from `alloc_zeroed` with the layout of `len` bytes at [`ALIGNMENT`],
//!    and is freed once, with the same layout, by `Drop`. One with a mapping lies in it, and keeps it: an
//!    anonymous mapping of its `len` bytes at an address that the kernel chose, unmapped once, by the `Drop`
//!    of `Mapping`. Buffers of one mapping do not overlap.
//! 2. The buffer is the only owner of its bytes: references into it follow Rust's own rules.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

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
    mapping: Option<Arc<Mapping>>,
}

impl AlignedBuffer {
    /// Allocates `len` zeroed bytes; `len` is a positive multiple of [`ALIGNMENT`].
    pub fn zeroed(len: usize) -> Self {
        if len >= MAPPED_FROM {
            return Self::several(1, len).remove(0);
        }
        let layout = layout(len);
        // SAFETY: 1: the layout has a non-zero size, asserted by `layout`.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { start, len, mapping: None }
    }

    /// Maps `count` buffers of `len` zeroed bytes each, one behind the other: together they may fill huge
    /// pages where one alone would not. The memory goes back when all of them are dropped.
    pub fn several(count: usize, len: usize) -> Vec<Self> {
        let all = layout(len.checked_mul(count).expect("the buffers fit the address space"));
        let mapping = Arc::new(Mapping::new(all.size()).unwrap_or_else(|| handle_alloc_error(all)));
        let buffer = |number: usize| {
            // SAFETY: 1: `number * len` is below the length of the mapping, which holds `count * len` bytes.
            let start = unsafe { mapping.start.add(number * len) };
            Self { start, len, mapping: Some(Arc::clone(&mapping)) }
        };
        (0..count).map(buffer).collect()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a buffer holds at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The layout of whole pages.
fn layout(len: usize) -> Layout {
    assert!(len > 0 && len.is_multiple_of(ALIGNMENT), "direct I/O buffers are whole pages");
    Layout::from_size_align(len, ALIGNMENT).expect("a buffer is smaller than the address space")
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
        if self.mapping.is_none() {
            // SAFETY: 1: allocated with this layout in `zeroed`.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) }
        }
    }
}

/// Mapped bytes, for as long as a buffer lies in them.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` zeroed bytes, on huge pages if they fill some; `None` when there is no memory.
    fn new(len: usize) -> Option<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: 1: the kernel chooses a free range.
        let start = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE) }.ok()?;
        if len >= HUGE_PAGE {
            // A kernel without huge pages refuses: small ones do as well, only slower.
            // SAFETY: 1: the range was just mapped, and nothing else knows it.
            let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        }
        Some(Self { start: NonNull::new(start.cast())?, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: 1: mapped with this length in `new`, and no buffer keeps it any more. A failure leaves it
        // mapped: a leak.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: 1: nothing is read or written through a mapping itself: it only ends it.
unsafe impl Send for Mapping {}
// SAFETY: 1: as above.
unsafe impl Sync for Mapping {}
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

    #[test]
    fn buffers_of_one_mapping_do_not_overlap_and_outlive_each_other() {
        let mut buffers = AlignedBuffer::several(3, MAPPED_FROM);
        for (number, buffer) in buffers.iter_mut().enumerate() {
            buffer.fill(number as u8 + 1);
        }
        let last = buffers.pop().expect("there are three");
        drop(buffers.remove(0));
        assert!(buffers[0].iter().all(|byte| *byte == 2));
        drop(buffers);
        assert!(last.iter().all(|byte| *byte == 3));
    }
}
