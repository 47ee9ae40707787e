//! Memory barriers on other threads, of this process or of others: the dear half of an asymmetric pair, of which the
//! cheap half only keeps the compiler from reordering.

use std::sync::OnceLock;

use rustix::io::{Errno, Result};
use rustix::thread::{MembarrierCommand, membarrier};

/// Returns after every thread of this process has passed a full barrier between two of its instructions, or
/// was not running. The first call of a process takes some 10 ms when there is more than one thread.
pub fn on_own_threads() -> Result<()> {
    static ASKED_FOR: OnceLock<Result<()>> = OnceLock::new();
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    (*ASKED_FOR.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited)))?;
    membarrier(MembarrierCommand::PrivateExpedited)
}

/// The threads of this process take part in the barriers of others from now on (Linux 4.16).
pub fn take_part() -> Result<()> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited)
}

/// Returns after every thread, of all processes, that [takes part](take_part) has passed a full barrier between
/// two of its instructions, or was not running.
pub fn on_all_that_take_part() -> Result<()> {
    membarrier(MembarrierCommand::GlobalExpedited)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels from 4.14 on have it, and a filter may refuse it: it is the same each time.
    #[test]
    fn a_barrier_that_was_had_once_is_had_again() {
        let first = on_own_threads();
        assert_eq!(on_own_threads(), first);
    }
}
