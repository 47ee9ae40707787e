//! The cut against grants, announced stores and protecting clients: the freezer sees the claim, or the
//! claimer sees the freeze.

use super::harness::explore;
use super::machine::{Machine, Mapped};
use crate::control::primitives::yield_now;
use crate::types::Tracking::{self, Explicit, Transparent};

/// A save in the middle of everything. What it commits is all of memory, and stays so: no store is made
/// before writers are let go on.
fn save_among(tracking: Tracking, store: fn(&Mapped, usize, u32, u64)) {
    let mut machine = Machine::new(2, &[tracking]);
    for number in [0, 1] {
        machine.client(move |regions| {
            for page in [number as u32 + 1, 0, 0] {
                store(&regions[0], number, page, 10 + number as u64);
            }
        });
    }
    machine.some_turns();
    let report = machine.keeper.save().expect("the disk is sound");
    assert_eq!(report.unsettled_pages, 0, "no thread was stopped");
    machine.assert_all_stored();
    (0..8).for_each(|_| yield_now());
    machine.assert_all_stored();
    machine.keeper.resume().expect("the power is back");
    machine.keep();
    machine.drain();
    machine.assert_sound();
}

#[test]
fn a_save_holds_all_of_memory_and_nothing_is_stored_behind_it() {
    explore("save-against-grants", 20_000, || {
        save_among(Transparent, |region, _, page, value| region.store(page, value))
    });
}

#[test]
fn a_save_holds_all_announced_stores_and_none_is_made_behind_it() {
    explore("save-against-announcements", 20_000, || {
        save_among(Explicit, |region, _, page, value| region.announced_store(page, value));
    });
}

#[test]
fn a_save_waits_for_stores_that_hazard_pointers_announce() {
    explore("save-against-hazards", 20_000, || save_among(Explicit, Mapped::hazardous_store));
}

/// The client is killed at any store; slots that it left tell of nobody.
#[test]
fn hazard_pointers_of_a_killed_client_keep_nothing_from_being_committed() {
    explore("close-after-kill-of-hazards", 20_000, || {
        let mut machine = Machine::new(2, &[Explicit]);
        machine
            .client(|regions| [0, 0, 1].into_iter().for_each(|page| regions[0].hazardous_store(0, page, 10)));
        machine
            .client(|regions| [1, 1, 0].into_iter().for_each(|page| regions[0].hazardous_store(1, page, 20)));
        machine.some_turns();
        machine.kill_client();
        machine.keeper.close().expect("the disk is sound");
        machine.assert_all_stored();
    });
}

/// A checkpoint lets writers go on before it has copied its pages; those wait for their copy.
#[test]
fn a_checkpoint_among_stores_loses_no_permit_and_no_page() {
    explore("checkpoint", 20_000, || {
        let mut machine = Machine::new(2, &[Transparent]);
        machine.client(|regions| (0..3).for_each(|page| regions[0].store(page, 10)));
        machine.client(|regions| [1, 0].into_iter().for_each(|page| regions[0].store(page, 20)));
        machine.some_turns();
        machine.keeper.begin_checkpoint(None);
        machine.keep();
        machine.drain();
        machine.assert_sound();
        assert!(!machine.shared.control.has_sleepers());
    });
}

/// The client is killed at any store or system call; what its threads were doing stays half done. The
/// keeper writes everything and commits.
#[test]
fn whatever_a_killed_client_left_half_done_is_committed_at_the_close() {
    explore("close-after-kill", 20_000, || {
        let mut machine = Machine::new(2, &[Transparent]);
        machine.client(|regions| (0..3).for_each(|page| regions[0].store(page, 10)));
        machine.client(|regions| (0..3).rev().for_each(|page| regions[0].store(page, 20)));
        machine.some_turns();
        machine.kill_client();
        machine.keeper.close().expect("the disk is sound");
        machine.assert_all_stored();
    });
}
