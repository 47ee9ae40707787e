//! All short histories: every sequence of up to three operations, cut at each of its writes.
//!
//! Chance visits corners by luck; this visits every small one.

use super::Progress;
use crate::disk::Cut;
use crate::random::Random;
use crate::script::{Op, Page, Script};
use crate::tally::{Bad, Tally, guarded};
use crate::world::{Recorded, Settings, World, open_store};

/// Operations in a sequence, at most.
const LONGEST: usize = 3;

/// The operations, each a few steps that end in a settled machine.
fn operations() -> Vec<Vec<Op>> {
    let store =
        |region, page, value| Op::Store { thread: 0, page: Page { region, page }, place: page % 4, value };
    vec![
        vec![store(0, 0, 1), store(0, 1, 2), store(0, 2, 3)],
        vec![store(0, 0, 4), store(1, 0, 5), store(1, 1, 6)],
        // As many as the budget, and then some: the keeper must clean.
        (3..9).flat_map(|page| [store(0, page, 7), Op::Turn { turns: 3 }, Op::Pass { us: 2500 }]).collect(),
        vec![store(0, 0, 0), store(0, 1, 0), Op::Settle],
        vec![Op::Checkpoint, Op::Settle],
        vec![Op::Checkpoint, Op::Turn { turns: 2 }, store(0, 0, 8), store(0, 2, 9), Op::Settle],
        vec![Op::Save, Op::Resume, Op::Settle],
        vec![Op::Save, Op::Turn { turns: 1 }],
        vec![Op::Resume, Op::Budget { pages: 2 }, Op::Settle],
        vec![Op::Resume, Op::Budget { pages: 20 }, Op::Grow { region: 0, pages: 30 }],
        vec![Op::Close],
        vec![Op::Kill],
    ]
}

/// Every sequence of one to [`LONGEST`] operations: the steps before the last operation, and its own.
pub fn sequences() -> Vec<(Vec<Op>, Vec<Op>)> {
    let operations = operations();
    let mut all = Vec::new();
    let mut befores: Vec<Vec<Op>> = vec![Vec::new()];
    for _ in 0..LONGEST {
        let sequences =
            befores.iter().flat_map(|before| operations.iter().map(|last| (before.clone(), last.clone())));
        let sequences: Vec<_> = sequences.collect();
        befores = sequences.iter().map(|(before, last)| [before.as_slice(), last].concat()).collect();
        all.extend(sequences);
    }
    all
}

/// Cuts every sequence at each write of its last operation: those before it are a shorter sequence's.
/// One image of every write, however many were asked for, and as long as `count` is not reached three of each: some of
/// what is not flushed, nothing of it, all of it. `tried` counts images.
pub fn enumerate(count: u64, seed: u64, progress: Progress<'_>) -> Tally {
    let mut tally = Tally::default();
    let settings = Settings { budget: 4, ..Settings::default() };
    let sequences = sequences();
    for (number, (before, last)) in sequences.iter().enumerate() {
        // What is left is shared between what is left; not all have so many writes.
        let left = count.saturating_sub(tally.tried);
        let share = (2 * left).div_ceil((sequences.len() - number) as u64);
        let script = Script { seed, ops: [before.as_slice(), last].concat() };
        if let Err(bad) = images(&settings, &script, before.len(), share, &mut tally) {
            tally.count(bad, script.seed, || Some(script.clone()));
        }
        tally.note("sequences", 1);
        if number % 100 == 0 {
            progress(&tally);
        }
    }
    tally
}

fn images(
    settings: &Settings,
    script: &Script,
    before: usize,
    most: u64,
    tally: &mut Tally,
) -> Result<(), Bad> {
    let mut random = Random::new(script.seed);
    guarded(|| {
        let mut world = World::new(settings.clone(), script.seed)?;
        script.ops[..before].iter().try_for_each(|op| world.apply(*op))?;
        world.disk().set_recording(true);
        script.ops[before..].iter().try_for_each(|op| world.apply(*op))?;
        let all: Vec<Recorded> = world.take_recorded();
        tally.note("writes", all.len() as u64);
        let cuts = [Cut::Mixed, Cut::DropAll, Cut::KeepAll];
        let images: Vec<_> = cuts.into_iter().flat_map(|cut| all.iter().map(move |at| (at, cut))).collect();
        let taken = (most as usize).max(all.len());
        for (Recorded { moment, expected }, cut) in images.iter().take(taken) {
            tally.tried += 1;
            open_store(moment.after_cut(*cut, random.number()), expected)?;
        }
        Ok(())
    })
}
