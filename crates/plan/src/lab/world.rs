//! The dirty set of a simulated run: one permit per dirty page, a victim when none is left.
//!
//! A write to a dirty page is free. A write to a clean one takes a permit; when none is free the
//! writer waits until a victim was copied. With cleaning ahead, the engine's pressure estimate (0.75)
//! keeps permits free, as in the paper. Invariant: dirty pages never exceed the budget.

use std::time::Duration;

use wattkeep_keep::control::block::PageRef;
use wattkeep_keep::limits::BATCH_PAGES_MAX;
use wattkeep_keep::victim::pressure::Pressure;
use wattkeep_keep::victim::{Fingerprint, Observer, Sight, VictimPolicy};

use super::contender::{Contender, Mind};
use super::exact;
use super::writes::Writes;

/// Epochs that a keeper which slept spreads its count over, at most: as the engine does.
const IDLE_EPOCHS_MAX: u64 = 64;

/// How often in a row a policy may find nobody to clean ahead before the epoch goes on without.
const ASKED_IN_VAIN_MAX: u32 = 64;

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Dirty pages at most.
    pub budget_pages: u32,
    /// Length of an epoch for contenders that name none.
    pub epoch: Duration,
    /// Page writes that stand for a millisecond where the trace has no clock.
    pub writes_per_ms: Option<u64>,
    /// Clean ahead of need, by the pressure estimate.
    pub ahead: bool,
}

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// First writes to clean pages: each is a fault on a transparent region.
    pub faults: u64,
    /// Pages copied to the SSD.
    pub copies: u64,
    /// Faults that found no permit free.
    pub forced_waits: u64,
    /// Dirty pages that a policy looked at.
    pub looks: u64,
}

/// Runs one contender over a trace.
pub fn run(writes: &Writes, contender: &Contender, rules: &Rules) -> Cost {
    assert!(rules.budget_pages > 0, "a budget has a page");
    let mut policy = match contender.mind {
        Mind::Exact(order) => {
            let epochs = writes.epochs(contender.epoch_rule(rules.epoch, rules.writes_per_ms));
            return exact::run(writes, &epochs, order, contender.sense, rules);
        }
        Mind::Policy(make) => make(),
    };
    let epochs = writes.epochs(contender.epoch_rule(rules.epoch, rules.writes_per_ms));
    let mut world = World::new(writes.distinct);
    let mut pressure = Pressure::default();
    let (mut epoch, mut dirtied_before) = (0, 0);
    for (page, now) in writes.pages.iter().zip(&epochs) {
        if *now > epoch {
            end_epochs(&mut pressure, *now - epoch, world.cost.faults - dirtied_before);
            dirtied_before = world.cost.faults;
            policy.epoch(&mut world);
            if rules.ahead {
                let threshold = pressure.threshold(rules.budget_pages);
                world.clean_down_to(threshold, policy.as_mut());
            }
            epoch = *now;
        }
        world.write(*page, rules.budget_pages, policy.as_mut());
    }
    world.cost
}

/// Tells the estimate of the epochs that have passed: what was dirtied is spread over them.
pub(super) fn end_epochs(pressure: &mut Pressure, passed: u64, dirtied: u64) {
    let epochs = passed.min(IDLE_EPOCHS_MAX);
    (0..epochs).for_each(|_| pressure.epoch(dirtied.div_ceil(epochs)));
}

/// Pages and what is known of them.
struct World {
    dirty: Vec<bool>,
    listed: Vec<bool>,
    /// Counts the writes to a page: stands for its content.
    version: Vec<u32>,
    dirty_pages: u32,
    victims: Vec<PageRef>,
    cost: Cost,
}

impl World {
    fn new(pages: u32) -> Self {
        let pages = pages as usize;
        Self {
            dirty: vec![false; pages],
            listed: vec![false; pages],
            version: vec![0; pages],
            dirty_pages: 0,
            victims: Vec::new(),
            cost: Cost::default(),
        }
    }

    fn write(&mut self, page: u32, budget: u32, policy: &mut dyn VictimPolicy) {
        let index = page as usize;
        if !self.dirty[index] {
            self.cost.faults += 1;
            if self.dirty_pages == budget {
                self.cost.forced_waits += 1;
                self.clean(1, true, policy);
            }
            self.dirty[index] = true;
            self.dirty_pages += 1;
            if !std::mem::replace(&mut self.listed[index], true) {
                policy.dirtied(PageRef { region: 0, page });
            }
        }
        self.version[index] = self.version[index].wrapping_add(1);
    }

    /// Asks for a batch at a time, as the engine does turn by turn. A policy that looked and found nobody
    /// is asked again, but not for ever.
    fn clean_down_to(&mut self, threshold: u32, policy: &mut dyn VictimPolicy) {
        let mut in_vain = 0;
        while self.dirty_pages > threshold && in_vain < ASKED_IN_VAIN_MAX {
            let (excess, before) = ((self.dirty_pages - threshold) as usize, self.cost.copies);
            self.clean(excess.min(BATCH_PAGES_MAX), false, policy);
            in_vain = if self.cost.copies == before { in_vain + 1 } else { 0 };
        }
    }

    /// Cleans up to `count` victims; at least one when `urgent`.
    fn clean(&mut self, count: usize, urgent: bool, policy: &mut dyn VictimPolicy) {
        let before = self.cost.copies;
        // A policy may answer with nobody while it makes up its mind: it is asked again.
        for _ in 0..=2 * self.listed.len() {
            let mut victims = std::mem::take(&mut self.victims);
            policy.choose(count, urgent, self, &mut victims);
            for victim in victims.drain(..) {
                if std::mem::replace(&mut self.dirty[victim.page as usize], false) {
                    self.dirty_pages -= 1;
                    self.cost.copies += 1;
                }
            }
            self.victims = victims;
            if !urgent || self.cost.copies > before {
                return;
            }
        }
        panic!("{} gave no victim among {} dirty pages", policy.name(), self.dirty_pages);
    }
}

impl Observer for World {
    fn look(&mut self, page: PageRef, seen: Option<Fingerprint>) -> Sight {
        self.cost.looks += 1;
        let index = page.page as usize;
        if !self.dirty[index] {
            return Sight::Clean;
        }
        let fingerprint = Fingerprint::new(self.version[index]).unwrap_or(Fingerprint::MIN);
        Sight::Dirty { fingerprint, written: seen != Some(fingerprint) }
    }

    fn glance(&mut self, page: PageRef) -> Sight {
        let dirty = Sight::Dirty { fingerprint: Fingerprint::MIN, written: true };
        if self.dirty[page.page as usize] { dirty } else { Sight::Clean }
    }

    fn dropped(&mut self, page: PageRef) {
        self.listed[page.page as usize] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender;
    use super::*;
    use crate::request::Access;

    fn trace(seed: u64, count: u64, pages: u64) -> Writes {
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        // The square of an even draw: low pages are hot.
        let mut page = move || (next() % pages) * (next() % pages) / pages;
        Writes::collect((0..count).map(|i| Access { time_ns: i * 50_000, page: page(), write: true }))
    }

    fn rules(budget_pages: u32, ahead: bool) -> Rules {
        Rules { budget_pages, epoch: Duration::from_millis(1), writes_per_ms: None, ahead }
    }

    #[test]
    fn nobody_copies_less_than_the_clairvoyant_and_everybody_stays_in_the_budget() {
        let writes = trace(1, 20_000, 400);
        for budget in [1, 7, 40, 200] {
            let costs: Vec<_> = contender::all()
                .iter()
                .map(|contender| (contender.name, run(&writes, contender, &rules(budget, false))))
                .collect();
            let floor = costs[0].1.copies;
            for (name, cost) in &costs {
                assert!(cost.copies >= floor, "{name} at {budget}: {cost:?} against {floor}");
                // Without cleaning ahead, what was dirtied and not copied is dirty still.
                assert!(cost.faults - cost.copies <= u64::from(budget), "{name} at {budget}: {cost:?}");
            }
        }
    }

    #[test]
    fn a_budget_for_every_page_copies_nothing() {
        let writes = trace(2, 5_000, 100);
        for contender in contender::all() {
            let cost = run(&writes, &contender, &rules(writes.distinct, false));
            assert_eq!((cost.copies, cost.forced_waits), (0, 0), "{}", contender.name);
            assert_eq!(cost.faults, u64::from(writes.distinct));
        }
    }

    #[test]
    fn cleaning_ahead_trades_copies_for_waits() {
        let writes = trace(3, 30_000, 400);
        let fifo = &contender::all().into_iter().find(|one| one.name == "fifo").expect("listed");
        let (lazy, ahead) = (run(&writes, fifo, &rules(100, false)), run(&writes, fifo, &rules(100, true)));
        assert!(ahead.forced_waits < lazy.forced_waits / 2, "{ahead:?} {lazy:?}");
        assert!(ahead.copies >= lazy.copies, "{ahead:?} {lazy:?}");
    }
}
