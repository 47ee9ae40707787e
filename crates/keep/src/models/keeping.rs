//! Grant against protect, copies against rescues, and a budget that shrinks under both.

use super::harness::explore;
use super::machine::Machine;
use crate::types::Tracking::{Explicit, Transparent};

/// Two threads and more pages than permits: each store needs a page to be protected, copied and
/// written first, perhaps the one that the other thread is storing to.
#[test]
fn a_clean_page_equals_its_copy_whoever_stored_meanwhile() {
    explore("grant-protect", 30_000, || {
        let mut machine = Machine::new(2, &[Transparent]);
        machine.client(|regions| (0..3).for_each(|page| regions[0].store(page, 10)));
        machine.client(|regions| (0..3).rev().for_each(|page| regions[0].store(page, 20)));
        machine.keep();
        machine.drain();
        machine.assert_sound();
    });
}

/// One page is stored to again and again while another one forces its copy out: rescued from every
/// state on its way to the SSD. Its permit comes back once.
#[test]
fn a_rescued_page_keeps_its_permit_and_its_last_store() {
    explore("rescue", 30_000, || {
        let mut machine = Machine::new(1, &[Transparent]);
        machine.client(|regions| (1..5).for_each(|value| regions[0].store(0, value)));
        machine.client(|regions| {
            regions[0].store(1, 7);
            regions[0].store(0, 8);
        });
        machine.keep();
        machine.drain();
        machine.assert_sound();
    });
}

#[test]
fn an_announced_store_is_neither_copied_in_half_nor_lost() {
    explore("announce", 30_000, || {
        let mut machine = Machine::new(1, &[Explicit]);
        machine.client(|regions| (0..2).for_each(|page| regions[0].announced_store(page, 10)));
        machine.client(|regions| (0..2).rev().for_each(|page| regions[0].announced_store(page, 20)));
        machine.keep();
        machine.drain();
        machine.assert_sound();
    });
}

/// Each page is stored to twice: the second store finds it dirty, unless the keeper is at it.
#[test]
fn a_store_that_a_hazard_pointer_announces_is_neither_copied_in_half_nor_lost() {
    explore("hazards", 30_000, || {
        let mut machine = Machine::new(1, &[Explicit]);
        machine.client(|regions| {
            [0, 0, 1, 1].into_iter().for_each(|page| regions[0].hazardous_store(0, page, 10));
        });
        machine.client(|regions| {
            [1, 1, 0, 0].into_iter().for_each(|page| regions[0].hazardous_store(1, page, 20));
        });
        machine.keep();
        machine.drain();
        machine.assert_sound();
    });
}

/// The budget falls while threads take permits: what is held drains to the new limit, and writers go on.
#[test]
fn a_budget_that_shrinks_under_grants_holds_soon() {
    explore("shrink-under-grants", 30_000, || {
        let mut machine = Machine::new(3, &[Transparent]);
        machine.client(|regions| (0..3).for_each(|page| regions[0].store(page, 10)));
        machine.client(|regions| [2, 0].into_iter().for_each(|page| regions[0].store(page, 20)));
        machine.some_turns();
        machine.keeper.set_budget_text("1 pages").expect("a budget");
        let held = machine.shared.control.ledger.0.permits().held;
        let later = machine.shared.control.ledger.0.permits().held;
        assert!(later <= held.max(1), "{held} permits were held when the limit fell to 1, then {later}");
        machine.keep();
        machine.drain();
        machine.assert_sound();
    });
}
