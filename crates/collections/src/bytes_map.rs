//! A hash map of keys and values of any length.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use crate::check::{Met, Pointers};
use crate::error::Error;
use crate::kind::{Kind, Shape};
use crate::place::{Place, is_bulk};
use crate::structure::parts::Parts;
use crate::table::{self, Cursor, Entries, Form, Table, hash_bytes};
use crate::view::{View, whole_words};

/// Bytes of a key or value: what half a word can count.
const LEN_MAX: usize = u32::MAX as usize;

/// An entry begins with this; the key's bytes follow, then the value's, with nothing between.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    /// So that a bucket is split without reading keys.
    hash: u64,
    key: u32,
    value: u32,
}

const HEAD_BYTES: u64 = size_of::<Head>() as u64;

/// Entries of keys and values of any length.
pub(crate) struct Loose;

impl Head {
    /// Bytes of the entry: whole words, so that a value may grow into the last one.
    fn entry_bytes(self) -> u64 {
        whole_words(size_of::<Self>() + self.key as usize + self.value as usize) as u64
    }

    fn value_at(self, at: u64) -> u64 {
        at + HEAD_BYTES + u64::from(self.key)
    }

    /// The head at `at`, of an entry that the bytes have room for.
    fn read(view: &impl View, at: u64) -> Result<Self, Error> {
        let head: Self = view.value(at)?;
        if at.checked_add(head.entry_bytes()).is_some_and(|end| end <= view.bound()) {
            return Ok(head);
        }
        Err(Error::Damaged { at, what: "an entry that leaves the heap" })
    }
}

/// Refuses lengths that an entry cannot count.
fn small(what: &'static str, bytes: &[u8]) -> Result<u32, Error> {
    let too_large = Error::TooLarge { what, size: bytes.len() as u64, most: LEN_MAX as u64 };
    u32::try_from(bytes.len()).map_err(|_| too_large)
}

fn read(view: &impl View, at: u64, len: u32) -> Result<Vec<u8>, Error> {
    // The length may be another entry's by now: ask before so much memory is taken.
    view.still()?;
    let mut bytes = vec![0; len as usize];
    view.bytes(at, &mut bytes)?;
    Ok(bytes)
}

impl Entries for Loose {
    type Key = [u8];
    type Value = [u8];

    const BYTES_SOON: usize = LINE;

    fn hash(seed: u64, key: &[u8]) -> u64 {
        hash_bytes(seed, key)
    }

    fn hash_at(view: &impl View, at: u64, _seed: u64) -> Result<u64, Error> {
        view.word(at)
    }

    #[inline]
    fn is_at(view: &impl View, at: u64, hash: u64, key: &[u8]) -> Result<bool, Error> {
        let head: Head = view.value(at)?;
        if head.hash != hash || head.key as usize != key.len() {
            return Ok(false);
        }
        view.holds(at + HEAD_BYTES, key)
    }

    fn bytes(key: &[u8], value: &[u8]) -> usize {
        whole_words(size_of::<Head>() + key.len() + value.len())
    }

    fn write(tx: &mut Tx<'_>, at: u64, hash: u64, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let head = Head { hash, key: small("a key", key)?, value: small("a value", value)? };
        tx.write(Ptr::at(at), &head)?;
        tx.write_bytes(at + HEAD_BYTES, key)?;
        Ok(tx.write_bytes(head.value_at(at), value)?)
    }

    fn rewrite(tx: &mut Tx<'_>, at: u64, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        let head = Head::read(&*tx, at)?;
        // An entry that shrinks much gives its memory back: so its size always follows from its head.
        let bytes = Self::bytes(key, value);
        if bytes as u64 != head.entry_bytes() || is_bulk(tx, at, bytes) {
            return Ok(false);
        }
        if head.value as usize != value.len() {
            tx.write(Ptr::at(at), &Head { value: small("a value", value)?, ..head })?;
        }
        tx.write_bytes(head.value_at(at), value)?;
        Ok(true)
    }
}

impl Form for Loose {
    fn hash_at(&self, view: &impl View, at: u64, seed: u64) -> Result<u64, Error> {
        <Self as Entries>::hash_at(view, at, seed)
    }

    fn same(&self, view: &impl View, one: u64, other: u64) -> Result<bool, Error> {
        let head = Head::read(view, other)?;
        Self::is_at(view, one, head.hash, &read(view, other + HEAD_BYTES, head.key)?)
    }

    fn bytes_at(&self, view: &impl View, at: u64) -> Result<u64, Error> {
        Ok(Head::read(view, at)?.entry_bytes())
    }

    fn content_at(&self, at: u64, bytes: u64, met: &mut impl Met) {
        met.content(at + HEAD_BYTES, bytes - HEAD_BYTES, Pointers::AtAnyByte);
    }
}

/// A persistent hash map of byte strings: keys and values of any length up to 4 GiB. A large value is replaced in
/// new memory: the heap needs room for both until the transaction has committed.
#[derive(Clone)]
pub struct BytesMap {
    table: Table<Loose>,
}

impl Parts for BytesMap {
    const KIND: Kind = Kind::new::<(), ()>(Shape::BytesMap);

    fn at(place: Place) -> Self {
        Self { table: Table::at(place) }
    }

    fn place(&self) -> &Place {
        self.table.place()
    }

    fn make(tx: &mut Tx<'_>) -> Result<u64, Error> {
        Table::<Loose>::make(tx, Self::KIND)
    }

    fn count(&self, view: &impl View) -> Result<u64, Error> {
        self.table.len(view)
    }

    fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error> {
        table::walk(view, self.place().at(), &Loose, met)
    }

    fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.table.free_parts(tx)
    }
}

impl BytesMap {
    /// The value of `key`, as committed last.
    ///
    /// # Errors
    /// The map is damaged or gone, or this thread is changing it.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.place().read(|view| self.value(view, key))
    }

    /// The value of `key`, as `tx` sees it.
    ///
    /// # Errors
    /// The map is damaged or gone; or [`Error::Deadlock`].
    pub fn get_in(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.place().own(tx)?;
        self.value(&*tx, key)
    }

    fn value(&self, view: &impl View, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(entry) = self.table.find(view, key)? else { return Ok(None) };
        let head = Head::read(view, entry)?;
        read(view, head.value_at(entry), head.value).map(Some)
    }

    /// Whether `key` is there, as committed last.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, Error> {
        self.place().read(|view| Ok(self.table.find(view, key)?.is_some()))
    }

    /// Sets the value of `key`; whether it had none.
    ///
    /// # Errors
    /// The heap is full, key or value are too large, the map damaged or gone; or [`Error::Deadlock`]. Hand it
    /// on: the transaction must abort.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        self.table.insert(tx, key, value)
    }

    /// Removes `key`; the value that it had.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn remove(&self, tx: &mut Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.table.remove(tx, key, |tx, entry| {
            let head = Head::read(tx, entry)?;
            read(tx, head.value_at(entry), head.value)
        })
    }

    /// All entries, in no order; see [`crate::HashMap::iter`].
    pub fn iter(&self) -> BytesIter {
        BytesIter { map: self.clone(), cursor: Some(0), met: Vec::new() }
    }

    /// Calls `each` for all entries, as `tx` sees them: one state of the whole map.
    ///
    /// # Errors
    /// As [`Self::get_in`], and what `each` returns.
    pub fn for_each_in(
        &self,
        tx: &mut Tx<'_>,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.place().own(tx)?;
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let entries;
            (entries, cursor) = self.pairs(&*tx, from)?;
            entries.iter().try_for_each(|(key, value)| each(key, value))?;
        }
        Ok(())
    }

    fn pairs(&self, view: &impl View, from: u64) -> Result<(Vec<Pair>, Cursor), Error> {
        let (entries, next) = self.table.step(view, from)?;
        let pair = |at: u64| {
            let head = Head::read(view, at)?;
            let key = read(view, at + HEAD_BYTES, head.key)?;
            Ok((key, read(view, head.value_at(at), head.value)?))
        };
        Ok((entries.into_iter().map(pair).collect::<Result<_, Error>>()?, next))
    }
}

impl fmt::Debug for BytesMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

/// A key and its value.
type Pair = (Vec<u8>, Vec<u8>);

/// All entries of a [`BytesMap`]; see [`crate::HashMap::iter`]. Ends at the first error.
pub struct BytesIter {
    map: BytesMap,
    cursor: Cursor,
    met: Vec<Pair>,
}

impl Iterator for BytesIter {
    type Item = Result<Pair, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.met.is_empty() {
            let from = self.cursor.take()?;
            match self.map.place().read(|view| self.map.pairs(view, from)) {
                Ok((met, cursor)) => (self.met, self.cursor) = (met, cursor),
                Err(why) => return Some(Err(why)),
            }
        }
        self.met.pop().map(Ok)
    }
}
