//! The power goes again while a store is being recovered, and once more in the recovery after that.

use super::Progress;
use super::crash::moments;
use super::histories::settings;
use crate::disk::{Cut, MemoryDisk};
use crate::generate::{self, Mix};
use crate::random::Random;
use crate::script::Script;
use crate::shrink::shrink;
use crate::tally::{Bad, Tally, guarded};
use crate::world::{Expected, Recorded, Settings, Trouble, boot, open_store};

/// Steps of one history.
const STEPS: usize = 60;

/// Of so many moments of a history, one is recovered.
const TAKEN: u64 = 8;

/// Cuts of one recovery that are recovered in turn.
const SECOND_CUTS: usize = 6;

fn script(seed: u64) -> Script {
    generate::script(seed, STEPS, settings(seed).pages, Mix::ENDLESS)
}

/// Makes `double` crashes inside a recovery, and `triple` inside the recovery after one, and those that are
/// left of the last history. `tried` counts both; the notes count them apart.
pub fn recrash(double: u64, triple: u64, seed: u64, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    let mut seed = seed;
    while tally.noted("double") < double || tally.noted("triple") < triple {
        let (settings, script) = (settings(seed), script(seed));
        if let Err(bad) = history(&settings, &script, &mut tally) {
            let fails = |script: &Script| {
                let found = history(&settings, script, &mut Tally::default());
                found.is_err_and(|other| other.is_like(&bad))
            };
            tally.count(bad.clone(), seed, || Some(shrink(&script, fails)));
        }
        progress(&tally);
        seed += 1;
    }
    tally
}

fn history(settings: &Settings, script: &Script, tally: &mut Tally) -> Result<(), Bad> {
    let mut random = Random::new(script.seed);
    guarded(|| {
        moments(settings, script, |recorded| {
            for Recorded { moment, expected } in &recorded {
                if random.chance(1, TAKEN) {
                    let expected = Expected { saved: false, ..(**expected).clone() };
                    let disk = moment.after_cut(Cut::Mixed, random.number());
                    again(settings, &disk, &expected, 1, &mut random, tally)?;
                }
            }
            Ok(())
        })
    })
}

/// Cuts the recovery of `disk` at some of its writes, and compares what each cut leaves.
fn again(
    settings: &Settings,
    disk: &MemoryDisk,
    expected: &Expected,
    depth: u32,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), Trouble> {
    disk.set_recording(true);
    let clock = Default::default();
    drop(boot(settings, &clock, disk)?);
    let moments = disk.take_moments();
    let (name, take) = if depth == 1 { ("double", SECOND_CUTS) } else { ("triple", 1) };
    let step = (moments.len() / take).max(1);
    for moment in moments.iter().skip(random.below(step as u64) as usize).step_by(step) {
        let seed = random.number();
        open_store(moment.after_cut(Cut::Mixed, seed), expected)?;
        tally.tried += 1;
        tally.note(name, 1);
        if depth == 1 && random.chance(1, 5) {
            let disk = moment.after_cut(Cut::Mixed, seed);
            again(settings, &disk, expected, depth + 1, random, tally)?;
        }
    }
    Ok(())
}
