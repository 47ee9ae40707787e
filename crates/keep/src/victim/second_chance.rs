//! Second chance without dirty bits: a queue whose head is cleaned only if it was not written since
//! it was last looked at.
//!
//! CLOCK asks the page table whether a page was referenced; clearing that bit costs an interrupt to
//! other cores and a new fault. Here the keeper reads the page and compares a fingerprint:
//! under a microsecond on its own core, nothing on the application's.

use std::collections::VecDeque;

use super::{Fingerprint, Observer, Sight, VictimPolicy};
use crate::control::block::PageRef;

/// Looks per victim asked for: enough for a queue in which most pages are hot.
const LOOKS_PER_VICTIM: usize = 8;

/// Looks per call: about 0.3 ms of the keeper's time. Then, if writers wait, the head goes unseen.
const LOOKS_MAX: usize = 512;

#[derive(Clone, Copy)]
struct Listed {
    page: PageRef,
    /// Fingerprint at the last look; `None` before the first.
    seen: Option<Fingerprint>,
}

/// The queue of dirty pages with their fingerprints.
#[derive(Default)]
pub struct SecondChance {
    queue: VecDeque<Listed>,
}

impl VictimPolicy for SecondChance {
    fn name(&self) -> &'static str {
        "second-chance"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.queue.push_back(Listed { page, seen: None });
    }

    fn choose(
        &mut self,
        count: usize,
        urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let enough = victims.len() + count;
        let mut looks = (count * LOOKS_PER_VICTIM).min(LOOKS_MAX);
        for _ in 0..self.queue.len() {
            if victims.len() == enough {
                return;
            }
            let Some(head) = self.queue.pop_front() else { return };
            let unseen = urgent && looks == 0;
            let sight = if unseen { observer.glance(head.page) } else { observer.look(head.page, head.seen) };
            match sight {
                Sight::Clean => observer.dropped(head.page),
                Sight::Busy => self.queue.push_back(Listed { seen: None, ..head }),
                Sight::Dirty { fingerprint, written } => {
                    if unseen || !written {
                        victims.push(head.page);
                    } else if looks == 0 {
                        self.queue.push_front(head);
                        return;
                    }
                    looks = looks.saturating_sub(1);
                    self.queue.push_back(Listed { seen: (!unseen).then_some(fingerprint), ..head });
                }
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.queue.len()
    }

    fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Listed>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pages, page, victims_when_even_pages_stay_hot};
    use super::*;

    #[test]
    fn pages_written_between_looks_stay() {
        let victims = victims_when_even_pages_stay_hot(&mut SecondChance::default());
        assert!(!victims.is_empty() && victims.iter().all(|n| n % 2 == 1), "{victims:?}");
    }

    #[test]
    fn waiting_writers_get_a_victim_even_when_every_page_is_hot() {
        let (mut policy, mut pages) = (SecondChance::default(), Pages::default());
        for n in 0..100 {
            pages.dirty.insert(page(n), 0);
            policy.dirtied(page(n));
        }
        let mut victims = Vec::new();
        for round in 1..10 {
            (0..100).for_each(|n| {
                pages.dirty.insert(page(n), round);
            });
            policy.choose(1, true, &mut pages, &mut victims);
        }
        assert!(victims.len() >= 8, "{victims:?}");
        assert!(pages.looks < 10 * 100);
    }
}
