//! Takers, givers and a changing limit: no permit beyond the limit of its instant, none lost or made.

use std::sync::Arc;

use super::harness::{explore, thread};
use crate::control::ledger::Ledger;

#[test]
fn no_schedule_passes_the_limit_or_loses_a_permit() {
    explore("ledger", 60_000, || {
        let ledger = Arc::new(Ledger::new());
        ledger.set_limit(2);
        let taker = |wanted: u32| {
            let ledger = Arc::clone(&ledger);
            move || {
                let taken = ledger.take(wanted);
                let held = ledger.permits().held;
                assert!(taken <= wanted && held <= 2, "{held} held of at most 2");
                ledger.give_back(taken);
            }
        };
        let takers = [thread::spawn(taker(2)), thread::spawn(taker(1))];
        ledger.set_limit(1);
        // From here on the limit stays: what is held at it or above can only fall.
        let before = ledger.permits();
        let after = ledger.permits();
        assert_eq!((before.limit, after.limit), (1, 1));
        assert!(after.held <= before.held.max(1), "held rose above the limit: {before:?}, then {after:?}");
        takers.into_iter().for_each(|taker| taker.join().expect("no taker panics"));
        assert_eq!(ledger.permits().held, 0);
        assert!(ledger.held_max() <= 2, "held {} of at most 2", ledger.held_max());
    });
}

/// The budget is halved under running grants: nothing is granted until enough came back, then it is.
#[test]
fn a_lowered_limit_drains_and_then_grants_again() {
    explore("shrink", 60_000, || {
        let ledger = Arc::new(Ledger::new());
        ledger.set_limit(3);
        assert_eq!(ledger.take(2), 2);
        let taker = {
            let ledger = Arc::clone(&ledger);
            thread::spawn(move || ledger.take(1))
        };
        ledger.set_limit(1);
        ledger.give_back(1);
        let early = ledger.take(1);
        assert_eq!(early, 0, "taken while {:?}", ledger.permits());
        let raced = taker.join().expect("the taker does not panic");
        assert_eq!(ledger.permits().held, 1 + raced);
        ledger.give_back(1 + raced);
        assert_eq!(ledger.take(5), 1);
    });
}
