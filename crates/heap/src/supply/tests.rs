//! The supply on a played kernel: what is asked of it, and that no page is lost or handed out twice.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Plays the kernel: notes what is asked, answers as it is told to.
struct Played {
    piece: u64,
    free: Cell<Option<u64>>,
    /// First pages of batches that come scattered.
    scattered: BTreeSet<u64>,
    populated: RefCell<Vec<Range<u64>>>,
    expected: RefCell<Vec<Range<u64>>>,
}

impl Played {
    fn new() -> Self {
        Self {
            piece: 1,
            free: Cell::new(None),
            scattered: BTreeSet::new(),
            populated: RefCell::default(),
            expected: RefCell::default(),
        }
    }
}

impl Source for Played {
    fn piece(&self, at_least: u64) -> u64 {
        self.piece.max(at_least)
    }

    fn populate(&self, pages: Range<u64>) -> Populated {
        self.populated.borrow_mut().push(pages.clone());
        if self.scattered.contains(&pages.start) { Populated::Scattered } else { Populated::Contiguous }
    }

    fn expect(&self, pages: Range<u64>) {
        self.expected.borrow_mut().push(pages);
    }

    fn free_bytes(&self) -> Option<u64> {
        self.free.get()
    }
}

const FOUR: Options = Options { batch: Batch::Four, high: 1000, low: 100 };

use Purpose::{Capacity, Persistent};

#[test]
fn a_batch_is_brought_in_once_and_serves_the_next_requests() {
    let source = Played::new();
    let mut supply = Supply::new(0..64, &FOUR, &source);
    let taken: Vec<_> = (0..6).map(|_| supply.take(1, 1, Persistent, &source)).collect();
    assert_eq!(taken, [0, 1, 2, 3, 4, 5].map(Some));
    assert_eq!(*source.populated.borrow(), [0..4, 4..8]);
    // What is left of a batch begins a longer row: nothing is lost between batches.
    assert_eq!(supply.take(7, 1, Persistent, &source), Some(6));
    assert_eq!(*source.populated.borrow(), [0..4, 4..8, 8..12, 12..16]);
    assert_eq!(supply.left(), 64 - 13);
    assert_eq!(supply.counts(), Counts { batches: 4, scattered: 0, single_pages: 0 });
}

#[test]
fn batches_begin_at_their_own_multiple_and_a_larger_piece_is_the_batch() {
    let source = Played { piece: 8, ..Played::new() };
    let mut supply = Supply::new(5..64, &FOUR, &source);
    assert_eq!(supply.take(4, 1, Persistent, &source), Some(5));
    assert_eq!(*source.populated.borrow(), [5..8, 8..16]);
}

#[test]
fn data_and_capacity_share_no_batch() {
    let source = Played::new();
    let mut supply = Supply::new(0..64, &FOUR, &source);
    let taken: Vec<_> =
        (0..6).map(|i| supply.take(1, 1, [Persistent, Capacity][i % 2], &source).expect("room")).collect();
    assert_eq!(taken, [0, 4, 1, 5, 2, 6]);
}

#[test]
fn a_scattered_batch_is_set_aside_for_when_memory_is_short() {
    let source = Played { scattered: [4].into(), ..Played::new() };
    let mut supply = Supply::new(0..4096, &FOUR, &source);
    let taken: Vec<_> = (0..8).map(|_| supply.take(1, 1, Persistent, &source).expect("room")).collect();
    assert_eq!(taken, [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(supply.counts().scattered, 1);

    source.free.set(Some(999));
    supply.until_look = 0;
    let brought_in = source.populated.borrow().len();
    assert_eq!(supply.take(3, 1, Persistent, &source), Some(4));
    assert_eq!(supply.take(1, 1, Persistent, &source), Some(7));
    // The list is empty: single pages, while capacity still gets batches.
    assert_eq!(supply.take(1, 1, Persistent, &source), Some(12));
    assert_eq!(source.populated.borrow().len(), brought_in);
    assert_eq!(supply.take(1, 1, Capacity, &source), Some(13));
    assert_eq!(source.populated.borrow().last(), Some(&(13..16)));
}

#[test]
fn a_source_whose_batches_all_come_scattered_does_not_eat_the_space() {
    let source = Played { scattered: (0..4096).collect(), ..Played::new() };
    let mut supply = Supply::new(0..4096, &FOUR, &source);
    let taken: BTreeSet<_> =
        (0..1024).map(|_| supply.take(1, 1, Persistent, &source).expect("room")).collect();
    assert_eq!(taken.len(), 1024);
    assert_eq!(supply.scattered.pages(), 4096 / ASIDE_SHARE);
    assert!(supply.frontier <= 1024 + 4096 / ASIDE_SHARE + 4);
}

#[test]
fn below_the_low_watermark_nothing_is_brought_in() {
    let source = Played::new();
    let mut supply = Supply::new(0..64, &FOUR, &source);
    assert_eq!(supply.take(1, 1, Capacity, &source), Some(0));
    source.free.set(Some(99));
    supply.until_look = 0;
    // What is in memory already goes first, whoever it was meant for.
    assert_eq!(supply.take(3, 1, Persistent, &source), Some(1));
    assert_eq!(supply.take(2, 1, Persistent, &source), Some(4));
    assert_eq!(supply.take(1, 1, Capacity, &source), Some(6));
    assert_eq!(source.populated.borrow().len(), 1);
    assert_eq!(supply.counts().single_pages, 3);
}

#[test]
fn free_memory_is_looked_at_once_in_a_while() {
    let source = Played::new();
    let mut supply = Supply::new(0..1024, &FOUR, &source);
    supply.take(1, 1, Persistent, &source);
    source.free.set(Some(0));
    for _ in 1..LOOK_EVERY {
        supply.take(1, 1, Persistent, &source);
    }
    assert_eq!(supply.counts().single_pages, 0);
    supply.take(4, 1, Persistent, &source);
    assert_eq!(supply.counts().single_pages, 4);
}

#[test]
fn a_large_request_is_announced_and_not_brought_in() {
    let source = Played::new();
    let mut supply = Supply::new(0..4096, &FOUR, &source);
    assert_eq!(supply.take(BATCHED_MOST + 1, 1, Persistent, &source), Some(0));
    assert_eq!(source.expected.borrow().last(), Some(&(0..BATCHED_MOST + 1)));
    assert!(source.populated.borrow().is_empty());
}

#[test]
fn a_batch_of_one_is_the_kernels_own_way() {
    let source = Played { piece: 512, ..Played::new() };
    let mut supply = Supply::new(0..64, &Options { batch: Batch::One, ..FOUR }, &source);
    assert_eq!(supply.take(3, 1, Persistent, &source), Some(0));
    assert!(source.populated.borrow().is_empty());
    assert_eq!(supply.take(0, 1, Persistent, &source), None);
    assert_eq!(supply.take(u64::MAX, 1, Persistent, &source), None);
}

#[test]
fn a_row_begins_where_it_was_asked_to_and_the_rest_serves_others() {
    let source = Played::new();
    let mut supply = Supply::new(1..64, &FOUR, &source);
    assert_eq!(supply.take(2, 8, Persistent, &source), Some(8));
    assert_eq!(supply.take(5, 1, Persistent, &source), Some(1));
    assert_eq!(supply.take(2, 1, Persistent, &source), Some(6));
    assert_eq!(supply.take(2, 1, Persistent, &source), Some(10));
    assert_eq!(*source.populated.borrow(), [1..4, 4..8, 8..12]);
}

#[test]
fn a_grown_space_supplies_more() {
    let source = Played::new();
    let mut supply = Supply::new(0..2, &FOUR, &source);
    assert_eq!(supply.take(3, 1, Persistent, &source), None);
    supply.grow(8);
    // The two pages brought in on the first try go first.
    assert_eq!(supply.take(3, 1, Persistent, &source), Some(0));
    assert_eq!(supply.take(2, 1, Persistent, &source), Some(3));
}

proptest! {
    /// Whatever is asked, under whatever pressure: no page twice, none outside, and none lost.
    #[test]
    fn every_page_is_handed_out_exactly_once(
        start in 0u64..40,
        len in 0u64..400,
        batch in prop::sample::select(vec![Batch::One, Batch::Four, Batch::Sixteen]),
        piece in prop::sample::select(vec![1u64, 4, 32]),
        scattered in prop::collection::btree_set(0u64..440, 0..40),
        asks in prop::collection::vec((1u64..24, 0u32..6, any::<bool>(), 0u64..1200), 0..120),
    ) {
        let source = Played { piece, scattered, ..Played::new() };
        let options = Options { batch, ..FOUR };
        let mut supply = Supply::new(start..start + len, &options, &source);
        let mut taken = BTreeSet::new();
        let mut note = |first: u64, pages: u64| (first..first + pages).all(|page| taken.insert(page));
        for (pages, align, capacity, free) in asks {
            let align = 1 << align;
            source.free.set(Some(free));
            supply.until_look = 0;
            let purpose = if capacity { Capacity } else { Persistent };
            let before = supply.left();
            if let Some(first) = supply.take(pages, align, purpose, &source) {
                prop_assert!(note(first, pages), "a page twice");
                prop_assert!(first.is_multiple_of(align));
                prop_assert_eq!(supply.left(), before - pages);
            } else {
                prop_assert_eq!(supply.left(), before);
            }
        }
        while let Some(first) = supply.take(1, 1, Persistent, &source) {
            prop_assert!(note(first, 1), "a page twice");
        }
        prop_assert_eq!(supply.left(), 0);
        prop_assert!(taken.iter().copied().eq(start..start + len), "all of them, and no others");
        let mut brought_in = BTreeSet::new();
        for batch in source.populated.borrow().iter() {
            prop_assert!(batch.clone().all(|page| brought_in.insert(page)), "brought in twice");
        }
    }
}
