//! S3-FIFO on writes (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023):
//! a small queue for pages that were written once, a main queue for pages that were written again, and
//! the names of pages that left the small queue: one that comes back goes to the main queue at once.
//!
//! Most dirty pages are written once and never again for long: they pass through the small queue and
//! make no room in the main one. Whether a page was written again is asked with a fingerprint, as by
//! [`second_chance`](super::second_chance).
//!
//! A page that was offered, or that a thread is busy with, leaves the queues. It is looked after until it is seen
//! clean; one that is still dirty then, or dirty again, comes back as if it were new.

use std::collections::VecDeque;

use super::{Fingerprint, Observer, Sight, VictimPolicy};
use crate::control::block::PageRef;

/// The small queue gets this part of the listed pages, one tenth, as in the paper.
const SMALL_SHARE: usize = 10;

/// Looks per victim asked for: enough for a queue in which most pages are hot.
const LOOKS_PER_VICTIM: usize = 8;

/// Looks per call: about 0.3 ms of the keeper's time. Then, if writers wait, the heads go unseen.
const LOOKS_MAX: usize = 512;

#[derive(Clone, Copy)]
struct Listed {
    page: PageRef,
    /// Fingerprint at the last look; `None` before the first.
    seen: Option<Fingerprint>,
}

/// The queues.
#[derive(Default)]
pub struct S3Fifo {
    small: VecDeque<Listed>,
    main: VecDeque<Listed>,
    ghosts: Ghosts,
    offered: VecDeque<PageRef>,
    /// Offered pages that were found dirty. Kept for its memory.
    back: Vec<PageRef>,
}

impl S3Fifo {
    fn insert(&mut self, page: PageRef) {
        let queue = if self.ghosts.recall(page) { &mut self.main } else { &mut self.small };
        queue.push_back(Listed { page, seen: None });
    }

    /// Looks after offered pages, a few more than are offered now, so that the list stays short.
    fn look_after_offered(&mut self, count: usize, observer: &mut dyn Observer) {
        for _ in 0..count.min(self.offered.len()) {
            let Some(page) = self.offered.pop_front() else { break };
            match observer.glance(page) {
                Sight::Clean => observer.dropped(page),
                Sight::Busy => self.offered.push_back(page),
                Sight::Dirty { .. } => self.back.push(page),
            }
        }
        let mut back = std::mem::take(&mut self.back);
        back.drain(..).for_each(|page| self.insert(page));
        self.back = back;
    }

    fn is_small_full(&self) -> bool {
        self.main.is_empty() || self.small.len() * SMALL_SHARE > self.small.len() + self.main.len()
    }

    /// Takes the head of the small queue. The first look only learns the content: the page passes the
    /// queue a second time. Found written then, it moves to the main queue; else it is a victim.
    fn take_small(&mut self, observer: &mut dyn Observer) -> Option<PageRef> {
        let Listed { page, seen } = self.small.pop_front()?;
        match (observer.look(page, seen), seen) {
            (Sight::Clean, _) => observer.dropped(page),
            (Sight::Busy, _) => self.offered.push_back(page),
            (Sight::Dirty { fingerprint, .. }, None) => {
                self.small.push_back(Listed { page, seen: Some(fingerprint) })
            }
            (Sight::Dirty { fingerprint, written: true }, _) => {
                self.main.push_back(Listed { page, seen: Some(fingerprint) })
            }
            (Sight::Dirty { .. }, _) => {
                self.ghosts.remember(page, self.small.len() + self.main.len());
                return Some(page);
            }
        }
        None
    }

    /// Takes the head of the main queue: found written since the last look, it goes round once more.
    fn take_main(&mut self, observer: &mut dyn Observer) -> Option<PageRef> {
        let Listed { page, seen } = self.main.pop_front()?;
        match observer.look(page, seen) {
            Sight::Clean => observer.dropped(page),
            Sight::Busy => self.offered.push_back(page),
            Sight::Dirty { fingerprint, written: true } => {
                self.main.push_back(Listed { page, seen: Some(fingerprint) })
            }
            Sight::Dirty { .. } => return Some(page),
        }
        None
    }

    /// Takes a head without a look.
    fn take_unseen(&mut self, observer: &mut dyn Observer) -> Option<PageRef> {
        let queue = if self.is_small_full() { &mut self.small } else { &mut self.main };
        let head = queue.pop_front()?;
        match observer.glance(head.page) {
            Sight::Clean => observer.dropped(head.page),
            Sight::Busy => self.offered.push_back(head.page),
            Sight::Dirty { .. } => return Some(head.page),
        }
        None
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
        urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        self.look_after_offered(2 * count, observer);
        let enough = victims.len() + count;
        let mut looks = (count * LOOKS_PER_VICTIM).min(LOOKS_MAX);
        // Every page may pass three times: to be learnt, to move up, to be chosen.
        for _ in 0..3 * (self.small.len() + self.main.len()) {
            if victims.len() == enough || looks == 0 && !urgent {
                return;
            }
            let victim = if looks == 0 {
                self.take_unseen(observer)
            } else if self.is_small_full() {
                self.take_small(observer)
            } else {
                self.take_main(observer)
            };
            looks = looks.saturating_sub(1);
            if let Some(page) = victim {
                self.offered.push_back(page);
                victims.push(page);
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.small.len() + self.main.len() + self.offered.len()
    }

    fn bytes(&self) -> usize {
        (self.small.capacity() + self.main.capacity()) * size_of::<Listed>()
            + (self.offered.capacity() + self.back.capacity()) * size_of::<PageRef>()
            + self.ghosts.bytes()
    }
}

/// Names of pages that were cleaned a while ago: a tag per place, and a newer name overwrites an older
/// one in the same place. So it forgets as fast as it learns, in four bytes a page.
#[derive(Default)]
struct Ghosts {
    tags: Vec<u32>,
}

impl Ghosts {
    /// Remembers a page; room is kept for as many names as pages are `listed`.
    fn remember(&mut self, page: PageRef, listed: usize) {
        if listed > self.tags.len() {
            // Growing forgets: pages are listed again soon.
            self.tags = vec![0; listed.next_power_of_two()];
        }
        if let Some((place, tag)) = self.place(page) {
            self.tags[place] = tag;
        }
    }

    /// Whether the page is remembered; it is not any more.
    fn recall(&mut self, page: PageRef) -> bool {
        self.place(page).is_some_and(|(place, tag)| {
            let known = self.tags[place] == tag;
            self.tags[place] = if known { 0 } else { self.tags[place] };
            known
        })
    }

    fn place(&self, page: PageRef) -> Option<(usize, u32)> {
        let mask = self.tags.len().checked_sub(1)?;
        // The multiplier of Fibonacci hashing: high bits name the tag, middle ones the place.
        let mixed = page.pack().wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Some(((mixed >> 16) as usize & mask, (mixed >> 32) as u32 | 1))
    }

    fn bytes(&self) -> usize {
        self.tags.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Pages, page, victims_when_even_pages_stay_hot};
    use super::*;

    #[test]
    fn pages_written_between_looks_stay() {
        let victims = victims_when_even_pages_stay_hot(&mut S3Fifo::default());
        assert!(!victims.is_empty() && victims.iter().all(|n| n % 2 == 1), "{victims:?}");
    }

    #[test]
    fn a_page_that_comes_back_soon_is_kept_longer_than_new_ones() {
        let (mut policy, mut pages) = (S3Fifo::default(), Pages::default());
        let dirty = |policy: &mut S3Fifo, pages: &mut Pages, n: u32| {
            pages.dirty.insert(page(n), 0);
            policy.dirtied(page(n));
        };
        (0..32).for_each(|n| dirty(&mut policy, &mut pages, n));
        let mut victims = Vec::new();
        policy.choose(8, false, &mut pages, &mut victims);
        let first = *victims.first().expect("a victim");
        victims.iter().for_each(|victim| assert!(pages.dirty.remove(victim).is_some()));
        // Seen clean, the page is unlisted; then it is dirtied again, and new pages come.
        policy.look_after_offered(victims.len(), &mut pages);
        assert!(pages.dropped.contains(&first));
        dirty(&mut policy, &mut pages, first.page);
        (100..120).for_each(|n| dirty(&mut policy, &mut pages, n));
        assert!(policy.main.iter().any(|listed| listed.page == first), "it returned to the main queue");
    }

    #[test]
    fn waiting_writers_get_a_victim_even_when_every_page_is_hot() {
        let (mut policy, mut pages) = (S3Fifo::default(), Pages::default());
        for n in 0..100 {
            pages.dirty.insert(page(n), 0);
            policy.dirtied(page(n));
        }
        let mut victims = Vec::new();
        for round in 1..10 {
            pages.dirty.values_mut().for_each(|content| *content = round);
            policy.choose(1, true, &mut pages, &mut victims);
        }
        assert!(victims.len() >= 8, "{victims:?}");
        assert!(pages.looks < 10 * 100);
    }

    /// The story: a page that a thread held announced was alone in the small queue. It was passed over, and came
    /// back into that queue, so the main queue never had its turn, and whoever waited for a permit waited for ever.
    #[test]
    fn a_page_that_somebody_is_busy_with_keeps_no_other_from_being_chosen() {
        for (busy, free) in [(0, 1), (1, 0)] {
            let (mut policy, mut pages) = (S3Fifo::default(), Pages::default());
            for n in 0..2 {
                pages.dirty.insert(page(n), 0);
            }
            policy.small.push_back(Listed { page: page(0), seen: None });
            policy.main.push_back(Listed { page: page(1), seen: None });
            pages.busy.insert(page(busy));
            let mut victims = Vec::new();
            (0..3).for_each(|_| policy.choose(1, true, &mut pages, &mut victims));
            assert!(victims.contains(&page(free)) && !victims.contains(&page(busy)), "{busy}: {victims:?}");
            pages.busy.clear();
            (0..3).for_each(|_| policy.choose(2, true, &mut pages, &mut victims));
            assert!(victims.contains(&page(busy)), "{busy}: it never has its turn");
        }
    }

    /// A page that was offered and never cleaned must not be forgotten: it holds a permit.
    #[test]
    fn an_offered_page_that_stays_dirty_is_offered_again() {
        let (mut policy, mut pages) = (S3Fifo::default(), Pages::default());
        for n in 0..4 {
            pages.dirty.insert(page(n), 0);
            policy.dirtied(page(n));
        }
        let mut offers = std::collections::HashMap::new();
        for _ in 0..40 {
            let mut victims = Vec::new();
            policy.choose(2, true, &mut pages, &mut victims);
            victims.into_iter().for_each(|victim| *offers.entry(victim.page).or_insert(0) += 1);
        }
        assert!((0..4).all(|n| offers.get(&n).is_some_and(|count| *count > 1)), "{offers:?}");
        assert_eq!(policy.listed(), 4);
    }

    #[test]
    fn ghosts_are_recalled_once_and_forgotten_in_time() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.recall(page(1)));
        ghosts.remember(page(1), 64);
        assert!(ghosts.recall(page(1)) && !ghosts.recall(page(1)));
        (0..10_000).for_each(|n| ghosts.remember(page(n), 64));
        let known = (0..10_000).filter(|n| ghosts.recall(page(*n))).count();
        assert!((1..=64).contains(&known), "{known}");
        assert!(ghosts.bytes() <= 64 * 4);
    }
}
