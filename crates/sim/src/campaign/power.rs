//! Outages: does a save end while the energy lasts?
//!
//! The budget comes from the formula of the `power` crate, for a battery, a draw, and the worst
//! bandwidth and delays of this SSD. *Inside the model* the SSD is as fast as its worst or faster, and
//! the battery holds what it should or more: then every save ends in its window. *Outside the model*
//! (an SSD that slows down, a battery that is worn out) a save may miss it; then the restart must say so,
//! and show the last commit.
//!
//! Time is the simulated clock's alone.

use std::time::Duration;

use wattkeep_power::budget::{SaveCost, budget_for, default_window};
use wattkeep_power::energy::{Fraction, Milliwatts};
use wattkeep_power::window::{Overheads, deadline_ns, energy_lasting, window_ns};

use super::Progress;
use crate::disk::{Cut, MemoryDisk};
use crate::generate::{Mix, steps};
use crate::pace::Pace;
use crate::random::Random;
use crate::script::Op;
use crate::tally::{Bad, Tally, guarded};
use crate::world::{Planted, Settings, Trouble, World, boot};

/// Outages of one machine, one after the other.
const OUTAGES: u64 = 20;

/// Worst bandwidth inside the model: slow enough that pages count.
const BYTES_PER_S: u64 = 8_000_000;

/// Latency of a request inside the model.
const LATENCY: Duration = Duration::from_micros(500);

/// What the machine draws at worst.
const DRAW: Milliwatts = Milliwatts(300_000);

/// The share of its energy that the battery may be trusted with.
const DERATING: Fraction = match Fraction::from_percent(80) {
    Some(share) => share,
    None => Fraction::ZERO,
};

/// The SSD and the save, as a calibration would describe them.
fn cost(settings: &Settings) -> SaveCost {
    // Each batch carries a page of summary.
    let payload = u64::from(settings.segment_pages) - 1;
    let optimism = if settings.planted == Some(Planted::OptimisticBandwidth) { 8 } else { 1 };
    let bandwidth = BYTES_PER_S * optimism;
    SaveCost {
        bandwidth_bytes_per_s: bandwidth * payload / u64::from(settings.segment_pages),
        overheads: Overheads {
            // The keeper hears of the power between two turns; a turn may hold a commit.
            detection_ns: 12 * ns(LATENCY),
            freeze_ns: ns(Duration::from_millis(5)),
            commit_ns: 12 * ns(LATENCY),
        },
        // Moves of the log's cleaning and reads of a restore hold no permit, and may be ahead in the queue.
        in_flight_reserve_pages: u64::from(settings.pages[0] + settings.pages[1]),
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a short time")
}

/// How an outage differs from what was planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// As planned, or better.
    InsideModel,
    /// The SSD is this many times slower than its worst.
    SlowDevice(u64),
    /// The battery holds this percentage of what it should.
    WornBattery(u64),
}

fn settings(seed: u64) -> Settings {
    Settings { checkpoint_interval_ms: 600_000, segment_pages: 16, ..super::histories::settings(seed) }
}

/// Makes `count` outages of healthy machines, and those that are left of the last machine. `tried` counts
/// outages; notes count the simulated hours, the outages outside the model, and what became of those.
pub fn power(count: u64, seed: u64, progress: Progress<'_>) -> Tally {
    outages(count, seed, None, progress)
}

/// The same with something planted that the campaign must find.
pub fn outages(count: u64, seed: u64, planted: Option<Planted>, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    let mut seed = seed;
    let mut passed = Duration::ZERO;
    while tally.tried < count {
        let settings = Settings { planted, ..settings(seed) };
        match machine(&settings, seed, &mut tally) {
            Ok(time) => passed += time,
            Err(bad) => tally.count(bad, seed, || None),
        }
        progress(&tally);
        seed += 1;
    }
    tally.note("simulated hours", passed.as_secs() / 3600);
    tally
}

/// One machine and its outages. Returns the time that it lived.
fn machine(settings: &Settings, seed: u64, tally: &mut Tally) -> Result<Duration, Bad> {
    let mut random = Random::new(seed);
    guarded(|| {
        let mut world = World::new(settings.clone(), random.number())?;
        for _ in 0..OUTAGES {
            tally.tried += 1;
            let weather = match random.below(10) {
                0 => Weather::SlowDevice(2 + random.below(30)),
                1 => Weather::WornBattery(5 + random.below(90)),
                _ => Weather::InsideModel,
            };
            outage(&mut world, settings, weather, &mut random, tally)?;
        }
        Ok(world.clock().passed())
    })
}

/// An hour or so of work, an outage, and the restart after it.
fn outage(
    world: &mut World,
    settings: &Settings,
    weather: Weather,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    let cost = cost(settings);
    // The battery that somebody bought for so many pages, and what it is good for.
    let bought = default_window(1 + random.below(24), &cost)
        .and_then(|window| energy_lasting(window, DERATING, DRAW))
        .expect("a small battery");
    let window = window_ns(bought, DERATING, DRAW);
    let budget = budget_for(deadline_ns(window), &cost);
    world.set_budget(u32::try_from(budget).expect("a small budget"))?;
    work(world, settings, random)?;
    // The power may come back before the energy is used up: then the machine goes on.
    while random.chance(1, 4) {
        tally.note("flaps", 1);
        world.save()?;
        world.clock().advance(Duration::from_millis(random.below(2000)));
        world.apply(Op::Resume)?;
        work(world, settings, random)?;
    }
    let saved_in = fail(world, weather, window, random)?;
    let outside = weather != Weather::InsideModel;
    tally.note("outside the model", u64::from(outside));
    tally.note("saves missed", u64::from(saved_in.is_none()));
    // Energy beyond the window is luck, not a plan.
    let in_time = saved_in.is_some_and(|time| ns(time) <= window);
    if !in_time && !outside {
        return Err(Trouble::Violation(format!(
            "a save missed its window of {:.1} ms with a budget of {budget} pages",
            window as f64 / 1e6
        )));
    }
    let share = saved_in.map_or(0, |time| ns(time) * 100 / window);
    if !outside {
        tally.peak("% of the window used at most", share);
    }
    restart(world, settings, random, tally)
}

/// Work for an hour, with checkpoints, and an SSD that is sometimes faster, sometimes slower.
fn work(world: &mut World, settings: &Settings, random: &mut Random) -> Result<(), Trouble> {
    world.clock().advance(Duration::from_secs(3600 + random.below(1800)));
    let drift = 100 + random.below(200);
    pace(world, BYTES_PER_S * drift / 100, LATENCY);
    let count = 20 + random.below(40) as usize;
    steps(random, count, settings.pages, Mix { commits: 3, changes: 0, ends: 0, ..Mix::ALL })
        .into_iter()
        .filter(|op| !matches!(op, Op::Save | Op::Resume | Op::Settle))
        .try_for_each(|op| world.apply(op))
}

fn pace(world: &World, bytes_per_s: u64, latency: Duration) {
    world.disk().set_pace(Some(Pace::new(world.clock().clone(), bytes_per_s, latency)));
}

/// The mains fail in the middle of something; the keeper hears of it and saves. Returns the time from the
/// failure to the completed save; `None` when the energy ended before.
fn fail(
    world: &mut World,
    weather: Weather,
    window: u64,
    random: &mut Random,
) -> Result<Option<Duration>, Trouble> {
    let failed = world.clock().passed() + Duration::from_micros(random.below(3000));
    let (mut bandwidth, mut lasts) = (BYTES_PER_S, window);
    match weather {
        Weather::InsideModel => lasts += window / 100 * random.below(25),
        Weather::SlowDevice(times) => bandwidth /= times,
        Weather::WornBattery(percent) => lasts = window / 100 * percent,
    }
    pace(world, bandwidth, LATENCY);
    while world.clock().passed() < failed {
        world.turn()?;
    }
    world.disk().set_power_off(Some(failed + Duration::from_nanos(lasts)));
    match world.save() {
        Ok(()) => {}
        Err(Trouble::Stopped(_)) if world.disk().powered_off().is_some() => return Ok(None),
        Err(trouble) => return Err(trouble),
    }
    let saved_in = world.clock().passed() - failed;
    // What is left of the window; the digest is written, or not.
    for _ in 0..random.below(4) {
        match world.turn() {
            Err(Trouble::Stopped(_)) if world.disk().powered_off().is_some() => break,
            other => drop(other?),
        }
    }
    Ok(Some(saved_in))
}

/// The power is back, perhaps only for a moment; the store is opened and compared.
fn restart(
    world: &mut World,
    settings: &Settings,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    let moment = world.disk().powered_off().unwrap_or_else(|| world.disk().moment());
    let mut disk = moment.after_cut(Cut::Mixed, random.number());
    if random.chance(1, 4) {
        tally.note("outages during recovery", 1);
        disk = interrupted(world, settings, disk, random);
        world.forget_save();
    }
    world.reopen(disk)
}

/// A recovery that is cut off by the next outage. Returns what that leaves.
fn interrupted(world: &World, settings: &Settings, disk: MemoryDisk, random: &mut Random) -> MemoryDisk {
    let clock = world.clock();
    disk.set_pace(Some(Pace::new(clock.clone(), BYTES_PER_S, LATENCY)));
    disk.set_power_off(Some(clock.passed() + Duration::from_micros(random.below(30_000))));
    drop(boot(settings, clock, &disk));
    let moment = disk.powered_off().unwrap_or_else(|| disk.moment());
    moment.after_cut(Cut::Mixed, random.number())
}
