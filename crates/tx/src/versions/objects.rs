//! The door: versioned objects are made, opened, read, operated on.

use std::fmt;
use std::sync::Arc;

use wattkeep_persist::Space;

use super::VersionsError;
use super::area::Area;
use super::layout::{Keeper, Layout, Shape, Word};
use super::persister::Persister;
use super::round::Persistence;
use super::writer::{Operation, Writer};

/// Objects of one size, each with two or three versions. See the module for what they promise.
///
/// One thread operates at a time; to share them, put them behind a lock.
pub struct VersionedObjects {
    pub(super) area: Arc<Area>,
    pub(super) writer: Writer,
    pub(super) persister: Persister,
    pub(super) persistence: Persistence,
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
        check_pace(persistence)?;
        let area = Area::create(space, at, shape)?;
        let newest = vec![Word::NEVER; shape.objects as usize];
        Self::start(area, newest, persistence)
    }

    /// Opens the objects at `at`: each is what it was at the end of the persistent epoch.
    ///
    /// # Errors
    /// There are none, they are damaged or a heap's transactions have them, the pace cannot be, or the space
    /// refuses.
    pub fn open(space: Arc<Space>, at: usize, persistence: Persistence) -> Result<Self, VersionsError> {
        Self::open_kept_by(Keeper::Rounds, space, at, persistence)
    }

    pub(super) fn open_kept_by(
        keeper: Keeper,
        space: Arc<Space>,
        at: usize,
        persistence: Persistence,
    ) -> Result<Self, VersionsError> {
        check_pace(persistence)?;
        let (area, newest) = Area::open(space, at, keeper)?;
        Self::start(area, newest, persistence)
    }

    fn start(area: Area, newest: Vec<Word>, persistence: Persistence) -> Result<Self, VersionsError> {
        let area = Arc::new(area);
        let persister = Persister::new(area.clone(), persistence)?;
        let writer = Writer::new(newest, &area.layout);
        Ok(Self { area, writer, persister, persistence })
    }

    /// The shape of the objects.
    pub fn shape(&self) -> Shape {
        self.area.layout.shape
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// Persisting failed before.
    pub fn operation(&mut self) -> Result<Operation<'_>, VersionsError> {
        Operation::begin(self)
    }

    /// Reads all of `object` as the last operation left it, persistent or not. One never written is zeros.
    ///
    /// # Errors
    /// There is no such object, or it has another length.
    pub fn read(&self, object: u64, into: &mut [u8]) -> Result<(), VersionsError> {
        self.check_access(object, into.len())?;
        match self.writer.newest(object) {
            Word::NEVER => into.fill(0),
            word => self.area.read(self.area.layout.slot_of(word), into)?,
        }
        Ok(())
    }

    pub(super) fn check_access(&self, object: u64, bytes: usize) -> Result<(), VersionsError> {
        let Shape { objects, object_bytes, .. } = self.area.layout.shape;
        if object >= objects {
            return Err(VersionsError::NoObject { object, objects });
        }
        if bytes as u64 != object_bytes {
            return Err(VersionsError::Length { bytes, object_bytes: object_bytes as usize });
        }
        Ok(())
    }

    /// Waits until every committed operation is persistent.
    ///
    /// # Errors
    /// Persisting failed.
    pub fn sync(&mut self) -> Result<(), VersionsError> {
        // An operation that was forgotten is none.
        self.take_back()?;
        self.writer.sync(&mut self.persister)
    }

    /// Persists up to `versions_max` versions of the epoch that is sealed; whether none is left to do.
    /// For [`Persistence::ByHand`]: a thread needs no help.
    ///
    /// # Errors
    /// Persisting failed.
    pub fn persist_some(&mut self, versions_max: usize) -> Result<bool, VersionsError> {
        self.persister.go_on(versions_max)
    }

    /// Operations that are committed and not persistent: what a crash would lose now.
    pub fn behind(&self) -> u64 {
        self.writer.behind(&self.persister)
    }

    /// Operations committed, and rounds of persistence begun, since the objects were opened.
    pub fn done(&self) -> (u64, u64) {
        self.writer.done()
    }
}

fn check_pace(persistence: Persistence) -> Result<(), VersionsError> {
    persistence.pace().map_or(Ok(()), |pace| pace.check().map(|_| ()))
}

impl Drop for VersionedObjects {
    /// Makes everything persistent, unless persisting failed.
    fn drop(&mut self) {
        // A failure was kept, and a caller who needs to know calls `sync`.
        let _ = self.sync();
    }
}

impl fmt::Debug for VersionedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionedObjects({:?}, {:?})", self.shape(), self.persistence)
    }
}
