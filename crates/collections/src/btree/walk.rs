//! Going over a whole tree, and holding its bytes to the invariants.
//!
//! Who walks may know the sizes of keys and values alone. The header says how keys of a well-known type are
//! ordered; of other types only the program that made the tree can check that keys rise.

use std::any::TypeId;
use std::cmp::Ordering;

use super::node::{Head, Shape};
use super::{Header, LEVELS_MAX};
use crate::check::{Met, Pointers};
use crate::error::Error;
use crate::view::View;

/// How two keys compare, by their bytes.
pub(crate) type Compare<'a> = &'a dyn Fn(&[u8], &[u8]) -> Ordering;

/// What a walk knows of the keys below a node: not smaller than the first, smaller than the second.
type Limits<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Faults behind which a walk gives up: each may hide much.
const BROKEN_MAX: usize = 32;

/// How keys are ordered, as far as their bytes tell; a word of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Order {
    /// By code of the program.
    Own = 0,
    /// As numbers without a sign, the lowest byte first.
    Unsigned = 1,
    /// As numbers in two's complement, the lowest byte first.
    Signed = 2,
    /// Byte by byte.
    Bytes = 3,
}

impl Order {
    pub(super) fn of<K: 'static>() -> Self {
        let key = TypeId::of::<K>();
        let unsigned = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<u128>(),
            TypeId::of::<usize>(),
        ];
        let signed = [
            TypeId::of::<i8>(),
            TypeId::of::<i16>(),
            TypeId::of::<i32>(),
            TypeId::of::<i64>(),
            TypeId::of::<i128>(),
            TypeId::of::<isize>(),
        ];
        let bytes = [
            TypeId::of::<[u8; 4]>(),
            TypeId::of::<[u8; 8]>(),
            TypeId::of::<[u8; 12]>(),
            TypeId::of::<[u8; 16]>(),
            TypeId::of::<[u8; 20]>(),
            TypeId::of::<[u8; 24]>(),
            TypeId::of::<[u8; 32]>(),
            TypeId::of::<[u8; 64]>(),
        ];
        if unsigned.contains(&key) {
            Self::Unsigned
        } else if signed.contains(&key) {
            Self::Signed
        } else if bytes.contains(&key) {
            Self::Bytes
        } else {
            Self::Own
        }
    }

    fn of_word(word: u64) -> Self {
        [Self::Unsigned, Self::Signed, Self::Bytes]
            .into_iter()
            .find(|order| *order as u64 == word)
            .unwrap_or(Self::Own)
    }

    fn compare(self) -> Option<Compare<'static>> {
        match self {
            Self::Own => None,
            Self::Unsigned => Some(&|a, b| a.iter().rev().cmp(b.iter().rev())),
            Self::Signed => Some(&|a, b| {
                let sign = |number: &[u8]| number.last().is_some_and(|top| *top >= 0x80);
                sign(b).cmp(&sign(a)).then_with(|| a.iter().rev().cmp(b.iter().rev()))
            }),
            Self::Bytes => Some(&|a, b| a.cmp(b)),
        }
    }
}

/// Walks over the tree at `at`, whose keys and values have so many bytes. `compare` is the program's order of
/// keys, where it is known.
pub(crate) fn walk(
    view: &impl View,
    at: u64,
    (key, value): (usize, usize),
    compare: Option<Compare<'_>>,
    met: &mut impl Met,
) -> Result<(), Error> {
    let header: Header = view.value(at)?;
    if header.level >= LEVELS_MAX.into() {
        return Err(Error::Damaged { at, what: "a tree with more levels than there can be" });
    }
    let compare = compare.or_else(|| Order::of_word(header.order).compare());
    if compare.is_none() {
        met.note(at, "the order of the tree's keys is known to its program alone, and was not checked");
    }
    met.part(at, size_of::<Header>() as u64);
    let shapes = [Shape::of(key, value), Shape::of(key, size_of::<u64>())];
    let mut walk =
        Walk { view, key, value, compare, shapes, entries: 0, nodes: 0, broken: 0, leaf: None, met };
    walk.below(header.root, header.level as u8, (None, None));
    let Walk { entries, broken, leaf, .. } = walk;
    met.items(entries);
    if broken == 0 {
        met.hold(leaf.is_none_or(|link| link == 0), header.root, "the last leaf is linked to another");
        let counted = entries == header.entries;
        met.hold(counted, at, "a tree that does not have as many entries as it counts");
    }
    Ok(())
}

/// A walk, and what it has met so far.
struct Walk<'a, V, M> {
    view: &'a V,
    key: usize,
    value: usize,
    compare: Option<Compare<'a>>,
    /// Of leaves, of inner nodes.
    shapes: [Shape; 2],
    entries: u64,
    nodes: u64,
    /// Nodes that cannot be read.
    broken: usize,
    /// The link of the last leaf, unless what is between was hidden.
    leaf: Option<u64>,
    met: &'a mut M,
}

impl<V: View, M: Met> Walk<'_, V, M> {
    fn below(&mut self, at: u64, level: u8, limits: Limits<'_>) {
        if self.broken > BROKEN_MAX {
            return;
        }
        let shape = self.shapes[usize::from(level > 0)];
        self.nodes += 1;
        let read = if self.nodes * (self.shapes[0].bytes.min(self.shapes[1].bytes) as u64) > self.view.bound()
        {
            self.broken = BROKEN_MAX;
            Err(Error::Damaged { at, what: "a tree with more nodes than there is memory" })
        } else {
            self.read(at, level, shape)
        };
        let Some((head, keys)) = self.met.found(at, read) else {
            (self.broken, self.leaf) = (self.broken + 1, None);
            return;
        };
        self.met.part(at, shape.bytes as u64);
        self.met.hold(head.slots_are_distinct(), at, "two entries in one slot");
        self.hold_order(at, &keys, limits);
        if level > 0 {
            self.met.hold(!keys.is_empty(), at, "an inner node without an entry");
            return self.children(at, level, &head, &keys, limits);
        }
        let follows = self.leaf.is_none_or(|link| link == at);
        self.met.hold(follows, at, "a leaf that the one before is not linked to");
        self.leaf = Some(head.link);
        self.entries += keys.len() as u64;
        for index in 0..keys.len() {
            let entry = shape.entry(at, &head, index).expect("it was read");
            self.met.content(entry, self.key as u64, Pointers::of(self.key));
            self.met.content(entry + shape.value as u64, self.value as u64, Pointers::of(self.value));
        }
    }

    /// The first line, and the keys in order.
    fn read(&self, at: u64, level: u8, shape: Shape) -> Result<(Head, Vec<Vec<u8>>), Error> {
        let head = shape.head(self.view, at, level)?;
        let key = |index| {
            let mut key = vec![0; self.key];
            self.view.bytes(shape.entry(at, &head, index)?, &mut key)?;
            Ok::<_, Error>(key)
        };
        let keys = (0..usize::from(head.count)).map(key).collect::<Result<_, _>>()?;
        Ok((head, keys))
    }

    fn hold_order(&mut self, at: u64, keys: &[Vec<u8>], (low, high): Limits<'_>) {
        let Some(compare) = self.compare else { return };
        let rise = keys.is_sorted_by(|a, b| compare(a, b).is_lt());
        self.met.hold(rise, at, "keys that do not rise");
        let inside = |key: &Vec<u8>| {
            low.is_none_or(|low| compare(key, low).is_ge())
                && high.is_none_or(|high| compare(key, high).is_lt())
        };
        self.met.hold(keys.iter().all(inside), at, "a key that belongs to another node");
    }

    fn children(&mut self, at: u64, level: u8, head: &Head, keys: &[Vec<u8>], (low, high): Limits<'_>) {
        let shape = self.shapes[1];
        for index in 0..=keys.len() {
            let child = match index.checked_sub(1) {
                None => Ok(head.link),
                Some(entry) => {
                    shape.entry(at, head, entry).and_then(|entry| self.view.word(entry + shape.value as u64))
                }
            };
            let Some(child) = self.met.found(at, child) else { continue };
            let low = index.checked_sub(1).map_or(low, |before| Some(&keys[before]));
            let high = keys.get(index).map_or(high, |key| Some(key));
            self.below(child, level - 1, (low, high));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_compare_as_the_keys_that_they_are() {
        let numbers = [i64::MIN, -300, -256, -1, 0, 1, 255, 256, 70_000, i64::MAX];
        for a in numbers {
            for b in numbers {
                let compare = |order: Order, a: &[u8], b: &[u8]| order.compare().expect("known")(a, b);
                let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
                assert_eq!(compare(Order::Signed, &x, &y), a.cmp(&b), "{a} {b}");
                assert_eq!(compare(Order::Unsigned, &x, &y), (a as u64).cmp(&(b as u64)), "{a} {b}");
                assert_eq!(compare(Order::Bytes, &x, &y), x.cmp(&y), "{a} {b}");
            }
        }
        assert_eq!((Order::of::<u32>(), Order::of::<i128>()), (Order::Unsigned, Order::Signed));
        assert_eq!((Order::of::<[u8; 12]>(), Order::of::<[u64; 2]>()), (Order::Bytes, Order::Own));
        assert_eq!(Order::of_word(77), Order::Own);
    }
}
