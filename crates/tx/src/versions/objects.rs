//! The door: versioned objects are made, opened, read, operated on.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use wattkeep_persist::Space;

use super::VersionsError;
use super::area::Area;
use super::layout::{Layout, Shape, Word};
use super::round::{Persistence, Rounds};
use super::thread::{Bell, PersistenceThread};
use super::writer::{Operation, Writer};

/// Objects of one size, each with two or three versions. See the module for what they promise.
///
/// May be shared between threads: operations take turns, and so do reads.
pub struct VersionedObjects {
    // Dropped first: the thread ends.
    thread: Option<PersistenceThread>,
    shared: Arc<Shared>,
}

/// What the operations and the persistence thread share.
pub(super) struct Shared {
    writer: Mutex<Writer>,
    pub(super) rounds: Rounds,
    pub(super) persistence: Persistence,
    pub(super) bell: Bell,
    pub(super) thread: OnceLock<Thread>,
}

impl Shared {
    pub(super) fn check_access(&self, object: u64, bytes: usize) -> Result<(), VersionsError> {
        let Shape { objects, object_bytes, .. } = self.rounds.area.layout.shape;
        if object >= objects {
            return Err(VersionsError::NoObject { object, objects });
        }
        if bytes as u64 != object_bytes {
            return Err(VersionsError::Length { bytes, object_bytes: object_bytes as usize });
        }
        Ok(())
    }

    /// Tells the persistence thread, if there is one, that an epoch is sealed.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            self.bell.ring(thread);
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // Whoever panicked in an operation undid it on the way out.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VersionedObjects {
    /// Bytes that objects of this shape take.
    ///
    /// # Errors
    /// They do not fit the address space.
    pub fn bytes(shape: &Shape) -> Result<usize, VersionsError> {
        Ok(Layout::of(shape)?.bytes)
    }

    /// Makes objects at offset `at` of the space, which begins a line: all zero, never written.
    ///
    /// # Errors
    /// The shape, the place or the pace cannot be, or the space refuses.
    pub fn create(
        space: Arc<Space>,
        at: usize,
        shape: &Shape,
        persistence: Persistence,
    ) -> Result<Self, VersionsError> {
        let area = Area::create(space, at, shape)?;
        let newest = vec![Word::NEVER; shape.objects as usize];
        Self::start(area, newest, persistence)
    }

    /// Opens the objects at `at`: each is what it was at the end of the persistent epoch.
    ///
    /// # Errors
    /// There are none, they are damaged, the pace cannot be, or the space refuses.
    pub fn open(space: Arc<Space>, at: usize, persistence: Persistence) -> Result<Self, VersionsError> {
        let (area, newest) = Area::open(space, at)?;
        Self::start(area, newest, persistence)
    }

    fn start(area: Area, newest: Vec<Word>, persistence: Persistence) -> Result<Self, VersionsError> {
        if let Some(pace) = persistence.pace() {
            pace.check()?;
        }
        let shared = Arc::new(Shared {
            writer: Writer::new(newest).into(),
            rounds: Rounds::new(area)?,
            persistence,
            bell: Bell::default(),
            thread: OnceLock::new(),
        });
        let thread = match persistence {
            Persistence::Decoupled(_) => Some(PersistenceThread::start(&shared)?),
            Persistence::Each | Persistence::ByHand(_) => None,
        };
        Ok(Self { thread, shared })
    }

    /// The shape of the objects.
    pub fn shape(&self) -> Shape {
        self.shared.rounds.area.layout.shape
    }

    /// Begins an operation, after the one before it.
    ///
    /// # Errors
    /// Persisting failed before.
    pub fn operation(&self) -> Result<Operation<'_>, VersionsError> {
        self.shared.rounds.check()?;
        Ok(Operation::begin(&self.shared, self.shared.writer()))
    }

    /// Reads all of `object` as the last operation left it, persistent or not.
    ///
    /// # Errors
    /// There is no such object, or it has another length.
    pub fn read(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.shared.writer().read(&self.shared, object, into)
    }

    /// Waits until every committed operation is persistent.
    ///
    /// # Errors
    /// Persisting failed.
    pub fn sync(&self) -> Result<(), VersionsError> {
        self.shared.writer().sync(&self.shared)
    }

    /// Persists up to `versions_max` versions of the epoch that is sealed; whether none is left to do.
    /// For [`Persistence::ByHand`]; beside a thread it helps.
    ///
    /// # Errors
    /// Persisting failed.
    pub fn persist_some(&self, versions_max: usize) -> Result<bool, VersionsError> {
        self.shared.rounds.persist_some(versions_max)
    }

    /// Operations that are committed and not persistent: what a crash would lose now.
    pub fn behind(&self) -> u64 {
        self.shared.writer().behind(&self.shared)
    }

    /// Operations committed, and rounds of persistence begun, since the objects were opened.
    pub fn done(&self) -> (u64, u64) {
        self.shared.writer().done()
    }
}

impl Drop for VersionedObjects {
    /// Makes everything persistent, unless persisting failed.
    fn drop(&mut self) {
        // A failure was kept, and a caller who needs to know calls `sync`.
        let _ = self.sync();
        self.thread = None;
    }
}

impl fmt::Debug for VersionedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionedObjects({:?}, {:?})", self.shape(), self.shared.persistence)
    }
}
