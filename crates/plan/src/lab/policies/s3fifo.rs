//! S3-FIFO on writes (Yang and others, SOSP 2023): a small queue for pages written once, a main queue
//! for the others, and the names of pages cleaned from the small one, whose return is a second write.

use std::collections::VecDeque;

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

use super::{Ghosts, Offered};

/// The small queue's share of the listed pages, as in the paper: one tenth.
const SMALL_SHARE: usize = 10;

type Listed = (PageRef, Option<Fingerprint>);

/// The queues.
#[derive(Default)]
pub struct S3Fifo {
    small: VecDeque<Listed>,
    main: VecDeque<Listed>,
    ghosts: Ghosts,
    offered: Offered,
}

impl S3Fifo {
    fn insert(&mut self, page: PageRef) {
        let queue = if self.ghosts.recall(page) { &mut self.main } else { &mut self.small };
        queue.push_back((page, None));
    }

    fn offer(&mut self, page: PageRef, victims: &mut Vec<PageRef>) {
        self.offered.offer(page);
        victims.push(page);
    }

    /// A page of the small queue that was written again goes to the main queue, others are victims.
    fn take_small(&mut self, observer: &mut dyn Observer, victims: &mut Vec<PageRef>) {
        let Some((page, seen)) = self.small.pop_front() else { return };
        match (observer.look(page, seen), seen) {
            (Sight::Clean, _) => observer.dropped(page),
            (Sight::Busy, _) => self.small.push_back((page, seen)),
            // The first look only learns the content: the page moves up the queue once.
            (Sight::Dirty { fingerprint, .. }, None) => self.small.push_back((page, Some(fingerprint))),
            (Sight::Dirty { fingerprint, written: true }, _) => {
                self.main.push_back((page, Some(fingerprint)))
            }
            (Sight::Dirty { .. }, _) => {
                self.ghosts.remember(page, self.main.len() + self.small.len());
                self.offer(page, victims);
            }
        }
    }

    fn take_main(&mut self, observer: &mut dyn Observer, victims: &mut Vec<PageRef>) {
        let Some((page, seen)) = self.main.pop_front() else { return };
        match observer.look(page, seen) {
            Sight::Clean => observer.dropped(page),
            Sight::Busy => self.main.push_back((page, seen)),
            Sight::Dirty { fingerprint, written: true } => self.main.push_back((page, Some(fingerprint))),
            Sight::Dirty { .. } => self.offer(page, victims),
        }
    }
}

impl VictimPolicy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
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
        for _ in 0..3 * (self.small.len() + self.main.len()) {
            if victims.len() == enough {
                return;
            }
            let listed = self.small.len() + self.main.len();
            if self.small.len() * SMALL_SHARE > listed || self.main.is_empty() {
                self.take_small(observer, victims);
            } else {
                self.take_main(observer, victims);
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.small.len() + self.main.len() + self.offered.len()
    }

    fn bytes(&self) -> usize {
        (self.small.capacity() + self.main.capacity()) * size_of::<Listed>() + self.ghosts.bytes()
    }
}
