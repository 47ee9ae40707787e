//! What every budget costs, from one pass over the writes.
//!
//! The model is the paper's victim on demand: a write to a clean page dirties it; if as many pages are
//! dirty as the budget allows, the least recently updated one is copied to the SSD first, and the write
//! waits for it. At the end what is dirty is saved. So, for each budget of B pages:
//!
//! ```text
//! dirtied      = first writes + writes with a stack distance of B or more
//! forced waits = dirtied - min(B, pages written)
//! copies       = dirtied: forced ones, and the save
//! ```
//!
//! Cleaning ahead turns waits into copies before their time: it makes waits rarer and copies more. The
//! pressure says how much of the budget it needs (Viyojit, section 5.3): the highest running estimate of
//! pages dirtied in an epoch of [`EPOCH_NS`].
//!
//! - [`distance`]: the stack distance of a write
//! - [`pressure`]: the highest estimate for each budget
//! - [`knee`]: where more battery stops to pay

pub mod distance;
pub mod knee;
mod pressure;

use serde::Serialize;

use crate::analyse::pages::PageTable;
use crate::request::PAGE_BYTES;
use distance::{Distance, UpdateOrder};
use pressure::Pressures;

/// Length of an epoch, as in the engine.
pub const EPOCH_NS: u64 = wattkeep_keep::limits::EPOCH.as_nanos() as u64;

/// Budgets per doubling.
const STEPS_PER_DOUBLING: u32 = 8;

/// Independent parts of a sample, from whose spread its error is estimated.
const GROUPS: usize = 16;

/// A sample tells nothing of budgets of which it holds fewer pages.
const TOLD_PAGES_MIN: u64 = 64;

/// Standard errors in a stated bound: 95 of 100 estimates lie within (Student's t, 15 degrees of freedom).
const ERRORS_IN_BOUND: f64 = 2.131;

/// Collects stack distances while a trace passes.
#[derive(Debug)]
pub struct CurveBuilder {
    order: UpdateOrder,
    rewrites: Rewrites,
    /// The same by group and step of the scale; only while sampling.
    groups: Vec<[f64; GROUPS]>,
    scale: Vec<u64>,
    page_writes: u64,
    pages_written: u64,
    pressures: Option<Pressures>,
}

/// Rewrites counted by their distance.
#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    /// By distance, in units of 2^shift pages.
    counts: Vec<u64>,
    shift: u32,
}

impl Rewrites {
    /// A sampled rewrite at `distance`, when one page of 2^`shift` is followed: it stands for so many.
    #[inline]
    pub fn add(&mut self, distance: u64, shift: u32) {
        while self.shift < shift {
            self.shift += 1;
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let at = (distance >> shift) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1 << shift;
    }

    /// Rewrites at a distance of `distance` pages or more.
    pub fn from(&self, distance: u64) -> u64 {
        let at = usize::try_from(distance >> self.shift).unwrap_or(usize::MAX);
        self.counts.iter().skip(at).sum()
    }
}

/// What one budget costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BudgetPoint {
    /// Pages that may be dirty.
    pub budget_pages: u64,
    /// Writes that dirtied a clean page.
    pub dirtied_pages: u64,
    /// Writes that waited for a page to be copied.
    pub forced_waits: u64,
    /// Pages copied to the SSD, the save at the end included.
    pub copies: u64,
    /// Bytes copied for each byte that the requests wrote; `None` for a trace without lengths.
    pub write_amplification: Option<f64>,
    /// Copies for each page that was ever written: 1 with an unlimited budget.
    pub copies_per_page: f64,
    /// Highest estimate of pages dirtied in an epoch of 10 ms; `None` for a trace without times.
    pub pressure_pages: Option<f64>,
    /// `dirtied_pages`, `forced_waits` and `copies` may be off by so many; 0 without sampling.
    pub error_pages: u64,
}

/// Costs of all budgets.
#[derive(Clone, Debug)]
pub struct Curve {
    rewrites_from: Vec<u64>,
    shift: u32,
    pages_written: u64,
    /// Points on a scale of eight budgets per doubling, up to all pages written.
    pub points: Vec<BudgetPoint>,
}

impl CurveBuilder {
    /// Follows up to `sample_pages` pages exactly, samples beyond. `timed`: the trace has times.
    pub fn new(sample_pages: u32, timed: bool) -> Self {
        let scale = scale();
        Self {
            order: UpdateOrder::new(sample_pages),
            rewrites: Rewrites::default(),
            groups: vec![[0.0; GROUPS]; scale.len() + 1],
            pressures: timed.then(|| Pressures::new(scale.len())),
            scale,
            page_writes: 0,
            pages_written: 0,
        }
    }

    /// One page of 2 to this power is followed; 0: all.
    pub fn shift(&self) -> u32 {
        self.order.shift()
    }

    /// A page is written, at `time_ns` since the beginning; `first` says whether for the first time.
    #[inline]
    pub fn write(&mut self, table: &mut PageTable, number: u32, first: bool, time_ns: u64) -> Distance {
        self.page_writes += 1;
        self.pages_written += u64::from(first);
        if let Some(pressures) = &mut self.pressures {
            pressures.at(time_ns / EPOCH_NS);
            if first {
                pressures.dirtied_in_all();
            }
        }
        let hash = table.slot(number).hash;
        let found = self.order.write(table, number);
        let Distance::Pages(distance) = found else { return found };
        let shift = self.order.shift();
        self.rewrites.add(distance, shift);
        // Budgets of up to `distance` pages have lost the page: those before this step of the scale.
        let step = self.scale.partition_point(|budget| *budget <= distance);
        self.groups[step][hash as usize % GROUPS] += (1_u64 << shift) as f64;
        if let Some(pressures) = &mut self.pressures {
            pressures.dirtied_below(step, 1 << shift);
        }
        found
    }

    /// The costs, when `bytes_written` bytes were written by all requests, if that is known.
    pub fn finish(mut self, bytes_written: Option<u64>) -> Curve {
        let rewrites = self.page_writes - self.pages_written;
        // The correction of SHARDS-adj: what chance kept too many or too few of, it kept of the hottest.
        let shift = self.order.shift();
        let mut rewrites_from = self.rewrites.counts.clone();
        let sampled: u64 = rewrites_from.iter().sum();
        if rewrites_from.is_empty() && rewrites > 0 {
            rewrites_from.push(0);
        }
        if let Some(first) = rewrites_from.first_mut() {
            *first = (*first + rewrites).saturating_sub(sampled);
        }
        let mut from = 0;
        for count in rewrites_from.iter_mut().rev() {
            from += *count;
            *count = from;
        }
        let mut curve = Curve { rewrites_from, shift, pages_written: self.pages_written, points: Vec::new() };
        let peaks = self.pressures.take().map(Pressures::finish);
        let told = |budget: u64| shift == 0 || budget >> shift >= TOLD_PAGES_MIN;
        let budgets = self.scale.iter().copied().take_while(|budget| *budget < self.pages_written);
        let budgets = budgets.chain((self.pages_written > 0).then_some(self.pages_written)).enumerate();
        for (step, budget) in budgets.filter(|(_, budget)| told(*budget)) {
            let dirtied = curve.dirtied(budget);
            let per = |whole: u64, part: f64| if whole == 0 { 0.0 } else { part / whole as f64 };
            curve.points.push(BudgetPoint {
                budget_pages: budget,
                dirtied_pages: dirtied,
                forced_waits: dirtied - budget.min(dirtied),
                copies: dirtied,
                write_amplification: bytes_written.map(|bytes| per(bytes, (dirtied * PAGE_BYTES) as f64)),
                copies_per_page: per(self.pages_written, dirtied as f64),
                pressure_pages: peaks
                    .as_ref()
                    .map(|peaks| peaks.get(step).copied().unwrap_or(peaks[peaks.len() - 1])),
                error_pages: self.error(&curve, step, budget),
            });
        }
        curve
    }

    /// How far the sampled count of dirtied pages may be off, with 95 % confidence: what chance did to the
    /// choice of pages (the spread between groups), and to the distances (a budget of B pages is seen as
    /// B / rate sampled ones, give or take the root of it).
    fn error(&self, curve: &Curve, step: usize, budget: u64) -> u64 {
        let shift = self.order.shift();
        if shift == 0 {
            return 0;
        }
        let mut lost = [0.0; GROUPS];
        for group in &self.groups[step + 1..] {
            lost.iter_mut().zip(group).for_each(|(lost, count)| *lost += count);
        }
        let groups = GROUPS as f64;
        let mean = lost.iter().sum::<f64>() / groups;
        let spread: f64 = lost.iter().map(|lost| (lost - mean).powi(2)).sum();
        let choice = ERRORS_IN_BOUND * (spread * groups / (groups - 1.0)).sqrt();
        let blur = ERRORS_IN_BOUND * (budget as f64 * (1_u64 << shift) as f64).sqrt();
        let (near, far) = (budget.saturating_sub(blur as u64), budget.saturating_add(blur as u64));
        let distances = (curve.dirtied(near).abs_diff(curve.dirtied(budget)))
            .max(curve.dirtied(far).abs_diff(curve.dirtied(budget)));
        (choice.hypot(distances as f64)).ceil() as u64
    }
}

impl Curve {
    /// Writes that dirty a clean page under a budget of `budget` pages.
    pub fn dirtied(&self, budget: u64) -> u64 {
        let at = usize::try_from(budget >> self.shift).unwrap_or(usize::MAX);
        self.pages_written + self.rewrites_from.get(at).copied().unwrap_or(0)
    }

    /// Writes that must wait for a copy under a budget of `budget` pages.
    pub fn forced_waits(&self, budget: u64) -> u64 {
        self.dirtied(budget) - budget.min(self.pages_written)
    }

    /// Distinct pages written.
    pub fn pages_written(&self) -> u64 {
        self.pages_written
    }

    /// One page of 2 to this power was followed; 0: all, and every number is exact.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// The least budget that dirties at most `copies` pages; `None` if even an unlimited one dirties more.
    pub fn budget_for_copies(&self, copies: u64) -> Option<u64> {
        let spare = copies.checked_sub(self.pages_written)?;
        let at = self.rewrites_from.partition_point(|rewrites| *rewrites > spare) as u64;
        Some((at << self.shift).clamp(1, self.pages_written.max(1)))
    }
}

/// Budgets from one page up, [`STEPS_PER_DOUBLING`] per doubling, to more than any trace can write.
fn scale() -> Vec<u64> {
    let exponents = (0..=40 * STEPS_PER_DOUBLING).map(|step| f64::from(step) / f64::from(STEPS_PER_DOUBLING));
    let mut scale: Vec<u64> = exponents.map(|exponent| exponent.exp2().round() as u64).collect();
    scale.dedup();
    scale
}

#[cfg(test)]
mod tests;
