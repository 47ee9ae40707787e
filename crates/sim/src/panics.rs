//! A space whose stores panic when they are told to: what a program's own bug may do in the middle of ours.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use wattkeep_persist::Witness;

/// A witness that panics at one store.
#[derive(Default)]
pub struct Panics {
    /// So many stores from now; 0: never.
    at: AtomicUsize,
}

impl Panics {
    /// Panics at the `store`-th store from now, counted from 1; 0: at none.
    pub fn plan(&self, store: usize) {
        self.at.store(store, Ordering::Relaxed);
    }
}

impl Witness for Panics {
    fn stored(&self, _at: usize, _bytes: &[u8]) {
        if self.at.load(Ordering::Relaxed) > 0 && self.at.fetch_sub(1, Ordering::Relaxed) == 1 {
            resume_unwind(Box::new("a panic that was planned"));
        }
    }

    fn flushed(&self, _line: usize) {}

    fn fenced(&self) {}
}
