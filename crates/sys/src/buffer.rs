//! Owns page-aligned heap memory for direct I/O.
//!
//! Invariants: the address and the length are multiples of [`ALIGNMENT`]; the bytes are always
//! initialised. Does not know what the bytes mean.
//!
//! # Safety
//!
//! 1. The pointer comes from `alloc_zeroed` with the layout of `len` bytes at [`ALIGNMENT`], and is
//!    freed once, with the same layout, by `Drop`.
//! 2. The buffer is the only owner of its bytes: references into it follow Rust's own rules.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment in bytes of address and length: what O_DIRECT asks of every device we know.
pub const ALIGNMENT: usize = 4096;

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
        // SAFETY: 1: the layout has a non-zero size, asserted above.
        let start = unsafe { alloc_zeroed(layout) };
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
        // SAFETY: 1: allocated with this layout in `zeroed`.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
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
