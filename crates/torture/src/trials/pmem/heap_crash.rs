//! Cuts the power of programs that allocate and free, at any step of them and of their recoveries.
//!
//! Objects are allocated, linked to roots, freed, resized, published in groups, beside reservations and volatile
//! capacity; small and large. A third of the histories begin with a worn log, whose segments are mostly garbage:
//! there the first calls compact it. Whatever a cut leaves, the heap knows exactly the objects of what had
//! returned, and of the call under way all or nothing; and the bytes of every object are its owner's.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use wattkeep_heap::{Capacity, Heap, HeapError, Options};
use wattkeep_persist::Space;
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::random::Random;

use super::cuts::{Cuts, Tried};
use super::versions_crash::domain;
use super::{check_heap, histories};
use crate::outcome::Outcome;
use crate::trials::Assignment;
use crate::trials::guard::Bad;

const SPACE_BYTES: usize = 2 << 20;
/// Calls of a short history and of a long one, at most.
const CALLS_MAX: [u64; 2] = [80, 3_000];
/// Calls of a program that goes on.
const CALLS_MORE: u64 = 30;
/// Images of one history.
const IMAGES: u64 = 160;
/// Sizes of small objects: few, so that a class's block fits the space.
const SMALL: [u64; 6] = [1, 16, 48, 100, 250, 1_000];
/// Sizes of large ones, and how many there are at a time.
const LARGE: [u64; 3] = [40_000, 66_000, 100_000];
const LARGE_MOST: usize = 4;
/// Objects at a time, beside those that a worn log begins with.
const OBJECTS_MOST: usize = 400;
/// Objects that wear a log, and their size: their records, and those of their blocks, fill all of the 16 segments
/// that it begins with but the two spare ones, so that the next group finds no room.
const WORN_OBJECTS: u64 = 14 * 504 - 8;
const WORN_BYTES: u64 = 16;
/// Calls of a history with a worn log, at most: it is compacted early.
const WORN_CALLS_MAX: u64 = 60;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let mut kinds = Kinds::default();
    let total = histories(assignment, outcome, |seed| history(seed, &mut kinds));
    outcome.note = format!(
        "{} histories, {} of them long, {} with a worn log, {} calls; {} segments compacted, {} images cut amid \
         compaction and {} behind it; {} cut inside recovery, up to {} stores on their way",
        kinds.histories,
        kinds.long,
        kinds.worn,
        kinds.calls,
        kinds.compacted,
        kinds.amid,
        kinds.behind,
        total.inside_recovery,
        total.pending_most
    );
}

#[derive(Default)]
struct Kinds {
    histories: u64,
    long: u64,
    worn: u64,
    calls: u64,
    compacted: u64,
    /// Images of a cut in a call that compacted, and of later ones.
    amid: u64,
    behind: u64,
}

/// What a call did to the objects, all at once.
#[derive(Clone, Debug, Default)]
struct Change {
    added: Vec<(u64, u64)>,
    removed: Vec<u64>,
    /// A root, and what it points to.
    linked: Option<(usize, u64)>,
}

/// Objects with their bytes, and roots.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    objects: BTreeMap<u64, u64>,
    roots: BTreeMap<usize, u64>,
}

impl State {
    fn apply(&mut self, change: &Change) {
        for at in &change.removed {
            self.objects.remove(at);
        }
        self.objects.extend(change.added.iter().copied());
        self.roots.extend(change.linked);
    }
}

/// A call: when it began, when it had returned, when its new objects were filled, and what it did.
struct Call {
    began: usize,
    returned: usize,
    filled: usize,
    change: Change,
}

/// A program: what it did, and what it has.
#[derive(Default)]
struct Program {
    calls: Vec<Call>,
    state: State,
    /// Volatile: reservations and capacity.
    reserved: Vec<u64>,
    capacity: Vec<Capacity>,
    tid: [u64; 3],
    /// What each lane freed, and may not be used again before it is retired.
    unretired: [Vec<u64>; 3],
    /// Objects that it began with.
    worn: usize,
    /// Calls that compacted the log, from their first step to their last.
    compacted: Vec<(usize, usize)>,
}

/// What its owner stores at both ends of an object.
fn mark(at: u64) -> u64 {
    at.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

fn root_name(number: usize) -> String {
    format!("root-{number}")
}

impl Program {
    fn any_object(&self, random: &mut Random) -> Option<(u64, u64)> {
        let count = self.state.objects.len() as u64;
        let number = random.below(count.max(1)) as usize;
        let object = self.state.objects.iter().nth(number).map(|(at, bytes)| (*at, *bytes))?;
        // Roots keep what they point to.
        (!self.state.roots.values().any(|at| *at == object.0)).then_some(object)
    }

    fn size(&self, random: &mut Random) -> u64 {
        let large = self.state.objects.values().filter(|bytes| **bytes >= LARGE[0]).count();
        if large < LARGE_MOST && random.chance(1, 12) {
            return LARGE[random.below(LARGE.len() as u64) as usize];
        }
        SMALL[random.below(SMALL.len() as u64) as usize]
    }

    /// Makes a call. `Ok(false)`: there was nothing to do it to, or no room.
    fn call(&mut self, heap: &Heap, now: &dyn Fn() -> usize, random: &mut Random) -> Result<bool, HeapError> {
        let mut change = Change::default();
        let began = now();
        let bytes = self.size(random);
        let full = self.state.objects.len() >= OBJECTS_MOST + self.worn;
        match random.below(20) {
            0..7 if !full => change.added.push((heap.alloc(bytes)?, bytes)),
            0..12 => {
                let Some((at, _)) = self.any_object(random) else { return Ok(false) };
                heap.free(at)?;
                change.removed.push(at);
            }
            12 | 13 => {
                let Some((at, _)) = self.any_object(random) else { return Ok(false) };
                let moved = heap.resize(at, bytes)?;
                change.removed.push(at);
                change.added.push((moved, bytes));
            }
            14..17 => self.publish(heap, random, &mut change)?,
            17 => self.reserved.push(heap.reserve(bytes)?),
            18 => match (self.reserved.pop(), self.capacity.pop()) {
                (Some(at), Some(capacity)) => {
                    heap.cancel(at)?;
                    heap.cap_free(capacity)?;
                }
                (reserved, capacity) => {
                    self.reserved.extend(reserved);
                    self.capacity.extend(capacity);
                    self.capacity.push(heap.cap_alloc(bytes)?);
                }
            },
            _ => {
                let number = self.state.roots.len();
                if number >= 12 {
                    return Ok(false);
                }
                // A cut may have left it without an object.
                let bytes = heap.root(&root_name(number))?.map_or(bytes, |root| root.size);
                let at = heap.persist_alloc(bytes, Some(&root_name(number)))?;
                change.added.push((at, bytes));
                change.linked = Some((number, at));
            }
        }
        let returned = now();
        for (at, _) in &change.added {
            let early = self.unretired.iter().any(|freed| freed.contains(at));
            assert!(!early, "{at:#x} is used again before the transaction that freed it is retired");
        }
        self.fill(heap, &change)?;
        self.state.apply(&change);
        self.calls.push(Call { began, returned, filled: now(), change });
        Ok(true)
    }

    /// Some reservations become objects, some objects are freed, as one.
    fn publish(&mut self, heap: &Heap, random: &mut Random, change: &mut Change) -> Result<(), HeapError> {
        let lane = random.below(3) as usize;
        for _ in 0..random.below(9) {
            let bytes = self.size(random);
            change.added.push((heap.reserve(bytes)?, bytes));
        }
        for _ in 0..random.below(9) {
            change.removed.extend(self.any_object(random).map(|(at, _)| at));
        }
        change.removed.sort_unstable();
        change.removed.dedup();
        self.tid[lane] += 1 + random.below(3);
        let allocated: Vec<_> = change.added.iter().map(|(at, _)| *at).collect();
        heap.publish(lane as u32, self.tid[lane], &allocated, &change.removed)?;
        // Published again, as a recovery would: nothing happens.
        heap.publish(lane as u32, self.tid[lane], &allocated, &change.removed)?;
        if random.chance(2, 3) {
            heap.retire(lane as u32, self.tid[lane])?;
            self.unretired[lane].clear();
        } else {
            self.unretired[lane].extend(&change.removed);
        }
        Ok(())
    }

    /// The owner's bytes: the first and the last word that fit.
    fn fill(&self, heap: &Heap, change: &Change) -> Result<(), HeapError> {
        let space = heap.space();
        for (at, bytes) in change.added.iter().filter(|(_, bytes)| *bytes >= 16) {
            for word in [*at, (at + bytes - 8) / 8 * 8] {
                space.store(word as usize, mark(*at))?;
                space.flush(word as usize, 8)?;
            }
        }
        space.fence();
        Ok(())
    }

    fn run(
        &mut self,
        heap: &Heap,
        calls: u64,
        now: &dyn Fn() -> usize,
        random: &mut Random,
    ) -> Result<(), String> {
        for _ in 0..calls {
            let (began, compacted) = (now(), heap.compacted());
            let called = self.call(heap, now, random);
            if heap.compacted() > compacted {
                self.compacted.push((began, now()));
            }
            match called {
                Ok(_) | Err(HeapError::OutOfSpace { .. }) => {}
                Err(error) => return Err(format!("call {}: {error}", self.calls.len())),
            }
        }
        Ok(())
    }

    /// Fills the log's segments with records, and makes most of them garbage, before the history begins.
    fn wear(&mut self, heap: &Heap, random: &mut Random) -> Result<(), HeapError> {
        let allocated = (0..WORN_OBJECTS).map(|_| Ok((heap.alloc(WORN_BYTES)?, WORN_BYTES)));
        let added: Vec<_> = allocated.collect::<Result<_, HeapError>>()?;
        let change = Change { added, ..Change::default() };
        self.fill(heap, &change)?;
        let kept = 5 + random.below(25);
        let all = change.added.iter().map(|(at, _)| *at);
        let removed: Vec<_> = all.filter(|_| !random.chance(kept, 100)).collect();
        removed.iter().try_for_each(|at| heap.free(*at))?;
        for change in [change, Change { removed, ..Change::default() }] {
            self.state.apply(&change);
            self.calls.push(Call { began: 0, returned: 0, filled: 0, change });
        }
        self.worn = self.state.objects.len();
        Ok(())
    }

    /// What the first so many calls left.
    fn state_after(&self, calls: usize) -> State {
        let mut state = State::default();
        self.calls[..calls].iter().for_each(|call| state.apply(&call.change));
        state
    }

    /// The heap in the space is what had returned by the step left, or the call under way. The answer says
    /// which, as a number that is different if the states are.
    fn examine(&self, space: Arc<Space>, step: usize) -> Result<u64, Bad> {
        let heap = Heap::open(space).map_err(|error| Bad::Lost(format!("the heap is refused: {error}")))?;
        heap.settle().map_err(|error| Bad::Violated(error.to_string()))?;
        let done = self.calls.partition_point(|call| call.returned <= step);
        let under_way = self.calls.get(done).is_some_and(|call| call.began <= step);
        let mut why = String::new();
        for calls in done..=done + usize::from(under_way) {
            let state = self.state_after(calls);
            match self.compare(&heap, &state) {
                Ok(()) => {
                    let filled = self.calls.partition_point(|call| call.filled <= step).min(calls);
                    check_heap(&heap, state.objects.len() as u64).map_err(Bad::Lost)?;
                    check_marks(&heap, &state, &self.state_after(filled)).map_err(Bad::Lost)?;
                    return Ok(state.objects.keys().fold(state.roots.len() as u64, |sum, at| {
                        sum.wrapping_mul(31).wrapping_add(mark(*at))
                    }));
                }
                Err(cause) => why = format!("{why}; after call {calls}: {cause}"),
            }
        }
        Err(Bad::Lost(format!("{done} calls had returned{why}")))
    }

    fn compare(&self, heap: &Heap, expected: &State) -> Result<(), String> {
        let ever = self.calls.iter().flat_map(|call| &call.change.added).map(|(at, _)| *at);
        for at in ever {
            let wanted = expected.objects.contains_key(&at);
            if heap.is_allocated(at) != wanted {
                return Err(format!(
                    "the object at {at:#x} is {} there",
                    if wanted { "not" } else { "still" }
                ));
            }
        }
        for (at, bytes) in &expected.objects {
            let usable = heap.usable_size(*at).map_err(|error| error.to_string())?;
            if usable < *bytes {
                return Err(format!("the object at {at:#x} holds {usable} bytes of {bytes}"));
            }
        }
        for number in 0..12 {
            let root = heap.root(&root_name(number)).map_err(|error| error.to_string())?;
            let word = root.map_or(Ok(0), |root| heap.space().load(root.word.offset() as usize));
            let word = word.map_err(|error| error.to_string())?;
            let wanted = expected.roots.get(&number).copied().unwrap_or(0);
            if word != wanted {
                return Err(format!("root {number} points to {word:#x}, not {wanted:#x}"));
            }
        }
        Ok(())
    }
}

/// Objects that were filled, and are still there, hold what they were filled with.
fn check_marks(heap: &Heap, state: &State, filled: &State) -> Result<(), String> {
    let both = filled.objects.iter().filter(|(at, bytes)| state.objects.get(*at) == Some(*bytes));
    for (at, bytes) in both.filter(|(_, bytes)| **bytes >= 16) {
        for word in [*at, (at + bytes - 8) / 8 * 8] {
            let found = heap.space().load(word as usize).map_err(|error| error.to_string())?;
            if found != mark(*at) {
                return Err(format!("{found:#x} lies at {word:#x}, in the object at {at:#x}"));
            }
        }
    }
    Ok(())
}

/// A program that goes on with what was found: its calls are told from the bytes alone.
fn go_on(before: &Program, space: Arc<Space>, random: &mut Random) -> Result<(), Bad> {
    let heap = Heap::open(space.clone()).map_err(|error| Bad::Lost(error.to_string()))?;
    let mut program = Program::default();
    let found = before.calls.iter().flat_map(|call| &call.change.added);
    let found = found.copied().filter(|(at, _)| heap.is_allocated(*at));
    let mut change = Change { added: found.collect(), ..Change::default() };
    // Of several sizes that an object had, one that it certainly holds.
    change.added.iter_mut().for_each(|(at, bytes)| *bytes = (*bytes).min(heap.usable_size(*at).unwrap_or(0)));
    for number in 0..12 {
        let root = heap.root(&root_name(number)).map_err(|error| Bad::Lost(error.to_string()))?;
        let word = root.and_then(|root| heap.space().load(root.word.offset() as usize).ok());
        if let Some(at) = word.filter(|at| *at != 0) {
            program.state.roots.insert(number, at);
        }
    }
    let roots = std::mem::take(&mut program.state.roots);
    program.state.apply(&change);
    program.fill(&heap, &change).map_err(|error| Bad::Violated(error.to_string()))?;
    program.calls.push(Call { began: 0, returned: 0, filled: 0, change });
    program.calls.extend(roots.iter().map(|(number, at)| {
        let change = Change { linked: Some((*number, *at)), ..Change::default() };
        Call { began: 0, returned: 0, filled: 0, change }
    }));
    program.state.roots = roots;
    let lanes = [0, 1, 2].map(|lane| heap.published(lane).unwrap_or(0));
    program.tid = lanes;
    program
        .run(&heap, CALLS_MORE, &|| 0, random)
        .map_err(|cause| Bad::Violated(format!("going on: {cause}")))?;
    drop(heap);
    program.examine(space, 0).map(drop)
}

fn history(seed: u64, kinds: &mut Kinds) -> Result<Tried, Bad> {
    let random = &mut Random::new(seed);
    let worn = random.chance(1, 3);
    let long = !worn && random.chance(1, 4);
    let calls = 1 + random.below(if worn { WORN_CALLS_MAX } else { CALLS_MAX[usize::from(long)] });
    kinds.histories += 1;
    kinds.long += u64::from(long);
    kinds.worn += u64::from(worn);
    let dimm = Dimm::new(SPACE_BYTES, domain(random));
    let options = Options { log_area_bytes: 0, guard: random.chance(1, 4), ..Options::default() };
    let broken = |error: HeapError| Bad::Violated(error.to_string());
    let mut program = Program::default();
    let heap = Heap::create(dimm.boot().0, &options).map_err(broken)?;
    if worn {
        program.wear(&heap, random).map_err(broken)?;
    }
    drop(heap);
    let rewind = dimm.before();
    let (space, cache) = dimm.boot();
    let heap = Heap::open(space).map_err(broken)?;
    program.run(&heap, calls, &|| cache.now(), random).map_err(Bad::Violated)?;
    kinds.calls += program.calls.len() as u64;
    kinds.compacted += heap.compacted();
    drop(heap);
    let more = random.number();
    let (amid, behind) = (Cell::new(0), Cell::new(0));
    let examine = |space: Arc<Space>, step: usize| {
        let inside = program.compacted.iter().any(|(began, ended)| *began < step && step < *ended);
        let after = program.compacted.first().is_some_and(|(_, ended)| *ended <= step);
        amid.set(amid.get() + u64::from(inside));
        behind.set(behind.get() + u64::from(after && !inside));
        program.examine(space, step)
    };
    let go_on = |space: Arc<Space>, found: u64| go_on(&program, space, &mut Random::new(more ^ found));
    let history = cache.history();
    let cuts = Cuts { dimm: &dimm, rewind, history, from: 0, examine: &examine, go_on: &go_on };
    let tried = cuts.run(IMAGES, random)?;
    kinds.amid += amid.get();
    kinds.behind += behind.get();
    Ok(tried)
}
