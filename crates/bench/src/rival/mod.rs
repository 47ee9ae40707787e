//! Other people's heaps, each set up for speed as its own documentation advises.
//!
//! | module | who | how |
//! |---|---|---|
//! | [`mimalloc`] | mimalloc, volatile | its own calls; it is not made the program's allocator |
//! | [`pmdk`] | libpmemobj of PMDK, loaded at run time | a pool on tmpfs, taken for persistent memory |
//!
//! A rival that this build or this machine lacks says so in words, and which command brings it.
//!
//! Does not measure.

#[cfg(feature = "rivals")]
mod mimalloc;
#[cfg(not(feature = "rivals"))]
mod missing;
mod pmdk;

use std::path::Path;

/// Where rivals keep their files: memory, so that no disk slows them.
pub(crate) const TMPFS: &str = "/dev/shm";

/// Why a rival cannot be measured, or failed while it was: in words, with what to do.
pub(crate) type Absent = String;

/// A heap with numbered slots, each holding one allocation or none.
pub(crate) trait Allocator {
    /// Frees what `slot` holds, and puts `bytes` new bytes there.
    ///
    /// # Errors
    /// There is no room.
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent>;
}

/// mimalloc, with `slots` empty slots.
///
/// # Errors
/// This build has no rivals.
pub(crate) fn mimalloc(slots: usize) -> Result<impl Allocator + use<>, Absent> {
    #[cfg(feature = "rivals")]
    return Ok::<_, Absent>(mimalloc::Mimalloc::new(slots));
    #[cfg(not(feature = "rivals"))]
    missing::without::<missing::Missing>(slots)
}

/// The atomic allocator of a libpmemobj pool in the new file `path`, with `slots` empty slots.
///
/// # Errors
/// The machine lacks the library, or it refuses.
pub(crate) fn pmdk_heap(path: &Path, bytes: usize, slots: usize) -> Result<impl Allocator + use<>, Absent> {
    Ok(pmdk::PmdkHeap::new(pmdk::Pool::create(path, bytes)?, slots))
}
