//! Versioned objects in transactions, with logged words and allocations beside them: all of it or nothing.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use common::{BOTH, Ground, SPACE_BYTES, logging, memory};
use wattkeep_persist::{DomainKind, Ptr};
use wattkeep_sim::cache::{Cache, Dimm, Event, Step};
use wattkeep_sim::random::{Random, seed_from_environment};
use wattkeep_tx::versions::{Pace, Persistence, Versioned, VersionedObjects, Versions, VersionsError};
use wattkeep_tx::{Logging, Options, TxError};

const OBJECTS: u64 = 5;
const BY_HAND: Persistence = Persistence::ByHand(Pace { threshold: 1.0, behind_max: 3 });

/// A line and a bit.
type Value = [u64; 9];

/// Every word tells which transaction wrote it.
fn value(number: u64) -> Value {
    if number == 0 { [0; 9] } else { std::array::from_fn(|word| number << 8 | word as u64) }
}

/// The parts of the heap that transactions change.
const ROW: usize = 0;
const EACH: usize = 1;
const LATER: usize = 2;
const PARTS: usize = 3;

/// What one transaction does: the parts it changes, with an allocation or without; and whether it ends well.
#[derive(Clone, Copy, Debug)]
struct Plan {
    parts: [bool; PARTS],
    allocates: bool,
    ends: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Commit,
    Abort,
    Panic,
}

impl Plan {
    fn new(random: &mut Random) -> Self {
        let parts = [
            [false, false, true],
            [false, false, true],
            [false, true, false],
            [true, true, false],
            [true, false, true],
            [false, true, true],
            [true, true, true],
            [true, false, false],
        ];
        let parts = parts[random.below(8) as usize];
        let ends = [End::Commit, End::Commit, End::Commit, End::Abort, End::Panic];
        Self { parts, allocates: random.below(2) == 0, ends: ends[random.below(5) as usize] }
    }
}

/// A heap with a row of words, which leads to an object; and two kinds of versioned objects.
struct Program {
    ground: Ground,
    each: Versioned<Value>,
    later: Versioned<Value>,
}

impl Program {
    fn start(dimm: &Dimm, options: &Options, make: bool) -> (Self, Arc<Cache>) {
        let (space, cache) = dimm.boot();
        if make {
            drop(Ground::make(&space, options).expect("made"));
        }
        let ground = Ground::open(&space, options).expect("opened");
        let open = |name, versions, persistence| {
            Versioned::open_or_create_root(&ground.manager, name, OBJECTS, versions, persistence)
        };
        let each = open("each", Versions::Three, Persistence::Each).expect("opened");
        let later = open("later", Versions::Two, BY_HAND).expect("opened");
        (Self { ground, each, later }, cache)
    }

    /// What every part holds: whole, or it panics.
    fn parts(&self) -> [Vec<u64>; PARTS] {
        let objects = |versioned: &Versioned<Value>| -> Vec<u64> {
            let numbers = (0..OBJECTS).map(|object| {
                let found = versioned.read(object).expect("an object");
                assert_eq!(found, value(found[0] >> 8), "object {object} is torn");
                found[0] >> 8
            });
            numbers.collect()
        };
        let at = self.ground.read(1);
        let linked = if at == 0 { 0 } else { self.ground.space().load(at as usize).expect("inside") };
        assert!(at == 0 || self.ground.manager.heap().is_allocated(at), "{at:#x} is linked, not allocated");
        [vec![self.ground.read(0), linked], objects(&self.each), objects(&self.later)]
    }

    /// Makes a transaction. Whether it committed.
    fn run(&self, number: u64, plan: Plan, random: &mut Random) -> bool {
        let before = self.parts();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            self.ground.manager.run(|tx| {
                for (part, versioned) in [(EACH, &self.each), (LATER, &self.later)] {
                    for _ in 0..if plan.parts[part] { 1 + random.below(3) } else { 0 } {
                        let object = random.below(OBJECTS);
                        versioned.write(tx, object, &value(number))?;
                        assert_eq!(versioned.read_in(tx, object)?, value(number), "its own write");
                        let outside = versioned.read(object)?[0] >> 8;
                        assert_eq!(outside, before[part][object as usize], "others see what was committed");
                    }
                }
                if plan.parts[ROW] {
                    tx.write_word(self.ground.word(0), number)?;
                    if plan.allocates {
                        let old = tx.read_word(self.ground.word(1))?;
                        let new = tx.alloc(&number)?;
                        tx.write_word(self.ground.word(1), new.offset())?;
                        if old != 0 {
                            tx.free(Ptr::<u64>::at(old))?;
                        }
                    }
                }
                match plan.ends {
                    End::Commit => Ok(()),
                    End::Abort => Err(TxError::Aborted),
                    End::Panic => resume_unwind(Box::new(End::Panic)),
                }
            })
        }));
        match (ran, plan.ends) {
            (Ok(Ok(())), End::Commit) => true,
            (Ok(Err(TxError::Aborted)), End::Abort) => self.unchanged(&before),
            (Err(payload), End::Panic) if payload.is::<End>() => self.unchanged(&before),
            (Err(payload), _) => resume_unwind(payload),
            (Ok(answer), _) => panic!("transaction {number}: {answer:?}"),
        }
    }

    fn unchanged(&self, before: &[Vec<u64>; PARTS]) -> bool {
        assert_eq!(self.parts(), *before, "nothing remains");
        false
    }
}

/// What transactions left of one part, and what was promised when.
#[derive(Clone, Default)]
struct Part {
    /// Number of the transaction, and what the part held then.
    states: Vec<(u64, Vec<u64>)>,
    /// From this step on, all up to this transaction survive.
    promised: Vec<(usize, u64)>,
}

#[derive(Clone, Default)]
struct Story {
    parts: [Part; PARTS],
    /// Those that changed several parts.
    mixed: Vec<(u64, [bool; PARTS])>,
    steps: Vec<Step>,
}

impl Story {
    fn begin(program: &Program) -> Self {
        let mut story = Self::default();
        for (part, state) in story.parts.iter_mut().zip(program.parts()) {
            part.states.push((0, state));
        }
        story
    }

    /// Makes transactions.
    fn go_on(
        &mut self,
        program: &Program,
        numbers: std::ops::Range<u64>,
        random: &mut Random,
        now: &dyn Fn() -> usize,
    ) {
        for number in numbers {
            let plan = Plan::new(random);
            if !program.run(number, plan, random) {
                continue;
            }
            let state = program.parts();
            for (part, state) in (0..PARTS).zip(state).filter(|(part, _)| plan.parts[*part]) {
                self.parts[part].states.push((number, state));
                if part != LATER || plan.parts != [false, false, true] {
                    self.parts[part].promised.push((now(), number));
                }
            }
            if plan.parts.iter().filter(|changed| **changed).count() > 1 {
                self.mixed.push((number, plan.parts));
            }
            if random.below(2) == 0 {
                program.later.persist_some(random.below(3) as usize).expect("persisted");
            }
            let later = &mut self.parts[LATER];
            let (durable, _) = later.states[later.states.len() - 1 - program.later.behind() as usize];
            later.promised.push((now(), durable));
        }
    }

    /// An error unless `found` is what a cut after `step` may leave.
    fn judge(&self, step: usize, found: &[Vec<u64>; PARTS]) -> Result<(), String> {
        let mut numbers = [0; PARTS];
        for ((part, found), number) in self.parts.iter().zip(found).zip(&mut numbers) {
            let state = part.states.iter().find(|(_, state)| state == found);
            *number = state.ok_or_else(|| format!("{found:?} never was"))?.0;
            let promised = part.promised.iter().filter(|(at, _)| *at <= step).map(|(_, number)| *number);
            let promised = promised.max().unwrap_or(0);
            if *number < promised {
                return Err(format!("{found:?} is older than transaction {promised}"));
            }
        }
        for (number, parts) in &self.mixed {
            let mut has = (0..PARTS).filter(|part| parts[*part]).map(|part| numbers[part] >= *number);
            let first = has.next();
            if has.any(|other| Some(other) != first) {
                return Err(format!("transaction {number} is there in part: {numbers:?}"));
            }
        }
        Ok(())
    }
}

/// Opens what a cut left, judges it, and lets the program go on.
fn examine(dimm: &Dimm, options: &Options, story: &Story, step: usize, more: bool) -> Result<(), String> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let (program, _) = Program::start(dimm, options, false);
        story.judge(step, &program.parts())?;
        if !more {
            return Ok(());
        }
        let mut second = Story::begin(&program);
        second.go_on(&program, 1000..1004, &mut Random::new(step as u64), &|| 0);
        let end = program.parts();
        drop(program);
        let found = Program::start(dimm, options, false).0.parts();
        if found == end { Ok(()) } else { Err(format!("a second life left {found:?}, not {end:?}")) }
    }));
    checked.unwrap_or_else(|_| Err("torn, or refused".into()))
}

/// Cuts a history of transactions after every step.
fn cut(kind: DomainKind, options: &Options, seed: u64, edit: impl Fn(&mut Story)) -> Result<(), String> {
    let mut random = Random::new(seed);
    let dimm = Dimm::new(SPACE_BYTES, kind);
    let (program, _) = Program::start(&dimm, options, true);
    // So that the log holds old records, and every version was written.
    Story::begin(&program).go_on(&program, 500..506, &mut random, &|| 0);
    drop(program);
    let mut rewind = dimm.before();
    let (program, cache) = Program::start(&dimm, options, false);
    let mut story = Story::begin(&program);
    story.go_on(&program, 1..8, &mut random, &|| cache.now());
    // Before it ends, which makes everything durable.
    story.steps = cache.history();
    drop(program);
    edit(&mut story);
    for step in 0..=story.steps.len() {
        rewind.moment.advance(&story.steps, step);
        let image = rewind.moment.sample(&mut random);
        dimm.load(&mut rewind, &image);
        let before = random.chance(1, 8).then(|| dimm.before());
        let told = |why| format!("{kind} {:?} seed {seed} step {step}: {why}", options.logging);
        let Some(mut again) = before else {
            examine(&dimm, options, &story, step, random.chance(1, 4)).map_err(told)?;
            continue;
        };
        // The recovery is cut, too.
        let opened = catch_unwind(AssertUnwindSafe(|| Program::start(&dimm, options, false)));
        let (program, cache) = opened.map_err(|_| told("refused".into()))?;
        let recovery = cache.history();
        drop(program);
        let mut steps: Vec<_> = (0..4).map(|_| random.below(recovery.len() as u64 + 1) as usize).collect();
        steps.sort_unstable();
        for second in steps {
            again.moment.advance(&recovery, second);
            let image = again.moment.sample(&mut random);
            dimm.load(&mut again, &image);
            let cut = examine(&dimm, options, &story, step, false);
            cut.map_err(|why| told(format!("recovery cut at {second}: {why}")))?;
        }
    }
    Ok(())
}

fn cut_stories(kind: DomainKind, seeds: u64) {
    let first = seed_from_environment(1);
    for mode in BOTH {
        for seed in first..first + seeds {
            let truncate_bytes = if seed % 2 == 0 { 600 } else { 1 << 20 };
            cut(kind, &Options { truncate_bytes, ..logging(mode) }, seed, |_| {})
                .unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn a_cut_at_any_store_behind_a_cache_leaves_whole_transactions() {
    cut_stories(DomainKind::Adr, 3);
}

#[test]
fn a_cut_at_any_store_in_the_other_domains_leaves_whole_transactions() {
    [DomainKind::Battery, DomainKind::Eadr].into_iter().for_each(|kind| cut_stories(kind, 2));
    cut_stories(DomainKind::File, 1);
}

/// The checker must be able to fail: without flushes, or without fences, ADR keeps no promise.
#[test]
fn a_history_without_flushes_or_fences_is_caught() {
    for missing in ["flushes", "fences"] {
        let caught = (1..=8).any(|seed| {
            let without = |story: &mut Story| {
                let kept = story.steps.iter().enumerate().filter(|(_, step)| match step.event {
                    Event::Flush(_) => missing != "flushes",
                    Event::Fence => missing != "fences",
                    Event::Store(_) => true,
                });
                let (numbers, steps): (Vec<_>, Vec<_>) = kept.map(|(i, step)| (i + 1, *step)).unzip();
                for (at, _) in story.parts.iter_mut().flat_map(|part| &mut part.promised) {
                    *at = numbers.partition_point(|number| number <= at);
                }
                story.steps = steps;
            };
            cut(DomainKind::Adr, &logging(Logging::Redo), seed, without).is_err()
        });
        assert!(caught, "no seed shows that {missing} are missing");
    }
}

fn versioned(ground: &Ground, persistence: Persistence) -> Versioned<Value> {
    let manager = &ground.manager;
    Versioned::open_or_create_root(manager, "objects", OBJECTS, Versions::Three, persistence).expect("opened")
}

/// Alone, a transaction goes at the pace of the objects; with anything beside, it is durable with all before.
#[test]
fn a_transaction_that_changes_more_than_decoupled_objects_ends_their_epoch() {
    for mode in BOTH {
        for persistence in [BY_HAND, Persistence::Decoupled(Pace { threshold: 0.2, behind_max: 1000 })] {
            let ground = Ground::in_memory(&logging(mode));
            let objects = versioned(&ground, persistence);
            let write = |number: u64, beside: bool| {
                let run = ground.manager.run(|tx| {
                    objects.write(tx, number % OBJECTS, &value(number))?;
                    if beside { tx.write_word(ground.word(0), number) } else { Ok(()) }
                });
                run.expect("committed");
            };
            write(1, false);
            write(2, false);
            assert!(objects.behind() > 0, "{persistence:?}");
            write(3, true);
            assert_eq!(objects.behind(), 0, "{persistence:?}");
            let logged = ground.manager.logged();
            write(4, false);
            assert_eq!(ground.manager.logged(), logged, "nothing was logged");
            write(5, true);
            // Undo logs the row's word and the epoch at once, redo at the commit.
            assert_eq!((ground.manager.logged() - logged).word_records, 2);
            objects.sync().expect("durable");
            (6..200).for_each(|number| write(number, number % 7 == 0));
            objects.sync().expect("durable");
            for object in 0..OBJECTS {
                let number = (0..200).rev().find(|number| number % OBJECTS == object).expect("one");
                assert_eq!(objects.read(object).expect("read"), value(number));
            }
        }
    }
}

#[test]
fn fences_are_those_that_the_documents_say() {
    for (mode, mixed) in [(Logging::Redo, 2), (Logging::Undo, 4)] {
        let space = memory(DomainKind::Adr);
        let ground = Ground::make(&space, &logging(mode)).expect("made");
        let objects = versioned(&ground, Persistence::Each);
        for (beside, fences) in [(false, 2), (true, mixed)] {
            let before = space.counted().fences;
            ground
                .manager
                .run(|tx| {
                    objects.write(tx, 1, &value(1))?;
                    if beside { tx.write_word(ground.word(0), 1) } else { Ok(()) }
                })
                .expect("committed");
            assert_eq!(space.counted().fences - before, fences, "{mode:?}, beside a word: {beside}");
        }
    }
}

#[test]
fn a_nested_transaction_that_fails_takes_the_objects_back_too() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let objects = versioned(&ground, Persistence::Each);
        let outer = ground.manager.run(|tx| {
            objects.write(tx, 0, &value(1))?;
            let inner: Result<(), TxError> = ground.manager.run(|tx| {
                objects.write(tx, 0, &value(2))?;
                objects.write(tx, 1, &value(2))?;
                Err(TxError::Aborted)
            });
            assert!(matches!(inner, Err(TxError::Aborted)));
            objects.write(tx, 2, &value(1))
        });
        assert!(matches!(outer, Err(TxError::Doomed)));
        assert!((0..OBJECTS).all(|object| objects.read(object).expect("read") == value(0)));
    }
}

#[test]
fn a_transaction_that_the_log_refuses_takes_the_objects_back() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let objects = versioned(&ground, Persistence::Each);
        let row = vec![7; 20_000];
        let refused = ground.manager.run(|tx| {
            objects.write(tx, 0, &value(1))?;
            tx.write_bytes(ground.space().len() as u64 - 20_000, &row)
        });
        assert!(matches!(refused, Err(TxError::TooLarge { .. })), "{refused:?}");
        assert_eq!(objects.read(0).expect("read"), value(0));
        ground.manager.run(|tx| objects.write(tx, 0, &value(2))).expect("the objects are well");
        assert_eq!(objects.read(0).expect("read"), value(2));
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let ground = Ground::in_memory(&logging(Logging::Redo));
    let objects = versioned(&ground, BY_HAND);
    let refused = |answer: Result<(), TxError>| match answer {
        Err(TxError::Versions(why)) => why,
        other => panic!("{other:?}"),
    };
    let manager = &ground.manager;
    let again = Versioned::<Value>::open(manager, objects.ptr(), BY_HAND);
    let at = objects.ptr().offset();
    assert_eq!(refused(again.map(drop)), VersionsError::AlreadyOpen { at });
    let no_object = VersionsError::NoObject { object: OBJECTS, objects: OBJECTS };
    assert_eq!(refused(manager.run(|tx| objects.write(tx, OBJECTS, &value(1)))), no_object);
    manager
        .run(|tx| {
            objects.write(tx, 0, &value(1))?;
            assert_eq!(refused(objects.sync()), VersionsError::Busy);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| refused(manager.run(|tx| objects.write(tx, 0, &value(2)))));
                assert_eq!(other.join().expect("no panic"), VersionsError::Busy);
            });
            Ok::<_, TxError>(())
        })
        .expect("committed");
    let other = Ground::in_memory(&logging(Logging::Redo));
    let foreign = other.manager.run(|tx| objects.write(tx, 0, &value(3)));
    assert_eq!(refused(foreign), VersionsError::OtherHeap);
    let ptr = objects.ptr();
    drop(objects);
    // The log is to be recovered first: so not without a manager.
    let place = (at as usize).next_multiple_of(64);
    let without = VersionedObjects::open(manager.heap().space().clone(), place, Persistence::Each);
    assert_eq!(without.map(drop), Err(VersionsError::NeedsTransactions { at: place }));
    let small = Versioned::<[u64; 8]>::open(manager, ptr.cast(), BY_HAND);
    assert!(matches!(refused(small.map(drop)), VersionsError::OtherShape { .. }));
    let fewer = Versioned::<Value>::open_or_create_root(manager, "objects", 4, Versions::Three, BY_HAND);
    assert!(matches!(refused(fewer.map(drop)), VersionsError::OtherShape { .. }));
    let nothing = Versioned::<Value>::open(manager, Ptr::at(at + 64), BY_HAND);
    assert!(matches!(nothing, Err(TxError::NotAllocated { .. })));
}

#[test]
fn objects_are_made_and_destroyed_by_transactions() {
    for mode in BOTH {
        let ground = Ground::in_memory(&logging(mode));
        let manager = &ground.manager;
        let mut made = None;
        let failed: Result<(), TxError> = manager.run(|tx| {
            let ptr = Versioned::<Value>::create(tx, OBJECTS, Versions::Two)?;
            let early = Versioned::open(manager, ptr, Persistence::Each);
            assert!(matches!(early, Err(TxError::NotAllocated { .. })), "not before it has committed");
            made = Some(ptr);
            Err(TxError::Aborted)
        });
        assert!(failed.is_err());
        let never = Versioned::open(manager, made.expect("made"), Persistence::Each);
        assert!(matches!(never, Err(TxError::NotAllocated { .. })));

        let decoupled = Persistence::Decoupled(Pace::default());
        let ptr = manager.run(|tx| Versioned::<Value>::create(tx, OBJECTS, Versions::Two)).expect("made");
        let objects = Versioned::open(manager, ptr, decoupled).expect("opened");
        manager.run(|tx| objects.write(tx, 3, &value(1))).expect("committed");
        let second = objects.clone();
        let failed: Result<(), TxError> = manager.run(|tx| {
            objects.destroy(tx)?;
            assert!(matches!(second.read(3), Err(TxError::Versions(VersionsError::Destroyed))));
            Err(TxError::Aborted)
        });
        assert!(failed.is_err());
        assert_eq!(second.read(3).expect("read"), value(1));
        let third = second.clone();
        manager.run(|tx| second.destroy(tx)).expect("destroyed");
        let answer = manager.run(|tx| third.write(tx, 0, &value(2)));
        assert!(matches!(answer, Err(TxError::Versions(VersionsError::Destroyed))));
        assert!(!manager.heap().is_allocated(ptr.offset()));
    }
}
