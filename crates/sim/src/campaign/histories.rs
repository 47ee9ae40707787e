//! Whole histories: stores, saves, cuts and recoveries, one after the other, to the end.

use super::Progress;
use super::corners::corners;
use crate::generate::{self, Mix};
use crate::random::Random;
use crate::script::{Op, Script};
use crate::shrink::shrink;
use crate::tally::{Bad, Tally, guarded};
use crate::world::{Settings, World};
use wattkeep_keep::types::PolicyName;

/// Steps of one history.
const STEPS: usize = 120;

/// The machine of a seed: policies, budgets and intervals differ.
pub fn settings(seed: u64) -> Settings {
    let mut random = Random::new(seed ^ 0x5E77);
    let policies =
        [PolicyName::Fifo, PolicyName::S3Fifo, PolicyName::SecondChance, PolicyName::LeastRecentlyUpdated];
    Settings {
        budget: 2 + random.below(9) as u32,
        segment_pages: 8 << random.below(2),
        policy: policies[random.below(policies.len() as u64) as usize],
        checkpoint_interval_ms: if random.chance(1, 3) { 20 } else { 0 },
        fill_ahead: random.chance(1, 6),
        ..Settings::default()
    }
}

/// Runs a script to its end.
pub fn run(settings: &Settings, script: &Script) -> Result<World, Bad> {
    guarded(|| {
        let mut world = World::new(settings.clone(), script.seed)?;
        script.ops.iter().try_for_each(|op| world.apply(*op))?;
        world.finish()?;
        Ok(world)
    })
}

/// The history of a seed.
pub fn script(seed: u64) -> Script {
    generate::script(seed, STEPS, settings(seed).pages, Mix::ALL)
}

/// Runs the history of a seed again, and shortens it if it fails: returns what failed, and the shortest
/// script that fails in the same way.
pub fn replay(seed: u64) -> Option<(String, Script)> {
    let (settings, script) = (settings(seed), script(seed));
    let bad = run(&settings, &script).err()?;
    Some((bad.to_string(), shorten(&settings, &script, &bad)))
}

/// The shortest script that fails in the same way.
pub fn shorten(settings: &Settings, script: &Script, bad: &Bad) -> Script {
    shrink(script, |shorter| run(settings, shorter).is_err_and(|other| other.is_like(bad)))
}

/// Tries the corners, and `count` histories.
pub fn histories(count: u64, seed: u64, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    corners(&mut tally);
    for seed in seed..seed + count {
        tally.tried += 1;
        let (settings, script) = (settings(seed), script(seed));
        let cuts = script.ops.iter().filter(|op| matches!(op, Op::Cut { .. })).count();
        tally.note("power cuts", cuts as u64);
        match run(&settings, &script) {
            Ok(world) => tally.note("samples", world.samples()),
            Err(bad) => {
                tally.count(bad.clone(), seed, || Some(shorten(&settings, &script, &bad)));
            }
        }
        if tally.tried.is_multiple_of(100) {
            progress(&tally);
        }
    }
    tally
}
