//! What all structures have in common: being made, found again, checked and taken apart.

use std::sync::Arc;

use wattkeep_heap::{Heap, Root};
use wattkeep_persist::Ptr;
use wattkeep_tx::{Manager, Tx};

use crate::check::Findings;
use crate::error::Error;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::place::{Place, whole};

/// The parts that each structure brings along; not for other crates.
pub(crate) mod parts {
    use super::{Error, Kind, Place, Tx};
    use crate::check::Met;
    use crate::view::View;

    /// What a structure is made of.
    pub trait Parts: Sized {
        /// What it is.
        const KIND: Kind;

        /// The structure at `place`.
        fn at(place: Place) -> Self;

        /// Where it is.
        fn place(&self) -> &Place;

        /// Allocates and writes an empty one.
        fn make(tx: &mut Tx<'_>) -> Result<u64, Error>;

        /// Entries, elements or bytes that it counts.
        fn count(&self, view: &impl View) -> Result<u64, Error>;

        /// Walks over all of it.
        fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error>;

        /// Frees all but its header.
        fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error>;
    }
}

/// A data structure in a heap.
///
/// Methods that take a transaction see what it wrote, and keep other transactions out until it ends. Those
/// that do not see what was committed last, without a lock.
///
/// Structures nest by their [`Ptr`]: a map of vectors is a `HashMap<u64, Ptr<Vector<u32>>>`.
pub trait Structure: parts::Parts + 'static {
    /// Makes an empty one. It is lost, and its memory with it, unless the transaction also stores
    /// [`Self::ptr`] somewhere.
    ///
    /// # Errors
    /// The heap is full, or the transaction fails.
    fn create(tx: &mut Tx<'_>) -> Result<Self, Error> {
        whole(tx, |tx| {
            let at = Self::make(tx)?;
            // In the line that was just written.
            tx.write_word(Ptr::at(Kind::mark_at(at)), Self::KIND.mark(at))?;
            Ok(Self::at(Place::made(tx, at, Self::KIND)?))
        })
    }

    /// Opens the one at `ptr`.
    ///
    /// # Errors
    /// [`Error::WrongKind`]: something else lies there.
    fn open(heap: &Arc<Heap>, ptr: Ptr<Self>) -> Result<Self, Error> {
        let name = format!("offset {:#x}", ptr.offset());
        Ok(Self::at(Place::open(heap, ptr.offset(), Self::KIND, &name)?))
    }

    /// Opens the one at `ptr`, which `tx` may have made.
    ///
    /// # Errors
    /// As [`Self::open`], and [`Error::Deadlock`].
    fn open_in(tx: &mut Tx<'_>, ptr: Ptr<Self>) -> Result<Self, Error> {
        Ok(Self::at(Place::open_in(tx, ptr.offset(), Self::KIND)?))
    }

    /// Opens the one that the root `name` leads to.
    ///
    /// # Errors
    /// [`Error::NoRoot`]: there is no such root, or nothing behind it. [`Error::WrongKind`]: it leads to
    /// something else.
    fn open_root(heap: &Arc<Heap>, name: &str) -> Result<Self, Error> {
        let root = root_for::<Self>(heap, name)?;
        let at = root.map(|root| heap.space().load(root.word.offset() as usize)).transpose()?;
        match at {
            Some(at) if at != 0 => Ok(Self::at(Place::open(heap, at, Self::KIND, &place_of(name))?)),
            _ => Err(Error::NoRoot { root: name.to_owned() }),
        }
    }

    /// Opens the one that the root `name` leads to; makes both if they are not there.
    ///
    /// # Errors
    /// As [`Self::open_root`] and [`Self::create`].
    fn open_or_create_root(manager: &Manager, name: &str) -> Result<Self, Error> {
        let heap = manager.heap();
        let root = match root_for::<Self>(heap, name)? {
            Some(root) => root,
            None => heap.open_or_create_root(name, 0, Self::KIND.tag())?,
        };
        manager.run(|tx| {
            // The word has a latch of its own: of two threads that come here, one makes the structure.
            Latch::of(heap, root.word.offset()).change(tx)?;
            let at = tx.read(root.word)?;
            if at != 0 {
                return Self::open_in(tx, Ptr::at(at));
            }
            let new = Self::create(tx)?;
            tx.write_word(root.word, new.ptr().offset())?;
            Ok(new)
        })
    }

    /// Where it lies.
    fn ptr(&self) -> Ptr<Self> {
        Ptr::at(self.place().at())
    }

    /// How many entries or elements it has, or bytes of text, as committed last.
    ///
    /// # Errors
    /// It is damaged or gone, or this thread is changing it.
    fn len(&self) -> Result<u64, Error> {
        self.place().read(|view| self.count(view))
    }

    /// It has none.
    ///
    /// # Errors
    /// As [`Self::len`].
    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// [`Self::len`], as `tx` sees it.
    ///
    /// # Errors
    /// It is damaged or gone; or [`Error::Deadlock`].
    fn len_in(&self, tx: &mut Tx<'_>) -> Result<u64, Error> {
        self.place().own(tx)?;
        self.count(&*tx)
    }

    /// Walks over all of it, and says what is wrong and which allocations it reaches. Changes wait meanwhile.
    ///
    /// # Errors
    /// Its header is damaged, or it is gone.
    fn check(&self) -> Result<Findings, Error> {
        self.place().read_at_rest(|view| {
            let mut findings = Findings::default();
            self.walk(view, &mut findings)?;
            Ok(findings)
        })
    }

    /// Frees it and all that it owns; not what stored pointers point to. Other handles to it answer with
    /// [`Error::Gone`], whatever is made in its place.
    ///
    /// # Errors
    /// As every change: hand it on, the transaction must abort. One with more parts than a transaction's log
    /// can list is not destroyed at once: remove most of its entries first, some in a transaction.
    fn destroy(self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.place().change(tx, |tx| {
            self.free_parts(tx)?;
            self.place().destroy(tx)
        })
    }
}

impl<S: parts::Parts + 'static> Structure for S {}

fn place_of(root: &str) -> String {
    format!("root '{root}'")
}

/// The root `name`, if it was made for such a structure.
fn root_for<S: parts::Parts>(heap: &Heap, name: &str) -> Result<Option<Root>, Error> {
    match heap.root(name)? {
        Some(root) if root.tag != S::KIND.tag() => {
            Err(Error::WrongKind { place: place_of(name), wanted: S::KIND, found: root.tag })
        }
        root => Ok(root),
    }
}
