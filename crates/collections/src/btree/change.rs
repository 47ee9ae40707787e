//! Inserts, which split full nodes; removals, which merge those that have few entries left.

use std::mem::offset_of;

use wattkeep_persist::{Pod, Ptr};
use wattkeep_tx::Tx;

use super::node::Node;
use super::{BTree, Header, Inner, Leaf};
use crate::error::Error;

/// The inner nodes from the root to a leaf, and the number of the child that was taken in each.
type Path<K> = Vec<(Inner<K>, usize)>;

/// A node that was split: the first key of the new one, and where that lies.
type Split<K> = (K, u64);

impl<K: Pod + Ord, V: Pod> BTree<K, V> {
    /// Sets the value of `key`; whether it had none.
    ///
    /// # Errors
    /// The heap is full, the tree damaged or gone; or [`Error::Deadlock`]. Hand it on: the transaction must
    /// abort.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &K, value: &V) -> Result<bool, Error> {
        self.place.change(tx, |tx| self.put(tx, key, value))
    }

    fn put(&self, tx: &mut Tx<'_>, key: &K, value: &V) -> Result<bool, Error> {
        let header = self.header(tx)?;
        let mut path = Path::with_capacity(header.level as usize);
        let mut leaf = Self::descend(&*tx, &header, Some(key), |node, index| path.push((node, index)))?;
        let index = match leaf.search(&*tx, key)? {
            Ok(index) => {
                tx.write(Ptr::at(leaf.value_at(index)?), value)?;
                return Ok(false);
            }
            Err(index) => index,
        };
        self.count(tx, header.entries.wrapping_add(1))?;
        if leaf.count() < Leaf::<K, V>::CAPACITY {
            leaf.insert(tx, index, key, value)?;
            return Ok(true);
        }
        let mut split = Self::split_leaf(tx, leaf, index, key, value)?;
        while let Some((mut node, index)) = path.pop() {
            if node.count() < Inner::<K>::CAPACITY {
                node.insert(tx, index, &split.0, &split.1)?;
                return Ok(true);
            }
            split = Self::split_inner(tx, node, index, split)?;
        }
        let level = header.level as u8 + 1;
        let root = Inner::<K>::make(tx, level, header.root, &[split])?;
        self.set_root(tx, root, level)?;
        Ok(true)
    }

    /// Splits a full leaf, and adds an entry as number `index`.
    fn split_leaf(
        tx: &mut Tx<'_>,
        mut leaf: Leaf<K, V>,
        index: usize,
        key: &K,
        value: &V,
    ) -> Result<Split<K>, Error> {
        let count = leaf.count();
        // Keys that rise fill one leaf behind the other: nothing will ever come between.
        let middle = if index == count && leaf.head.link == 0 { count } else { count / 2 };
        let mut moved = leaf.all(&*tx)?.split_off(middle);
        if index >= middle {
            moved.insert(index - middle, (*key, *value));
        }
        let right = Leaf::make(tx, 0, leaf.head.link, &moved)?;
        leaf.head.count = middle as u8;
        leaf.head.link = right;
        if index < middle {
            leaf.insert(tx, index, key, value)?;
        } else {
            leaf.write_head(tx)?;
        }
        Ok((moved[0].0, right))
    }

    /// Splits a full inner node, and adds an entry as number `index`. The entry in the middle moves up.
    fn split_inner(
        tx: &mut Tx<'_>,
        mut node: Inner<K>,
        index: usize,
        (key, child): Split<K>,
    ) -> Result<Split<K>, Error> {
        let mut entries = node.all(&*tx)?;
        entries.insert(index, (key, child));
        // As in leaves; but no inner node may be left without an entry.
        let middle = if index == entries.len() - 1 { entries.len() - 2 } else { entries.len() / 2 };
        let (up, link) = entries[middle];
        let right = Inner::<K>::make(tx, node.head.level, link, &entries[middle + 1..])?;
        if index < middle {
            node.head.count = middle as u8 - 1;
            node.insert(tx, index, &key, &child)?;
        } else {
            node.head.count = middle as u8;
            node.write_head(tx)?;
        }
        Ok((up, right))
    }

    /// Removes `key`; the value that it had.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn remove(&self, tx: &mut Tx<'_>, key: &K) -> Result<Option<V>, Error> {
        self.place.change(tx, |tx| self.take(tx, key))
    }

    fn take(&self, tx: &mut Tx<'_>, key: &K) -> Result<Option<V>, Error> {
        let header = self.header(tx)?;
        let mut path = Path::with_capacity(header.level as usize);
        let mut leaf = Self::descend(&*tx, &header, Some(key), |node, index| path.push((node, index)))?;
        let Ok(index) = leaf.search(&*tx, key)? else { return Ok(None) };
        let value = leaf.value(&*tx, index)?;
        leaf.remove(tx, index)?;
        self.count(tx, header.entries.wrapping_sub(1))?;
        let mut few = leaf.count() < Leaf::<K, V>::FEW;
        for level in 1..=header.level as u8 {
            let (true, Some((mut parent, index))) = (few, path.pop()) else { return Ok(Some(value)) };
            Self::even_out(tx, &mut parent, index, level)?;
            few = parent.count() < Inner::<K>::FEW;
            if path.is_empty() && parent.count() == 0 {
                self.set_root(tx, parent.head.link, level - 1)?;
                tx.free(Ptr::<u8>::at(parent.at))?;
            }
        }
        Ok(Some(value))
    }

    /// Child `index` of `parent`, which has level `level`, has few entries: takes some from a neighbour, or
    /// becomes one with it.
    fn even_out(tx: &mut Tx<'_>, parent: &mut Inner<K>, index: usize, level: u8) -> Result<(), Error> {
        if parent.count() == 0 {
            return Err(Error::Damaged { at: parent.at, what: "an inner node without an entry" });
        }
        let left = index.saturating_sub(1);
        let (one, other) = (parent.child(&*tx, left)?, parent.child(&*tx, left + 1)?);
        if level == 1 {
            let (one, other) = (Leaf::<K, V>::read(&*tx, one, 0)?, Leaf::<K, V>::read(&*tx, other, 0)?);
            let mut entries = one.all(&*tx)?;
            entries.extend(other.all(&*tx)?);
            if entries.len() <= Leaf::<K, V>::ONE {
                one.rewrite(tx, other.head.link, &entries)?;
                return Self::drop_child(tx, parent, left, other);
            }
            let right = entries.split_off(entries.len() / 2);
            one.rewrite(tx, other.at, &entries)?;
            other.rewrite(tx, other.head.link, &right)?;
            return parent.set_key(tx, left, &right[0].0);
        }
        let one = Inner::<K>::read(&*tx, one, level - 1)?;
        let other = Inner::<K>::read(&*tx, other, level - 1)?;
        let mut entries = one.all(&*tx)?;
        entries.push((parent.key(&*tx, left)?, other.head.link));
        entries.extend(other.all(&*tx)?);
        if entries.len() <= Inner::<K>::ONE {
            one.rewrite(tx, one.head.link, &entries)?;
            return Self::drop_child(tx, parent, left, other);
        }
        let right = entries.split_off(entries.len() / 2 + 1);
        let (up, link) = entries.pop().ok_or(Error::Damaged { at: one.at, what: "no entries to share" })?;
        one.rewrite(tx, one.head.link, &entries)?;
        other.rewrite(tx, link, &right)?;
        parent.set_key(tx, left, &up)
    }

    /// `gone`, the child of entry `index` of `parent`, has no entries of its own any more.
    fn drop_child<W: Pod>(
        tx: &mut Tx<'_>,
        parent: &mut Inner<K>,
        index: usize,
        gone: Node<K, W>,
    ) -> Result<(), Error> {
        parent.remove(tx, index)?;
        Ok(tx.free(Ptr::<u8>::at(gone.at))?)
    }

    fn count(&self, tx: &mut Tx<'_>, entries: u64) -> Result<(), Error> {
        Ok(tx.write_word(Ptr::at(self.place.at() + offset_of!(Header, entries) as u64), entries)?)
    }

    fn set_root(&self, tx: &mut Tx<'_>, root: u64, level: u8) -> Result<(), Error> {
        tx.write_word(Ptr::at(self.place.at() + offset_of!(Header, root) as u64), root)?;
        Ok(tx.write_word(Ptr::at(self.place.at() + offset_of!(Header, level) as u64), level.into())?)
    }

    /// Frees a node and all below it.
    pub(super) fn free_below(&self, tx: &mut Tx<'_>, at: u64, level: u8) -> Result<(), Error> {
        if level > 0 {
            let node = Inner::<K>::read(&*tx, at, level)?;
            for index in 0..=node.count() {
                let child = node.child(&*tx, index)?;
                self.free_below(tx, child, level - 1)?;
            }
        }
        Ok(tx.free(Ptr::<u8>::at(at))?)
    }
}
