//! The highest pressure that each budget of the scale sees: pages dirtied per epoch, estimated as the
//! engine does.
//!
//! Invariants: epochs do not go back. A step of the scale that no rewrite has reached yet sees first
//! writes only, so one estimate stands for all of them.

use wattkeep_keep::victim::pressure::Pressure;

/// Empty epochs after which an estimate has faded: a quarter stays each time, 4^-12 of it is nothing.
const FADED: u64 = 12;

#[derive(Debug)]
pub(super) struct Pressures {
    epoch: u64,
    /// Pages dirtied in this epoch by rewrites that budgets before this step had lost.
    dirtied: Vec<u64>,
    first_writes: u64,
    /// Estimates by step, as far as rewrites have reached; then the one for all others.
    steps: Vec<Peak>,
    beyond: Peak,
    reached: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    now: Pressure,
    highest: f64,
}

impl Peak {
    fn epoch(&mut self, dirtied: u64) {
        self.now.epoch(dirtied);
        self.highest = self.highest.max(self.now.expected());
    }

    fn fade(&mut self, epochs: u64) {
        if epochs >= FADED {
            self.now = Pressure::default();
            return;
        }
        for _ in 0..epochs {
            self.now.epoch(0);
        }
    }
}

impl Pressures {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            epoch: 0,
            dirtied: vec![0; steps + 1],
            first_writes: 0,
            steps: Vec::with_capacity(steps),
            beyond: Peak::default(),
            reached: 0,
        }
    }

    /// Time has come to `epoch`.
    #[inline]
    pub(super) fn at(&mut self, epoch: u64) {
        if epoch != self.epoch {
            self.end_epoch();
            let empty = epoch - self.epoch - 1;
            if empty > 0 {
                self.steps.iter_mut().for_each(|peak| peak.fade(empty));
                self.beyond.fade(empty);
            }
            self.epoch = epoch;
        }
    }

    /// A page is dirtied whatever the budget.
    #[inline]
    pub(super) fn dirtied_in_all(&mut self) {
        self.first_writes += 1;
    }

    /// Budgets before `step` dirty `pages` more.
    #[inline]
    pub(super) fn dirtied_below(&mut self, step: usize, pages: u64) {
        self.dirtied[step] += pages;
        self.reached = self.reached.max(step);
    }

    fn end_epoch(&mut self) {
        while self.steps.len() < self.reached {
            self.steps.push(self.beyond);
        }
        let mut dirtied = self.first_writes;
        self.beyond.epoch(dirtied);
        for step in (0..self.steps.len()).rev() {
            dirtied += std::mem::take(&mut self.dirtied[step + 1]);
            self.steps[step].epoch(dirtied);
        }
        self.dirtied[0] = 0;
        self.first_writes = 0;
    }

    /// The highest estimates by step; the last one stands for all that follow.
    pub(super) fn finish(mut self) -> Vec<f64> {
        self.end_epoch();
        self.steps.iter().chain([&self.beyond]).map(|peak| peak.highest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_budget_has_its_own_highest_estimate() {
        let mut pressures = Pressures::new(4);
        pressures.at(3);
        pressures.dirtied_in_all();
        pressures.dirtied_in_all();
        pressures.dirtied_below(2, 1);
        pressures.at(4);
        pressures.dirtied_below(1, 6);
        pressures.at(1_000_000);
        pressures.dirtied_below(0, 9);
        // Epoch 3: budgets 0 and 1 dirty 3, the others 2. Epoch 4: budget 0 dirties 6 more.
        let expected = [0.75 * 6.0 + 0.25 * 2.25, 2.25, 1.5];
        assert_eq!(pressures.finish(), expected);
    }
}
