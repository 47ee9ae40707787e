//! Versioned objects after cuts at every store, and with every kind of loss that a cache allows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use wattkeep_persist::{Anonymous, Domain, DomainKind, Refused, Space};
use wattkeep_sim::cache::{Dimm, Event, Rewind, Step};
use wattkeep_sim::random::Random;
use wattkeep_tx::versions::{Pace, Persistence, Shape, VersionedObjects, Versions, VersionsError};

const OBJECTS: u64 = 5;
/// A line and a bit, so that a version can be torn between lines and inside of one.
const OBJECT_BYTES: usize = 72;
const BYTES: usize = 4096;
/// Not the beginning: places are offsets.
const AT: usize = 128;

const BY_HAND: Persistence = Persistence::ByHand(Pace { threshold: 1.0, behind_max: 4 });

fn shape(versions: Versions) -> Shape {
    Shape { objects: OBJECTS, object_bytes: OBJECT_BYTES as u64, versions }
}

/// The bytes that stand for a value: every word differs, and tells which value it belongs to.
fn bytes_of(value: u64) -> [u8; OBJECT_BYTES] {
    let mut bytes = [0; OBJECT_BYTES];
    if value > 0 {
        let words = bytes.as_chunks_mut::<8>().0.iter_mut().enumerate();
        words.for_each(|(i, word)| *word = (value << 8 | i as u64).to_le_bytes());
    }
    bytes
}

/// The values of all objects: whole, or it panics.
fn values(objects: &VersionedObjects) -> Vec<u64> {
    let value = |object| {
        let mut bytes = [0; OBJECT_BYTES];
        objects.read(object, &mut bytes).expect("an object");
        let value = u64::from_le_bytes(bytes[..8].try_into().expect("a word")) >> 8;
        assert_eq!(bytes, bytes_of(value), "object {object} is torn");
        value
    };
    (0..OBJECTS).map(value).collect()
}

/// What was true when so many steps had been taken.
struct Known {
    steps: usize,
    /// Operations that no cut may take back.
    persistent: usize,
}

/// A history of operations, and the state after each of them.
struct Story {
    history: Vec<Step>,
    known: Vec<Known>,
    states: Vec<Vec<u64>>,
    rewind: Rewind,
}

/// Operations on one to three objects, some undone, some twice on one object; in between the memory is
/// persisted by hand in small portions.
fn story(dimm: &Dimm, versions: Versions, persistence: Persistence, seed: u64) -> Story {
    let (space, _) = dimm.boot();
    drop(VersionedObjects::create(space, AT, &shape(versions), persistence).expect("made"));
    let rewind = dimm.before();
    let (space, cache) = dimm.boot();
    let mut objects = VersionedObjects::open(space, AT, persistence).expect("opened");
    let mut random = Random::new(seed);
    let mut state = values(&objects);
    let mut states = vec![state.clone()];
    let mut known = Vec::new();
    for value in 1..=25 {
        let mut operation = objects.operation().expect("nothing failed");
        let before = state.clone();
        for _ in 0..1 + random.below(3) {
            let object = random.below(OBJECTS);
            operation.write(object, &bytes_of(value)).expect("written");
            state[object as usize] = value;
        }
        if random.below(4) == 0 {
            drop(operation);
            state = before;
        } else {
            states.push(state.clone());
            operation.commit().expect("committed");
        }
        assert_eq!(values(&objects), state, "what was written is read, seed {seed}");
        let persistent = states.len() - 1 - objects.behind() as usize;
        known.push(Known { steps: cache.now(), persistent });
        if random.below(2) == 0 {
            objects.persist_some(random.below(3) as usize).expect("persisted");
        }
    }
    // Taken before the objects are dropped, which makes everything persistent.
    let history = cache.history();
    drop(objects);
    Story { history, known, states, rewind }
}

/// Boots from images after every step: how many, or the first wrong one.
fn cut_everywhere(dimm: &Dimm, story: &mut Story, versions: Versions, seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut images = 0;
    for step in 0..=story.history.len() {
        story.rewind.moment.advance(&story.history, step);
        let all = story.rewind.moment.images();
        for number in 0..all.min(6) {
            let image = if all <= 6 {
                story.rewind.moment.image(number)
            } else {
                story.rewind.moment.sample(&mut random)
            };
            dimm.load(&mut story.rewind, &image);
            let persistent = story.known.iter().rev().find(|known| known.steps <= step);
            let persistent = persistent.map_or(0, |known| known.persistent);
            let may_be = &story.states[persistent..];
            let verdict = catch_unwind(AssertUnwindSafe(|| reopen(dimm, versions, may_be)));
            match verdict {
                Ok(Ok(())) => images += 1,
                Ok(Err(why)) => return Err(format!("seed {seed}, step {step}, {image:?}: {why}")),
                Err(_) => return Err(format!("seed {seed}, step {step}, {image:?}: torn")),
            }
        }
    }
    Ok(images)
}

/// The objects hold one of the states, and can be used again: what a second life writes is found, too.
fn reopen(dimm: &Dimm, versions: Versions, may_be: &[Vec<u64>]) -> Result<(), String> {
    let (space, _) = dimm.boot();
    let open =
        |space| VersionedObjects::open(space, AT, Persistence::Each).map_err(|error| error.to_string());
    let mut objects = open(space.clone())?;
    assert_eq!(objects.shape(), shape(versions));
    let mut found = values(&objects);
    if !may_be.contains(&found) {
        return Err(format!("{found:?} is none of {may_be:?}"));
    }
    let mut operation = objects.operation().expect("nothing failed");
    operation.write(1, &bytes_of(999)).expect("written");
    operation.commit().expect("committed");
    found[1] = 999;
    drop(objects);
    let second = values(&open(space)?);
    if second == found { Ok(()) } else { Err(format!("a second life left {second:?}, not {found:?}")) }
}

fn cut_stories(kind: DomainKind) {
    for versions in [Versions::Two, Versions::Three] {
        for persistence in [Persistence::Each, BY_HAND] {
            for seed in 1..=5 {
                let dimm = Dimm::new(BYTES, kind);
                let mut story = story(&dimm, versions, persistence, seed);
                let images = cut_everywhere(&dimm, &mut story, versions, seed);
                let images =
                    images.unwrap_or_else(|why| panic!("{kind} {versions:?} {persistence:?}: {why}"));
                assert!(images >= story.history.len() as u64);
            }
        }
    }
}

#[test]
fn a_cut_at_any_store_behind_a_cache_leaves_the_persistent_versions_whole() {
    cut_stories(DomainKind::Adr);
}

#[test]
fn a_cut_at_any_store_in_the_other_domains_leaves_the_persistent_versions_whole() {
    [DomainKind::Battery, DomainKind::Eadr, DomainKind::File].into_iter().for_each(cut_stories);
}

/// The checker must be able to fail: without flushes, or without fences, ADR keeps no promise.
#[test]
fn a_history_without_flushes_or_fences_is_caught() {
    for missing in ["flushes", "fences"] {
        let caught = (1..=8).any(|seed| {
            let dimm = Dimm::new(BYTES, DomainKind::Adr);
            let mut story = story(&dimm, Versions::Three, Persistence::Each, seed);
            let kept = story.history.iter().enumerate().filter(|(_, step)| match step.event {
                Event::Flush(_) => missing != "flushes",
                Event::Fence => missing != "fences",
                Event::Store(_) => true,
            });
            let (numbers, history): (Vec<_>, Vec<_>) = kept.map(|(i, step)| (i + 1, *step)).unzip();
            for known in &mut story.known {
                known.steps = numbers.partition_point(|number| *number <= known.steps);
            }
            assert!(history.len() < story.history.len());
            story.history = history;
            cut_everywhere(&dimm, &mut story, Versions::Three, seed).is_err()
        });
        assert!(caught, "no seed shows that {missing} are missing");
    }
}

fn fresh(versions: Versions, persistence: Persistence) -> VersionedObjects {
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    VersionedObjects::create(space, AT, &shape(versions), persistence).expect("made")
}

fn write(objects: &mut VersionedObjects, object: u64, value: u64) {
    let mut operation = objects.operation().expect("nothing failed");
    operation.write(object, &bytes_of(value)).expect("written");
    operation.commit().expect("committed");
}

#[test]
fn an_operation_that_is_dropped_or_panics_changes_nothing() {
    for persistence in [Persistence::Each, BY_HAND, Persistence::Decoupled(Pace::default())] {
        let mut objects = fresh(Versions::Three, persistence);
        write(&mut objects, 0, 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut operation = objects.operation().expect("nothing failed");
            operation.write(0, &bytes_of(2)).expect("written");
            operation.write(1, &bytes_of(2)).expect("written");
            operation.write(0, &bytes_of(3)).expect("written");
            let mut read = [0; OBJECT_BYTES];
            operation.read(0, &mut read).expect("read");
            assert_eq!(read, bytes_of(3), "an operation sees its own writes");
            panic!("planted");
        }));
        assert!(panicked.is_err());
        assert_eq!(values(&objects), [1, 0, 0, 0, 0]);
        write(&mut objects, 1, 4);
        objects.sync().expect("persistent");
        assert_eq!(values(&objects), [1, 4, 0, 0, 0]);
        assert_eq!(objects.behind(), 0);
    }
}

/// Story: an operation that was leaked (`mem::forget`) was neither undone nor committed, so the next commit
/// made its writes persistent, too.
#[test]
fn an_operation_that_is_forgotten_changes_nothing() {
    let mut objects = fresh(Versions::Three, BY_HAND);
    write(&mut objects, 0, 1);
    for sync in [false, true] {
        let mut operation = objects.operation().expect("nothing failed");
        operation.write(0, &bytes_of(2)).expect("written");
        std::mem::forget(operation);
        if sync {
            objects.sync().expect("persistent");
        } else {
            write(&mut objects, 1, 3);
        }
        assert_eq!(values(&objects), [1, 3, 0, 0, 0]);
    }
}

#[test]
fn persistence_stays_behind_no_further_and_begins_no_more_rounds_than_it_may() {
    for versions in [Versions::Two, Versions::Three] {
        let pace = Pace { threshold: 0.25, behind_max: 7 };
        let mut objects = fresh(versions, Persistence::ByHand(pace));
        for value in 1..=100 {
            write(&mut objects, value % OBJECTS, value);
            assert!(objects.behind() <= 7);
            objects.persist_some(usize::MAX).expect("persisted");
        }
        assert_eq!(objects.done(), (100, 25), "{versions:?}");
        // Nobody persists any more: the bound takes over.
        for value in 101..=200 {
            write(&mut objects, value % OBJECTS, value);
            assert!(objects.behind() <= 7);
        }
        assert_eq!(values(&objects), [200, 196, 197, 198, 199]);
    }
}

#[test]
fn a_thread_persists_what_operations_leave_behind() {
    for versions in [Versions::Two, Versions::Three] {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::adr()));
        let pace = Persistence::Decoupled(Pace { threshold: 1.0, behind_max: 64 });
        let made = VersionedObjects::create(space.clone(), AT, &shape(versions), pace).expect("made");
        let (objects, threads) = (&Mutex::new(made), 3);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for round in 0..500 {
                        // Both objects of an operation hold the same value, always.
                        let mut objects = objects.lock().expect("nobody panics");
                        let mut operation = objects.operation().expect("nothing failed");
                        let (mut one, mut two) = ([0; OBJECT_BYTES], [0; OBJECT_BYTES]);
                        operation.read(0, &mut one).expect("read");
                        operation.read(1, &mut two).expect("read");
                        assert_eq!(one, two);
                        let value = bytes_of(1 + round * threads + thread);
                        operation.write(0, &value).expect("written");
                        operation.write(1, &value).expect("written");
                        operation.commit().expect("committed");
                        assert!(objects.behind() <= 64);
                    }
                });
            }
        });
        let mut objects = objects.lock().expect("nobody panics");
        objects.sync().expect("persistent");
        let before = values(&objects);
        assert_eq!(before[0], before[1]);
        let again = VersionedObjects::open(space, AT, Persistence::Each).expect("opened");
        assert_eq!(values(&again), before);
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let mut objects = fresh(Versions::Three, Persistence::Each);
    let mut operation = objects.operation().expect("nothing failed");
    let no_object = VersionsError::NoObject { object: OBJECTS, objects: OBJECTS };
    assert_eq!(operation.write(OBJECTS, &bytes_of(1)), Err(no_object));
    let length = VersionsError::Length { bytes: 3, object_bytes: OBJECT_BYTES };
    assert_eq!(operation.write(0, &[1; 3]), Err(length));
    operation.commit().expect("an operation of nothing");
    assert_eq!(objects.done(), (0, 0));

    let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    let open = || VersionedObjects::open(space.clone(), AT, Persistence::Each).map(|_| ());
    assert!(matches!(open(), Err(VersionsError::Damaged { at: AT, .. })));
    let create = |at, shape: &Shape, persistence| {
        VersionedObjects::create(space.clone(), at, shape, persistence).map(|_| ())
    };
    let three = shape(Versions::Three);
    assert!(matches!(create(8, &three, Persistence::Each), Err(VersionsError::Shape { .. })));
    let large = Shape { objects: 1000, ..three };
    let outside = create(AT, &large, Persistence::Each);
    assert!(matches!(outside, Err(VersionsError::Space(Refused::Outside { .. }))));
    for (threshold, behind_max) in [(0.0, 1), (1.1, 1), (f64::NAN, 1), (0.5, 0)] {
        let pace = Persistence::ByHand(Pace { threshold, behind_max });
        assert!(matches!(create(AT, &three, pace), Err(VersionsError::Pace { .. })));
    }
}

#[test]
fn damaged_words_are_refused_or_believed_but_never_followed_out_of_the_objects() {
    // The second word is of epoch 1, the first one of epoch 2, which is persistent. Five bits lie below it.
    for (word, bit) in (0..2).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
        let mut objects =
            VersionedObjects::create(space.clone(), AT, &shape(Versions::Three), Persistence::Each)
                .expect("made");
        write(&mut objects, 0, 1);
        write(&mut objects, 0, 2);
        drop(objects);
        let word_at = AT + 128 + word * 8;
        space.store(word_at, space.load(word_at).expect("a word") ^ 1 << bit).expect("stored");
        match VersionedObjects::open(space, AT, Persistence::Each) {
            Ok(objects) => {
                let mut bytes = [0; OBJECT_BYTES];
                objects.read(0, &mut bytes).expect("some version of the object");
                assert!(bit <= 6, "an epoch that never was is refused: word {word}, bit {bit}");
            }
            Err(error) => assert!(matches!(error, VersionsError::Damaged { at, .. } if at == word_at)),
        }
    }
}

/// Story: an epoch whose bits were all ones made the recovery's sum overflow: a panic, where damage is refused.
#[test]
fn an_epoch_that_never_was_is_damage() {
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    let made = VersionedObjects::create(space.clone(), AT, &shape(Versions::Three), Persistence::Each);
    drop(made.expect("made"));
    for epoch in [u64::MAX, u64::MAX - 1, 1 << 60] {
        space.store(AT + 64, epoch).expect("stored");
        let opened = VersionedObjects::open(space.clone(), AT, Persistence::Each).map(drop);
        assert!(matches!(opened, Err(VersionsError::Damaged { at, .. }) if at == AT + 64), "{opened:?}");
    }
}

#[test]
fn two_objects_of_one_version_are_damage() {
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(BYTES)), Domain::Battery));
    let made = VersionedObjects::create(space.clone(), AT, &shape(Versions::Three), Persistence::Each);
    let mut objects = made.expect("made");
    write(&mut objects, 0, 1);
    drop(objects);
    // Of the first epoch, so in the second place.
    let word_at = AT + 128 + 8;
    space.store(word_at + 16, space.load(word_at).expect("a word")).expect("stored");
    let opened = VersionedObjects::open(space, AT, Persistence::Each).map(drop);
    assert!(matches!(opened, Err(VersionsError::Damaged { at, .. }) if at == AT + 128 + 16));
}

/// All objects written by one operation again and again: twice as many versions are just enough.
#[test]
fn an_operation_that_writes_all_objects_finds_a_version_for_each() {
    for versions in [Versions::Two, Versions::Three] {
        for persistence in [Persistence::Each, BY_HAND, Persistence::Decoupled(Pace::default())] {
            let mut objects = fresh(versions, persistence);
            for value in 1..=50 {
                let mut operation = objects.operation().expect("nothing failed");
                (0..OBJECTS).for_each(|object| operation.write(object, &bytes_of(value)).expect("written"));
                if value % 5 == 0 {
                    drop(operation);
                } else {
                    operation.commit().expect("committed");
                }
                let last = if value % 5 == 0 { value - 1 } else { value };
                assert_eq!(values(&objects), [last; OBJECTS as usize]);
            }
        }
    }
}
