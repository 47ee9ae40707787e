//! A hash map of keys and values of one size each.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, bytes_of};
use wattkeep_persist::Ptr;
use wattkeep_tx::Tx;

use crate::check::{Met, Pointers};
use crate::error::Error;
use crate::kind::{Kind, Shape};
use crate::place::{Place, is_bulk};
use crate::structure::parts::Parts;
use crate::table::{self, Cursor, Entries, Form, Table, hash_bytes};
use crate::view::{View, whole_words};

/// An entry: the key's bytes, then the value's, both from a word's beginning.
struct Fixed<K, V>(PhantomData<fn() -> (K, V)>);

impl<K, V> Fixed<K, V> {
    const AT_VALUE: u64 = whole_words(size_of::<K>()) as u64;
    const BYTES: usize = whole_words(size_of::<K>()) + whole_words(size_of::<V>());
}

/// Of larger entries the rest comes by itself: the processor sees that they are read in order.
const SOON_MAX: usize = 256;

impl<K: Pod, V: Pod> Entries for Fixed<K, V> {
    type Key = K;
    type Value = V;

    const BYTES_SOON: usize = if Self::BYTES < SOON_MAX { Self::BYTES } else { SOON_MAX };

    #[inline]
    fn hash(seed: u64, key: &K) -> u64 {
        hash_bytes(seed, bytes_of(key))
    }

    #[inline]
    fn hash_at(view: &impl View, at: u64, seed: u64) -> Result<u64, Error> {
        Ok(Self::hash(seed, &view.value::<K>(at)?))
    }

    #[inline]
    fn is_at(view: &impl View, at: u64, _hash: u64, key: &K) -> Result<bool, Error> {
        view.holds(at, bytes_of(key))
    }

    fn bytes(_key: &K, _value: &V) -> usize {
        Self::BYTES
    }

    #[inline]
    fn write(tx: &mut Tx<'_>, at: u64, _hash: u64, key: &K, value: &V) -> Result<(), Error> {
        Ok(tx.fill(at, Self::BYTES, [(0, bytes_of(key)), (Self::AT_VALUE, bytes_of(value))])?)
    }

    #[inline]
    fn rewrite(tx: &mut Tx<'_>, at: u64, _key: &K, value: &V) -> Result<bool, Error> {
        if is_bulk(tx, at, Self::BYTES) {
            return Ok(false);
        }
        tx.write(Ptr::at(at + Self::AT_VALUE), value)?;
        Ok(true)
    }
}

/// What a walk knows of entries: the bytes of a key and of a value.
pub(crate) struct Sizes {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

impl Sizes {
    fn key_at(&self, view: &impl View, at: u64) -> Result<Vec<u8>, Error> {
        let mut key = vec![0; self.key];
        view.bytes(at, &mut key)?;
        Ok(key)
    }
}

impl Form for Sizes {
    fn hash_at(&self, view: &impl View, at: u64, seed: u64) -> Result<u64, Error> {
        Ok(hash_bytes(seed, &self.key_at(view, at)?))
    }

    fn same(&self, view: &impl View, one: u64, other: u64) -> Result<bool, Error> {
        Ok(self.key_at(view, one)? == self.key_at(view, other)?)
    }

    fn bytes_at(&self, _view: &impl View, _at: u64) -> Result<u64, Error> {
        Ok((whole_words(self.key) + whole_words(self.value)) as u64)
    }

    fn content_at(&self, at: u64, _bytes: u64, met: &mut impl Met) {
        met.content(at, self.key as u64, Pointers::of(self.key));
        met.content(at + whole_words(self.key) as u64, self.value as u64, Pointers::of(self.value));
    }
}

/// A persistent hash map. Keys are compared by their bytes: `0.0` and `-0.0` are two keys.
///
/// What is stored must be [`Pod`]: a pointer into this process is not, so it cannot be stored by mistake.
///
/// ```compile_fail,E0277
/// # use wattkeep_collections::HashMap;
/// fn a_reference_is_no_value(map: HashMap<u64, &'static str>, tx: &mut wattkeep_tx::Tx<'_>) {
///     map.insert(tx, &1, &"volatile").unwrap();
/// }
/// ```
///
/// Nor can the place of one structure be taken for another's:
///
/// ```compile_fail,E0308
/// # use wattkeep_collections::HashMap;
/// # use wattkeep_persist::Ptr;
/// fn other_values(place: Ptr<HashMap<u64, u32>>) -> Ptr<HashMap<u64, i64>> {
///     place
/// }
/// ```
pub struct HashMap<K, V> {
    table: Table<Fixed<K, V>>,
}

impl<K, V> Clone for HashMap<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

impl<K: Pod, V: Pod> Parts for HashMap<K, V> {
    const KIND: Kind = Kind::new::<K, V>(Shape::HashMap);

    fn at(place: Place) -> Self {
        Self { table: Table::at(place) }
    }

    fn place(&self) -> &Place {
        self.table.place()
    }

    fn make(tx: &mut Tx<'_>) -> Result<u64, Error> {
        Table::<Fixed<K, V>>::make(tx, Self::KIND)
    }

    fn count(&self, view: &impl View) -> Result<u64, Error> {
        self.table.len(view)
    }

    fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error> {
        let sizes = Sizes { key: size_of::<K>(), value: size_of::<V>() };
        table::walk(view, self.place().at(), &sizes, met)
    }

    fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.table.free_parts(tx)
    }
}

impl<K: Pod, V: Pod> HashMap<K, V> {
    /// The value of `key`, as committed last.
    ///
    /// # Errors
    /// The map is damaged or gone, or this thread is changing it.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.place().read(|view| self.value(view, key))
    }

    /// The value of `key`, as `tx` sees it.
    ///
    /// # Errors
    /// The map is damaged or gone; or [`Error::Deadlock`].
    #[inline]
    pub fn get_in(&self, tx: &mut Tx<'_>, key: &K) -> Result<Option<V>, Error> {
        self.place().own(tx)?;
        self.value(&*tx, key)
    }

    #[inline]
    fn value(&self, view: &impl View, key: &K) -> Result<Option<V>, Error> {
        let Some(entry) = self.table.find(view, key)? else { return Ok(None) };
        view.value(entry + Fixed::<K, V>::AT_VALUE).map(Some)
    }

    /// Whether `key` is there, as committed last.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&self, key: &K) -> Result<bool, Error> {
        self.place().read(|view| Ok(self.table.find(view, key)?.is_some()))
    }

    /// Sets the value of `key`; whether it had none.
    ///
    /// # Errors
    /// The heap is full, the map damaged or gone; or [`Error::Deadlock`]. Hand it on: the transaction must
    /// abort.
    #[inline]
    pub fn insert(&self, tx: &mut Tx<'_>, key: &K, value: &V) -> Result<bool, Error> {
        self.table.insert(tx, key, value)
    }

    /// Changes the value of `key`, if it has one; whether it has.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn update(&self, tx: &mut Tx<'_>, key: &K, change: impl FnOnce(&mut V)) -> Result<bool, Error> {
        self.place().change(tx, |tx| {
            let Some(entry) = self.table.find(&*tx, key)? else { return Ok(false) };
            let at = Ptr::<V>::at(entry + Fixed::<K, V>::AT_VALUE);
            let mut value = tx.read(at)?;
            change(&mut value);
            if is_bulk(tx, entry, Fixed::<K, V>::BYTES) {
                self.insert(tx, key, &value)?;
            } else {
                tx.write(at, &value)?;
            }
            Ok(true)
        })
    }

    /// Removes `key`; the value that it had.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn remove(&self, tx: &mut Tx<'_>, key: &K) -> Result<Option<V>, Error> {
        self.table.remove(tx, key, |tx, entry| tx.value(entry + Fixed::<K, V>::AT_VALUE))
    }

    /// All entries, in no order. Each bucket is read as it was at one instant; whatever is in the map from
    /// the first step to the last is met exactly once, however the map grows meanwhile.
    pub fn iter(&self) -> Iter<K, V> {
        Iter { map: self.clone(), cursor: Some(0), met: Vec::new() }
    }

    /// Calls `each` for all entries, as `tx` sees them: one state of the whole map.
    ///
    /// # Errors
    /// As [`Self::get_in`], and what `each` returns.
    pub fn for_each_in(
        &self,
        tx: &mut Tx<'_>,
        mut each: impl FnMut(K, V) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.place().own(tx)?;
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            let entries;
            (entries, cursor) = self.pairs(&*tx, from)?;
            entries.into_iter().try_for_each(|(key, value)| each(key, value))?;
        }
        Ok(())
    }

    fn pairs(&self, view: &impl View, from: u64) -> Result<(Vec<(K, V)>, Cursor), Error> {
        let (entries, next) = self.table.step(view, from)?;
        let pair = |at: u64| Ok((view.value(at)?, view.value(at + Fixed::<K, V>::AT_VALUE)?));
        Ok((entries.into_iter().map(pair).collect::<Result<_, Error>>()?, next))
    }
}

impl<K, V> fmt::Debug for HashMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

/// All entries of a [`HashMap`]; see [`HashMap::iter`]. Ends at the first error.
pub struct Iter<K, V> {
    map: HashMap<K, V>,
    cursor: Cursor,
    met: Vec<(K, V)>,
}

impl<K: Pod, V: Pod> Iterator for Iter<K, V> {
    type Item = Result<(K, V), Error>;

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
