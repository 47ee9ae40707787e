//! A vector: elements by number, which never move.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use crate::check::Met;
use crate::error::Error;
use crate::kind::{Kind, Shape};
use crate::place::{Place, fits_log};
use crate::segments::{DIRECTORY_BYTES, Segments};
use crate::structure::parts::Parts;
use crate::view::View;

/// Bytes that the first segment has, unless one element has more.
const FIRST_BYTES: usize = 256;

/// Elements that a reader takes at a time.
const BATCH: u64 = 64;

/// The header's first line. The directory of segments follows.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    tag: u64,
    len: u64,
    free: [u64; 6],
}

const HEADER_BYTES: usize = size_of::<Header>() + DIRECTORY_BYTES;
const AT_DIRECTORY: u64 = size_of::<Header>() as u64;
const AT_LEN: u64 = std::mem::offset_of!(Header, len) as u64;
const _: () = assert!(size_of::<Header>() == LINE);

/// How elements of so many bytes lie.
const fn items_of(bytes: usize) -> Segments {
    let fit = FIRST_BYTES / if bytes == 0 { 1 } else { bytes };
    Segments::new(bytes, if fit > 1 { fit.ilog2() } else { 0 })
}

/// Walks over the vector at `at`, whose elements have `bytes`.
pub(crate) fn walk(view: &impl View, at: u64, bytes: usize, met: &mut impl Met) -> Result<(), Error> {
    let header: Header = view.value(at)?;
    let (items, directory) = (items_of(bytes), at + AT_DIRECTORY);
    met.part(at, HEADER_BYTES as u64);
    met.items(header.len);
    items.walk(view, directory, met)?;
    if let Some(last) = header.len.checked_sub(1) {
        let end = items.item(view, directory, last).map(|start| start.checked_add(bytes as u64));
        match end {
            Ok(Some(end)) if end <= view.bound() => {
                items.walk_items(view, directory, header.len, bytes as u64, met);
            }
            _ => {
                met.fault(at, "a vector with more elements than there is memory");
                met.hide();
            }
        }
    }
    Ok(())
}

/// A persistent vector. It grows by segments: nothing is copied, and no push pays for the others.
///
/// An element is logged when it changes: one of more than 448 KiB needs a heap with a log larger than the default.
///
/// What is stored must be [`Pod`]: a raw pointer is not.
///
/// ```compile_fail,E0277
/// # use wattkeep_collections::Vector;
/// fn an_address_is_no_element(vector: Vector<*const u8>, tx: &mut wattkeep_tx::Tx<'_>) {
///     vector.push(tx, &std::ptr::null()).unwrap();
/// }
/// ```
///
/// A pointer into the heap is: that is how structures nest.
///
/// ```
/// # use wattkeep_collections::{Error, PString, Structure, Vector};
/// # use wattkeep_persist::Ptr;
/// fn add(lines: &Vector<Ptr<PString>>, tx: &mut wattkeep_tx::Tx<'_>, line: &str) -> Result<(), Error> {
///     let text = PString::create(tx)?;
///     text.set(tx, line)?;
///     lines.push(tx, &text.ptr())
/// }
/// ```
pub struct Vector<T> {
    place: Place,
    elements: PhantomData<fn() -> T>,
}

impl<T> Clone for Vector<T> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), elements: PhantomData }
    }
}

impl<T: Pod> Parts for Vector<T> {
    const KIND: Kind = Kind::new::<(), T>(Shape::Vector);

    fn at(place: Place) -> Self {
        Self { place, elements: PhantomData }
    }

    fn place(&self) -> &Place {
        &self.place
    }

    fn make(tx: &mut Tx<'_>) -> Result<u64, Error> {
        fits_log(tx, Self::KIND, size_of::<T>())?;
        let at = tx.alloc_bytes(HEADER_BYTES)?.offset();
        tx.write_bytes(at, &[0; HEADER_BYTES])?;
        tx.write_word(Ptr::at(at), Self::KIND.tag())?;
        Ok(at)
    }

    fn count(&self, view: &impl View) -> Result<u64, Error> {
        Ok(self.place.header::<Header>(view)?.len)
    }

    fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error> {
        walk(view, self.place.at(), size_of::<T>(), met)
    }

    fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        Self::ITEMS.free_from(tx, self.directory(), 0)
    }
}

impl<T: Pod> Vector<T> {
    const ITEMS: Segments = items_of(size_of::<T>());

    fn directory(&self) -> u64 {
        self.place.at() + AT_DIRECTORY
    }

    fn set_count(&self, tx: &mut Tx<'_>, len: u64) -> Result<(), Error> {
        Ok(tx.write_word(Ptr::at(self.place.at() + AT_LEN), len)?)
    }

    /// Where element `index` lies, if there is one.
    fn element(&self, view: &impl View, index: u64) -> Result<Option<u64>, Error> {
        let there = index < self.count(view)?;
        there.then(|| Self::ITEMS.item(view, self.directory(), index)).transpose()
    }

    fn value(&self, view: &impl View, index: u64) -> Result<Option<T>, Error> {
        self.element(view, index)?.map(|at| view.value(at)).transpose()
    }

    /// Element `index`, as committed last.
    ///
    /// # Errors
    /// The vector is damaged or gone, or this thread is changing it.
    pub fn get(&self, index: u64) -> Result<Option<T>, Error> {
        self.place.read(|view| self.value(view, index))
    }

    /// Element `index`, as `tx` sees it.
    ///
    /// # Errors
    /// The vector is damaged or gone; or [`Error::Deadlock`].
    pub fn get_in(&self, tx: &mut Tx<'_>, index: u64) -> Result<Option<T>, Error> {
        self.place.own(tx)?;
        self.value(&*tx, index)
    }

    /// Adds an element behind the others.
    ///
    /// # Errors
    /// The heap is full, the vector damaged or gone; or [`Error::Deadlock`]. Hand it on: the transaction must
    /// abort.
    pub fn push(&self, tx: &mut Tx<'_>, element: &T) -> Result<(), Error> {
        self.place.change(tx, |tx| {
            let len = self.count(tx)?;
            let at = Self::ITEMS.reserve(tx, self.directory(), len)?;
            tx.write(Ptr::at(at), element)?;
            self.set_count(tx, len + 1)
        })
    }

    /// Takes the last element away.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn pop(&self, tx: &mut Tx<'_>) -> Result<Option<T>, Error> {
        self.place.change(tx, |tx| {
            let Some(last) = self.count(tx)?.checked_sub(1) else { return Ok(None) };
            let element = self.value(&*tx, last)?;
            self.shorten(tx, last)?;
            Ok(element)
        })
    }

    /// Sets element `index`; whether there is one.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn set(&self, tx: &mut Tx<'_>, index: u64, element: &T) -> Result<bool, Error> {
        self.update(tx, index, |old| *old = *element)
    }

    /// Changes element `index`; whether there is one.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn update(&self, tx: &mut Tx<'_>, index: u64, change: impl FnOnce(&mut T)) -> Result<bool, Error> {
        self.place.change(tx, |tx| {
            let Some(at) = self.element(&*tx, index)?.map(Ptr::<T>::at) else { return Ok(false) };
            let mut element = tx.read(at)?;
            change(&mut element);
            tx.write(at, &element)?;
            Ok(true)
        })
    }

    /// Takes element `index` away and puts the last in its place.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn swap_remove(&self, tx: &mut Tx<'_>, index: u64) -> Result<Option<T>, Error> {
        self.place.change(tx, |tx| {
            let Some(gone) = self.value(&*tx, index)? else { return Ok(None) };
            if let Some(last) = self.pop(tx)? {
                self.set(tx, index, &last)?;
            }
            Ok(Some(gone))
        })
    }

    /// Takes the elements from `len` on away.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn truncate(&self, tx: &mut Tx<'_>, len: u64) -> Result<(), Error> {
        self.place.change(tx, |tx| if len < self.count(tx)? { self.shorten(tx, len) } else { Ok(()) })
    }

    fn shorten(&self, tx: &mut Tx<'_>, len: u64) -> Result<(), Error> {
        self.set_count(tx, len)?;
        Self::ITEMS.release(tx, self.directory(), len)
    }

    /// All elements, by number; 64 at a time are read as they were at one instant.
    pub fn iter(&self) -> Elements<T> {
        Elements { vector: self.clone(), next: Some(0), batch: Vec::new().into_iter() }
    }

    /// Calls `each` for all elements, as `tx` sees them: one state of the whole vector.
    ///
    /// # Errors
    /// As [`Self::get_in`], and what `each` returns.
    pub fn for_each_in(
        &self,
        tx: &mut Tx<'_>,
        mut each: impl FnMut(T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.place.own(tx)?;
        let mut next = Some(0);
        while let Some(from) = next {
            let batch;
            (batch, next) = self.batch(&*tx, from)?;
            batch.into_iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    fn batch(&self, view: &impl View, from: u64) -> Result<(Vec<T>, Option<u64>), Error> {
        let len = self.count(view)?;
        let to = len.min(from.saturating_add(BATCH));
        let element = |index| view.value(Self::ITEMS.item(view, self.directory(), index)?);
        Ok(((from..to).map(element).collect::<Result<_, _>>()?, (to < len).then_some(to)))
    }
}

impl<T> fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// All elements of a [`Vector`]; see [`Vector::iter`]. Ends at the first error.
pub struct Elements<T> {
    vector: Vector<T>,
    next: Option<u64>,
    batch: std::vec::IntoIter<T>,
}

impl<T: Pod> Iterator for Elements<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(element) = self.batch.next() {
                return Some(Ok(element));
            }
            let from = self.next.take()?;
            match self.vector.place.read(|view| self.vector.batch(view, from)) {
                Ok((batch, next)) => (self.batch, self.next) = (batch.into_iter(), next),
                Err(why) => return Some(Err(why)),
            }
        }
    }
}
