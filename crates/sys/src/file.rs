//! Locks that belong to an open file, not to a process.
//!
//! Never waits; errno whole: `EAGAIN` says that another holder exists.
//!
//! # Safety
//!
//! 1. `fcntl` with `F_OFD_SETLK` reads one `flock` structure, which lives across the call.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Who else may hold a lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nobody.
    Exclusive,
    /// Others that share.
    Shared,
}

/// Locks the whole file for this open file description, until its last descriptor is closed.
pub fn lock(file: BorrowedFd<'_>, lock: Lock) -> io::Result<()> {
    let kind = match lock {
        Lock::Exclusive => libc::F_WRLCK,
        Lock::Shared => libc::F_RDLCK,
    };
    let flock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        // To the end of the file, however long it grows.
        l_len: 0,
        // The kernel asks for zero.
        l_pid: 0,
    };
    // SAFETY: 1.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const flock) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
