//! The self-test: does this kernel protect pages the way the promise needs?
//!
//! Run at every attach, on a few pages of its own. A surprise means that nothing is armed: the
//! caller falls back, or refuses.
//!
//! # Safety
//!
//! 1. The probe's mapping is its own; it lives until the probe returns, and only the kernel and the
//!    probe touch it, by raw pointer.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::{memfd, uffd};

use crate::limits::PAGE_SIZE;
use crate::types::{FaultMode, Tracking};

const PAGES: usize = 4;

/// The mode that a session runs in, and why.
#[derive(Clone, Debug)]
pub struct ChosenMode {
    /// How first stores reach us.
    pub mode: FaultMode,
    /// For people: why this one.
    pub reason: String,
}

/// Chooses the fault mode: the one asked for, or else the fastest that passes its self-test.
pub fn choose(asked: Option<FaultMode>) -> io::Result<ChosenMode> {
    let test = |mode| match mode {
        FaultMode::Signal => userfault_works(false),
        FaultMode::Monitor => userfault_works(true),
        FaultMode::Mprotect => mprotect_works(),
    };
    if let Some(mode) = asked {
        test(mode)
            .map_err(|e| io::Error::new(e.kind(), format!("fault mode {mode} does not work here: {e}")))?;
        return Ok(ChosenMode { mode, reason: "asked for".into() });
    }
    match test(FaultMode::Signal) {
        Ok(()) => {
            Ok(ChosenMode { mode: FaultMode::Signal, reason: "userfaultfd passed its self-test".into() })
        }
        Err(refused) => {
            test(FaultMode::Mprotect)?;
            Ok(ChosenMode {
                mode: FaultMode::Mprotect,
                reason: format!("userfaultfd is refused here ({refused})"),
            })
        }
    }
}

/// Opens the descriptor that a region in `mode` is tracked with.
pub fn open_userfault(mode: FaultMode) -> io::Result<OwnedFd> {
    let features = uffd::FEATURE_PAGEFAULT_WP | uffd::FEATURE_WP_SHMEM | uffd::FEATURE_MISSING_SHMEM;
    Ok(match mode {
        FaultMode::Monitor => uffd::open(features, true)?,
        _ => uffd::open(features | uffd::FEATURE_SIGBUS, false)?,
    })
}

/// The fault kinds that a region is registered for.
pub fn register_mode(tracking: Tracking) -> u64 {
    if tracking.protects() { uffd::MODE_MISSING | uffd::MODE_WP } else { uffd::MODE_MISSING }
}

fn surprise(what: &str) -> io::Error {
    io::Error::other(format!("self-test: {what}"))
}

/// The kernel stores one byte at `page` of the mapping, as a read(2) into it would.
fn kernel_store(mapping: &Mapping, page: usize) -> rustix::io::Result<()> {
    let zero = rustix::fs::open("/dev/zero", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: 1: inside the probe's mapping.
    unsafe { wattkeep_sys::map::read_into(zero.as_fd(), mapping.start().add(page * PAGE_SIZE), 1) }
}

fn sealed_memory() -> io::Result<(Mapping, OwnedFd)> {
    let memory = memfd::create("wattkeep-probe", (PAGES * PAGE_SIZE) as u64)?;
    let mapping = Mapping::anywhere(&memory, PAGES * PAGE_SIZE, Access::ReadWrite)?;
    memfd::seal_writers(&memory)?;
    if rustix::io::pwrite(&memory, &[1], 0).is_ok() {
        return Err(surprise("a sealed memory accepts pwrite"));
    }
    if Mapping::anywhere(&memory, PAGE_SIZE, Access::ReadWrite).is_ok() {
        return Err(surprise("a sealed memory accepts a second writable mapping"));
    }
    Ok((mapping, memory))
}

fn userfault_works(kernel_faults: bool) -> io::Result<()> {
    let mode = if kernel_faults { FaultMode::Monitor } else { FaultMode::Signal };
    let fd = open_userfault(mode)?;
    let (mapping, _memory) = sealed_memory()?;
    let (start, len) = (mapping.start() as usize, mapping.len());
    let zeros = [0u8; PAGES * PAGE_SIZE];
    // SAFETY: 1: the probe's own mapping throughout.
    unsafe {
        uffd::register(fd.as_fd(), start, len, uffd::MODE_MISSING | uffd::MODE_WP)?;
        if !kernel_faults && kernel_store(&mapping, 0) != Err(Errno::FAULT) {
            return Err(surprise("a missing page was filled behind userfaultfd"));
        }
        uffd::copy(fd.as_fd(), start, zeros.as_ptr(), len, true)?;
        // With kernel faults a store would wait for us: the write-protection itself is the same.
        if !kernel_faults && kernel_store(&mapping, 1) != Err(Errno::FAULT) {
            return Err(surprise("a protected page was written"));
        }
        uffd::write_protect(fd.as_fd(), start, PAGE_SIZE, false)?;
        kernel_store(&mapping, 0).map_err(|_| surprise("an opened page cannot be written"))?;
        uffd::write_protect(fd.as_fd(), start, PAGE_SIZE, true)?;
        if !kernel_faults && kernel_store(&mapping, 0) != Err(Errno::FAULT) {
            return Err(surprise("a page protected again was written"));
        }
        let duplicate = fd.try_clone()?;
        drop(fd);
        if !kernel_faults && kernel_store(&mapping, 0) != Err(Errno::FAULT) {
            return Err(surprise("protection ended although a duplicate descriptor is open"));
        }
        drop(duplicate);
    }
    Ok(())
}

fn mprotect_works() -> io::Result<()> {
    let (mapping, _memory) = sealed_memory()?;
    mapping.set_access(Access::Read)?;
    if kernel_store(&mapping, 0) != Err(Errno::FAULT) {
        return Err(surprise("a page protected by mprotect was written"));
    }
    // SAFETY: 1: the probe's own mapping.
    unsafe { wattkeep_sys::map::protect(mapping.start() as usize, PAGE_SIZE, Access::ReadWrite)? };
    kernel_store(&mapping, 0).map_err(|_| surprise("a page opened by mprotect cannot be written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_keeps_the_facts_that_the_promise_stands_on() {
        userfault_works(false).expect("signal mode");
        mprotect_works().expect("mprotect mode");
    }
}
