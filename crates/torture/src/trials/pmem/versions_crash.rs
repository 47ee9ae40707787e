//! Cuts the power of programs that write versioned objects, at any step of them and of their recoveries.
//!
//! Operations write several objects, some are given up; the epochs are made persistent by each commit, by
//! hand in pieces, or by the thread. What is found must be exactly what some operation left, and no older
//! than what had been persistent.

use std::sync::Arc;

use wattkeep_persist::{DomainKind, Space};
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::random::Random;
use wattkeep_tx::versions::{Pace, Persistence, Shape, VersionedObjects, Versions};

use super::cuts::{Cuts, Tried};
use super::histories;
use super::timeline::Timeline;
use crate::outcome::Outcome;
use crate::trials::Assignment;
use crate::trials::guard::Bad;

/// Operations of one history, at most.
const OPERATIONS_MAX: u64 = 40;
/// Operations of a program that goes on.
const OPERATIONS_MORE: u64 = 6;
/// Images of one history.
const IMAGES: u64 = 160;
/// Objects, and bytes of each, at most.
const OBJECTS_MAX: u64 = 9;
const BYTES_MAX: u64 = 200;
/// Of so many operations one is given up.
const GIVEN_UP: u64 = 6;

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let mut kinds = [0u64; 3];
    let total = histories(assignment, outcome, |seed| history(seed, &mut kinds));
    let [each, by_hand, decoupled] = kinds;
    outcome.note = format!(
        "{each} histories with a commit each, {by_hand} by hand, {decoupled} decoupled; {} cut inside recovery, \
         up to {} stores on their way",
        total.inside_recovery, total.pending_most
    );
}

/// One program, as its seed makes it.
struct Program {
    seed: u64,
    shape: Shape,
    persistence: Persistence,
    operations: u64,
}

impl Program {
    fn new(seed: u64, random: &mut Random, kinds: &mut [u64; 3]) -> Self {
        let pace =
            Pace { threshold: [0.2, 0.6, 1.0][random.below(3) as usize], behind_max: 1 + random.below(12) };
        let kind = random.below(3) as usize;
        kinds[kind] += 1;
        Self {
            seed,
            shape: Shape {
                objects: 2 + random.below(OBJECTS_MAX - 1),
                object_bytes: 8 + random.below(BYTES_MAX),
                versions: [Versions::Two, Versions::Three][random.below(2) as usize],
            },
            persistence: [Persistence::Each, Persistence::ByHand(pace), Persistence::Decoupled(pace)][kind],
            operations: 1 + random.below(OPERATIONS_MAX),
        }
    }

    /// What operation `number` leaves of an object that it writes; it is the number in the first one.
    fn filling(&self, number: u64, object: u64) -> Vec<u8> {
        let mut random = Random::new(self.seed ^ number << 8 ^ object);
        let words = self.shape.object_bytes.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| random.number().to_le_bytes()).collect();
        if object == 0 {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes.truncate(self.shape.object_bytes as usize);
        bytes
    }

    /// Objects that operation `number` writes, and whether it is given up.
    fn operation(&self, number: u64) -> (Vec<u64>, bool) {
        let mut random = Random::new(self.seed.wrapping_mul(31) ^ number);
        let mut objects = vec![0];
        objects.extend((0..random.below(5)).map(|_| random.below(self.shape.objects)));
        (objects, random.chance(1, GIVEN_UP))
    }

    /// What all objects hold after the first so many operations.
    fn contents(&self, number: u64) -> Vec<Vec<u8>> {
        let mut contents = vec![vec![0; self.shape.object_bytes as usize]; self.shape.objects as usize];
        for number in 1..=number {
            let (objects, given_up) = self.operation(number);
            for object in objects.into_iter().filter(|_| !given_up) {
                contents[object as usize] = self.filling(number, object);
            }
        }
        contents
    }

    /// Runs it. The answer says what was begun and promised when.
    fn run(
        &self,
        space: Arc<Space>,
        now: &dyn Fn() -> usize,
        random: &mut Random,
    ) -> Result<Timeline, String> {
        let text = |error: wattkeep_tx::versions::VersionsError| error.to_string();
        let mut objects = VersionedObjects::open(space, 0, self.persistence).map_err(text)?;
        let mut timeline = Timeline::default();
        let mut committed = Vec::new();
        for number in 1..=self.operations {
            timeline.begin(now(), number);
            let (writes, given_up) = self.operation(number);
            let mut operation = objects.operation().map_err(text)?;
            for object in writes {
                operation.write(object, &self.filling(number, object)).map_err(text)?;
            }
            if given_up {
                drop(operation);
                continue;
            }
            operation.commit().map_err(text)?;
            committed.push(number);
            match random.below(8) {
                0 => objects.sync().map_err(text)?,
                1..4 => drop(objects.persist_some(random.below(4) as usize + 1).map_err(text)?),
                _ => {}
            }
            let persistent = committed.len().saturating_sub(objects.behind() as usize);
            if let Some(last) = persistent.checked_sub(1) {
                timeline.promise(now(), committed[last]);
            }
        }
        Ok(timeline)
    }

    /// Makes the operations behind the one that was found, and opens what they leave.
    fn go_on(&self, space: Arc<Space>, found: u64) -> Result<(), Bad> {
        let text = |error: wattkeep_tx::versions::VersionsError| Bad::Violated(error.to_string());
        let mut objects = VersionedObjects::open(space.clone(), 0, self.persistence).map_err(text)?;
        let mut timeline = Timeline::default();
        for number in found + 1..=found + OPERATIONS_MORE {
            timeline.begin(0, number);
            let (writes, given_up) = self.operation(number);
            let mut operation = objects.operation().map_err(text)?;
            for object in writes {
                operation.write(object, &self.filling(number, object)).map_err(text)?;
            }
            if !given_up {
                operation.commit().map_err(text)?;
                timeline.promise(0, number);
            }
        }
        drop(objects);
        self.examine(space, 0, &timeline).map(drop)
    }

    /// Opens what a cut left. The answer is the number of the last operation in it.
    fn examine(&self, space: Arc<Space>, step: usize, timeline: &Timeline) -> Result<u64, Bad> {
        let objects = VersionedObjects::open(space, 0, Persistence::Each)
            .map_err(|error| Bad::Lost(format!("refused: {error}")))?;
        let mut found = vec![vec![0; self.shape.object_bytes as usize]; self.shape.objects as usize];
        for (object, bytes) in (0..).zip(&mut found) {
            objects.read(object, bytes).map_err(|error| Bad::Lost(error.to_string()))?;
        }
        let number = u64::from_le_bytes(found[0][..8].try_into().expect("eight bytes"));
        timeline.judge(step, number).map_err(Bad::Lost)?;
        match found.iter().zip(self.contents(number)).position(|(found, expected)| *found != expected) {
            None => Ok(number),
            Some(object) => Err(Bad::Lost(format!("object {object} is not what operation {number} left"))),
        }
    }
}

/// Mostly the one where most can go wrong.
pub(super) fn domain(random: &mut Random) -> DomainKind {
    DomainKind::ALL.get(random.below(12) as usize).copied().unwrap_or(DomainKind::Adr)
}

fn history(seed: u64, kinds: &mut [u64; 3]) -> Result<Tried, Bad> {
    let random = &mut Random::new(seed);
    let program = Program::new(seed, random, kinds);
    let bytes = VersionedObjects::bytes(&program.shape).map_err(|error| Bad::Violated(error.to_string()))?;
    let dimm = Dimm::new(bytes, domain(random));
    let (space, _) = dimm.boot();
    drop(VersionedObjects::create(space, 0, &program.shape, Persistence::Each));
    let rewind = dimm.before();
    let (space, cache) = dimm.boot();
    let timeline = program.run(space, &|| cache.now(), random).map_err(Bad::Violated)?;
    let examine = |space: Arc<Space>, step: usize| program.examine(space, step, &timeline);
    let go_on = |space: Arc<Space>, number: u64| program.go_on(space, number);
    let history = cache.history();
    Cuts { dimm: &dimm, rewind, history, from: 0, examine: &examine, go_on: &go_on }.run(IMAGES, random)
}
