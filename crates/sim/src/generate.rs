//! Histories by chance: a few hot pages, many budgets, and the power going at any step.

use crate::disk::Cut;
use crate::random::Random;
use crate::script::{Op, PLACES, Page, REGIONS, Script, THREADS};

/// What kinds of steps a history has, by weight.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Stores, loads, announcements.
    pub accesses: u64,
    /// The keeper's turns, and time that passes.
    pub turns: u64,
    /// Checkpoints, saves, what follows them.
    pub commits: u64,
    /// Changes of the budget, regions that grow.
    pub changes: u64,
    /// Programs that end, and the power that goes without a word.
    pub ends: u64,
}

impl Mix {
    /// Everything, with a power cut every fifty steps or so.
    pub const ALL: Mix = Mix { accesses: 90, turns: 70, commits: 12, changes: 5, ends: 4 };
    /// No end: for those who cut the power themselves.
    pub const ENDLESS: Mix = Mix { ends: 0, ..Mix::ALL };
    /// Budgets that change all the time.
    pub const BUDGETS: Mix = Mix { changes: 25, commits: 6, ends: 0, ..Mix::ALL };
}

/// A history of `steps` steps on regions of `pages` pages.
pub fn script(seed: u64, steps: usize, pages: [u32; 2], mix: Mix) -> Script {
    let mut random = Random::new(seed);
    let ops = self::steps(&mut random, steps, pages, mix);
    Script { seed: random.number(), ops }
}

/// `count` steps by chance.
pub fn steps(random: &mut Random, count: usize, pages: [u32; 2], mix: Mix) -> Vec<Op> {
    (0..count).map(|_| step(random, pages, mix)).collect()
}

fn step(random: &mut Random, pages: [u32; 2], mix: Mix) -> Op {
    let kinds = [mix.accesses, mix.turns, mix.commits, mix.changes, mix.ends];
    let mut chosen = random.below(kinds.iter().sum());
    let kind = kinds.iter().position(|weight| {
        let here = chosen < *weight;
        chosen = chosen.saturating_sub(*weight);
        here
    });
    match kind.expect("a number below the sum lies in one of the parts") {
        0 => access(random, pages),
        1 => match random.below(10) {
            0..7 => Op::Turn { turns: 1 + random.below(6) as u16 },
            7..9 => Op::Pass { us: 100 << random.below(8) },
            _ => Op::Settle,
        },
        2 => match random.below(8) {
            0..3 => Op::Checkpoint,
            3..5 => Op::Save,
            _ => Op::Resume,
        },
        3 => match random.below(8) {
            0 => Op::Grow { region: random.below(REGIONS.into()) as u8, pages: random.below(40) as u8 },
            _ => Op::Budget { pages: 1 + random.below(14) as u8 },
        },
        _ => end(random),
    }
}

fn access(random: &mut Random, pages: [u32; 2]) -> Op {
    let thread = random.below(THREADS.into()) as u8;
    let page = any_page(random, pages);
    match random.below(20) {
        0..14 => {
            // The first page of a region holds one of two values: what was stored comes back, again and again.
            let flips = page.page == 0;
            let place = if flips { 0 } else { random.below(PLACES as u64) as u8 };
            let values = if flips || random.chance(1, 6) { 2 } else { 1 << 31 };
            Op::Store { thread, page, place, value: random.below(values) as u32 }
        }
        14..16 => Op::Read { thread, page },
        16..18 => Op::Announce { thread, page, pages: 1 + random.below(3) as u8 },
        _ => Op::Release { thread },
    }
}

fn any_page(random: &mut Random, pages: [u32; 2]) -> Page {
    let region = u8::from(random.chance(1, 4));
    let all = u64::from(pages[usize::from(region)]);
    let among = all.min([3, 8, all][random.below(3) as usize]);
    Page { region, page: random.below(among) as u8 }
}

fn end(random: &mut Random) -> Op {
    let again = random.chance(1, 3).then(|| random.below(60) as u16);
    let cut = match random.below(6) {
        0 => return Op::Close,
        1 => return Op::Kill,
        2 => Cut::KeepAll,
        3 => Cut::DropAll,
        _ => Cut::Mixed,
    };
    Op::Cut { cut, seed: random.below(1 << 31) as u32, again }
}
