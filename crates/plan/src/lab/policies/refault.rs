//! Second chance with refault distance: a page that became dirty again soon after it was cleaned was
//! cleaned too early, and gets two chances more. Asks nothing of pages that never came back.

use std::collections::VecDeque;

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

use super::{Ghosts, Offered};

/// Rounds of the queue that a page which came back stays, whatever is seen of it.
const CHANCES: u8 = 2;

struct Listed {
    page: PageRef,
    seen: Option<Fingerprint>,
    chances: u8,
}

/// The queue, and the names of pages cleaned within as many cleanings as pages are listed.
#[derive(Default)]
pub struct Refault {
    queue: VecDeque<Listed>,
    ghosts: Ghosts,
    offered: Offered,
}

impl Refault {
    fn insert(&mut self, page: PageRef) {
        let chances = if self.ghosts.recall(page) { CHANCES } else { 0 };
        self.queue.push_back(Listed { page, seen: None, chances });
    }
}

impl VictimPolicy for Refault {
    fn name(&self) -> &'static str {
        "refault"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.insert(page);
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let mut back = Vec::new();
        self.offered.look_after(2 * count, observer, &mut back);
        back.into_iter().for_each(|page| self.insert(page));
        let enough = victims.len() + count;
        for _ in 0..(usize::from(CHANCES) + 2) * self.queue.len() {
            if victims.len() == enough {
                return;
            }
            let Some(mut head) = self.queue.pop_front() else { return };
            if head.chances > 0 {
                head.chances -= 1;
                self.queue.push_back(head);
                continue;
            }
            match observer.look(head.page, head.seen) {
                Sight::Clean => observer.dropped(head.page),
                Sight::Busy => self.queue.push_back(head),
                Sight::Dirty { fingerprint, written: true } => {
                    head.seen = Some(fingerprint);
                    self.queue.push_back(head);
                }
                Sight::Dirty { .. } => {
                    self.ghosts.remember(head.page, self.queue.len());
                    self.offered.offer(head.page);
                    victims.push(head.page);
                }
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.queue.len() + self.offered.len()
    }

    fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Listed>() + self.ghosts.bytes()
    }
}
