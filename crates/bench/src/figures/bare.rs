//! The floor of a first write: a SIGBUS handler that unprotects the page and does nothing else.
//!
//! No permits, no bound, no words, no keeper: what no tracker in user space can go below. In *cycle*
//! mode it then protects the page that was opened longest ago, as a tracker at its budget must.
//!
//! Only one is alive at a time, since handlers find it through statics. It is installed while it
//! measures only, and the action before it is put back: the library refuses to live beside a handler
//! that does not chain.
//!
//! # Safety
//!
//! 1. The statics describe a live mapping, registered with the descriptor they name, from
//!    [`BareTracker::new`] until its drop; the order of the pages is a leaked allocation.
//! 2. The handler makes async-signal-safe calls only: atomics, and raw system calls.
//! 3. Only the thread that measures faults on the mapping.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize};

use wattkeep::PAGE_SIZE;
use wattkeep_sys::map::{Access, Mapping};
use wattkeep_sys::signal::{self, FaultSignal, SigInfo};
use wattkeep_sys::{memfd, uffd};

use super::memory::MappedMemory;

static UFFD: AtomicI32 = AtomicI32::new(-1);
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// Addresses of the open pages, oldest at `NEXT`; no page where 0.
static OPEN: AtomicPtr<AtomicUsize> = AtomicPtr::new(null_mut());
static OPEN_MAX: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Write-protected shared memory with the least handler there can be.
pub(super) struct BareTracker {
    mapping: Mapping,
    uffd: OwnedFd,
    open: &'static [AtomicUsize],
    _memory: OwnedFd,
}

/// Puts the action before ours back.
struct Installed(libc::sigaction);

impl BareTracker {
    /// Memory of `len` bytes, all present and protected. With `open_max` above 0, each fault past so
    /// many open pages protects the one opened longest ago.
    pub(super) fn new(len: usize, open_max: usize) -> io::Result<Self> {
        let memory = memfd::create("wattkeep-bench-bare", len as u64)?;
        let mapping = Mapping::anywhere(&memory, len, Access::ReadWrite)?;
        let features = uffd::FEATURE_SIGBUS | uffd::FEATURE_PAGEFAULT_WP | uffd::FEATURE_WP_SHMEM;
        let uffd = uffd::open(features, false)?;
        // SAFETY: 1: the whole of our own mapping.
        unsafe { uffd::register(uffd.as_fd(), mapping.start() as usize, len, uffd::MODE_WP)? };
        let open = (0..open_max).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>().leak();
        let tracker = Self { mapping, uffd, open, _memory: memory };
        let mut bytes = tracker.memory();
        (0..len).step_by(PAGE_SIZE).for_each(|offset| bytes.store(offset, 1));
        tracker.protect_all()?;
        UFFD.store(tracker.uffd.as_raw_fd(), Relaxed);
        START.store(tracker.mapping.start() as usize, Relaxed);
        END.store(tracker.mapping.start() as usize + len, Relaxed);
        NEXT.store(0, Relaxed);
        OPEN.store(tracker.open.as_ptr().cast_mut(), Relaxed);
        OPEN_MAX.store(open_max, Relaxed);
        Ok(tracker)
    }

    /// The bytes, for the thread that measures.
    pub(super) fn memory(&self) -> MappedMemory {
        // SAFETY: 1: our own mapping, which callers keep as long as the memory.
        unsafe { MappedMemory::new(self.mapping.start(), self.mapping.len()) }
    }

    /// Protects every page, at once: not part of what is measured.
    pub(super) fn protect_all(&self) -> io::Result<()> {
        self.open.iter().for_each(|page| page.store(0, Relaxed));
        let (start, len) = (self.mapping.start() as usize, self.mapping.len());
        // SAFETY: 1: the whole of our own mapping.
        Ok(unsafe { uffd::write_protect(self.uffd.as_fd(), start, len, true) }?)
    }

    /// Runs `measured` with the handler installed; also says how many faults it took.
    pub(super) fn with_handler<T>(&self, measured: impl FnOnce() -> T) -> io::Result<(T, usize)> {
        let installed = Installed::new()?;
        let before = FAULTS.load(Relaxed);
        let answer = measured();
        drop(installed);
        Ok((answer, FAULTS.load(Relaxed) - before))
    }
}

impl Drop for BareTracker {
    fn drop(&mut self) {
        END.store(0, Relaxed);
        START.store(0, Relaxed);
        OPEN_MAX.store(0, Relaxed);
        UFFD.store(-1, Relaxed);
    }
}

impl Installed {
    fn new() -> io::Result<Self> {
        let mut previous = MaybeUninit::uninit();
        // SAFETY: 2: asks for the present action, with valid pointers.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: 2: `on_fault` keeps to async-signal-safe calls.
        unsafe { signal::install(FaultSignal::Bus, on_fault) }?;
        // SAFETY: 2: the kernel filled it in, as the call succeeded.
        Ok(Self(unsafe { previous.assume_init() }))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // SAFETY: 2: puts back what was there, with valid pointers.
        unsafe { libc::sigaction(libc::SIGBUS, &self.0, null_mut()) };
    }
}

extern "C" fn on_fault(_number: c_int, info: *mut SigInfo, _context: *mut c_void) {
    // SAFETY: 2: the kernel's own argument.
    let address = unsafe { signal::fault_address(info) };
    if address < START.load(Relaxed) || address >= END.load(Relaxed) {
        // Not ours: the default action ends the program when the access repeats.
        // SAFETY: 2: an all-zero action is the default one.
        unsafe { libc::sigaction(libc::SIGBUS, &zeroed::<libc::sigaction>(), null_mut()) };
        return;
    }
    let page = address & !(PAGE_SIZE - 1);
    // SAFETY: 1: open as long as the tracker lives.
    let uffd = unsafe { BorrowedFd::borrow_raw(UFFD.load(Relaxed)) };
    // SAFETY: 1: a page of the mapping, checked above. A refusal faults again and is seen as a hang.
    let _ = unsafe { uffd::write_protect(uffd, page, PAGE_SIZE, false) };
    // 3: one thread: a load and a store do.
    FAULTS.store(FAULTS.load(Relaxed) + 1, Relaxed);
    let open_max = OPEN_MAX.load(Relaxed);
    if open_max > 0 {
        let next = NEXT.load(Relaxed);
        NEXT.store(if next + 1 == open_max { 0 } else { next + 1 }, Relaxed);
        // SAFETY: 1: `next` stays below the length of the leaked slice.
        let slot = unsafe { &*OPEN.load(Relaxed).add(next) };
        let oldest = slot.load(Relaxed);
        slot.store(page, Relaxed);
        if oldest != 0 {
            // SAFETY: 1: a page of the mapping, opened before.
            let _ = unsafe { uffd::write_protect(uffd, oldest, PAGE_SIZE, true) };
        }
    }
}
