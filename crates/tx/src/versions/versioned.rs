//! Versioned objects of a heap, written by its transactions.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use wattkeep_persist::{LINE, Pod, Ptr, bytemuck};

use super::VersionsError;
use super::area::Area;
use super::enlisted::{Opened, State};
use super::layout::{Keeper, Layout, Shape, Versions};
use super::objects::VersionedObjects;
use super::round::Persistence;
use crate::error::TxError;
use crate::manager::Manager;
use crate::tx::Tx;

/// Tag of roots that lead to versioned objects: "WKVERSON".
pub const ROOT_TAG: u64 = u64::from_le_bytes(*b"WKVERSON");

/// Objects of type `T` in a heap, each in two or three versions, written by transactions: together with all
/// else that a transaction changes, or not at all. A handle; clones are of the same objects.
///
/// ```
/// # use std::sync::Arc;
/// # use wattkeep_heap::Heap;
/// # use wattkeep_persist::{Anonymous, Domain, Ptr, Space};
/// # use wattkeep_tx::versions::{Persistence, Versioned, Versions};
/// # use wattkeep_tx::{Manager, Options, TxError};
/// # let space = Arc::new(Space::new(Arc::new(Anonymous::new(1 << 20)), Domain::Battery));
/// # let heap = Heap::create(space, &wattkeep_heap::Options { log_area_bytes: 1 << 16, ..Default::default() })?;
/// # let counter = heap.create_root("counter", 8, 0)?.word;
/// # let manager = Manager::open(Arc::new(heap), &Options::default())?;
/// let texts: Versioned<[u8; 256]> =
///     Versioned::open_or_create_root(&manager, "texts", 1000, Versions::Three, Persistence::Each)?;
/// manager.run(|tx| {
///     let (one, other) = (texts.read_in(tx, 1)?, texts.read_in(tx, 2)?);
///     texts.write(tx, 1, &other)?;
///     texts.write(tx, 2, &one)?;
///     let swaps = tx.read_word(counter)?;
///     tx.write_word(counter, swaps + 1)
/// })?;
/// # Ok::<(), TxError>(())
/// ```
///
/// # What does not compile
///
/// A write without a transaction:
/// ```compile_fail,E0061
/// # use wattkeep_tx::versions::Versioned;
/// fn write(texts: &Versioned<[u8; 256]>) {
///     let _ = texts.write(1, &[0; 256]);
/// }
/// ```
/// An operation outside of a transaction, which the log knows nothing of:
/// ```compile_fail,E0599
/// # use wattkeep_tx::versions::Versioned;
/// fn operate(texts: &mut Versioned<[u8; 256]>) {
///     let _ = texts.operation();
/// }
/// ```
/// Objects that are no transactions' in one:
/// ```compile_fail,E0308
/// # use wattkeep_tx::{Tx, TxError, versions::{VersionedObjects, Versioned}};
/// fn write(tx: &mut Tx<'_>, objects: &VersionedObjects) -> Result<(), TxError> {
///     Versioned::<[u8; 256]>::write(objects, tx, 1, &[0; 256])
/// }
/// ```
/// Objects that hold what a crash makes meaningless:
/// ```compile_fail,E0277
/// # use wattkeep_tx::{Tx, TxError, versions::Versioned};
/// fn write(tx: &mut Tx<'_>, names: &Versioned<&'static str>) -> Result<(), TxError> {
///     names.write(tx, 1, &"a pointer of this process")
/// }
/// ```
/// Any use after they were destroyed:
/// ```compile_fail,E0382
/// # use wattkeep_tx::{Tx, TxError, versions::Versioned};
/// fn end(tx: &mut Tx<'_>, texts: Versioned<[u8; 256]>) -> Result<[u8; 256], TxError> {
///     texts.destroy(tx)?;
///     texts.read(1)
/// }
/// ```
pub struct Versioned<T> {
    shared: Arc<Opened>,
    objects_are: PhantomData<fn() -> T>,
}

fn shape_of<T>(objects: u64, versions: Versions) -> Shape {
    Shape { objects, object_bytes: size_of::<T>() as u64, versions }
}

/// Where the objects begin in what was allocated for them: on a line.
fn place(ptr: u64) -> usize {
    (ptr as usize).next_multiple_of(LINE)
}

impl<T: Pod> Versioned<T> {
    /// Makes objects, all zero. They are lost, and their memory with them, unless the transaction also stores
    /// what is returned somewhere. They can be opened when it has committed.
    ///
    /// # Errors
    /// The shape cannot be, the heap is full, or the transaction fails.
    pub fn create(tx: &mut Tx<'_>, objects: u64, versions: Versions) -> Result<Ptr<Self>, TxError> {
        let layout = Layout::of(&shape_of::<T>(objects, versions))?;
        let ptr = tx.alloc_bytes(layout.bytes + LINE)?;
        Area::create_in(tx, place(ptr.offset()), &layout)?;
        Ok(ptr.cast())
    }

    /// Opens the objects at `ptr`.
    ///
    /// # Errors
    /// There are none of this type, a transaction that has not ended made them, they are open already, are
    /// damaged, the pace cannot be, or the space refuses.
    pub fn open(manager: &Manager, ptr: Ptr<Self>, persistence: Persistence) -> Result<Self, TxError> {
        let (heap, at) = (manager.heap(), ptr.offset());
        if !heap.is_allocated(at) {
            return Err(TxError::NotAllocated { at });
        }
        let space = heap.space();
        let shared = Opened::open(space, at, || {
            let keeper = Keeper::Transactions;
            let objects = VersionedObjects::open_kept_by(keeper, Arc::clone(space), place(at), persistence)?;
            let found = objects.shape();
            let wanted = shape_of::<T>(found.objects, found.versions);
            if found == wanted { Ok(objects) } else { Err(VersionsError::OtherShape { found }) }
        })?;
        Ok(Self { shared, objects_are: PhantomData })
    }

    /// Opens the objects that the root `name` leads to; makes both if they are not there. Not inside of a
    /// transaction.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::open`]; the root was made for something else, or the objects with
    /// another shape.
    pub fn open_or_create_root(
        manager: &Manager,
        name: &str,
        objects: u64,
        versions: Versions,
        persistence: Persistence,
    ) -> Result<Self, TxError> {
        // Of two threads that come here, one makes them.
        static MAKING: Mutex<()> = Mutex::new(());
        let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let word = manager.heap().open_or_create_root(name, 0, ROOT_TAG)?.word;
        let ptr = manager.run(|tx| {
            let at = tx.read_word(word)?;
            if at != 0 {
                return Ok(Ptr::at(at));
            }
            let new = Self::create(tx, objects, versions)?;
            tx.write_word(word, new.offset())?;
            Ok::<_, TxError>(new)
        })?;
        drop(making);
        let opened = Self::open(manager, ptr, persistence)?;
        let found = opened.shape();
        if found == shape_of::<T>(objects, versions) {
            return Ok(opened);
        }
        Err(VersionsError::OtherShape { found }.into())
    }

    /// Where they lie: what leads to them holds this.
    pub fn ptr(&self) -> Ptr<Self> {
        Ptr::at(self.shared.ptr)
    }

    /// The shape of the objects.
    pub fn shape(&self) -> Shape {
        self.shared.state().objects.shape()
    }

    /// Writes `object` in a transaction, which has the objects from now on until it ends.
    ///
    /// # Errors
    /// There is no such object, another transaction has the objects, the space refuses, or persisting failed
    /// before.
    pub fn write(&self, tx: &mut Tx<'_>, object: u64, value: &T) -> Result<(), TxError> {
        self.within(tx, |state| state.objects.write(object, bytemuck::bytes_of(value)))
    }

    /// Reads `object` in a transaction, with what it wrote; it has the objects from now on until it ends.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read_in(&self, tx: &mut Tx<'_>, object: u64) -> Result<T, TxError> {
        let mut value = T::zeroed();
        self.within(tx, |state| state.objects.read(object, bytemuck::bytes_of_mut(&mut value)))?;
        Ok(value)
    }

    /// Reads `object` as the last transaction that committed left it, durable or not. Waits for none.
    ///
    /// # Errors
    /// There is no such object, or the objects were destroyed.
    pub fn read(&self, object: u64) -> Result<T, TxError> {
        let mut value = T::zeroed();
        let state = self.shared.state();
        if state.ends {
            return Err(VersionsError::Destroyed.into());
        }
        state.objects.read_before(object, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Waits until every committed transaction is durable.
    ///
    /// # Errors
    /// Persisting failed, or a transaction has the objects.
    pub fn sync(&self) -> Result<(), TxError> {
        let mut state = self.shared.state();
        state.check_free()?;
        Ok(state.objects.sync()?)
    }

    /// As [`VersionedObjects::persist_some`].
    ///
    /// # Errors
    /// Persisting failed.
    pub fn persist_some(&self, versions_max: usize) -> Result<bool, TxError> {
        Ok(self.shared.state().objects.persist_some(versions_max)?)
    }

    /// Transactions that are committed and not durable: what a crash would lose now.
    pub fn behind(&self) -> u64 {
        self.shared.state().objects.behind()
    }

    /// Frees the objects, when the transaction commits. What it wrote to them is dropped.
    ///
    /// # Errors
    /// Another transaction has the objects, or persisting failed. Then, and when the transaction fails, they
    /// are as before: open them again.
    pub fn destroy(self, tx: &mut Tx<'_>) -> Result<(), TxError> {
        self.within(tx, |state| {
            state.objects.sync()?;
            state.ends = true;
            Ok(())
        })?;
        tx.free(self.ptr())
    }

    fn within<R>(
        &self,
        tx: &mut Tx<'_>,
        act: impl FnOnce(&mut State) -> Result<R, VersionsError>,
    ) -> Result<R, TxError> {
        if !Arc::ptr_eq(tx.heap().space(), &self.shared.space) {
            return Err(VersionsError::OtherHeap.into());
        }
        tx.check_not_doomed()?;
        let mut state = self.shared.state();
        if state.own(tx.id())? {
            tx.enlist(Arc::clone(&self.shared));
        }
        Ok(act(&mut state)?)
    }
}

impl<T> Clone for Versioned<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), objects_are: PhantomData }
    }
}

impl<T> fmt::Debug for Versioned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versioned({:?})", self.shared.state().objects)
    }
}
