//! Volatile capacity: memory from the heap's pages that is gone at restart.
//!
//! Its place must not come to lie in bytes that survive, where it would soon name something else's. So no offset
//! of it is ever told: a [`Capacity`] is no number, no `Ptr` and not `Pod`, and its bytes are read and written
//! through the heap that gave it.

use wattkeep_announce::biased::Key;
use wattkeep_persist::Refused;

use crate::chunks::CAPACITY;
use crate::error::HeapError;
use crate::heap::Heap;

/// The right to some volatile memory of one opening of a heap. Not `Clone`: what is given back cannot be used.
/// Dropped, it stays taken until the heap is closed.
///
/// What points to it cannot be stored:
///
/// ```compile_fail,E0308
/// # use wattkeep_heap::{Heap, HeapError};
/// # use wattkeep_persist::Ptr;
/// fn keep(heap: &Heap) -> Result<Ptr<u64>, HeapError> {
///     let volatile = heap.cap_alloc(8)?;
///     Ok(Ptr::at(volatile))
/// }
/// ```
///
/// Nor can it be stored itself:
///
/// ```compile_fail,E0277
/// # use wattkeep_heap::Heap;
/// # use wattkeep_persist::Pod;
/// fn store<T: Pod>(_: T) {}
/// fn keep(heap: &Heap) {
///     store(heap.cap_alloc(8).unwrap());
/// }
/// ```
///
/// It is not freed as an object is, and not used when it is given back:
///
/// ```compile_fail,E0308
/// # use wattkeep_heap::{Heap, HeapError};
/// fn free(heap: &Heap) -> Result<(), HeapError> {
///     heap.free(heap.cap_alloc(8)?)
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use wattkeep_heap::{Heap, HeapError};
/// fn late(heap: &Heap) -> Result<(), HeapError> {
///     let volatile = heap.cap_alloc(8)?;
///     heap.cap_free(volatile)?;
///     heap.cap_write(&volatile, 0, &[1; 8])
/// }
/// ```
#[must_use = "capacity that is dropped stays taken until the heap is closed: give it to cap_free"]
#[derive(Debug)]
pub struct Capacity {
    at: u64,
    bytes: u64,
    /// Which opening of which heap.
    instance: Key,
}

impl Capacity {
    /// Bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Heap {
    /// Takes volatile capacity from the same pages as objects: nothing of it is written, and it is gone at restart.
    /// Its bytes are those of whoever had them before.
    ///
    /// # Errors
    /// No room.
    pub fn cap_alloc(&self, bytes: u64) -> Result<Capacity, HeapError> {
        let at = self.undurable(bytes, CAPACITY)?;
        Ok(Capacity { at, bytes, instance: self.core.instance })
    }

    /// Gives volatile capacity back.
    ///
    /// # Errors
    /// It is another heap's, or of an earlier opening.
    pub fn cap_free(&self, capacity: Capacity) -> Result<(), HeapError> {
        let at = self.capacity_at(&capacity, 0, 0)? as u64;
        self.core.before_taking()?;
        self.with(move |core, cache| core.release(cache, at, CAPACITY))
    }

    /// Reads bytes of the capacity, from `offset` in it.
    ///
    /// # Errors
    /// They leave it; or as [`Self::cap_free`].
    pub fn cap_read(&self, capacity: &Capacity, offset: u64, into: &mut [u8]) -> Result<(), HeapError> {
        let at = self.capacity_at(capacity, offset, into.len())?;
        Ok(self.space().read_bytes(at, into)?)
    }

    /// Writes bytes of the capacity, from `offset` in it.
    ///
    /// # Errors
    /// As [`Self::cap_read`].
    pub fn cap_write(&self, capacity: &Capacity, offset: u64, bytes: &[u8]) -> Result<(), HeapError> {
        let at = self.capacity_at(capacity, offset, bytes.len())?;
        Ok(self.space().write_bytes(at, bytes)?)
    }

    /// Where `len` bytes of the capacity lie.
    fn capacity_at(&self, capacity: &Capacity, offset: u64, len: usize) -> Result<usize, HeapError> {
        if capacity.instance != self.core.instance {
            return Err(HeapError::Foreign { at: capacity.at });
        }
        if offset.checked_add(len as u64).is_none_or(|end| end > capacity.bytes) {
            let space = capacity.bytes as usize;
            return Err(Refused::Outside { at: offset as usize, len, space }.into());
        }
        Ok((capacity.at + offset) as usize)
    }
}
