//! The atomic allocator of libpmemobj: each call is durable when it returns.

use super::api::Oid;
use super::pool::Pool;
use crate::rival::{Absent, Allocator};

/// Slots with objects of a pool.
pub(crate) struct PmdkHeap {
    pool: Pool,
    slots: Vec<Oid>,
}

impl PmdkHeap {
    /// `slots` empty slots. They lie in DRAM: objects linked nowhere are the library's fastest.
    pub(crate) fn new(pool: Pool, slots: usize) -> Self {
        Self { pool, slots: vec![Oid::NULL; slots] }
    }
}

impl Allocator for PmdkHeap {
    #[inline]
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent> {
        self.pool.free(std::mem::replace(&mut self.slots[slot], Oid::NULL));
        self.slots[slot] = self.pool.alloc(bytes)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rival::pmdk::api::Api;

    /// A machine without the library measures nothing, and says which package brings it.
    #[test]
    fn objects_of_a_pool_lie_apart_or_the_library_is_named() {
        let directory = tempfile::tempdir_in(crate::rival::TMPFS).expect("tmpfs");
        match (Pool::create(&directory.path().join("pool"), 64 << 20), Api::get()) {
            (Ok(pool), Ok(_)) => {
                let mut heap = PmdkHeap::new(pool, 2);
                for (slot, bytes) in [(0, 64), (1, 64), (0, 5000), (0, 64)] {
                    heap.replace(slot, bytes).expect("room");
                }
                assert!(heap.slots[0].offset.abs_diff(heap.slots[1].offset) >= 64);
            }
            (Err(why), _) => assert!(why.contains("apt-get install libpmemobj1"), "{why}"),
            (Ok(_), Err(why)) => panic!("a pool without a library: {why}"),
        }
    }
}
