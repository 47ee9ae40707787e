//! An ordered map: a B+tree whose leaves are linked, for scans.
//!
//! Invariants, which [`Structure::check`](crate::Structure::check) holds to the bytes:
//! 1. All leaves have level 0, and a child one level less than its parent.
//! 2. Keys rise, within a node and from leaf to leaf; those below a child lie between its neighbours in the
//!    parent.
//! 3. The links of the leaves lead from the first to the last, and then nowhere.
//! 4. No inner node is without an entry.

mod change;
mod node;
mod scan;
mod walk;

use std::fmt;
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};
use wattkeep_persist::{LINE, Ptr};
use wattkeep_tx::Tx;

use self::node::{LEVELS_MAX, Node};
pub use self::scan::Range;
use self::walk::Order;
pub(crate) use self::walk::walk;
use crate::check::Met;
use crate::error::Error;
use crate::kind::{Kind, Shape};
use crate::place::{Place, fits_log};
use crate::structure::parts::Parts;
use crate::view::View;

/// The header.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    tag: u64,
    root: u64,
    entries: u64,
    /// Level of the root.
    level: u64,
    /// How keys are ordered: a check may not know their type.
    order: u64,
    free: [u64; 3],
}

const _: () = assert!(size_of::<Header>() == LINE);

type Leaf<K, V> = Node<K, V>;
type Inner<K> = Node<K, u64>;

/// A persistent map in the order of its keys.
///
/// Entries lie in nodes, whose changes are logged: entries of more than some 27 KiB need a heap with a log larger
/// than the default. Keep the place of a larger value instead of it.
///
/// What is stored must be [`Pod`]: a box is not.
///
/// ```compile_fail,E0277
/// # use wattkeep_collections::BTree;
/// fn a_box_is_no_value(tree: BTree<u64, Box<u64>>, tx: &mut wattkeep_tx::Tx<'_>) {
///     tree.insert(tx, &1, &Box::new(1)).unwrap();
/// }
/// ```
pub struct BTree<K, V> {
    place: Place,
    entries: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for BTree<K, V> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), entries: PhantomData }
    }
}

impl<K: Pod + Ord, V: Pod> Parts for BTree<K, V> {
    const KIND: Kind = Kind::new::<K, V>(Shape::BTree);

    fn at(place: Place) -> Self {
        Self { place, entries: PhantomData }
    }

    fn place(&self) -> &Place {
        &self.place
    }

    fn make(tx: &mut Tx<'_>) -> Result<u64, Error> {
        // Two neighbours share their entries anew, at one level or two.
        let largest = 2 * (Leaf::<K, V>::BYTES + Inner::<K>::BYTES);
        if largest > 4 * node::NODE_BYTES {
            fits_log(tx, Self::KIND, largest)?;
        }
        let root = Leaf::<K, V>::make(tx, 0, 0, &[])?;
        let at = tx.alloc_bytes(size_of::<Header>())?.offset();
        let order = Order::of::<K>() as u64;
        let header = Header { tag: Self::KIND.tag(), root, entries: 0, level: 0, order, free: [0; 3] };
        tx.write(Ptr::at(at), &header)?;
        Ok(at)
    }

    fn count(&self, view: &impl View) -> Result<u64, Error> {
        Ok(self.header(view)?.entries)
    }

    fn walk(&self, view: &impl View, met: &mut impl Met) -> Result<(), Error> {
        let compare = |a: &[u8], b: &[u8]| {
            let key = bytemuck::pod_read_unaligned::<K>;
            key(a).cmp(&key(b))
        };
        walk(view, self.place.at(), (size_of::<K>(), size_of::<V>()), Some(&compare), met)
    }

    fn free_parts(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let header = self.header(tx)?;
        self.free_below(tx, header.root, header.level as u8)
    }
}

impl<K: Pod + Ord, V: Pod> BTree<K, V> {
    fn header(&self, view: &impl View) -> Result<Header, Error> {
        let header: Header = self.place.header(view)?;
        if header.level < LEVELS_MAX.into() {
            return Ok(header);
        }
        Err(Error::Damaged { at: self.place.at(), what: "a tree with more levels than there can be" })
    }

    /// The leaf that `key` belongs to; `passed` sees each inner node above it, and the number of its child.
    fn descend(
        view: &impl View,
        header: &Header,
        key: Option<&K>,
        mut passed: impl FnMut(Inner<K>, usize),
    ) -> Result<Leaf<K, V>, Error> {
        let mut at = header.root;
        for level in (1..=header.level as u8).rev() {
            let node = Inner::<K>::read(view, at, level)?;
            let index = key.map_or(Ok(0), |key| node.child_of(view, key))?;
            at = node.child(view, index)?;
            passed(node, index);
        }
        Leaf::read(view, at, 0)
    }

    fn find(&self, view: &impl View, key: &K) -> Result<Option<u64>, Error> {
        let leaf = Self::descend(view, &self.header(view)?, Some(key), |_, _| ())?;
        leaf.search(view, key)?.ok().map(|index| leaf.value_at(index)).transpose()
    }

    fn value(&self, view: &impl View, key: &K) -> Result<Option<V>, Error> {
        self.find(view, key)?.map(|at| view.value(at)).transpose()
    }

    /// The value of `key`, as committed last.
    ///
    /// # Errors
    /// The tree is damaged or gone, or this thread is changing it.
    pub fn get(&self, key: &K) -> Result<Option<V>, Error> {
        self.place.read(|view| self.value(view, key))
    }

    /// The value of `key`, as `tx` sees it.
    ///
    /// # Errors
    /// The tree is damaged or gone; or [`Error::Deadlock`].
    pub fn get_in(&self, tx: &mut Tx<'_>, key: &K) -> Result<Option<V>, Error> {
        self.place.own(tx)?;
        self.value(&*tx, key)
    }

    /// Changes the value of `key`, if it has one; whether it has.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn update(&self, tx: &mut Tx<'_>, key: &K, change: impl FnOnce(&mut V)) -> Result<bool, Error> {
        self.place.change(tx, |tx| {
            let Some(at) = self.find(&*tx, key)?.map(Ptr::<V>::at) else { return Ok(false) };
            let mut value = tx.read(at)?;
            change(&mut value);
            tx.write(at, &value)?;
            Ok(true)
        })
    }
}

impl<K, V> fmt::Debug for BTree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
