//! Least recently updated, by a history of 64 epochs: Viyojit's policy (section 5.2).
//!
//! At every epoch each listed page's history shifts by one and takes in whether the page was written
//! since. The histories, newest epoch in the highest bit, sort the pages by recency of update; the
//! smallest are cleaned. The paper reads dirty bits after flushing the TLB; here the same question is
//! put to the observer, for a bounded share of the pages each epoch.

use super::{Fingerprint, Observer, Sight, VictimPolicy};
use crate::control::block::PageRef;

/// Pages looked at per epoch. A look costs about 0.5 µs, so this bounds the keeper's share to a tenth
/// of a 10 ms epoch; with more pages than this listed, a page's epochs get longer.
const LOOKS_PER_EPOCH: usize = 2048;

/// Victims sorted out at once.
const SORTED: usize = 512;

#[derive(Clone, Copy)]
struct Listed {
    page: PageRef,
    /// Newest epoch in the highest bit.
    history: u64,
    seen: Option<Fingerprint>,
}

/// Histories of the dirty pages.
#[derive(Default)]
pub struct LeastRecentlyUpdated {
    pages: Vec<Listed>,
    next_look: usize,
    /// Victims chosen but not yet handed out, best last.
    sorted: Vec<PageRef>,
}

impl LeastRecentlyUpdated {
    fn sort(&mut self, observer: &mut dyn Observer) {
        self.pages.retain(|listed| {
            let keep = observer.glance(listed.page) != Sight::Clean;
            if !keep {
                observer.dropped(listed.page);
            }
            keep
        });
        let count = SORTED.min(self.pages.len());
        if count == 0 {
            return;
        }
        if count < self.pages.len() {
            self.pages.select_nth_unstable_by_key(count - 1, |listed| listed.history);
        }
        self.pages[..count].sort_unstable_by_key(|listed| listed.history);
        self.sorted.extend(self.pages[..count].iter().rev().map(|listed| listed.page));
    }
}

impl VictimPolicy for LeastRecentlyUpdated {
    fn name(&self) -> &'static str {
        "least-recently-updated"
    }

    fn dirtied(&mut self, page: PageRef) {
        // Just written: the newest bit is set.
        self.pages.push(Listed { page, history: 1 << 63, seen: None });
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        let enough = victims.len() + count;
        let mut sorted_once = false;
        while victims.len() < enough {
            match self.sorted.pop() {
                Some(page) if matches!(observer.glance(page), Sight::Dirty { .. }) => victims.push(page),
                Some(_) => {}
                None if sorted_once => return,
                None => {
                    self.sort(observer);
                    sorted_once = true;
                }
            }
        }
    }

    fn epoch(&mut self, observer: &mut dyn Observer) {
        for _ in 0..LOOKS_PER_EPOCH.min(self.pages.len()) {
            self.next_look = if self.next_look >= self.pages.len() { 0 } else { self.next_look };
            let listed = &mut self.pages[self.next_look];
            let written = match observer.look(listed.page, listed.seen) {
                Sight::Dirty { fingerprint, written } => {
                    listed.seen = Some(fingerprint);
                    written
                }
                Sight::Busy | Sight::Clean => false,
            };
            listed.history = listed.history >> 1 | u64::from(written) << 63;
            self.next_look += 1;
        }
    }

    fn listed(&self) -> usize {
        self.pages.len()
    }

    fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Listed>() + self.sorted.capacity() * size_of::<PageRef>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::victims_when_even_pages_stay_hot;
    use super::*;

    #[test]
    fn the_least_recently_updated_pages_go_first() {
        let victims = victims_when_even_pages_stay_hot(&mut LeastRecentlyUpdated::default());
        assert!(!victims.is_empty() && victims.iter().all(|n| n % 2 == 1), "{victims:?}");
    }
}
