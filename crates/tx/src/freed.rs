//! The objects that a transaction frees: a list for the log, and a set once it is long.

use std::collections::HashSet;
use std::ops::Deref;

/// Objects up to which a look at all of them is quicker than a set.
const FEW: usize = 16;

/// Freed objects, in their order, each once.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    objects: Vec<u64>,
    /// All of them, once there are more than a few.
    set: HashSet<u64>,
}

impl Freed {
    /// Adds the object at `at`. False when it was added before.
    pub(crate) fn add(&mut self, at: u64) -> bool {
        let new = if self.objects.len() <= FEW { !self.objects.contains(&at) } else { self.set.insert(at) };
        if new {
            self.objects.push(at);
            if self.objects.len() == FEW + 1 {
                self.set.extend(&self.objects);
            }
        }
        new
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        if self.objects.len() <= FEW { self.objects.contains(&at) } else { self.set.contains(&at) }
    }

    pub(crate) fn clear(&mut self) {
        self.objects.clear();
        self.set.clear();
    }
}

impl Deref for Freed {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_freed_once_whether_few_or_many_are() {
        const OBJECTS: u64 = if cfg!(miri) { 25 } else { 99 };
        let mut freed = Freed::default();
        for round in 0..2 {
            for at in 1..=OBJECTS {
                assert!(!freed.has(at) && freed.add(at), "{round}: {at}");
                assert!((1..=at).all(|before| freed.has(before) && !freed.add(before)));
            }
            assert_eq!(freed.len(), OBJECTS as usize);
            freed.clear();
        }
    }
}
