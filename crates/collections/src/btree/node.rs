//! One node of a B+tree: entries in any slots, and a line that says their order.
//!
//! ```text
//! line 0   count | level | link | order: 48 bytes, the slots of the entries by rising key
//! behind   slot | slot | ...     slot: key, value, each from a word's beginning
//! ```
//!
//! An entry does not move when others come and go: an insert logs one slot and the first line, a removal the
//! first line alone (Chen and Jin, "Persistent B+-trees in non-volatile main memory", VLDB 2015, whose slot
//! array this is). In a leaf (level 0) values are the tree's, and the link leads to the next leaf. In an inner
//! node values are the offsets of children whose keys are not smaller; the link is the child with keys smaller
//! than all.

use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable, bytes_of};
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use crate::error::Error;
use crate::view::{View, whole_words};

/// Bytes that a node tries to have.
pub(super) const NODE_BYTES: usize = 1024;

/// Entries that the first line can order.
const ORDER: usize = 48;

/// Entries that a node has room for, however large they are.
const LEAST: usize = 8;

/// Levels that a tree may have: more than there are offsets for.
pub(super) const LEVELS_MAX: u8 = 32;

/// The first line of a node.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Head {
    pub(super) count: u8,
    pub(super) level: u8,
    free: [u8; 6],
    pub(super) link: u64,
    order: [u8; ORDER],
}

const _: () = assert!(size_of::<Head>() == LINE);

/// A node whose first line was read. `V` is [`u64`] in inner nodes.
pub(super) struct Node<K, V> {
    pub(super) at: u64,
    pub(super) head: Head,
    entries: PhantomData<fn() -> (K, V)>,
}

/// How a node is laid out: what follows from the bytes of a key and of a value.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Where in an entry its value begins.
    pub(super) value: usize,
    /// Bytes of an entry.
    pub(super) entry: usize,
    /// Entries that there is room for.
    pub(super) capacity: usize,
    /// Bytes of a node.
    pub(super) bytes: usize,
}

impl Shape {
    pub(super) const fn of(key: usize, value: usize) -> Self {
        let entry = whole_words(key) + whole_words(value);
        let fit = (NODE_BYTES - LINE) / if entry == 0 { 1 } else { entry };
        let capacity = if fit > ORDER {
            ORDER
        } else if fit < LEAST {
            LEAST
        } else {
            fit
        };
        Self { value: whole_words(key), entry, capacity, bytes: LINE + capacity * entry }
    }

    /// The first line of the node of `level` at `at`.
    pub(super) fn head(&self, view: &impl View, at: u64, level: u8) -> Result<Head, Error> {
        let head: Head = view.value(at)?;
        if at == 0 || head.level != level || head.count as usize > self.capacity {
            return Err(Error::Damaged { at, what: "no node of the tree where there should be one" });
        }
        Ok(head)
    }

    /// Where the entry lies that comes as number `index` in the order of the node at `at`.
    pub(super) fn entry(&self, at: u64, head: &Head, index: usize) -> Result<u64, Error> {
        match head.order[index] {
            slot if usize::from(slot) < self.capacity => Ok(self.slot(at, slot)),
            _ => Err(Error::Damaged { at, what: "a node that orders slots that it does not have" }),
        }
    }

    fn slot(&self, at: u64, slot: u8) -> u64 {
        at + LINE as u64 + u64::from(slot) * self.entry as u64
    }
}

impl Head {
    /// Two entries share no slot.
    pub(super) fn slots_are_distinct(&self) -> bool {
        self.used().count_ones() == u32::from(self.count)
    }

    fn used(&self) -> u64 {
        self.order[..self.count as usize]
            .iter()
            .fold(0, |used, slot| used | 1_u64.checked_shl((*slot).into()).unwrap_or(0))
    }
}

impl<K: Pod + Ord, V: Pod> Node<K, V> {
    const SHAPE: Shape = Shape::of(size_of::<K>(), size_of::<V>());
    const VALUE: usize = Self::SHAPE.value;
    const ENTRY: usize = Self::SHAPE.entry;

    /// Entries that there is room for.
    pub(super) const CAPACITY: usize = Self::SHAPE.capacity;

    /// Bytes of a node.
    pub(super) const BYTES: usize = Self::SHAPE.bytes;

    /// A node with fewer entries is filled up from its neighbour, or merged with it.
    pub(super) const FEW: usize = Self::CAPACITY / 3;

    /// Two neighbours that have no more together become one. Above, each half has more than [`Self::FEW`].
    pub(super) const ONE: usize = Self::CAPACITY * 3 / 4;

    /// Reads the node of `level` at `at`.
    pub(super) fn read(view: &impl View, at: u64, level: u8) -> Result<Self, Error> {
        Ok(Self { at, head: Self::SHAPE.head(view, at, level)?, entries: PhantomData })
    }

    pub(super) fn count(&self) -> usize {
        self.head.count as usize
    }

    fn slot(&self, slot: u8) -> u64 {
        Self::SHAPE.slot(self.at, slot)
    }

    /// Where entry `index` in the order of keys lies.
    fn entry(&self, index: usize) -> Result<u64, Error> {
        Self::SHAPE.entry(self.at, &self.head, index)
    }

    pub(super) fn key(&self, view: &impl View, index: usize) -> Result<K, Error> {
        view.value(self.entry(index)?)
    }

    /// Where value `index` lies.
    pub(super) fn value_at(&self, index: usize) -> Result<u64, Error> {
        Ok(self.entry(index)? + Self::VALUE as u64)
    }

    pub(super) fn value(&self, view: &impl View, index: usize) -> Result<V, Error> {
        view.value(self.value_at(index)?)
    }

    /// The entry of `key`, or else where it would be in the order.
    pub(super) fn search(&self, view: &impl View, key: &K) -> Result<Result<usize, usize>, Error> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(view, middle)?.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(Ok(middle)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(Err(low))
    }

    /// All entries in order.
    pub(super) fn all(&self, view: &impl View) -> Result<Vec<(K, V)>, Error> {
        (0..self.count()).map(|index| Ok((self.key(view, index)?, self.value(view, index)?))).collect()
    }

    /// Adds an entry as number `index`, and writes the first line. There is room.
    pub(super) fn insert(&mut self, tx: &mut Tx<'_>, index: usize, key: &K, value: &V) -> Result<(), Error> {
        let count = self.count();
        let slot = self.head.used().trailing_ones() as u8;
        if count >= Self::CAPACITY || usize::from(slot) >= Self::CAPACITY {
            return Err(Error::Damaged { at: self.at, what: "a node without a free slot" });
        }
        tx.write(Ptr::at(self.slot(slot)), key)?;
        tx.write(Ptr::at(self.slot(slot) + Self::VALUE as u64), value)?;
        self.head.order.copy_within(index..count, index + 1);
        self.head.order[index] = slot;
        self.head.count += 1;
        self.write_head(tx)
    }

    /// Takes entry `index` out, and writes the first line.
    pub(super) fn remove(&mut self, tx: &mut Tx<'_>, index: usize) -> Result<(), Error> {
        let count = self.count();
        self.head.order.copy_within(index + 1..count, index);
        self.head.count -= 1;
        self.write_head(tx)
    }

    /// Gives entry `index` another key, which keeps the order.
    pub(super) fn set_key(&self, tx: &mut Tx<'_>, index: usize, key: &K) -> Result<(), Error> {
        Ok(tx.write(Ptr::at(self.entry(index)?), key)?)
    }

    pub(super) fn write_head(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        Ok(tx.write(Ptr::at(self.at), &self.head)?)
    }

    /// Makes a node of `entries`, which are in order.
    pub(super) fn make(tx: &mut Tx<'_>, level: u8, link: u64, entries: &[(K, V)]) -> Result<u64, Error> {
        let at = tx.alloc_bytes(Self::BYTES)?.offset();
        Self::write(tx, at, level, link, entries)?;
        Ok(at)
    }

    /// Gives the node other entries, which are in order.
    pub(super) fn rewrite(&self, tx: &mut Tx<'_>, link: u64, entries: &[(K, V)]) -> Result<(), Error> {
        Self::write(tx, self.at, self.head.level, link, entries)
    }

    fn write(tx: &mut Tx<'_>, at: u64, level: u8, link: u64, entries: &[(K, V)]) -> Result<(), Error> {
        let mut head = Head { count: entries.len() as u8, level, free: [0; 6], link, order: [0; ORDER] };
        let mut image = vec![0; LINE + entries.len() * Self::ENTRY];
        for (index, (key, value)) in entries.iter().enumerate() {
            head.order[index] = index as u8;
            let entry = &mut image[LINE + index * Self::ENTRY..][..Self::ENTRY];
            entry[..size_of::<K>()].copy_from_slice(bytes_of(key));
            entry[Self::VALUE..][..size_of::<V>()].copy_from_slice(bytes_of(value));
        }
        image[..LINE].copy_from_slice(bytes_of(&head));
        Ok(tx.write_bytes(at, &image)?)
    }
}

impl<K: Pod + Ord> Node<K, u64> {
    /// Child `index`: that of the link is number 0, that of entry `i` number `i + 1`.
    pub(super) fn child(&self, view: &impl View, index: usize) -> Result<u64, Error> {
        if index == 0 { Ok(self.head.link) } else { self.value(view, index - 1) }
    }

    /// The number of the child that `key` belongs to.
    pub(super) fn child_of(&self, view: &impl View, key: &K) -> Result<usize, Error> {
        Ok(self.search(view, key)?.map_or_else(|index| index, |index| index + 1))
    }
}
