//! Large tables in DRAM: all zero, and no memory is taken where nobody stores.
//!
//! An allocator gives such memory only while it has none that somebody else freed: then it writes zeros over all of
//! it.
//!
//! # Safety
//!
//! 1. `start` points to `size_of::<T>()` bytes at a multiple of a page, zero at first, which are mapped until the
//!    drop, and which nobody else knows. All zeros are a `T`, and a `T` needs no drop and no larger alignment.
#![allow(unsafe_code)]

use std::mem::needs_drop;
use std::ops::Deref;
use std::ptr::NonNull;

use bytemuck::Zeroable;
#[cfg(not(miri))]
use wattkeep_sys::map::Mapping as Private;

use crate::PAGE;
#[cfg(miri)]
use crate::interpreted::Private;

/// A `T` of zeros. Shared, it is changed through atomics.
pub struct Zeroed<T> {
    start: NonNull<T>,
    _memory: Private,
}

impl<T: Zeroable> Zeroed<T> {
    /// A new one.
    ///
    /// # Panics
    /// There is no address space for it.
    pub fn new() -> Self {
        const { assert!(!needs_drop::<T>() && align_of::<T>() <= PAGE) };
        let len = size_of::<T>().max(1).next_multiple_of(PAGE);
        let memory = Private::private(len, PAGE);
        let memory = memory.unwrap_or_else(|errno| panic!("no address space for {len} bytes: {errno}"));
        let start = NonNull::new(memory.start().cast()).expect("the kernel maps nothing at address zero");
        Self { start, _memory: memory }
    }
}

impl<T: Zeroable> Default for Zeroed<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: 1.
        unsafe { self.start.as_ref() }
    }
}

// SAFETY: 1: it owns its `T` as a box does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: 1: as above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_table_is_zero_whatever_lay_there_before() {
        for turn in 1..4 {
            let table = Zeroed::<[AtomicU64; 3000]>::new();
            assert!(table.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            table.iter().for_each(|word| word.store(turn, Ordering::Relaxed));
            assert!(table.iter().all(|word| word.load(Ordering::Relaxed) == turn));
        }
    }
}
