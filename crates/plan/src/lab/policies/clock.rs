//! CLOCK on dirty bits that are always right: the hand passes pages that were written since it last
//! came by. What second chance would be if looks were free: no bound on how far the hand goes.

use std::collections::VecDeque;

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

/// Pages in the order of the hand.
#[derive(Default)]
pub struct Clock {
    queue: VecDeque<(PageRef, Option<Fingerprint>)>,
}

impl VictimPolicy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.queue.push_back((page, None));
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let enough = victims.len() + count;
        // Twice around: the first round gives every page its fingerprint.
        for _ in 0..2 * self.queue.len() {
            if victims.len() == enough {
                return;
            }
            let Some((page, seen)) = self.queue.pop_front() else { return };
            match observer.look(page, seen) {
                Sight::Clean => observer.dropped(page),
                Sight::Busy => self.queue.push_back((page, seen)),
                Sight::Dirty { fingerprint, written } => {
                    if !written {
                        victims.push(page);
                    }
                    self.queue.push_back((page, Some(fingerprint)));
                }
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<(PageRef, Option<Fingerprint>)>()
    }
}
