//! `wattkeep drill`: a real rehearsal of a power cut.
//!
//! The parent is the world outside: it calibrates, watches, cuts the power, and holds the oracle. A
//! child with its own memory is the machine: it runs the workload until it is killed. Nothing passes
//! from one to the other but the number of operations done, a copy of what a heap stores, and what the SSD holds.
//!
//! In the order of a drill:
//!
//! - [`plan`]: what is to be done, and whether it can be
//! - [`scratch`]: the store to drill on
//! - [`child`]: the workload, in a process of its own
//! - [`process`]: that process, as the parent holds it
//! - [`run`]: the run, watched, and the cut
//! - [`restore`]: back from the SSD alone
//! - [`oracle`]: what every page must hold; [`mirror`]: the same for a heap
//! - [`heap`]: what a restored heap must hold
//! - [`report`]: what came of it

pub(crate) mod child;
mod heap;
mod mirror;
mod oracle;
mod plan;
mod process;
mod report;
mod restore;
mod run;
mod scratch;

use std::time::{Duration, Instant};

use wattkeep_bench::chart::{Timeline, to_svg};
use wattkeep_power::budget::default_window;
use wattkeep_power::calibration::Calibration;
use wattkeep_power::energy::{Fraction, Milliwatts};
use wattkeep_power::units::{format_bandwidth, format_duration_ns};
use wattkeep_power::window::window_ns;

use crate::answer::{Answer, Output};
use crate::args::DrillArgs;
use crate::calibrate;
use crate::failure::{Exit, Failure};
use crate::progress;
use crate::text::{self, PAGE};
use plan::Plan;
use process::DrillChild;
use report::Report;
use scratch::Scratch;

/// Power that is assumed when none is given: a small server.
const ASSUMED_POWER: Milliwatts = Milliwatts(100_000);

/// How long a drill measures its SSD.
const CALIBRATION_S: f64 = 1.0;

pub(crate) fn run(args: &DrillArgs, output: Output) -> Result<Answer, Failure> {
    let plan = Plan::check(args)?;
    scratch::remove_leftover(&plan)?;
    output.say(&format!("wattkeep drill: {}\n", plan.title()));
    let calm = calibrate_here(&plan, "calibrate", output)?;
    let unlimited = if args.no_unlimited { None } else { Some(run_unlimited(&plan, output)?) };
    let scratch = Scratch::make(&plan, plan.budget_pages)?;
    let child = load(&plan, &scratch, plan.budget_pages, "load", output)?;
    // Again, now that the SSD has worked: the worse of both counts.
    let calibration = calm.combined(&calibrate_here(&plan, "", output)?);
    let ran = run::watch_and_cut(&plan, child, output)?;
    let (window, window_source) = window(args, &plan, &calibration)?;
    say_cut(&ran, window, output);
    let restored = restore::restore(&plan, &scratch, &ran, output)?;
    if let Some(path) = &args.svg {
        let picture = draw(&plan, &ran).map_err(|error| Failure::new(Exit::Bug, error))?;
        std::fs::write(path, picture).map_err(|error| Failure::system("write", path, &error))?;
    }
    scratch.finish(args.keep)?;
    let power = args.power.unwrap_or(ASSUMED_POWER);
    let report = Report::new(&plan, &calibration, unlimited, &ran, &restored, (window, window_source), power);
    let kept = report.kept();
    let text = report.text(args.power.is_none(), args.svg.as_deref());
    Ok(Answer::new(text, report.json()).that_holds(kept))
}

/// Prints a stage of the drill and what came of it.
fn stage(output: Output, name: &str, what: &str) {
    output.say(&format!("  {name:<10} {what}"));
}

fn calibrate_here(plan: &Plan, name: &str, output: Output) -> Result<Calibration, Failure> {
    let bar = progress::bar("calibrating the SSD");
    let measured =
        calibrate::measure(&plan.directory, CALIBRATION_S, u64::from(plan.budget_pages) * PAGE, &bar);
    bar.finish_and_clear();
    let calibration = measured?;
    let what = format!(
        "sequential writes {} at worst ({} usually), a flush {}",
        format_bandwidth(calibration.write_worst_bytes_per_s),
        format_bandwidth(calibration.write_median_bytes_per_s),
        format_duration_ns(calibration.flush_worst_ns)
    );
    stage(output, name, &what);
    Ok(calibration)
}

/// The same workload when everything may be dirty: operations per second.
fn run_unlimited(plan: &Plan, output: Output) -> Result<f64, Failure> {
    let scratch = Scratch::make(plan, plan.region_pages)?;
    let mut child = load(plan, &scratch, plan.region_pages, "load", output)?;
    let rate = run::rate_of(plan, &mut child)?;
    child.kill()?;
    drop(scratch);
    stage(output, "unlimited", &format!("{} without a bound on dirty pages", text::rate(rate)));
    Ok(rate)
}

/// Starts a child and lets it load the region.
fn load(
    plan: &Plan,
    scratch: &Scratch,
    budget_pages: u32,
    name: &str,
    output: Output,
) -> Result<DrillChild, Failure> {
    let began = Instant::now();
    let mut child =
        DrillChild::start(&plan.child_config(scratch.path(), budget_pages), plan.mirrored_bytes())?;
    let bar = progress::bar("loading");
    let loaded = child.wait_until_loaded(&bar);
    bar.finish_and_clear();
    loaded?;
    let took = began.elapsed();
    let what = format!(
        "{} written in {:.1} s under a budget of {}",
        plan.load(),
        took.as_secs_f64(),
        text::pages(budget_pages.into())
    );
    stage(output, name, &what);
    Ok(child)
}

/// The window in nanoseconds, and where it comes from.
fn window(args: &DrillArgs, plan: &Plan, calibration: &Calibration) -> Result<(u64, String), Failure> {
    if let Some(window) = args.window {
        return Ok((window, "given".to_owned()));
    }
    if let Some(energy) = args.energy {
        let power = args.power.unwrap_or(ASSUMED_POWER);
        return Ok((window_ns(energy, Fraction::ONE, power), format!("{energy} at {power}")));
    }
    let budget = u64::from(plan.budget_pages);
    match default_window(budget, &calibrate::save_cost(calibration, budget)) {
        Some(window) => Ok((window, "what the budget needs here, divided by 0.8".to_owned())),
        None => Err(Failure::usage("no window carries this budget; choose a smaller one")),
    }
}

fn say_cut(ran: &run::Ran, window: u64, output: Output) {
    let what = match &ran.save {
        Ok(save) => format!(
            "after {:.2} s the mains fail: {} saved in {} of {}; program and keeper are killed, the DRAM is gone",
            ran.cut_s,
            text::pages(save.pages.into()),
            text::millis(ran.save_ms),
            format_duration_ns(window)
        ),
        Err(cause) => format!("after {:.2} s the mains fail: THE SAVE FAILED: {cause}", ran.cut_s),
    };
    stage(output, "cut", &what);
}

fn draw(plan: &Plan, ran: &run::Ran) -> Result<String, String> {
    let timeline = Timeline {
        title: format!("wattkeep drill: {}", plan.title()),
        samples: ran.samples.clone(),
        cut_t_s: Some(ran.cut_s),
        saved_t_s: ran.save.is_ok().then_some(ran.cut_s + ran.save_ms / 1e3),
    };
    to_svg(&timeline).map_err(|error| error.to_string())
}

/// Nanoseconds of a float of seconds that was checked to be sane.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}
