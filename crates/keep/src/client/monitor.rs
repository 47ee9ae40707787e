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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use wattkeep_sys::uffd;

use super::grant::{Outcome, Tracked};
use super::guard::Guard;
use crate::limits::PAGE_SIZE;

/// The running thread of one region.
#[derive(Debug)]
pub struct Monitor {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// A pointer that the thread may take along.
struct Target(*const Tracked);

// SAFETY: 1: `Tracked` is shared between threads anyway, and outlives the thread.
unsafe impl Send for Target {}

impl Monitor {
    /// Starts answering the faults of `tracked`.
    ///
    /// # Safety
    /// 1: `tracked` and its mapping stay alive until the monitor is dropped.
    pub unsafe fn start(tracked: *const Tracked) -> io::Result<Self> {
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let target = Target(tracked);
        let thread = std::thread::Builder::new().name("wattkeep-monitor".into()).spawn(move || {
            let target = target;
            // SAFETY: 1 by the caller.
            let tracked = unsafe { &*target.0 };
            if let Guard::Userfault { fd, .. } = tracked.guard() {
                answer(tracked, fd.as_fd(), &stopped);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(tracked: &Tracked, fd: BorrowedFd<'_>, stop: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        while let Ok(Some(fault)) = uffd::next_fault(fd) {
            let Some(page) = tracked.page_of(fault.address) else { continue };
            tracked.count_fault();
            match tracked.resolve(page, fault.write) {
                // SAFETY: 1: a page of the region. Several threads may wait on one page, and a page
                // found open already woke nobody.
                Outcome::Resolved => drop(unsafe { uffd::wake(fd, fault.address, PAGE_SIZE) }),
                failed => {
                    let text = format!(
                        "wattkeep: page {page} cannot be handed out: {failed:?} (fd {})\n",
                        fd.as_raw_fd()
                    );
                    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
                    std::process::abort();
                }
            }
        }
    }
}
