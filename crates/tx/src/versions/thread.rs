//! The persistence thread: rounds of persistence beside the operations.
//!
//! It spins for a moment between rounds, since the next one usually comes at once, and then sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};

use super::VersionsError;
use super::objects::Shared;

/// Looks for a sealed epoch before the thread sleeps: some microseconds.
const LOOKS_MAX: u32 = 2_000;

/// How the thread is woken, and told to end.
#[derive(Default)]
pub(super) struct Bell {
    asleep: AtomicBool,
    ends: AtomicBool,
}

impl Bell {
    /// Wakes the thread if it sleeps. The caller has sealed an epoch.
    pub(super) fn ring(&self, thread: &Thread) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            thread.unpark();
        }
    }
}

/// The thread, which ends with this.
pub(super) struct PersistenceThread {
    handle: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl PersistenceThread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, VersionsError> {
        let works_on = Arc::clone(shared);
        let handle = std::thread::Builder::new()
            .name("wattkeep-persist".into())
            .spawn(move || run(&works_on))
            .map_err(|error| VersionsError::Thread(error.to_string()))?;
        // Set once, before any operation.
        let _ = shared.thread.set(handle.thread().clone());
        Ok(Self { handle: Some(handle), shared: Arc::clone(shared) })
    }
}

impl Drop for PersistenceThread {
    fn drop(&mut self) {
        self.shared.bell.ends.store(true, Ordering::SeqCst);
        if let Some(handle) = self.handle.take() {
            handle.thread().unpark();
            // A panic of the thread was printed; the epoch it left is not persistent, as after a crash.
            let _ = handle.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut looks = 0;
    while !shared.bell.ends.load(Ordering::SeqCst) {
        if !shared.rounds.is_idle() {
            looks = 0;
            // The failure is kept, and answers the next operation.
            if shared.rounds.finish().is_err() {
                return;
            }
        } else if looks < LOOKS_MAX {
            looks += 1;
            std::hint::spin_loop();
        } else {
            looks = 0;
            sleep(shared);
        }
    }
}

/// Sleeps until an epoch is sealed, or the end. Either the one who seals sees that we sleep, or we see the
/// sealed epoch.
fn sleep(shared: &Shared) {
    shared.bell.asleep.store(true, Ordering::SeqCst);
    if shared.rounds.is_idle() && !shared.bell.ends.load(Ordering::SeqCst) {
        std::thread::park();
    }
    shared.bell.asleep.store(false, Ordering::SeqCst);
}
