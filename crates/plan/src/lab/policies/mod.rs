//! Contenders that the engine does not have. One that wins moves to the engine.

pub mod clock;
pub mod refault;
pub mod sampling;
pub mod sieve;

use std::collections::{HashSet, VecDeque};

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Observer, Sight};

/// Victims that were offered: one that was not cleaned, or was written again, comes back as new.
#[derive(Default)]
struct Offered(VecDeque<PageRef>);

impl Offered {
    fn offer(&mut self, page: PageRef) {
        self.0.push_back(page);
    }

    /// Looks after up to `count` of them: clean ones are dropped, dirty ones returned.
    fn look_after(&mut self, count: usize, observer: &mut dyn Observer, back: &mut Vec<PageRef>) {
        for _ in 0..count.min(self.0.len()) {
            let Some(page) = self.0.pop_front() else { return };
            match observer.glance(page) {
                Sight::Clean => observer.dropped(page),
                Sight::Busy => self.0.push_back(page),
                Sight::Dirty { .. } => back.push(page),
            }
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Names of pages that were cleaned a while ago, the oldest forgotten first.
#[derive(Default)]
struct Ghosts {
    order: VecDeque<PageRef>,
    known: HashSet<PageRef>,
}

impl Ghosts {
    fn remember(&mut self, page: PageRef, most: usize) {
        if self.known.insert(page) {
            self.order.push_back(page);
        }
        while self.order.len() > most.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Whether the page was cleaned a while ago; it is not remembered any more.
    fn recall(&mut self, page: PageRef) -> bool {
        self.known.remove(&page)
    }

    fn bytes(&self) -> usize {
        (self.order.capacity() + self.known.capacity()) * size_of::<PageRef>()
    }
}
