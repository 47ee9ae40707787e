//! What the shared words stand on: atomics, sleeping on a word, yielding.
//!
//! The program takes them from the system. A build for a model checker (`--cfg loom`, `--cfg shuttle`)
//! takes the checker's, which tries the orders in which threads may meet.

#[cfg(not(any(loom, shuttle)))]
mod chosen {
    pub use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub use std::sync::{Mutex, MutexGuard};
    pub use std::thread::yield_now;

    pub use wattkeep_sys::futex;
}

#[cfg(loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{Mutex, MutexGuard};
    pub use loom::thread::yield_now;

    /// Sleeping is modelled where every access is in one order: see the models for shuttle.
    pub mod futex {
        use std::io;
        use std::time::Duration;

        use super::{AtomicU32, Ordering, yield_now};

        /// Waits until `word` moved.
        pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> io::Result<()> {
            while word.load(Ordering::SeqCst) == expected {
                yield_now();
            }
            Ok(())
        }

        /// Nobody sleeps.
        pub fn wake(_word: &AtomicU32, _count: u32) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(shuttle)]
mod chosen {
    pub use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
    pub use shuttle::sync::{Mutex, MutexGuard};
    pub use shuttle::thread::yield_now;

    /// The kernel's sleeping, without its timeouts: a wake-up that is lost is a deadlock, which the
    /// checker reports.
    pub mod futex {
        use std::collections::BTreeMap;
        use std::io;
        use std::time::Duration;

        use shuttle::sync::{Condvar, Mutex};

        use super::{AtomicU32, Ordering};

        shuttle::lazy_static! {
            /// How often each word was woken. Looking and falling asleep are one step, under the lock.
            static ref WAKES: Mutex<BTreeMap<usize, u64>> = Mutex::new(BTreeMap::new());
            static ref WOKEN: Condvar = Condvar::new();
        }

        /// Sleeps while `word` holds `expected`, until it is woken.
        pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> io::Result<()> {
            let address = std::ptr::from_ref(word).addr();
            let mut wakes = WAKES.lock().expect("no sleeper panics");
            let before = wakes.get(&address).copied();
            if word.load(Ordering::SeqCst) == expected {
                while wakes.get(&address).copied() == before {
                    wakes = WOKEN.wait(wakes).expect("no sleeper panics");
                }
            }
            Ok(())
        }

        /// Wakes everybody who sleeps on `word`.
        pub fn wake(word: &AtomicU32, _count: u32) -> io::Result<()> {
            let address = std::ptr::from_ref(word).addr();
            *WAKES.lock().expect("no sleeper panics").entry(address).or_default() += 1;
            WOKEN.notify_all();
            Ok(())
        }
    }
}

pub use chosen::*;

/// The cheap half of an agreement whose other side puts a barrier on all threads: the compiler alone is held. In
/// a model, which knows no such barrier, it is a fence.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(any(loom, shuttle)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(any(loom, shuttle))]
    fence(Ordering::SeqCst);
}
