//! Crash images: one history, cut at every write of it, in several ways each.
//!
//! Every image is opened as a machine would after the cut, and compared page by page. Of some, the
//! whole engine goes on from there: restores, takes stores again, and ends in order.

use super::Progress;
use super::histories::settings;
use crate::disk::Cut;
use crate::generate::{self, Mix};
use crate::random::Random;
use crate::script::Script;
use crate::shrink::shrink;
use crate::tally::{Bad, Tally, guarded};
use crate::world::{Recorded, Settings, Trouble, World, open_store};

/// Steps of one history.
const STEPS: usize = 80;

/// Of so many images, one is taken further than its opening.
const RESTORED: u64 = 32;

/// The ways in which each moment is cut.
const CUTS: [Cut; 3] = [Cut::DropAll, Cut::Mixed, Cut::KeepAll];

fn script(seed: u64) -> Script {
    generate::script(seed, STEPS, settings(seed).pages, Mix { ends: 1, ..Mix::ALL })
}

/// Runs a script and hands the moments of each step to `see`.
pub(super) fn moments(
    settings: &Settings,
    script: &Script,
    mut see: impl FnMut(Vec<Recorded>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut world = World::new(settings.clone(), script.seed)?;
    world.disk().set_recording(true);
    for op in &script.ops {
        world.apply(*op)?;
        see(world.take_recorded())?;
    }
    world.finish()?;
    see(world.take_recorded())
}

/// Takes `count` crash images, and those that are left of the last history. `tried` counts images.
pub fn crash(count: u64, seed: u64, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    let mut seed = seed;
    while tally.tried < count {
        let (settings, script) = (settings(seed), script(seed));
        if let Err(bad) = images(&settings, &script, &mut tally) {
            let fails = |script: &Script| {
                let found = images(&settings, script, &mut Tally::default());
                found.is_err_and(|other| other.is_like(&bad))
            };
            tally.count(bad.clone(), seed, || Some(shrink(&script, fails)));
        }
        tally.note("histories", 1);
        progress(&tally);
        seed += 1;
    }
    tally
}

fn images(settings: &Settings, script: &Script, tally: &mut Tally) -> Result<(), Bad> {
    let mut random = Random::new(script.seed);
    guarded(|| {
        moments(settings, script, |recorded| {
            for Recorded { moment, expected } in &recorded {
                tally.note("moments", 1);
                let cuts = if moment.unflushed() == 0 { &CUTS[..1] } else { &CUTS[..] };
                for cut in cuts {
                    let disk = moment.after_cut(*cut, random.number());
                    tally.tried += 1;
                    if !random.chance(1, RESTORED) {
                        open_store(disk, expected)?;
                        continue;
                    }
                    let clock = Default::default();
                    let mut world = World::open(settings, &clock, disk, expected)?;
                    world.read_everything()?;
                    world.finish()?;
                    tally.note("restored", 1);
                }
            }
            Ok(())
        })
    })
}
