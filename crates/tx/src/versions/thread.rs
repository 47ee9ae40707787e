//! The persistence thread: rounds of persistence beside the operations.
//!
//! Lists of versions go there and come back through two rings of one writer and one reader each: no lock,
//! and no instruction that would wait for the operation's own stores. The thread spins for a moment between
//! rounds, since the next one usually comes at once, and then naps. A list that arrives in the instant
//! between its last look and its nap may be seen by its next look only: that is a nap's length late at most,
//! and whoever waits for the thread wakes it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use super::VersionsError;
use super::round::{Round, Written};

/// Looks for a list before the thread naps: some ten microseconds.
const LOOKS_MAX: u32 = 2_000;
const NAP: Duration = Duration::from_millis(10);

/// Lists that go around. At most one epoch is sealed, so one would do; but whoever finds a ring full or empty
/// looks at what the other side's processor wrote last, and waits for that line. So lists go there one by one,
/// and are fetched back when all of them are there.
const LISTS_MAX: usize = 32;

/// An epoch, and what it wrote.
type Sealed = (u64, Vec<Written>);

/// What the thread tells, on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Told {
    persistent: AtomicU64,
    naps: AtomicBool,
    ends: AtomicBool,
    failed: OnceLock<VersionsError>,
}

/// The thread, from the side of the operations. It ends with this.
pub(super) struct PersistenceThread {
    told: Arc<Told>,
    lists: Producer<Sealed>,
    empty: Consumer<Vec<Written>>,
    /// Those of the empty lists that were fetched back.
    spare: Vec<Vec<Written>>,
    handle: Option<JoinHandle<()>>,
}

impl PersistenceThread {
    pub(super) fn start(round: Round) -> Result<Self, VersionsError> {
        let told = Arc::new(Told::default());
        told.persistent.store(round.persistent(), Ordering::Relaxed);
        let spare = vec![Vec::new(); LISTS_MAX];
        let (lists, to_persist) = RingBuffer::new(LISTS_MAX);
        let (done, empty) = RingBuffer::new(LISTS_MAX);
        let tells = Arc::clone(&told);
        let handle = std::thread::Builder::new()
            .name("wattkeep-persist".into())
            .spawn(move || run(round, &tells, to_persist, done))
            .map_err(|error| VersionsError::Thread(error.to_string()))?;
        Ok(Self { told, lists, empty, spare, handle: Some(handle) })
    }

    pub(super) fn persistent(&self) -> u64 {
        self.told.persistent.load(Ordering::Acquire)
    }

    /// Hands the versions of the next epoch over; an empty list for the one behind it. The epoch before is
    /// persistent.
    pub(super) fn begin(&mut self, epoch: u64, written: Vec<Written>) -> Vec<Written> {
        if self.spare.is_empty() {
            self.spare.extend(std::iter::from_fn(|| self.empty.pop().ok()));
        }
        let empty = self.spare.pop().unwrap_or_default();
        assert!(self.lists.push((epoch, written)).is_ok(), "an epoch is sealed while another is");
        if self.told.naps.load(Ordering::Relaxed) {
            self.wake();
        }
        empty
    }

    /// A transaction made `epoch` persistent. The thread has nothing to do, so nobody else tells anything.
    pub(super) fn skip(&self, epoch: u64) {
        self.told.persistent.store(epoch, Ordering::Release);
    }

    fn wake(&self) {
        if let Some(handle) = &self.handle {
            handle.thread().unpark();
        }
    }

    /// Waits until `epoch`, which was handed over, is persistent.
    pub(super) fn wait_for(&self, epoch: u64) -> Result<(), VersionsError> {
        let mut looks = 0_u32;
        while self.persistent() < epoch {
            self.check()?;
            if self.handle.as_ref().is_none_or(JoinHandle::is_finished) && self.persistent() < epoch {
                self.check()?;
                return Err(VersionsError::Thread("the persistence thread ended".into()));
            }
            looks += 1;
            if looks < LOOKS_MAX {
                std::hint::spin_loop();
            } else {
                self.wake();
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// What a round failed with.
    pub(super) fn check(&self) -> Result<(), VersionsError> {
        self.told.failed.get().map_or(Ok(()), |error| Err(error.clone().into_final()))
    }
}

impl Drop for PersistenceThread {
    fn drop(&mut self) {
        self.told.ends.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(handle) = self.handle.take() {
            // A panic of the thread was printed; the epoch it left is not persistent, as after a crash.
            let _ = handle.join();
        }
    }
}

fn run(mut round: Round, told: &Told, mut lists: Consumer<Sealed>, mut done: Producer<Vec<Written>>) {
    let mut looks = 0;
    while !told.ends.load(Ordering::Relaxed) {
        let Ok((epoch, written)) = lists.pop() else {
            looks += 1;
            if looks < LOOKS_MAX {
                std::hint::spin_loop();
            } else {
                looks = 0;
                nap(told, &lists);
            }
            continue;
        };
        looks = 0;
        round.begin(epoch, written);
        if let Err(error) = round.go_on(usize::MAX) {
            let _ = told.failed.set(error);
            return;
        }
        // Room for it was made when the list was handed over.
        let _ = done.push(round.end());
        told.persistent.store(round.persistent(), Ordering::Release);
    }
}

fn nap(told: &Told, lists: &Consumer<Sealed>) {
    told.naps.store(true, Ordering::SeqCst);
    if lists.is_empty() && !told.ends.load(Ordering::SeqCst) {
        std::thread::park_timeout(NAP);
    }
    told.naps.store(false, Ordering::Relaxed);
}
