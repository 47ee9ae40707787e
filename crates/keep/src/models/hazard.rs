//! A thread that announces a store without a fence, and a keeper that looks behind a barrier.

use std::sync::Arc;

use wattkeep_announce::announcer::Announcer;
use wattkeep_announce::hazard::Slots;

use super::harness::{explore, thread};
use crate::control::page_word::{PageWord, State};
use crate::control::primitives::{AtomicU32, Ordering};

/// The barrier that the kernel puts on the thread stands in the model as a fence of the thread's own.
#[test]
fn a_copy_holds_each_store_that_was_announced_before_it_and_none_is_made_behind() {
    explore("hazard", 40_000, || {
        let words: Arc<[PageWord]> = [PageWord::fresh()].into();
        words[0].reset(State::Dirty);
        let now = words[0].load();
        assert!(words[0].exchange(now, now.pinned()));
        words[0].unpin();
        let slots = Arc::new(Slots::default());
        slots.offer();
        let bytes = Arc::new(AtomicU32::new(0));
        let writer = {
            let announcer = Announcer::of(Arc::clone(&words), Arc::clone(&slots), 0x1000);
            let bytes = Arc::clone(&bytes);
            thread::spawn(move || {
                for value in [1, 2] {
                    if let Some(_hazard) = announcer.announce_as(0, 8, 8) {
                        bytes.store(value, Ordering::Relaxed);
                    }
                }
            })
        };
        let now = words[0].load();
        assert!(words[0].exchange(now, now.to(State::Copying)));
        let amid = slots.look().expect("a barrier");
        let copy = amid.is_empty().then(|| bytes.load(Ordering::Relaxed));
        writer.join().expect("it stores, or not");
        if let Some(copy) = copy {
            assert_eq!(bytes.load(Ordering::Relaxed), copy, "stored behind the copy");
        }
    });
}
