//! The signal handler: finds the region of a fault, resolves it, or hands the signal on.
//!
//! Never allocates, locks, logs, or touches region memory; the one exception is the checking mode of
//! explicit regions, which reports a programming error with a backtrace.
//!
//! # Safety
//!
//! 1. A published entry's `Tracked` is alive until its region was withdrawn and unmapped; a thread
//!    that accesses a region while another one closes it breaks the contract of the region's owner.
//! 2. The handler is installed once per signal and never removed: others may have chained to it.
//! 3. What runs after a fork touches atomics, and maps memory.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::io::write as write_fd;
use wattkeep_sys::signal::{self, FaultSignal, Previous, SigInfo};

use super::grant::{Outcome, Tracked};
use crate::limits::{REGIONS_MAX, SESSIONS_MAX};
use crate::types::Tracking;

/// One mapped region, found by address.
struct Entry {
    /// Odd while the others change.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    tracked: AtomicPtr<Tracked>,
}

const ENTRIES: usize = REGIONS_MAX * SESSIONS_MAX;

static REGIONS: [Entry; ENTRIES] = [const { Entry::none() }; ENTRIES];
/// Entries at or above this one were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
static PUBLISHING: Mutex<()> = Mutex::new(());
static PREVIOUS_BUS: OnceLock<Previous> = OnceLock::new();
static PREVIOUS_SEGV: OnceLock<Previous> = OnceLock::new();

/// Sends faults of `start..start + len` to `tracked`. Returns the entry, for [`withdraw`].
pub fn publish(start: usize, len: usize, tracked: *mut Tracked) -> io::Result<usize> {
    let _one_at_a_time = PUBLISHING.lock().map_err(|_| io::Error::other("a publisher panicked"))?;
    static FORKS: OnceLock<()> = OnceLock::new();
    if FORKS.get().is_none() {
        // SAFETY: 3: atomics and system calls only.
        unsafe { signal::after_fork_in_child(leave_regions) }?;
        let _ = FORKS.set(());
    }
    let Some(free) = REGIONS.iter().position(|entry| entry.end.load(Ordering::SeqCst) == 0) else {
        return Err(io::Error::other(format!("this process maps {ENTRIES} regions already: close one")));
    };
    let entry = &REGIONS[free];
    entry.put(start, start + len, tracked);
    USED.fetch_max(free + 1, Ordering::SeqCst);
    Ok(free)
}

/// Ends [`publish`]: later faults of that range go to the handler before ours.
pub fn withdraw(entry: usize) {
    REGIONS[entry].clear();
}

/// The region that holds `address`.
#[inline]
fn find(address: usize) -> Option<&'static Tracked> {
    REGIONS[..USED.load(Ordering::Acquire).min(ENTRIES)].iter().find_map(|entry| {
        let tracked = entry.holder_of(address)?;
        // SAFETY: 1: published entries are alive.
        unsafe { tracked.as_ref() }
    })
}

impl Entry {
    const fn none() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            tracked: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn put(&self, start: usize, end: usize, tracked: *mut Tracked) {
        // Odd: amid a change. A fork may have left it so.
        let changing = self.version.load(Ordering::SeqCst) | 1;
        self.version.store(changing, Ordering::SeqCst);
        self.tracked.store(tracked, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        self.version.store(changing.wrapping_add(1), Ordering::SeqCst);
    }

    fn clear(&self) {
        self.put(usize::MAX, 0, std::ptr::null_mut());
    }

    /// The region of this entry, if `address` lies in it. While another thread puts a new region into the
    /// entry, what is read may be of both, and nothing is answered: `address` lies in a region that nobody opens
    /// or closes now.
    #[inline]
    fn holder_of(&self, address: usize) -> Option<*mut Tracked> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        if address < start || address >= end {
            return None;
        }
        let tracked = self.tracked.load(Ordering::Acquire);
        let whole = version & 1 == 0 && self.version.load(Ordering::Acquire) == version;
        whole.then_some(tracked)
    }
}

/// Installs our handler for `signal`, unless it is there already.
pub fn install(signal: FaultSignal) -> io::Result<()> {
    let _one_at_a_time = PUBLISHING.lock().map_err(|_| io::Error::other("a publisher panicked"))?;
    let slot = match signal {
        FaultSignal::Bus => &PREVIOUS_BUS,
        FaultSignal::Segv => &PREVIOUS_SEGV,
    };
    if slot.get().is_some() && signal::is_installed(signal, on_fault) {
        return Ok(());
    }
    if slot.get().is_some() {
        return Err(io::Error::other(format!(
            "another handler replaced ours for {signal:?}: let it chain, or open the region after it is installed"
        )));
    }
    // SAFETY: 2: `on_fault` keeps to async-signal-safe calls.
    let previous = unsafe { signal::install(signal, on_fault) }?;
    slot.set(previous).map_err(|_| io::Error::other("the fault handler was installed twice"))
}

/// A forked child has none of the regions. It may have handles to them, and announcements that its parent made.
unsafe extern "C" fn leave_regions() {
    for entry in &REGIONS {
        // SAFETY: 1: nobody withdraws it any more.
        if let Some(tracked) = unsafe { entry.tracked.load(Ordering::SeqCst).as_ref() } {
            tracked.part_from_parent();
        }
        entry.clear();
    }
}

/// Makes room on the stack for the reports of the checking mode.
pub fn prepare_reports(signal: FaultSignal) -> io::Result<()> {
    signal::leave_alternate_stack(signal)
}

extern "C" fn on_fault(number: c_int, info: *mut SigInfo, context: *mut c_void) {
    // SAFETY: 2: the kernel's own arguments.
    let (address, write) = unsafe { (signal::fault_address(info), signal::fault_is_write(context)) };
    let resolved = find(address).and_then(|tracked| Some((tracked, tracked.page_of(address)?)));
    let Some((tracked, page)) = resolved else {
        let previous = if number == FaultSignal::Bus.number() { &PREVIOUS_BUS } else { &PREVIOUS_SEGV };
        if let Some(previous) = previous.get() {
            // SAFETY: 2: the arguments of this very signal.
            unsafe { signal::chain(previous, number, info, context) };
        }
        return;
    };
    let write = write.unwrap_or(true);
    if write && tracked.tracking() == Tracking::Checking && tracked.is_closed(page) {
        report_unannounced(tracked, address);
    }
    tracked.count_fault();
    match tracked.resolve(page, write) {
        Outcome::Resolved => {}
        Outcome::Lost => {
            die("wattkeep: the stored copy of this page is damaged; run 'wattkeep check' on its store\n")
        }
        Outcome::Broken(_) => {
            die("wattkeep: a page could not be made writable: its mapping was changed behind us\n")
        }
    }
}

/// Ends the process without unwinding, after one line on standard error.
fn die(line: &str) -> ! {
    let _ = write_fd(rustix::stdio::stderr(), line.as_bytes());
    std::process::abort()
}

/// Checking mode: a store that nobody announced. Allocates, which is fit for a program under test.
#[cold]
fn report_unannounced(tracked: &Tracked, address: usize) {
    tracked.shared().control.counters.unannounced.fetch_add(1, Ordering::Relaxed);
    let backtrace = std::backtrace::Backtrace::force_capture();
    let report = format!(
        "wattkeep: store to {address:#x} was not announced: call will_write before it\n{backtrace}\n"
    );
    let _ = write_fd(rustix::stdio::stderr(), report.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The story: an entry that was freed is used again for another region. A thread that looked at it
    /// meanwhile could take the old beginning and the new end for one region, and hand the fault of a third
    /// region, which lies between them, to the program's own handler. That the beginning was the same again
    /// did not tell: the first region could have come back meanwhile.
    #[test]
    fn an_entry_that_changes_hands_holds_no_address_in_between() {
        let entry = Entry::none();
        let regions = [(0x1000, 0x2000), (0x5000, 0x6000)];
        let put =
            |(start, end): (usize, usize)| entry.put(start, end, std::ptr::without_provenance_mut(start));
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2_000_000 {
                    put(regions[round % 2]);
                    entry.clear();
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                assert_eq!(entry.holder_of(0x3000), None);
            }
        });
        put(regions[1]);
        assert_eq!(entry.holder_of(0x5800).map(|found| found as usize), Some(0x5000));
        assert_eq!(entry.holder_of(0x3000), None);
    }
}
