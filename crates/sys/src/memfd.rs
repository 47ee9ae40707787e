//! Anonymous shared memory by descriptor, and the seals that close its side doors.
//!
//! Knows nothing of what the memory holds.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Result;

use crate::mutant::planted;

/// Makes shared memory of `len` bytes, all zero and not yet allocated.
pub fn create(name: &str, len: u64) -> Result<OwnedFd> {
    let memfd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memfd, len)?;
    Ok(memfd)
}

/// Fixes the size for ever.
pub fn seal_size(memfd: impl AsFd) -> Result<()> {
    fcntl_add_seals(memfd, SealFlags::SHRINK | SealFlags::GROW)
}

/// Refuses, from now on, every new writable mapping, `pwrite`, hole punch and change of the seals.
/// Mappings that exist stay writable.
pub fn seal_writers(memfd: impl AsFd) -> Result<()> {
    if planted("unsealed-memfd") {
        return Ok(());
    }
    fcntl_add_seals(memfd, SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}
