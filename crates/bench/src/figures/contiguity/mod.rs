//! Pages supplied in batches beside pages brought in one by one, while other programs allocate:
//! `heap.contiguity.4`, `.16`, `.machine`, `.conflicts` and `.alone`.
//!
//! A *contiguity miss* is a pair of neighbouring pages whose frames are no neighbours. `.4` and `.16` let
//! memory that asks come in pieces of 16 or 64 KiB while they run; `.machine` takes what the machine's own
//! settings give, which may be 2 MiB. `.conflicts` is simulated, on the frames of `.16`.
//!
//! Two neighbours share our core and allocate between any two pages that we take, as in the paper's figures.
//! `.alone` is `.4` with nobody between: single pages then come in the order in which they were freed, which
//! may be that of memory, and batches gain what the machine's past leaves to gain.
//!
//! Frame numbers are shown to root only: without them nothing is measured, and the figures say so.

mod colours;
mod neighbours;
mod pieces;

use std::cell::RefCell;
use std::sync::Arc;

use wattkeep_heap::supply::{Batch, Options, Purpose, SpaceSource, Supply};
use wattkeep_persist::{Anonymous, Domain, Frames, Misses, PAGE, Space};

use self::neighbours::Neighbours;
use self::pieces::AllowedPieces;
use super::{Bench, BenchError};
use crate::measure::{Figure, Reach, Rounds};

const RIVAL: &str = "pages brought in one by one";

/// Pages that one turn takes: 16 MiB.
const PAGES: u64 = 4096;

/// Of the simulated accesses.
const SEED: u64 = 1;

/// A figure: its id, the batch, the size of pieces it allows, whether others allocate, and what it has to
/// reach.
struct Plan {
    id: &'static str,
    batch: Batch,
    allows: Option<usize>,
    beside_others: bool,
    reach: Reach,
}

const PLANS: [Plan; 4] = [
    Plan {
        id: "heap.contiguity.4",
        batch: Batch::Four,
        allows: Some(16 << 10),
        beside_others: true,
        reach: Reach::AtMost(0.25),
    },
    Plan {
        id: "heap.contiguity.16",
        batch: Batch::Sixteen,
        allows: Some(64 << 10),
        beside_others: true,
        reach: Reach::AtMost(0.09),
    },
    Plan {
        id: "heap.contiguity.machine",
        batch: Batch::Sixteen,
        allows: None,
        beside_others: true,
        reach: Reach::AtMost(0.09),
    },
    Plan {
        id: "heap.contiguity.alone",
        batch: Batch::Four,
        allows: Some(16 << 10),
        beside_others: false,
        reach: Reach::Shown,
    },
];

const CONFLICTS: &str = "heap.contiguity.conflicts";

/// Measures those that are wanted.
pub(super) fn run(bench: &Bench) -> Result<Vec<Figure>, BenchError> {
    let conflicts = bench.wants(CONFLICTS);
    let mut figures = Vec::new();
    for plan in PLANS {
        let simulates = conflicts && plan.id == "heap.contiguity.16";
        if !bench.wants(plan.id) && !simulates {
            continue;
        }
        let measured = match Frames::open() {
            None => Err("the kernel shows frame numbers to root only".to_owned()),
            Some(_) if bench.quick && plan.allows.is_some() => {
                Err("a quick run does not change the machine's settings".to_owned())
            }
            Some(frames) => match plan.allows.map(AllowedPieces::of).transpose() {
                Err(error) => Err(format!("pieces of this size cannot be allowed: {error}")),
                Ok(_allowed) => Ok(measure(bench, &plan, &frames)?),
            },
        };
        let (misses, conflict_misses, note) = match measured {
            Ok(measured) => measured,
            Err(why) => (Rounds::default(), Rounds::default(), format!("not measured: {why}")),
        };
        if bench.wants(plan.id) {
            let figure = Figure::beside(plan.id, RIVAL, "misses/1000", &misses, &plan.reach);
            figures.push(figure.with_note(note.clone()));
        }
        if simulates {
            let reach = Reach::AtMost(0.96);
            let figure = Figure::beside(CONFLICTS, RIVAL, "misses/1000", &conflict_misses, &reach);
            figures.push(figure.with_note(format!("simulated cache of 1 MiB, 8 ways; {note}")));
        }
    }
    Ok(figures)
}

/// Contiguity misses, simulated conflict misses, and a note.
fn measure(bench: &Bench, plan: &Plan, frames: &Frames) -> Result<(Rounds, Rounds, String), BenchError> {
    let neighbours = match plan.beside_others {
        true => Neighbours::start(bench.neighbour.as_deref())?,
        false => Neighbours::none(),
    };
    let (pids, kind) = (neighbours.pids(), neighbours.kind());
    let neighbours = RefCell::new(neighbours);
    let (ours, theirs) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let turn = |batch, conflicts: &RefCell<Vec<f64>>| {
        let lie = supplied(batch, frames, &mut neighbours.borrow_mut())?;
        let in_memory: Vec<u64> = lie.iter().copied().filter(|frame| *frame != 0).collect();
        conflicts.borrow_mut().push(colours::conflict_misses(&in_memory, SEED));
        let Misses { pairs, misses } = Misses::among(&lie);
        Ok(misses as f64 * 1e3 / pairs.max(1) as f64)
    };
    let measured =
        bench.alternate(bench.rounds, &pids, |_| turn(plan.batch, &ours), |_| turn(Batch::One, &theirs))?;
    let mut conflicts = Rounds::default();
    ours.borrow()
        .iter()
        .zip(theirs.borrow().iter())
        .for_each(|(ours, theirs)| conflicts.push(*ours, *theirs));
    let space = Space::new(Arc::new(Anonymous::new(PAGE)), Domain::Battery);
    let piece = space.piece(plan.batch.pages() as usize * PAGE);
    let pieces =
        piece.map_or("single pages only".to_owned(), |bytes| format!("pieces of {} KiB", bytes >> 10));
    Ok((measured.rounds, conflicts, format!("{pieces}; {kind}; {}", measured.others)))
}

/// Takes pages one by one from a supply of such batches, and stores to each: where they lie, in order.
fn supplied(batch: Batch, frames: &Frames, neighbours: &mut Neighbours) -> Result<Vec<u64>, BenchError> {
    // Room for batches that are set aside.
    let pages = PAGES + PAGES / 4;
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(pages as usize * PAGE)), Domain::Battery));
    let source = SpaceSource::new(space.clone());
    let mut supply = Supply::new(0..pages, &Options { batch, high: 0, low: 0 }, &source);
    let refused = |error: String| BenchError::while_("taking pages")(std::io::Error::other(error));
    let mut taken = Vec::new();
    for _ in 0..PAGES {
        let page = supply.take(1, 1, Purpose::Persistent, &source);
        let page = page.ok_or_else(|| refused(format!("the supply ended after {}", taken.len())))? as usize;
        space.store(page * PAGE, 1).map_err(|error| refused(error.to_string()))?;
        taken.push(page);
        neighbours.step()?;
    }
    taken.sort_unstable();
    let all = frames.of(&space, 0, pages as usize);
    let last = taken.last().copied().unwrap_or_default();
    let mut lie = vec![0; last + 1];
    taken.iter().for_each(|page| lie[*page] = all[*page]);
    Ok(lie)
}
