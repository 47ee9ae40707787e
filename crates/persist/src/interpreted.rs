//! Plain memory for the interpreter Miri, which knows no mappings: it finds undefined behaviour in what
//! stands on a space.
//!
//! # Safety
//!
//! 1. The bytes are allocated in `private` and freed in `drop`, with the same layout.
#![allow(unsafe_code)]

use std::alloc::Layout;

use rustix::io::{Errno, Result};

/// Has what [`crate::Anonymous`] and [`crate::Zeroed`] ask of a mapping.
pub(crate) struct Private {
    start: *mut u8,
    layout: Layout,
}

impl Private {
    pub(crate) fn private(len: usize, _align: usize) -> Result<Self> {
        // Pages are enough: nothing here comes in pieces.
        let layout = Layout::from_size_align(len, crate::PAGE).map_err(|_| Errno::NOMEM)?;
        // SAFETY: 1.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        if start.is_null() { Err(Errno::NOMEM) } else { Ok(Self { start, layout }) }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    pub(crate) fn take_large_pieces(&self, _at: usize, _len: usize) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub(crate) fn populate(&self, _at: usize, _len: usize) -> Result<()> {
        Ok(())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: 1.
        unsafe { std::alloc::dealloc(self.start, self.layout) }
    }
}

// SAFETY: 1: it only owns the bytes; whoever has it says how they are touched.
unsafe impl Send for Private {}
// SAFETY: 1: as above.
unsafe impl Sync for Private {}
