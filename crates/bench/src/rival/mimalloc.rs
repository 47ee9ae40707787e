//! mimalloc, through its own calls. Volatile: what it allocates is gone with the program.
//!
//! # Safety
//!
//! 1. Every pointer in `slots` came from `mi_malloc` and is freed once, when it is replaced or dropped.
//! 2. Memory is written only where it was just allocated, and only as many bytes as were asked for.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;

use libmimalloc_sys::{mi_free, mi_malloc};

use super::{Absent, Allocator};

/// Slots with memory of mimalloc's, which is written if it `WRITES`.
pub(crate) struct Mimalloc<const WRITES: bool> {
    slots: Vec<*mut c_void>,
}

impl<const WRITES: bool> Mimalloc<WRITES> {
    /// `slots` empty slots. They are in memory: who looks at what comes into memory sees no slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: std::iter::repeat_with(|| black_box(null_mut())).take(slots).collect() }
    }
}

impl<const WRITES: bool> Allocator for Mimalloc<WRITES> {
    #[inline]
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent> {
        let held = &mut self.slots[slot];
        // SAFETY: 1: what was held leaves the slot here; null is allowed.
        unsafe {
            mi_free(*held);
            *held = mi_malloc(bytes);
        }
        if held.is_null() {
            return Err(format!("mimalloc has no {bytes} bytes: see 'free -h'"));
        }
        if WRITES {
            // SAFETY: 2.
            unsafe { held.cast::<u8>().write_bytes(1, bytes) };
        }
        Ok(())
    }
}

impl<const WRITES: bool> Drop for Mimalloc<WRITES> {
    fn drop(&mut self) {
        for &held in &self.slots {
            // SAFETY: 1: dropped once, with the slots.
            unsafe { mi_free(held) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_other_memory_than_its_neighbour() {
        let mut heap = Mimalloc::<true>::new(2);
        heap.replace(0, 64).expect("64 bytes");
        heap.replace(1, 64).expect("64 bytes");
        heap.replace(0, 1000).expect("1000 bytes");
        assert!(!heap.slots[0].is_null() && heap.slots[0] != heap.slots[1]);
    }
}
