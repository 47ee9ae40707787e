//! Sleeping on a 32-bit word that two processes share.
//!
//! Fit for a signal handler: one system call, no allocation, no errno.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::thread::futex::{Flags, Timespec, wait as futex_wait, wake as futex_wake};

/// Sleeps while `word` holds `expected`, at most `timeout`. Returns on any wake-up, signal or time
/// out: the caller looks at the word again.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<()> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match futex_wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Wakes up to `count` sleepers on `word`.
pub fn wake(word: &AtomicU32, count: u32) -> Result<()> {
    futex_wake(word, Flags::empty(), count).map(drop)
}
