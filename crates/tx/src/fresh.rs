//! The memory that a transaction allocated: nobody else can see it, so stores to it are not logged.
//!
//! Invariant: the objects are in order of their offsets and do not overlap.

use wattkeep_persist::{Refused, Space};

#[derive(Clone, Copy, Debug)]
struct Object {
    at: u64,
    bytes: u64,
    /// What was stored to it: from where, to where.
    stored: (u64, u64),
}

/// Objects that are allocated when the transaction commits.
#[derive(Debug, Default)]
pub(crate) struct Fresh(Vec<Object>);

impl Fresh {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn add(&mut self, at: u64, bytes: u64) {
        let place = self.0.partition_point(|object| object.at < at);
        self.0.insert(place, Object { at, bytes, stored: (u64::MAX, 0) });
    }

    /// Takes the object at `at` out; true if there was one.
    pub(crate) fn remove(&mut self, at: u64) -> bool {
        let found = self.0.binary_search_by_key(&at, |object| object.at);
        found.map(|place| self.0.remove(place)).is_ok()
    }

    /// Whether the range lies in one of the objects; notes that it is stored to.
    #[inline]
    pub(crate) fn stores(&mut self, at: u64, len: usize) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Some(place) = self.place_of(at, len) else { return false };
        let (object, end) = (&mut self.0[place], at + len as u64);
        object.stored = (object.stored.0.min(at), object.stored.1.max(end));
        true
    }

    /// Whether the range lies in one of the objects.
    pub(crate) fn holds(&self, at: u64, len: usize) -> bool {
        self.place_of(at, len).is_some()
    }

    /// Which object holds the range.
    #[inline]
    fn place_of(&self, at: u64, len: usize) -> Option<usize> {
        let place = self.0.partition_point(|object| object.at <= at).checked_sub(1)?;
        let end = at.saturating_add(len as u64);
        (end <= self.0[place].at + self.0[place].bytes).then_some(place)
    }

    /// Any of them was stored to.
    pub(crate) fn any_stored(&self) -> bool {
        self.0.iter().any(|object| object.stored.1 > 0)
    }

    /// Begins to write back what was stored.
    pub(crate) fn flush(&self, space: &Space) -> Result<(), Refused> {
        for &Object { stored: (from, to), .. } in self.0.iter().filter(|object| object.stored.1 > 0) {
            space.flush(from as usize, (to - from) as usize)?;
        }
        Ok(())
    }

    /// Offset of each.
    pub(crate) fn objects(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.0.iter().map(|object| object.at)
    }
}
