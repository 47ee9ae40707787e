//! A string: text of any length, which may grow.

use std::fmt;
use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use crate::check::Met;
use crate::error::Error;
use crate::kind::{Kind, Shape};
use crate::place::{Place, is_bulk};
use crate::structure::parts::Parts;
use crate::view::{View, whole_words};

/// The header. The text lies elsewhere.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    tag: u64,
    len: u64,
    capacity: u64,
    text: u64,
    free: [u64; 4],
}

const _: () = assert!(size_of::<Header>() == LINE);

impl Header {
    /// Refuses what no string writes.
    fn sound(self, view: &impl View, at: u64) -> Result<Self, Error> {
        let sound = self.len <= self.capacity
            && self.text.checked_add(self.capacity).is_some_and(|end| end <= view.bound())
            && (self.text == 0) == (self.capacity == 0);
        if sound { Ok(self) } else { Err(Error::Damaged { at, what: "a string longer than its memory" }) }
    }

    fn bytes(&self, view: &impl View, room: usize) -> Result<Vec<u8>, Error> {
        view.still()?;
        let mut bytes = Vec::with_capacity(self.len as usize + room);
        bytes.resize(self.len as usize, 0);
        view.bytes(self.text, &mut bytes)?;
        Ok(bytes)
    }

    fn text(&self, view: &impl View, at: u64) -> Result<String, Error> {
        let text = String::from_utf8(self.bytes(view, 0)?);
        text.map_err(|_| Error::Damaged { at, what: "a string that is not UTF-8" })
    }
}

/// Walks over the string at `at`.
pub(crate) fn walk(view: &impl View, at: u64, met: &mut impl Met) -> Result<(), Error> {
    let header = view.value::<Header>(at)?.sound(view, at)?;
    met.part(at, size_of::<Header>() as u64);
    met.items(header.len);
    if header.text != 0 {
        met.part(header.text, header.capacity);
    }
    if let Err(Error::Damaged { at, what }) = header.text(view, at) {
        met.fault(at, what);
    }
    Ok(())
}

/// A persistent string, in UTF-8.
#[derive(Clone)]
pub struct PString {
    place: Place,
}

impl Parts for PString {
    const KIND: Kind = Kind::new::<(), ()>(Shape::PString);

    fn at(place: Place) -> Self {
        Self { place }
    }

    fn place(&self) -> &Place {
        &self.place
    }

    fn make(tx: &mut Tx<'_>) -> Result<u64, Error> {
        let at = tx.alloc_bytes(size_of::<Header>())?.offset();
        tx.write(Ptr::at(at), &Header { tag: Self::KIND.tag(), ..Header::zeroed() })?;
        Ok(at)
    }

    fn count(&self, view: &impl View) -> Result<u64, Error> {
        Ok(self.header(view)?.len)
    }

    fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error> {
        walk(view, self.place.at(), met)
    }

    fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let header = self.header(tx)?;
        if header.text != 0 {
            tx.free(Ptr::<u8>::at(header.text))?;
        }
        Ok(())
    }
}

impl PString {
    fn header(&self, view: &impl View) -> Result<Header, Error> {
        self.place.header::<Header>(view)?.sound(view, self.place.at())
    }

    fn text(&self, view: &impl View) -> Result<String, Error> {
        self.header(view)?.text(view, self.place.at())
    }

    /// The text, as committed last.
    ///
    /// # Errors
    /// The string is damaged or gone, or this thread is changing it.
    pub fn get(&self) -> Result<String, Error> {
        self.place.read(|view| self.text(view))
    }

    /// The text, as `tx` sees it.
    ///
    /// # Errors
    /// The string is damaged or gone; or [`Error::Deadlock`].
    pub fn get_in(&self, tx: &mut Tx<'_>) -> Result<String, Error> {
        self.place.own(tx)?;
        self.text(&*tx)
    }

    /// Replaces the text.
    ///
    /// # Errors
    /// The heap is full, the string damaged or gone; or [`Error::Deadlock`]. Hand it on: the transaction must
    /// abort.
    pub fn set(&self, tx: &mut Tx<'_>, text: &str) -> Result<(), Error> {
        self.place.change(tx, |tx| self.replace(tx, text))
    }

    fn replace(&self, tx: &mut Tx<'_>, text: &str) -> Result<(), Error> {
        let header = self.header(tx)?;
        let needed = whole_words(text.len()) as u64;
        // Memory of which less than half would be used is given back.
        let fits = needed <= header.capacity && needed >= header.capacity / 2;
        if !fits || is_bulk(tx, header.text, text.len()) {
            return self.put(tx, &header, needed, text.as_bytes());
        }
        if !text.is_empty() {
            tx.write_bytes(header.text, text.as_bytes())?;
        }
        self.set_len(tx, text.len() as u64)
    }

    /// Adds to the end of the text.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn push_str(&self, tx: &mut Tx<'_>, more: &str) -> Result<(), Error> {
        self.place.change(tx, |tx| self.append(tx, more))
    }

    fn append(&self, tx: &mut Tx<'_>, more: &str) -> Result<(), Error> {
        let header = self.header(tx)?;
        let len = header.len + more.len() as u64;
        let end = header.text + header.len;
        // As long as the log has room, for all of the text is copied otherwise.
        let bulk = more.len() > tx.log_bytes() / 2 && tx.logs(end, more.len());
        if len > header.capacity || bulk {
            let mut text = header.bytes(tx, more.len())?;
            text.extend_from_slice(more.as_bytes());
            let capacity = if len > header.capacity {
                (whole_words(text.len()) as u64).max(2 * header.capacity)
            } else {
                header.capacity
            };
            return self.put(tx, &header, capacity, &text);
        }
        if !more.is_empty() {
            tx.write_bytes(end, more.as_bytes())?;
        }
        self.set_len(tx, len)
    }

    /// Removes the text, and gives its memory back.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn clear(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.set(tx, "")
    }

    fn set_len(&self, tx: &mut Tx<'_>, len: u64) -> Result<(), Error> {
        Ok(tx.write_word(Ptr::at(self.place.at() + offset_of!(Header, len) as u64), len)?)
    }

    /// Puts the text into new memory of `capacity` bytes.
    fn put(&self, tx: &mut Tx<'_>, old: &Header, capacity: u64, text: &[u8]) -> Result<(), Error> {
        let mut new = Header { len: text.len() as u64, capacity, text: 0, ..*old };
        if capacity > 0 {
            new.text = tx.alloc_bytes(capacity as usize)?.offset();
            tx.write_bytes(new.text, text)?;
        }
        if old.text != 0 {
            tx.free(Ptr::<u8>::at(old.text))?;
        }
        Ok(tx.write(Ptr::at(self.place.at()), &new)?)
    }
}

impl fmt::Debug for PString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
