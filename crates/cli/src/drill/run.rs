//! The run: watched through the keeper's socket, and cut at a moment that nobody inside knows.
//!
//! The cut is an order to save over that socket; the time until its answer is the save's. Then child
//! and keeper are killed, and what they held in DRAM is gone.

use std::time::{Duration, Instant};

use wattkeep_bench::chart::Sample;
use wattkeep_keep::protocol::{Request, SaveReport, Status};

use super::mirror::Mirror;
use super::plan::Plan;
use super::process::DrillChild;
use super::{seconds, stage};
use crate::answer::Output;
use crate::failure::{Exit, Failure};
use crate::keeper::KeeperLine;
use crate::progress;
use crate::text;

/// How often the keeper is asked how it is.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// Longest warm-up, and its longest share of the run.
const WARM_UP_S: f64 = 1.0;
const WARM_UP_SHARE: f64 = 0.2;

/// What a run and its cut were.
pub(crate) struct Ran {
    /// Operations complete when the power failed.
    pub(crate) steps: u64,
    /// Those of them that were complete when the save was ordered.
    pub(crate) steps_before_save: u64,
    /// What a heap stored.
    pub(crate) mirror: Option<Mirror>,
    /// When it failed, in seconds from the start.
    pub(crate) cut_s: f64,
    /// From the order to save to its answer.
    pub(crate) save_ms: f64,
    /// The answer.
    pub(crate) save: Result<SaveReport, String>,
    /// Before the first operation, and right before the cut.
    pub(crate) before: Status,
    pub(crate) at_cut: Status,
    /// Highest number of dirty pages in the whole session, save included.
    pub(crate) max_dirty_pages: u32,
    /// Operations per second between warm-up and cut.
    pub(crate) throughput: f64,
    pub(crate) samples: Vec<Sample>,
    /// What child and keeper complained of.
    pub(crate) complaints: String,
}

/// Operations and time at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    steps: u64,
}

impl Mark {
    fn now(child: &DrillChild) -> Self {
        Self { steps: child.steps(), at: Instant::now() }
    }

    fn rate_until(&self, later: &Self) -> f64 {
        let elapsed = (later.at - self.at).as_secs_f64();
        if elapsed > 0.0 { (later.steps - self.steps) as f64 / elapsed } else { 0.0 }
    }
}

/// Operations per second over half of the run's time, after a warm-up.
pub(crate) fn rate_of(plan: &Plan, child: &mut DrillChild) -> Result<f64, Failure> {
    child.go();
    std::thread::sleep(warm_up(plan));
    let first = Mark::now(child);
    let bar = progress::bar("running without a bound");
    let limit = seconds(plan.seconds / 2.0);
    while first.at.elapsed() < limit {
        std::thread::sleep(SAMPLE_EVERY.min(limit.saturating_sub(first.at.elapsed())));
        progress::set(&bar, first.at.elapsed().as_millis() as u64, limit.as_millis() as u64);
        child.check()?;
    }
    bar.finish_and_clear();
    Ok(first.rate_until(&Mark::now(child)))
}

fn warm_up(plan: &Plan) -> Duration {
    seconds(WARM_UP_S.min(plan.seconds * WARM_UP_SHARE))
}

/// Runs until the cut, cuts, saves, kills.
pub(crate) fn watch_and_cut(plan: &Plan, mut child: DrillChild, output: Output) -> Result<Ran, Failure> {
    let line = connect(plan)?;
    let before = line.status().map_err(|error| child.with_last_words(error.into()))?;
    let cut = seconds(plan.cut_s());
    let mut watch = Watch::new(before.clone());
    let live = progress::line();
    child.go();
    let start = Mark::now(&child);
    let mut first: Option<Mark> = None;
    while start.at.elapsed() < cut {
        std::thread::sleep(SAMPLE_EVERY.min(cut.saturating_sub(start.at.elapsed())));
        child.check()?;
        let mark = Mark::now(&child);
        let status = line.status().map_err(|error| child.with_last_words(error.into()))?;
        let warm = status.dirty_pages >= status.threshold_pages || mark.at - start.at >= warm_up(plan);
        if warm && first.is_none() {
            first = Some(mark);
        }
        watch.add(start, mark, &status);
        live.set_message(watch.live_line(cut));
    }
    let at_cut = line.status().map_err(|error| child.with_last_words(error.into()))?;
    let last = Mark::now(&child);
    let save = line.report(&Request::Save).map_err(|error| error.to_string());
    let save_ms = last.at.elapsed().as_secs_f64() * 1e3;
    let after = line.status();
    let complaints = child.complaints();
    child.kill()?;
    live.finish_and_clear();
    let max_dirty_pages = after.map_or(at_cut.max_dirty_pages, |status| {
        watch.saved(last.at - start.at, save_ms, &status);
        status.max_dirty_pages
    });
    let throughput = first.unwrap_or(start).rate_until(&last);
    let most = text::thousands(max_dirty_pages.into());
    let budget = text::thousands(at_cut.budget_pages.into());
    let what = format!(
        "{}, at most {most} of {budget} pages dirty, {} faults",
        text::rate(throughput),
        at_cut.faults
    );
    stage(output, "run", &what);
    let cut_s = (last.at - start.at).as_secs_f64();
    Ok(Ran {
        steps: child.steps(),
        steps_before_save: last.steps,
        mirror: child.take_mirror(),
        cut_s,
        save_ms,
        save,
        before,
        at_cut,
        max_dirty_pages,
        throughput,
        samples: watch.samples,
        complaints,
    })
}

fn connect(plan: &Plan) -> Result<KeeperLine, Failure> {
    let store = plan.directory.join("drill-store");
    KeeperLine::connect(&store).ok_or_else(|| {
        let cause = format!("the keeper of {0} does not answer; see 'wattkeep status {0}'", store.display());
        Failure::new(Exit::System, cause)
    })
}

/// What was seen so far.
struct Watch {
    samples: Vec<Sample>,
    last: Status,
    last_mark: Option<Mark>,
    rate: f64,
}

impl Watch {
    fn new(before: Status) -> Self {
        Self { samples: Vec::new(), last: before, last_mark: None, rate: 0.0 }
    }

    fn add(&mut self, start: Mark, mark: Mark, status: &Status) {
        let before = self.last_mark.unwrap_or(start);
        let elapsed = (mark.at - before.at).as_secs_f64().max(1e-6);
        self.rate = before.rate_until(&mark);
        self.samples.push(Sample {
            t_s: (mark.at - start.at).as_secs_f64(),
            dirty_pages: status.dirty_pages.into(),
            budget_pages: status.budget_pages.into(),
            faults_per_s: status.faults.saturating_sub(self.last.faults) as f64 / elapsed,
            ssd_bytes_per_s: status.ssd_bytes.saturating_sub(self.last.ssd_bytes) as f64 / elapsed,
        });
        (self.last, self.last_mark) = (status.clone(), Some(mark));
    }

    /// The save, as the last sample of the picture.
    fn saved(&mut self, cut: Duration, save_ms: f64, status: &Status) {
        let save_s = (save_ms / 1e3).max(1e-6);
        let rate = status.ssd_bytes.saturating_sub(self.last.ssd_bytes) as f64 / save_s;
        let sample = |t_s, dirty: u32, ssd_bytes_per_s| Sample {
            t_s,
            dirty_pages: dirty.into(),
            budget_pages: status.budget_pages.into(),
            faults_per_s: 0.0,
            ssd_bytes_per_s,
        };
        let cut_s = cut.as_secs_f64();
        self.samples.push(sample(cut_s, self.last.dirty_pages, rate));
        self.samples.push(sample(cut_s + save_s, status.dirty_pages, rate));
        self.samples.push(sample(cut_s + save_s, status.dirty_pages, 0.0));
    }

    fn live_line(&self, cut: Duration) -> String {
        let (dirty, budget) = (self.last.dirty_pages, self.last.budget_pages);
        let t_s = self.samples.last().map_or(0.0, |sample| sample.t_s);
        format!(
            "  {t_s:>5.1} s  dirty {} {:>9} of {}  {:>13}  the cut comes before {:.0} s",
            text::bar(dirty.into(), budget.into(), 30),
            text::thousands(dirty.into()),
            text::thousands(budget.into()),
            text::rate(self.rate),
            cut.as_secs_f64().ceil().max(1.0)
        )
    }
}
