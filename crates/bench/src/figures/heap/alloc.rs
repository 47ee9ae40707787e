//! Frees and allocations over slots that are always full: what a long-running program does.
//!
//! A turn replaces the objects of random slots, one pair of calls each. Objects are not touched: what the
//! allocators themselves touch counts.

use std::path::Path;
use std::time::{Duration, Instant};

use wattkeep_heap::Heap;

use crate::figures::places::{Place, Stand, new_heap};
use crate::figures::rounds::Side;
use crate::figures::{Bench, BenchError, Scratch};
use crate::measure::{Figure, Reach};
use crate::rival::{self, Absent, Allocator, TMPFS};

/// Objects that are there at any time: what is known of them stays in the processor's caches.
const SLOTS: usize = 10_000;
/// And what does not.
const MANY_SLOTS: usize = 1_000_000;
const QUICK_SLOTS: usize = 500;

/// Pairs between two looks at the clock, where a pair takes nanoseconds.
const PAIRS_AT_ONCE: usize = 1_000;

const OURS: &str = "the heap";
const MIMALLOC: &str = "mimalloc, volatile";
const PMDK: &str = "libpmemobj on tmpfs, forced pmem";
const POOL_BYTES: usize = 256 << 20;

const UNIT: &str = "Mpairs/s";

/// Sizes and number of the objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// 64 bytes.
    Line,
    /// 16 to 4,095 bytes, as many of each doubling.
    Mixed,
    /// 64 bytes, a million of them.
    Million,
}

impl Load {
    fn slots(self) -> usize {
        match self {
            Self::Line | Self::Mixed => SLOTS,
            Self::Million => MANY_SLOTS,
        }
    }

    /// Where it is measured. A file is synced at each step: a million objects would take hours.
    fn places(self) -> Vec<Place> {
        Place::ALL.into_iter().filter(|place| *place != Place::File || self != Self::Million).collect()
    }

    /// What the ids of its figures have behind the rival.
    fn suffix(self) -> &'static str {
        match self {
            Self::Line => "",
            Self::Mixed => ".mixed",
            Self::Million => ".million",
        }
    }
}

/// Slots and sizes, in an order that looks random: the same for all.
#[derive(Clone)]
pub(super) struct Stream {
    state: u64,
    slots: u64,
    load: Load,
}

impl Stream {
    pub(super) fn new(slots: usize, load: Load) -> Self {
        Self { state: 0x9E37_79B9_7F4A_7C15, slots: slots as u64, load }
    }

    #[inline]
    pub(super) fn next(&mut self) -> (usize, usize) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let random = self.state;
        let slot = ((random >> 32) * self.slots) >> 32;
        let bytes = match self.load {
            Load::Line | Load::Million => 64,
            Load::Mixed => {
                let doubling = 16 << (random & 7);
                doubling + (random >> 3 & (doubling - 1))
            }
        };
        (slot as usize, bytes as usize)
    }
}

/// Our heap, with slots in DRAM as the rivals have them.
pub(super) struct Ours {
    pub(super) heap: Heap,
    slots: Vec<u64>,
}

impl Ours {
    /// `slots` empty slots.
    pub(super) fn new(heap: Heap, slots: usize) -> Self {
        Self { heap, slots: vec![0; slots] }
    }
}

impl Allocator for Ours {
    #[inline]
    fn replace(&mut self, slot: usize, bytes: usize) -> Result<(), Absent> {
        let held = std::mem::take(&mut self.slots[slot]);
        if held != 0 {
            self.heap.free(held).map_err(|error| error.to_string())?;
        }
        self.slots[slot] = self.heap.alloc(bytes as u64).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// What each side does in its turns.
#[derive(Clone)]
struct Turn {
    stream: Stream,
    slice: Duration,
    pairs_at_once: usize,
}

impl Turn {
    /// One who takes turns: replaces objects for as long as a slice lasts; millions of pairs a second.
    fn side<'a>(
        mut self,
        who: &'static str,
        mut heap: impl Allocator + 'a,
    ) -> Result<Side<'a, 1>, BenchError> {
        let failed = move |why| BenchError::Side { who, why };
        for slot in 0..self.stream.slots as usize {
            let (_, bytes) = self.stream.next();
            heap.replace(slot, bytes).map_err(failed)?;
        }
        // Neighbours are no longer of one time.
        for _ in 0..self.stream.slots {
            let (slot, bytes) = self.stream.next();
            heap.replace(slot, bytes).map_err(failed)?;
        }
        Ok(Box::new(move |_| {
            let began = Instant::now();
            let mut pairs = 0;
            while began.elapsed() < self.slice {
                for _ in 0..self.pairs_at_once {
                    let (slot, bytes) = self.stream.next();
                    heap.replace(slot, bytes).map_err(failed)?;
                }
                pairs += self.pairs_at_once;
            }
            Ok([pairs as f64 / began.elapsed().as_secs_f64() / 1e6])
        }))
    }

    /// Lets a rival take turns, if there is one: its number among the sides.
    fn join<'a>(
        &self,
        sides: &mut Vec<Side<'a, 1>>,
        who: &'static str,
        rival: Result<impl Allocator + 'a, Absent>,
    ) -> Result<Result<usize, Absent>, BenchError> {
        Ok(match rival {
            Ok(heap) => {
                sides.push(self.clone().side(who, heap)?);
                Ok(sides.len() - 1)
            }
            Err(why) => Err(why),
        })
    }
}

/// Rivals as ids call them, by name, and what we have to reach beside them.
const RIVALS: [(&str, &str, Reach); 2] =
    [("mimalloc", MIMALLOC, Reach::AtLeast(0.4)), ("pmdk", PMDK, Reach::AtLeast(10.0))];

fn id(load: Load, place: Place, rival: &str) -> String {
    format!("heap.alloc.{rival}{}{}", load.suffix(), place.suffix())
}

/// Measures all figures of allocation.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for load in [Load::Line, Load::Mixed, Load::Million] {
        figures.extend(run_load(bench, load)?);
    }
    Ok(figures)
}

fn run_load(bench: &mut Bench, load: Load) -> Result<Vec<Figure>, BenchError> {
    let wanted = |place: &Place| RIVALS.iter().any(|(rival, ..)| bench.wants(&id(load, *place, rival)));
    let places: Vec<Place> = load.places().into_iter().filter(wanted).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let slots = if bench.quick { QUICK_SLOTS } else { load.slots() };
    let turn = Turn { stream: Stream::new(slots, load), slice: bench.slice, pairs_at_once: PAIRS_AT_ONCE };
    let (mut stands, mut sides) = (Vec::new(), Vec::new());
    for place in &places {
        let stand = place.make(bench, &format!("alloc{}", load.suffix()))?;
        let ours = Ours::new(new_heap(&stand.space, bench)?, slots);
        let pairs_at_once = if *place == Place::File { 1 } else { PAIRS_AT_ONCE };
        sides.push(Turn { pairs_at_once, ..turn.clone() }.side(OURS, ours)?);
        stands.push(stand);
    }
    let scratch = Scratch::new(Path::new(TMPFS))?;
    let pool = rival::pmdk_heap(&scratch.path().join("pool"), POOL_BYTES, slots);
    let theirs = [
        turn.join(&mut sides, MIMALLOC, rival::mimalloc::<false>(slots))?,
        turn.join(&mut sides, PMDK, pool)?,
    ];
    let pids: Vec<u32> = stands.iter().filter_map(Stand::keeper_pid).collect();
    let turns = bench.take_turns(bench.rounds, &pids, sides)?;
    stands.into_iter().try_for_each(|stand| stand.close(bench))?;
    let mut figures = Vec::new();
    for (ours, place) in places.iter().enumerate() {
        for ((rival, name, reach), theirs) in RIVALS.iter().zip(&theirs) {
            let id = id(load, *place, rival);
            // The reach is for what an allocator does, not for how it waits for memory.
            let judged = *place == Place::Region && load != Load::Million;
            let reach = if judged { reach } else { &Reach::Shown };
            if bench.wants(&id) {
                figures.push(match theirs {
                    Ok(theirs) => Figure::beside(&id, name, UNIT, &turns.rounds(ours, *theirs, 0), reach)
                        .with_note(turns.others.clone()),
                    Err(why) => Figure::missing(&id, name, UNIT, reach, why),
                });
            }
        }
    }
    Ok(figures)
}
