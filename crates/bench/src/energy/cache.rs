//! One set-associative write-back cache: which lines it has, and which of them are dirty.
//!
//! Least recently used goes first.

use wattkeep_persist::LINE;

/// A line that had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) line: usize,
    pub(super) dirty: bool,
}

#[derive(Clone, Copy)]
struct Way {
    /// Address of the line; [`EMPTY`] for none.
    line: usize,
    dirty: bool,
}

const EMPTY: usize = usize::MAX;

/// A cache. The ways of a set lie in the order of their last use, newest first.
pub(super) struct Cache {
    ways: Vec<Way>,
    associativity: usize,
    sets: usize,
}

impl Cache {
    pub(super) fn new(bytes: usize, associativity: usize) -> Self {
        let sets = bytes / LINE / associativity;
        assert!(sets.is_power_of_two(), "sets are chosen by bits of the address");
        Self { ways: vec![Way { line: EMPTY, dirty: false }; sets * associativity], associativity, sets }
    }

    fn set(&mut self, line: usize) -> &mut [Way] {
        let first = ((line / LINE) & (self.sets - 1)) * self.associativity;
        &mut self.ways[first..first + self.associativity]
    }

    /// Uses the line, if it is there; whether it is. A store makes it dirty.
    pub(super) fn touch(&mut self, line: usize, stores: bool) -> bool {
        let set = self.set(line);
        let Some(place) = set.iter().position(|way| way.line == line) else { return false };
        set[..=place].rotate_right(1);
        set[0].dirty |= stores;
        true
    }

    /// Takes a line in that is not there; the one that had to leave for it.
    pub(super) fn put(&mut self, line: usize, dirty: bool) -> Option<Evicted> {
        let set = self.set(line);
        set.rotate_right(1);
        let left = std::mem::replace(&mut set[0], Way { line, dirty });
        (left.line != EMPTY).then_some(Evicted { line: left.line, dirty: left.dirty })
    }

    /// Throws the line out; whether it was dirty, if it was there.
    pub(super) fn remove(&mut self, line: usize) -> Option<bool> {
        let set = self.set(line);
        let place = set.iter().position(|way| way.line == line)?;
        let dirty = set[place].dirty;
        set[place..].rotate_left(1);
        set[set.len() - 1] = Way { line: EMPTY, dirty: false };
        Some(dirty)
    }

    /// Keeps the line, clean; whether it was dirty.
    pub(super) fn clean(&mut self, line: usize) -> bool {
        let way = self.set(line).iter_mut().find(|way| way.line == line);
        way.is_some_and(|way| std::mem::replace(&mut way.dirty, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_leaves() {
        let mut cache = Cache::new(4 * LINE, 2);
        // Lines of one set lie two apart.
        let [a, b, c] = [0, 2 * LINE, 4 * LINE];
        assert_eq!(cache.put(a, true), None);
        assert_eq!(cache.put(b, false), None);
        assert!(cache.touch(a, false));
        assert_eq!(cache.put(c, false), Some(Evicted { line: b, dirty: false }));
        assert!(!cache.touch(b, false));
        assert!(cache.clean(a) && !cache.clean(a));
        assert!(cache.touch(a, true));
        assert_eq!(cache.remove(a), Some(true));
        assert_eq!(cache.remove(a), None);
        assert_eq!(cache.put(b, false), None, "there is room again");
    }
}
