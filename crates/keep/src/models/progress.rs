//! Sleeping clients: whoever waits for a permit, or for the end of a freeze, is woken. A wake-up that
//! is lost leaves the model deadlocked.

use std::time::Duration;

use super::harness::{explore, thread};
use crate::control::block::{Control, Freeze};

fn take_one(control: &Control) {
    while control.freeze() != Freeze::None || control.ledger.0.take(1) == 0 {
        control.wait_for_progress(Duration::MAX, || {
            control.freeze() == Freeze::None && control.ledger.0.permits().free() > 0
        });
    }
}

#[test]
fn whoever_waits_for_a_permit_or_the_end_of_a_freeze_is_woken() {
    explore("progress", 60_000, || {
        let (control, _memory) = Control::create().expect("a control block");
        control.ledger.0.set_limit(1);
        let clients = [(); 2].map(|()| {
            let control = control.clone();
            thread::spawn(move || {
                take_one(&control);
                control.ledger.0.give_back(1);
                control.announce_progress();
            })
        });
        control.set_freeze(Freeze::Checkpoint);
        control.set_freeze(Freeze::None);
        clients.into_iter().for_each(|client| client.join().expect("no client panics"));
        assert_eq!(control.ledger.0.permits().held, 0);
        assert!(!control.has_sleepers());
    });
}
