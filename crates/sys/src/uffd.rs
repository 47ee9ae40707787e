//! userfaultfd: registers memory for missing and write-protect faults, protects and fills pages.
//!
//! Names and layouts are the kernel's (`linux/userfaultfd.h`). Every call is one system call, made
//! through rustix's raw backend: it touches neither errno nor the allocator, so a signal handler may
//! make it. Holds no policy and never retries.
//!
//! # Safety
//!
//! 1. `start` and `len` are page-aligned and lie in one live mapping of the address space the
//!    descriptor belongs to, registered with it for the mode that the call needs.
//! 2. No Rust reference covers the target pages: the kernel changes bytes and access rights behind
//!    the compiler.
//! 3. Each `ioctl` argument is a `repr(C)` struct of the layout that the opcode encodes; sizes are
//!    asserted below.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// A missing or protected page raises SIGBUS in the faulting thread instead of a message.
pub const FEATURE_SIGBUS: u64 = 1 << 7;
/// Faults on missing pages of shared memory.
pub const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
/// Write protection of shared memory, pages without a page-table entry included.
pub const FEATURE_WP_SHMEM: u64 = 1 << 12;
/// Write-protect faults are told apart from missing ones.
pub const FEATURE_PAGEFAULT_WP: u64 = 1 << 0;
/// The kernel lifts write protection by itself: a write is remembered, and nobody waits (Linux 6.7).
pub const FEATURE_WP_ASYNC: u64 = 1 << 15;

/// Register for faults on missing pages.
pub const MODE_MISSING: u64 = 1 << 0;
/// Register for write faults on protected pages.
pub const MODE_WP: u64 = 1 << 1;

const API_VERSION: u64 = 0xAA;
const USER_MODE_ONLY: u32 = 1;
const WP_PROTECT: u64 = 1 << 0;
const COPY_WP: u64 = 1 << 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const FLAG_WRITE: u64 = 1 << 0;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// `struct uffd_msg`, page-fault flavour.
#[repr(C)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    thread: u64,
}

const _: () = assert!(size_of::<Api>() == 24);
const _: () = assert!(size_of::<Range>() == 16);
const _: () = assert!(size_of::<Register>() == 32);
const _: () = assert!(size_of::<WriteProtect>() == 24);
const _: () = assert!(size_of::<Copy>() == 40);
const _: () = assert!(size_of::<Message>() == 32);

/// One ioctl on a struct that the kernel reads and writes.
struct Call<const OPCODE: Opcode, T>(T);

// SAFETY: 3: the argument is the struct that the opcode encodes, alive for the whole call.
unsafe impl<const OPCODE: Opcode, T> Ioctl for &mut Call<OPCODE, T> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

const API: Opcode = opcode::read_write::<Api>(0xAA, 0x3F);
const REGISTER: Opcode = opcode::read_write::<Register>(0xAA, 0x00);
const WAKE: Opcode = opcode::read::<Range>(0xAA, 0x02);
const COPY: Opcode = opcode::read_write::<Copy>(0xAA, 0x03);
const WRITEPROTECT: Opcode = opcode::read_write::<WriteProtect>(0xAA, 0x06);

/// Opens a userfaultfd with exactly `features`.
///
/// With `kernel_faults`, system calls that touch protected memory wait for the handler instead of
/// failing with EFAULT; that needs CAP_SYS_PTRACE or `vm.unprivileged_userfaultfd` (EPERM else).
pub fn open(features: u64, kernel_faults: bool) -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::CLOEXEC.bits() | rustix::fs::OFlags::NONBLOCK.bits();
    let mode = if kernel_faults { 0 } else { USER_MODE_ONLY };
    // SAFETY: 3: userfaultfd(2) takes one integer and returns a descriptor or -1.
    let raw = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::c_long::from(flags | mode)) };
    if raw < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    let raw = i32::try_from(raw).map_err(|_| Errno::BADF)?;
    // SAFETY: 3: the kernel just made this descriptor and nobody else owns it.
    let uffd = unsafe { OwnedFd::from_raw_fd(raw) };
    let mut call = Call::<API, _>(Api { api: API_VERSION, features, ioctls: 0 });
    // SAFETY: 3: see `Call`.
    unsafe { ioctl(&uffd, &mut call) }?;
    if call.0.features & features != features {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(uffd)
}

/// Registers a range for the fault kinds of `mode`.
///
/// # Safety
/// 1 and 2 of the module; the range need not be registered yet.
pub unsafe fn register(uffd: BorrowedFd<'_>, start: usize, len: usize, mode: u64) -> Result<()> {
    let range = Range { start: start as u64, len: len as u64 };
    let mut call = Call::<REGISTER, _>(Register { range, mode, ioctls: 0 });
    // SAFETY: 1, 2 by the caller; 3 see `Call`.
    unsafe { ioctl(uffd, &mut call) }
}

/// Lets the writes to a range be remembered, by a userfaultfd opened with [`FEATURE_WP_ASYNC`].
///
/// The range may lie in the address space of another process, and may have vanished meanwhile (EINVAL or
/// ENOMEM); EBUSY when another userfaultfd has it, ESRCH when the process is gone. Safe: registered for
/// write protection alone, a range changes neither bytes nor access rights.
pub fn remember_writes(uffd: BorrowedFd<'_>, start: u64, len: u64) -> Result<()> {
    let mut call = Call::<REGISTER, _>(Register { range: Range { start, len }, mode: MODE_WP, ioctls: 0 });
    // SAFETY: 1, 2: nothing is protected by this; 3 see `Call`.
    unsafe { ioctl(uffd, &mut call) }
}

/// Write-protects (`protect`) or releases a range. Releasing wakes threads that wait on it.
///
/// When it returns, no thread of that address space holds a writable translation of a protected
/// page: later stores fault.
///
/// # Safety
/// 1 (write-protect mode) and 2 of the module.
#[inline]
pub unsafe fn write_protect(uffd: BorrowedFd<'_>, start: usize, len: usize, protect: bool) -> Result<()> {
    let range = Range { start: start as u64, len: len as u64 };
    let mode = if protect { WP_PROTECT } else { 0 };
    let mut call = Call::<WRITEPROTECT, _>(WriteProtect { range, mode });
    // SAFETY: 1, 2 by the caller; 3 see `Call`.
    unsafe { ioctl(uffd, &mut call) }
}

/// Fills missing pages atomically from `src`, write-protected when `protect`. Returns the bytes
/// filled: fewer than asked when a page was already present (EEXIST when it is the first).
///
/// # Safety
/// 1 (missing mode) and 2 of the module; `src` is readable for `len` bytes.
#[inline]
pub unsafe fn copy(
    uffd: BorrowedFd<'_>,
    dst: usize,
    src: *const u8,
    len: usize,
    protect: bool,
) -> Result<usize> {
    let mode = if protect { COPY_WP } else { 0 };
    let mut call =
        Call::<COPY, _>(Copy { dst: dst as u64, src: src as u64, len: len as u64, mode, copied: 0 });
    // SAFETY: 1, 2 by the caller; 3 see `Call`.
    match unsafe { ioctl(uffd, &mut call) } {
        Ok(()) => Ok(len),
        Err(Errno::AGAIN) if call.0.copied > 0 => Ok(usize::try_from(call.0.copied).unwrap_or(0)),
        Err(errno) => Err(errno),
    }
}

/// Wakes every thread that waits for a fault in the range to be resolved.
///
/// # Safety
/// 1 of the module.
pub unsafe fn wake(uffd: BorrowedFd<'_>, start: usize, len: usize) -> Result<()> {
    let mut call = Call::<WAKE, _>(Range { start: start as u64, len: len as u64 });
    // SAFETY: 1 by the caller; 3 see `Call`.
    unsafe { ioctl(uffd, &mut call) }
}

/// A fault that a thread or the kernel waits on.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Faulting address, rounded down to its page.
    pub address: usize,
    /// The access was a write.
    pub write: bool,
}

/// Takes the next fault message; `None` when there is none.
pub fn next_fault(uffd: BorrowedFd<'_>) -> Result<Option<Fault>> {
    let mut bytes = [0u8; size_of::<Message>()];
    match rustix::io::read(uffd.as_fd(), &mut bytes) {
        Ok(32) => {}
        Ok(_) => return Err(Errno::IO),
        Err(Errno::AGAIN) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    if bytes[0] != EVENT_PAGEFAULT {
        return Ok(None);
    }
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes of 32"));
    let (flags, address) = (word(8), word(16));
    Ok(Some(Fault { address: address as usize, write: flags & FLAG_WRITE != 0 }))
}
