//! A region goes while threads of other regions protect its victims.

use super::harness::explore;
use super::machine::Machine;
use crate::types::Tracking::Transparent;

/// Threads that fault in one region protect pages of all. Once a region is withdrawn, none of them
/// touches it any more, and it may be unmapped; what was dirty there is still written.
///
/// The story: a thread that had claimed a page for protection looked the region up again before it moved the
/// page on, did not find it any more, and left the page between two states: the region never drained, and
/// could not be opened again.
#[test]
fn nobody_touches_a_region_after_it_was_withdrawn() {
    explore("detach", 20_000, || {
        let mut machine = Machine::new(2, &[Transparent, Transparent]);
        machine.client(|regions| (0..2).for_each(|page| regions[1].store(page, 10)));
        machine.keep();
        machine.client(|regions| (0..3).for_each(|page| regions[0].store(page, 20)));
        machine.client(|regions| regions[0].store(2, 30));
        machine.some_turns();
        machine.shared.withdraw(1);
        machine.regions[1].table.unmap();
        machine.keeper.detach(1).expect("the region is open");
        machine.keep();
        machine.drain();
        assert!(machine.keeper.region(1).expect("it is kept").is_drained(), "a page is left behind");
        machine.assert_sound();
    });
}
