//! Monitor mode: a thread of the client answers userfaultfd's messages.
//!
//! Slower than a signal (16 to 45 µs against 5), but faults that the kernel itself takes, in system
//! calls that write into the region, are answered too. One thread per region; it ends when the
//! region's descriptor is shut.
//!
//! # Safety
//!
//! 1. The region's mapping outlives the thread: its owner stops and joins it before unmapping.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use wattkeep_sys::uffd::{self, Fault};

use super::grant::{Outcome, Tracked};
use crate::limits::PAGE_SIZE;

/// The running threads of one region.
#[derive(Debug)]
pub struct Monitor {
    stop: OwnedFd,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A pointer that a thread may take along.
#[derive(Clone, Copy)]
struct Target(*const Tracked);

// SAFETY: 1: `Tracked` is shared between threads anyway, and outlives the threads.
unsafe impl Send for Target {}

impl Target {
    fn tracked<'a>(self) -> &'a Tracked {
        // SAFETY: 1: alive until the threads have ended.
        unsafe { &*self.0 }
    }
}

impl Monitor {
    /// Starts answering the faults of `tracked`.
    ///
    /// # Safety
    /// 1: `tracked` and its mapping stay alive until the monitor is dropped.
    pub unsafe fn start(tracked: *const Tracked) -> io::Result<Self> {
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let mut monitor = Self { stop, stopped: Arc::default(), threads: Vec::new() };
        let (later, waiting) = mpsc::channel();
        let (target, stopping) = (Target(tracked), monitor.stopped.clone());
        let name = |name: &str| std::thread::Builder::new().name(name.into());
        monitor.threads.push(name("wattkeep-waiter").spawn(move || wait(target, &waiting, &stopping))?);
        monitor.threads.push(name("wattkeep-monitor").spawn(move || answer(target, &later, &stopped))?);
        Ok(monitor)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(target: Target, later: &mpsc::Sender<(u32, Fault)>, stop: &OwnedFd) {
    let tracked = target.tracked();
    let Some(fd) = tracked.guard().descriptor() else { return };
    loop {
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        while let Ok(Some(fault)) = uffd::next_fault(fd) {
            let Some(page) = tracked.page_of(fault.address) else {
                die("wattkeep: an access behind the end of a region\n")
            };
            tracked.count_fault();
            match tracked.try_resolve(page, fault.write) {
                Some(outcome) => finish(fd, page, fault, outcome),
                None => drop(later.send((page, fault))),
            }
        }
    }
}

/// Answers the faults that wait for a permit or for the end of a freeze, one after the other.
fn wait(target: Target, waiting: &mpsc::Receiver<(u32, Fault)>, stopped: &AtomicBool) {
    let tracked = target.tracked();
    let Some(fd) = tracked.guard().descriptor() else { return };
    while let Ok((page, fault)) = waiting.recv() {
        let outcome = loop {
            if let Some(outcome) = tracked.try_resolve(page, fault.write) {
                break outcome;
            }
            if stopped.load(Ordering::SeqCst) {
                return;
            }
            tracked.wait_for_permit();
        };
        finish(fd, page, fault, outcome);
    }
}

fn finish(fd: BorrowedFd<'_>, page: u32, fault: Fault, outcome: Outcome) {
    match outcome {
        // SAFETY: 1: a page of the region. Several threads may wait on one page, and a page
        // found open already woke nobody.
        Outcome::Resolved => drop(unsafe { uffd::wake(fd, fault.address, PAGE_SIZE) }),
        failed => die(&format!("wattkeep: page {page} cannot be handed out: {}\n", says(failed))),
    }
}

/// Ends the process without unwinding, after one line on standard error.
fn die(line: &str) -> ! {
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    std::process::abort()
}

fn says(failed: Outcome) -> &'static str {
    match failed {
        Outcome::Lost => "its stored copy is damaged; run 'wattkeep check' on its store",
        _ => "its mapping was changed behind us",
    }
}
