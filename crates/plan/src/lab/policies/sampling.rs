//! Sampling by content hash: of a few dirty pages drawn at random, the one that was found unchanged
//! most often goes. No order is kept at all.

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

/// Pages drawn per victim.
const SAMPLE: usize = 8;

struct Listed {
    page: PageRef,
    seen: Option<Fingerprint>,
    /// Looks in a row that found it unchanged.
    quiet: u8,
}

/// The dirty pages, in no order.
#[derive(Default)]
pub struct Sampling {
    pages: Vec<Listed>,
    state: u64,
}

impl Sampling {
    fn draw(&mut self) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % self.pages.len()
    }

    /// The quietest of a few; pages seen clean leave the list on the way.
    fn best_of_sample(&mut self, observer: &mut dyn Observer) -> Option<PageRef> {
        let mut best: Option<(u8, PageRef)> = None;
        for _ in 0..SAMPLE {
            if self.pages.is_empty() {
                break;
            }
            let place = self.draw();
            let listed = &mut self.pages[place];
            match observer.look(listed.page, listed.seen) {
                Sight::Clean => {
                    observer.dropped(listed.page);
                    self.pages.swap_remove(place);
                }
                Sight::Busy => {}
                Sight::Dirty { fingerprint, written } => {
                    listed.seen = Some(fingerprint);
                    listed.quiet = if written { 0 } else { listed.quiet.saturating_add(1) };
                    if best.is_none_or(|(quiet, _)| listed.quiet > quiet) {
                        best = Some((listed.quiet, listed.page));
                    }
                }
            }
        }
        best.map(|(_, page)| page)
    }
}

impl VictimPolicy for Sampling {
    fn name(&self) -> &'static str {
        "sampling"
    }

    fn dirtied(&mut self, page: PageRef) {
        self.pages.push(Listed { page, seen: None, quiet: 0 });
    }

    fn choose(
        &mut self,
        count: usize,
        _urgent: bool,
        observer: &mut dyn Observer,
        victims: &mut Vec<PageRef>,
    ) {
        for _ in 0..count {
            let Some(page) = self.best_of_sample(observer) else { return };
            if !victims.contains(&page) {
                victims.push(page);
            }
        }
    }

    fn epoch(&mut self, _observer: &mut dyn Observer) {}

    fn listed(&self) -> usize {
        self.pages.len()
    }

    fn bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Listed>()
    }
}
