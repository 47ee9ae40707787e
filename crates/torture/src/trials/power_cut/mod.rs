//! Cuts the power of a virtual machine under a subject, and judges from outside what its disk holds.
//!
//! The modules, in the order of a cut: [`plan`] draws what happens when, [`disk`] is put behind a volatile cache,
//! [`machine`] runs the subject on it and is killed, [`judge`] reads the disk without the guest and compares,
//! [`log`] tells. The next machine then starts from the same disk, and must find what the host found.
//!
//! Not part of the suite: it needs QEMU and a kernel, see 'make power-cut'.

mod disk;
mod judge;
mod log;
mod machine;
mod plan;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use self::disk::Disk;
use self::judge::{Bound, Image};
use self::log::{Log, Row};
use self::machine::{Machine, Stuck};
use self::plan::{Kind, Plan, StorePlan};
use super::heard::{Counts, Heard};
use super::stamps::Stamps;
use crate::outcome::Outcome;

/// Cuts of one store, before a new one: the check costs as much as was ever stored.
const CUTS_PER_STORE: u64 = 10;

/// What is cut, and how often.
#[derive(Clone, Debug, Args)]
pub(crate) struct PowerCutOptions {
    /// Folder of the guest; 'make power-cut' fills it.
    #[arg(long, default_value = "target/power-cut")]
    guest: PathBuf,
    /// How many cuts.
    #[arg(long, default_value_t = 20)]
    count: u64,
    /// Names the first store; the next ones count on. Ten cuts each.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The guest's kernel believes that the disk has no volatile cache, and never flushes it: stores must be
    /// lost. Fails when the check does not see it.
    #[arg(long)]
    lying_disk: bool,
}

/// Cuts, and prints a line for each. True when nothing was lost, or with a lying disk when something was.
pub(crate) fn run(options: &PowerCutOptions) -> Result<bool, String> {
    let mut outcome = Outcome::new("power_cut", options.seed);
    let mut log = Log::begin(&options.guest)?;
    let began = Instant::now();
    for store in 0.. {
        if outcome.tried >= options.count || outcome.bad() > 0 {
            break;
        }
        let cuts = CUTS_PER_STORE.min(options.count - outcome.tried);
        Life::begin(options, options.seed + store)?.live(cuts, &mut outcome, &mut log)?;
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    if !options.lying_disk {
        log.end(&outcome)?;
        return Ok(outcome.is_clean());
    }
    match outcome.failure.filter(|_| outcome.lost > 0) {
        Some(cause) => println!("power-cut: a disk that lies loses stores, as it must: {cause}"),
        None => println!("power-cut: FAILED: a disk that lies went unnoticed"),
    }
    Ok(outcome.lost > 0)
}

/// One store, through several cuts.
struct Life<'a> {
    options: &'a PowerCutOptions,
    plan: StorePlan,
    stamps: Stamps,
    disk: Disk,
    /// What the host found in the image after the last cut.
    before: Counts,
    /// A guest has found its store: it must be there from then on.
    born: bool,
}

impl<'a> Life<'a> {
    fn begin(options: &'a PowerCutOptions, seed: u64) -> Result<Self, String> {
        let plan = StorePlan::draw(seed);
        let subject = &plan.subject;
        let stamps = Stamps { seed: subject.seed, pages: subject.pages, threads: subject.threads };
        let disk = Disk::new(&options.guest, plan.cluster_bytes)?;
        Ok(Self { options, plan, stamps, disk, before: Counts::new(), born: false })
    }

    fn live(mut self, cuts: u64, outcome: &mut Outcome, log: &mut Log) -> Result<(), String> {
        for number in 1..=cuts {
            let cut = self.plan.cut(number);
            let (heard, stuck) = self.run_until_cut(&cut)?;
            outcome.tried += 1;
            let bad = outcome.bad();
            let story = format!("store {}, cut {number} ({})", self.plan.subject.seed, cut.kind);
            let verdict = match stuck {
                Some(Stuck::Wrong(cause)) => {
                    outcome.lose(1, format!("{story}: the guest says: {cause}"));
                    cause
                }
                Some(Stuck::Silent(cause)) => {
                    outcome.hang(format!("{story}: {cause}"));
                    cause
                }
                None => self.judge(&story, &heard, outcome)?,
            };
            log.row(&Row {
                plan: &self.plan,
                number,
                cut: &cut,
                heard: &heard,
                found: &self.before,
                verdict,
            })?;
            if outcome.bad() > bad {
                if self.options.lying_disk {
                    return Ok(());
                }
                return log.kept(&self.disk.keep());
            }
        }
        Ok(())
    }

    /// From power on to power off.
    fn run_until_cut(&self, cut: &Plan) -> Result<(Heard, Option<Stuck>), String> {
        self.disk.power_on()?;
        let mut words = self.plan.subject.words();
        if self.options.lying_disk {
            words.insert(0, "--lying-disk".to_owned());
        }
        let mut machine = Machine::boot(&self.options.guest, &self.disk, &words)?;
        let stuck = play(&mut machine, cut, self.stamps.threads).err();
        let heard = machine.cut();
        let stuck = stuck.or_else(|| heard.wrong.clone().map(Stuck::Wrong));
        self.disk.power_off()?;
        Ok((heard, stuck))
    }

    /// Compares what was heard with what the disk holds. Returns the verdict in words.
    fn judge(&mut self, story: &str, heard: &Heard, outcome: &mut Outcome) -> Result<String, String> {
        let threads = self.stamps.threads;
        self.born |= !heard.found.is_empty();
        if heard.found.len() as u64 == threads && !self.before.is_empty() && heard.found != self.before {
            let cause = format!("the guest found {:?}, the host {:?}", heard.found, self.before);
            outcome.violate(format!("{story}: {cause}"));
            return Ok(cause);
        }
        let bound = Bound::after(&self.before, heard, threads);
        let image = match self.disk.store()? {
            Some(folder) => judge::read(&folder, &self.stamps)?,
            None => Image::None,
        };
        let lost = |outcome: &mut Outcome, cause: &str| {
            outcome.lose(1, format!("{story}: {cause}"));
            cause.to_owned()
        };
        let found = match image {
            Image::Exact(found) => found,
            Image::None | Image::Empty if !self.born => return Ok("no store yet".to_owned()),
            Image::None | Image::Empty => {
                return Ok(lost(outcome, "a store that a guest had opened is gone"));
            }
            Image::Mixed(cause) | Image::Refused(cause) => return Ok(lost(outcome, &cause)),
        };
        self.before.clone_from(&found);
        let missed = bound.missed_by(&found);
        if missed > 0 {
            let cause = format!("{missed} stores: {:?} told, {found:?} found", bound.at_least);
            outcome.lose(missed, format!("{story}: {cause}"));
            return Ok(cause);
        }
        Ok(if bound.exactly { "exact" } else { "a committed image" }.to_owned())
    }
}

/// Does what is planned, up to the instant before the cut.
fn play(machine: &mut Machine, cut: &Plan, threads: u64) -> Result<(), Stuck> {
    machine.wait_until_booted()?;
    if cut.kind == Kind::Recovering {
        machine.run_for(cut.run);
        return Ok(());
    }
    machine.wait_until_it_stores()?;
    machine.run_for(cut.run);
    if cut.kind == Kind::Unannounced {
        return Ok(());
    }
    machine.announce();
    if cut.kind == Kind::Announced {
        machine.wait_until_saved(threads)?;
    }
    machine.run_for(cut.then);
    Ok(())
}
