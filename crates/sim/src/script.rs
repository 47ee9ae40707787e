//! A history as data: what happens to a simulated machine, step by step.
//!
//! Every step means something in every state, if only "nothing": so any part of a script is a script,
//! and a failing one can be shortened. A script is written and read as text, one step a line:
//!
//! ```text
//! t0 store r0p3.1 7      thread 0 stores the value 7 at region 0, page 3, place 1
//! t1 read r0p3           thread 1 loads from the page
//! t0 announce r1p2 2     thread 0 announces stores to two pages and keeps them pinned
//! t0 release             its stores are done
//! turn 8                 the keeper turns its loop eight times
//! pass 2500us            time passes
//! settle                 the keeper turns until nothing moves
//! checkpoint             a checkpoint is asked for
//! save                   the power source says that the power is going
//! resume                 it says that the power is back
//! budget 12              the dirty budget becomes 12 pages
//! grow r0 48             the region grows to 48 pages
//! close                  the program closes the store, and opens it again
//! kill                   the program is killed; another opens the store
//! cut mixed 9            the power goes without a word; the SSD keeps, drops or tears by seed 9
//! cut drop 9 again 4     the same, and once more at the fourth request of the recovery
//! ```

use std::fmt;
use std::str::FromStr;

use crate::disk::Cut;

/// Threads of the simulated program.
pub const THREADS: u8 = 3;
/// Regions of the simulated store: one tracked by faults, one by announcements.
pub const REGIONS: u8 = 2;
/// Places in a page that threads store to, far apart: a torn page shows.
pub const PLACES: usize = 4;

/// A page of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Page {
    /// 0 is tracked by faults, 1 by announcements.
    pub region: u8,
    /// Counted from 0.
    pub page: u8,
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Store { thread: u8, page: Page, place: u8, value: u32 },
    Read { thread: u8, page: Page },
    Announce { thread: u8, page: Page, pages: u8 },
    Release { thread: u8 },
    Turn { turns: u16 },
    Pass { us: u32 },
    Settle,
    Checkpoint,
    Save,
    Resume,
    Budget { pages: u8 },
    Grow { region: u8, pages: u8 },
    Close,
    Kill,
    Cut { cut: Cut, seed: u32, again: Option<u16> },
}

/// A history, and the seed of all chance in it: completion orders, torn sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Chance of the disk.
    pub seed: u64,
    /// The steps.
    pub ops: Vec<Op>,
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}p{}", self.region, self.page)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Store { thread, page, place, value } => write!(f, "t{thread} store {page}.{place} {value}"),
            Op::Read { thread, page } => write!(f, "t{thread} read {page}"),
            Op::Announce { thread, page, pages } => write!(f, "t{thread} announce {page} {pages}"),
            Op::Release { thread } => write!(f, "t{thread} release"),
            Op::Turn { turns } => write!(f, "turn {turns}"),
            Op::Pass { us } => write!(f, "pass {us}us"),
            Op::Settle => f.write_str("settle"),
            Op::Checkpoint => f.write_str("checkpoint"),
            Op::Save => f.write_str("save"),
            Op::Resume => f.write_str("resume"),
            Op::Budget { pages } => write!(f, "budget {pages}"),
            Op::Grow { region, pages } => write!(f, "grow r{region} {pages}"),
            Op::Close => f.write_str("close"),
            Op::Kill => f.write_str("kill"),
            Op::Cut { cut, seed, again } => {
                let cut = match cut {
                    Cut::KeepAll => "keep",
                    Cut::DropAll => "drop",
                    Cut::Mixed => "mixed",
                };
                write!(f, "cut {cut} {seed}")?;
                again.map_or(Ok(()), |at| write!(f, " again {at}"))
            }
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        self.ops.iter().try_for_each(|op| writeln!(f, "{op}"))
    }
}

fn number<T: FromStr>(text: &str, before: &str) -> Option<T> {
    text.strip_prefix(before)?.parse().ok()
}

fn page(text: &str) -> Option<Page> {
    let (region, page) = text.strip_prefix('r')?.split_once('p')?;
    let page = Page { region: region.parse().ok()?, page: page.parse().ok()? };
    (page.region < REGIONS).then_some(page)
}

/// One line as a step; `None` when it is none.
fn parse(line: &str) -> Option<Op> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(thread) = words.first().and_then(|word| number::<u8>(word, "t")).filter(|t| *t < THREADS) {
        return match words[1..] {
            ["store", at, value] => {
                let (at, place) = at.split_once('.')?;
                let place = place.parse().ok().filter(|place| usize::from(*place) < PLACES)?;
                Some(Op::Store { thread, page: page(at)?, place, value: value.parse().ok()? })
            }
            ["read", at] => Some(Op::Read { thread, page: page(at)? }),
            ["announce", at, pages] => {
                Some(Op::Announce { thread, page: page(at)?, pages: pages.parse().ok()? })
            }
            ["release"] => Some(Op::Release { thread }),
            _ => None,
        };
    }
    Some(match words[..] {
        ["turn", turns] => Op::Turn { turns: turns.parse().ok()? },
        ["pass", time] => Op::Pass { us: time.strip_suffix("us")?.parse().ok()? },
        ["settle"] => Op::Settle,
        ["checkpoint"] => Op::Checkpoint,
        ["save"] => Op::Save,
        ["resume"] => Op::Resume,
        ["budget", pages] => Op::Budget { pages: pages.parse().ok()? },
        ["grow", region, pages] => {
            Op::Grow { region: number(region, "r").filter(|r| *r < REGIONS)?, pages: pages.parse().ok()? }
        }
        ["close"] => Op::Close,
        ["kill"] => Op::Kill,
        ["cut", cut, seed, ref again @ ..] => {
            let cut = match cut {
                "keep" => Cut::KeepAll,
                "drop" => Cut::DropAll,
                "mixed" => Cut::Mixed,
                _ => return None,
            };
            let again = match again {
                [] => None,
                ["again", at] => Some(at.parse().ok()?),
                _ => return None,
            };
            Op::Cut { cut, seed: seed.parse().ok()?, again }
        }
        _ => return None,
    })
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        parse(line).ok_or_else(|| format!("'{line}' is no step of a script"))
    }
}

impl FromStr for Script {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) wrote. Empty lines, and what follows a `#`, are passed over.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut script = Script { seed: 0, ops: Vec::new() };
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match number(line, "seed ") {
                Some(seed) => script.seed = seed,
                None if line.is_empty() => {}
                None => script.ops.push(line.parse()?),
            }
        }
        Ok(script)
    }
}
