//! Orders that are kept exactly, for every dirty page at every write: the future, recency, and the
//! paper's history of 64 epochs. Floors and references for the others; no engine could pay for them.

use std::collections::BTreeSet;

use wattkeep_keep::victim::pressure::Pressure;

use super::contender::{Order, Sense};
use super::stale::Tlb;
use super::world::{Cost, Rules, end_epochs};
use super::writes::Writes;

/// Epochs that a history holds.
const HISTORY: u64 = 64;

/// What sorts the dirty pages: the lowest goes first.
type Rank = (u64, u64, u32);

struct Dirty {
    order: BTreeSet<Rank>,
    rank_of: Vec<Option<Rank>>,
    cost: Cost,
}

impl Dirty {
    fn clean_one(&mut self, tlb: &mut Tlb) {
        let (_, _, victim) = self.order.pop_first().expect("a page is dirty");
        self.rank_of[victim as usize] = None;
        self.cost.copies += 1;
        tlb.forget(victim);
    }
}

/// The cost of an exact order.
pub(super) fn run(writes: &Writes, epochs: &[u64], by: Order, sense: Sense, rules: &Rules) -> Cost {
    let next = writes.next_writes();
    let mut pages = Dirty {
        order: BTreeSet::new(),
        rank_of: vec![None; writes.distinct as usize],
        cost: Cost::default(),
    };
    let mut tlb = Tlb::default();
    let mut pressure = Pressure::default();
    let (mut epoch, mut dirtied_before) = (0, 0);
    for (index, (page, now)) in writes.pages.iter().zip(epochs).enumerate() {
        if *now > epoch {
            end_epochs(&mut pressure, *now - epoch, pages.cost.faults - dirtied_before);
            (epoch, dirtied_before) = (*now, pages.cost.faults);
            while rules.ahead && pages.order.len() > pressure.threshold(rules.budget_pages) as usize {
                pages.clean_one(&mut tlb);
            }
        }
        let before = pages.rank_of[*page as usize];
        if before.is_none() {
            pages.cost.faults += 1;
            if pages.order.len() == rules.budget_pages as usize {
                pages.cost.forced_waits += 1;
                pages.clean_one(&mut tlb);
            }
        }
        let seen = tlb.store(*page) || sense == Sense::Fresh;
        let rank = match by {
            Order::NextWrite => (u64::from(u32::MAX - next[index]), 0, *page),
            Order::LastWrite => (index as u64, 0, *page),
            Order::History if seen || before.is_none() => history(before, *now, *page),
            Order::History => before.expect("a page that is not dirty is seen"),
        };
        if let Some(before) = before {
            pages.order.remove(&before);
        }
        pages.rank_of[*page as usize] = Some(rank);
        pages.order.insert(rank);
    }
    pages.cost
}

/// Epoch of the last write, and the 64 epochs up to it, newest in the highest bit. Time shifts all
/// histories alike, so that this order holds until a page is written again.
fn history(before: Option<Rank>, now: u64, page: u32) -> Rank {
    let older =
        before.map_or(0, |(epoch, bits, _)| if now - epoch < HISTORY { bits >> (now - epoch) } else { 0 });
    (now, older | 1 << (HISTORY - 1), page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_shifts_with_time_and_the_older_one_goes_first() {
        let first = history(None, 5, 1);
        assert_eq!(first, (5, 1 << 63, 1));
        let again = history(Some(first), 7, 1);
        assert_eq!(again, (7, 1 << 63 | 1 << 61, 1));
        assert_eq!(
            history(Some(again), 7 + HISTORY, 1).1,
            1 << 63,
            "what is older than 64 epochs is forgotten"
        );
        assert!(history(None, 7, 2) < again, "as recent, but less often");
    }
}
