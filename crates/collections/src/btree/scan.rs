//! Going along the keys: ranges for readers and transactions.

use std::ops::{Bound, RangeBounds};
use std::vec;

use wattkeep_persist::Pod;
use wattkeep_tx::Tx;

use super::{BTree, Leaf};
use crate::error::Error;
use crate::view::View;

/// Keys and values of a leaf, and where to go on; `None`: nowhere.
type Batch<K, V> = (Vec<(K, V)>, Option<Bound<K>>);

impl<K: Pod + Ord, V: Pod> BTree<K, V> {
    /// The entries whose keys lie in `range`, in rising order. Each leaf is read as it was at one instant;
    /// what is in the tree from the first step to the last is met exactly once.
    pub fn range(&self, range: impl RangeBounds<K>) -> Range<K, V> {
        Range {
            tree: self.clone(),
            from: Some(range.start_bound().cloned()),
            to: range.end_bound().cloned(),
            batch: Vec::new().into_iter(),
        }
    }

    /// Calls `each` for the entries whose keys lie in `range`, as `tx` sees them: one state of all of them.
    ///
    /// # Errors
    /// As [`Self::get_in`], and what `each` returns.
    pub fn for_each_in(
        &self,
        tx: &mut Tx<'_>,
        range: impl RangeBounds<K>,
        mut each: impl FnMut(K, V) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.place.own(tx)?;
        let mut from = Some(range.start_bound().cloned());
        while let Some(start) = from {
            let batch;
            (batch, from) = self.batch(&*tx, &start, &range.end_bound().cloned())?;
            batch.into_iter().try_for_each(|(key, value)| each(key, value))?;
        }
        Ok(())
    }

    /// The entries from `from` on, to the end of the first leaf that has any.
    fn batch(&self, view: &impl View, from: &Bound<K>, to: &Bound<K>) -> Result<Batch<K, V>, Error> {
        let key = match from {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        let mut leaf = Self::descend(view, &self.header(view)?, key, |_, _| ())?;
        let mut index = match (from, key) {
            (_, None) => 0,
            (Bound::Excluded(_), Some(key)) => leaf.search(view, key)?.map_or_else(|i| i, |i| i + 1),
            (_, Some(key)) => leaf.search(view, key)?.unwrap_or_else(|i| i),
        };
        // Only the last leaf of a tree may be empty, or the rest of the first be passed over: two steps.
        while index >= leaf.count() {
            if leaf.head.link == 0 {
                return Ok((Vec::new(), None));
            }
            view.still()?;
            leaf = Leaf::read(view, leaf.head.link, 0)?;
            index = 0;
            if leaf.count() == 0 {
                return Err(Error::Damaged { at: leaf.at, what: "a leaf without an entry" });
            }
        }
        let mut batch = Vec::with_capacity(leaf.count() - index);
        let mut last = *from;
        for index in index..leaf.count() {
            let key = leaf.key(view, index)?;
            if !(Bound::Unbounded, to.as_ref()).contains(&key) {
                return Ok((batch, None));
            }
            // A scan that went back might never end.
            if !(last, Bound::Unbounded).contains(&key) {
                return Err(Error::Damaged { at: leaf.at, what: "keys that do not rise" });
            }
            last = Bound::Excluded(key);
            batch.push((key, leaf.value(view, index)?));
        }
        Ok((batch, Some(last)))
    }
}

/// Entries in rising order; see [`BTree::range`]. Ends at the first error.
pub struct Range<K, V> {
    tree: BTree<K, V>,
    from: Option<Bound<K>>,
    to: Bound<K>,
    batch: vec::IntoIter<(K, V)>,
}

impl<K: Pod + Ord, V: Pod> Iterator for Range<K, V> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.batch.next() {
                return Some(Ok(entry));
            }
            let from = self.from.take()?;
            match self.tree.place.read(|view| self.tree.batch(view, &from, &self.to)) {
                Ok((batch, next)) => (self.batch, self.from) = (batch.into_iter(), next),
                Err(why) => return Some(Err(why)),
            }
        }
    }
}
