//! First in, first out: cleans the page that has been dirty longest. The baseline that every other
//! policy must beat; asks nothing.

use std::collections::VecDeque;

use super::{Observer, Sight, VictimPolicy};
use crate::control::block::PageRef;

/// The queue of dirty pages.
#[derive(Default)]
pub struct Fifo {
    queue: VecDeque<PageRef>,
}

impl VictimPolicy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.queue.push_back(page);
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let mut wanted = count;
        for _ in 0..self.queue.len() {
            let Some(page) = (if wanted > 0 { self.queue.pop_front() } else { None }) else { return };
            match observer.glance(page) {
                Sight::Clean => observer.dropped(page),
                Sight::Busy => self.queue.push_back(page),
                Sight::Dirty { .. } => {
                    self.queue.push_back(page);
                    victims.push(page);
                    wanted -= 1;
                }
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<PageRef>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pages, page};
    use super::*;

    #[test]
    fn pages_leave_in_the_order_they_came_and_clean_ones_are_dropped() {
        let (mut fifo, mut pages) = (Fifo::default(), Pages::default());
        for n in 0..6 {
            fifo.dirtied(page(n));
            if n != 1 {
                pages.dirty.insert(page(n), 0);
            }
        }
        let mut victims = Vec::new();
        fifo.choose(3, false, &mut pages, &mut victims);
        assert_eq!(victims, [page(0), page(2), page(3)]);
        assert!(pages.dropped.contains(&page(1)) && pages.looks == 0);
    }
}
