//! mimalloc, through its own calls. Volatile: what it allocates is gone with the program.
//!
//! # Safety
//!
//! 1. Every pointer in `slots` came from `mi_malloc` and is freed once, when it is replaced or dropped.
#![allow(unsafe_code)]

use std::ffi::c_void;

use libmimalloc_sys::{mi_free, mi_malloc};

use super::{Absent, Allocator};

/// Slots with memory of mimalloc's.
pub(crate) struct Mimalloc {
    slots: Vec<*mut c_void>,
}

impl Mimalloc {
    /// `slots` empty slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![std::ptr::null_mut(); slots] }
    }
}

impl Allocator for Mimalloc {
    #[inline]
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent> {
        let held = &mut self.slots[slot];
        // SAFETY: 1: what was held leaves the slot here; null is allowed.
        unsafe {
            mi_free(*held);
            *held = mi_malloc(bytes);
        }
        if held.is_null() { Err(format!("mimalloc has no {bytes} bytes: see 'free -h'")) } else { Ok(()) }
    }
}

impl Drop for Mimalloc {
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
        let mut heap = Mimalloc::new(2);
        heap.replace(0, 64).expect("64 bytes");
        heap.replace(1, 64).expect("64 bytes");
        heap.replace(0, 1000).expect("1000 bytes");
        assert!(!heap.slots[0].is_null() && heap.slots[0] != heap.slots[1]);
    }
}
