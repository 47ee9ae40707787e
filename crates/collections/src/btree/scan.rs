//! Going along the keys: ranges for readers and transactions, and the walk that checks the tree.

use std::ops::{Bound, RangeBounds};
use std::vec;

use wattkeep_persist::Pod;
use wattkeep_tx::Tx;

use super::{BTree, Inner, Leaf};
use crate::check::Findings;
use crate::error::Error;
use crate::structure::parts::Parts;
use crate::view::View;

/// Keys and values of a leaf, and where to go on; `None`: nowhere.
type Batch<K, V> = (Vec<(K, V)>, Option<Bound<K>>);

/// What a walk knows of the keys below a node: not smaller than the first, smaller than the second.
type Limits<K> = (Option<K>, Option<K>);

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

    /// Walks over the whole tree, and holds the bytes to the invariants.
    pub(super) fn check_all(&self, view: &impl View) -> Result<Findings, Error> {
        let header = self.header(view)?;
        let mut walk = Walk { findings: Findings::default(), leaf: None, nodes: 0 };
        walk.findings.reach(self.place().at(), size_of::<super::Header>() as u64);
        self.check_below(view, &mut walk, header.root, header.level as u8, (None, None))?;
        let Walk { mut findings, leaf, .. } = walk;
        findings.hold(
            leaf.is_none_or(|(_, link)| link == 0),
            header.root,
            "the last leaf is linked to another",
        );
        let counted = findings.items == header.entries;
        findings.hold(counted, self.place().at(), "a tree that does not have as many entries as it counts");
        Ok(findings)
    }

    fn check_below(
        &self,
        view: &impl View,
        walk: &mut Walk,
        at: u64,
        level: u8,
        (low, high): Limits<K>,
    ) -> Result<(), Error> {
        walk.nodes += 1;
        if walk.nodes > view.bound() / Inner::<K>::BYTES.min(Leaf::<K, V>::BYTES) as u64 {
            return Err(Error::Damaged { at, what: "a tree with more nodes than there is memory" });
        }
        let inside = |key: &K| low.is_none_or(|low| *key >= low) && high.is_none_or(|high| *key < high);
        if level == 0 {
            let leaf = Leaf::<K, V>::read(view, at, 0)?;
            let keys: Vec<K> = leaf.all(view)?.into_iter().map(|(key, _)| key).collect();
            let follows = walk.leaf.is_none_or(|(_, link)| link == at);
            let findings = &mut walk.findings;
            findings.reach(at, Leaf::<K, V>::BYTES as u64);
            findings.items += keys.len() as u64;
            findings.hold(leaf.slots_are_distinct(), at, "two entries in one slot");
            findings.hold(keys.is_sorted_by(|a, b| a < b), at, "keys that do not rise");
            findings.hold(keys.iter().all(inside), at, "a key that belongs to another leaf");
            findings.hold(follows, at, "a leaf that the one before is not linked to");
            walk.leaf = Some((at, leaf.head.link));
            return Ok(());
        }
        let node = Inner::<K>::read(view, at, level)?;
        let entries = node.all(view)?;
        let findings = &mut walk.findings;
        findings.reach(at, Inner::<K>::BYTES as u64);
        findings.hold(!entries.is_empty(), at, "an inner node without an entry");
        findings.hold(node.slots_are_distinct(), at, "two entries in one slot");
        findings.hold(entries.is_sorted_by(|a, b| a.0 < b.0), at, "keys that do not rise");
        findings.hold(entries.iter().all(|(key, _)| inside(key)), at, "a key that belongs to another node");
        for index in 0..=entries.len() {
            let low = if index == 0 { low } else { Some(entries[index - 1].0) };
            let high = entries.get(index).map(|(key, _)| *key).or(high);
            self.check_below(view, walk, node.child(view, index)?, level - 1, (low, high))?;
        }
        Ok(())
    }
}

/// What the check has met so far.
struct Walk {
    findings: Findings,
    /// The last leaf, and its link.
    leaf: Option<(u64, u64)>,
    nodes: u64,
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
