//! Random histories, cut at every store and between: committed transactions are whole, others never were.

mod common;

use std::collections::BTreeMap;

use common::{BOTH, Ground, ROW, SPACE_BYTES, logging};
use wattkeep_persist::DomainKind;
use wattkeep_sim::cache::Dimm;
use wattkeep_sim::random::{Random, seed_from_environment};
use wattkeep_tx::{Logging, Options, Tx, TxError};

/// Words of the row that hold offsets of allocated objects; the others hold numbers.
const OBJECTS: u64 = 8;

/// What a commit left: the row, and the bytes that its objects hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    row: Vec<u64>,
    objects: BTreeMap<u64, Vec<u8>>,
}

/// Bytes of objects; the last is a run of pages.
const SIZES: [usize; 4] = [24, 64, 200, 70_000];

/// No more of an object is stored to.
const STORED_MAX: usize = 300;

fn state_of(ground: &Ground) -> State {
    let row: Vec<u64> = (0..ROW).map(|index| ground.read(index)).collect();
    let mut objects = BTreeMap::new();
    for at in row[..OBJECTS as usize].iter().filter(|at| **at != 0) {
        let mut bytes = vec![0; ground.space().read::<u64>(*at as usize).expect("inside") as usize % 8192];
        ground.space().read_bytes(*at as usize, &mut bytes).expect("inside");
        objects.insert(*at, bytes);
    }
    State { row, objects }
}

/// A few random changes, some of which make, change or drop an object.
fn change(tx: &mut Tx<'_>, ground: &Ground, random: &mut Random) -> Result<(), TxError> {
    for _ in 0..1 + random.below(5) {
        match random.below(5) {
            0 => {
                let place = ground.word(random.below(OBJECTS));
                let old = tx.read_word(place)?;
                if old == 0 {
                    let len = SIZES[random.below(SIZES.len() as u64) as usize];
                    let (new, stored) = (tx.alloc_bytes(len)?, len.min(STORED_MAX));
                    tx.write_bytes(new.offset(), &vec![random.number() as u8; stored])?;
                    tx.write_word(new.cast(), stored as u64)?;
                    tx.write_word(place, new.offset())?;
                } else if random.below(2) == 0 {
                    tx.free(wattkeep_persist::Ptr::<u8>::at(old))?;
                    tx.write_word(place, 0)?;
                } else {
                    tx.write_bytes(old + 9, &[random.number() as u8; 11])?;
                }
            }
            1 => {
                let from = OBJECTS + random.below(ROW - OBJECTS - 8);
                let len = 1 + random.below(50) as usize;
                tx.write_bytes(
                    ground.word(from).offset() + random.below(8),
                    &vec![random.number() as u8; len],
                )?;
            }
            _ => tx.write_word(ground.word(OBJECTS + random.below(ROW - OBJECTS)), random.number())?,
        }
    }
    Ok(())
}

/// One history: its states at commits, with the step of the history when each commit had returned.
fn run(
    dimm: &Dimm,
    options: &Options,
    random: &mut Random,
) -> (Vec<(usize, State)>, Vec<wattkeep_sim::cache::Step>) {
    let (space, cache) = dimm.boot();
    let ground = Ground::open(&space, options).expect("opened");
    let mut commits = vec![(0, state_of(&ground))];
    for _ in 0..6 {
        let aborts = random.below(5) == 0;
        let answer = ground.manager.run(|tx| {
            change(tx, &ground, random)?;
            if aborts { Err(TxError::Aborted) } else { Ok(()) }
        });
        match answer {
            Ok(()) => commits.push((cache.now(), state_of(&ground))),
            Err(TxError::Aborted) => assert_eq!(state_of(&ground), commits.last().expect("one").1),
            Err(error) => panic!("{error}"),
        }
    }
    (commits, cache.history())
}

/// Opens what the cut left: it is the state of the last commit that had returned, or of the next one.
fn check(dimm: &Dimm, options: &Options, commits: &[(usize, State)], step: usize, what: &str) {
    let (space, _) = dimm.boot();
    let ground = Ground::open(&space, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = state_of(&ground);
    let returned = commits.iter().rposition(|(at, _)| *at <= step).expect("the first is at 0");
    let possible = &commits[returned..commits.len().min(returned + 2)];
    assert!(possible.iter().any(|(_, state)| *state == found), "{what}: a state that never was committed");
    for at in found.objects.keys() {
        assert!(ground.manager.heap().is_allocated(*at), "{what}: {at:#x} is linked, and not allocated");
    }
    ground.manager.run(|tx| change(tx, &ground, &mut Random::new(step as u64))).expect("it goes on");
}

fn cut_everywhere(domain: DomainKind, mode: Logging, histories: u64, images: u64, options: &Options) {
    let seed = seed_from_environment(1);
    for history in 0..histories {
        let seed = seed + history;
        let what = format!("{domain} {mode:?} seed {seed}");
        let mut random = Random::new(seed);
        let dimm = Dimm::new(SPACE_BYTES, domain);
        drop(Ground::make(&dimm.boot().0, options).expect("made"));
        // Another program before, so that the log holds old records.
        run(&dimm, options, &mut random);
        let mut rewind = dimm.before();
        let (commits, steps) = run(&dimm, options, &mut random);
        for step in 0..=steps.len() {
            rewind.moment.advance(&steps, step);
            for _ in 0..images.min(rewind.moment.images()) {
                let image = rewind.moment.sample(&mut random);
                dimm.load(&mut rewind, &image);
                check(&dimm, options, &commits, step, &format!("{what} step {step}"));
            }
        }
    }
}

#[test]
fn a_prefix_of_the_stores_is_a_whole_state_on_a_battery() {
    for mode in BOTH {
        cut_everywhere(DomainKind::Battery, mode, 3, 1, &logging(mode));
    }
}

#[test]
fn a_log_that_is_truncated_often_is_as_good() {
    for mode in BOTH {
        let options = Options { truncate_bytes: 300, ..logging(mode) };
        cut_everywhere(DomainKind::Battery, mode, 2, 1, &options);
        cut_everywhere(DomainKind::Adr, mode, 1, 1, &options);
    }
}

#[test]
fn lines_that_are_kept_dropped_and_reordered_are_a_whole_state() {
    for mode in BOTH {
        cut_everywhere(DomainKind::Adr, mode, 3, 2, &logging(mode));
    }
}

#[test]
fn a_file_whose_pages_are_written_in_any_order_is_a_whole_state() {
    for mode in BOTH {
        cut_everywhere(DomainKind::File, mode, 1, 1, &logging(mode));
    }
}

/// Recovery is cut, too, at every step, and repeated.
#[test]
fn an_interrupted_recovery_is_repeated() {
    for mode in BOTH {
        for domain in [DomainKind::Battery, DomainKind::Adr] {
            let (options, seed) = (logging(mode), seed_from_environment(7));
            let mut random = Random::new(seed);
            let dimm = Dimm::new(SPACE_BYTES, domain);
            drop(Ground::make(&dimm.boot().0, &options).expect("made"));
            let mut rewind = dimm.before();
            let (commits, steps) = run(&dimm, &options, &mut random);
            for step in (0..=steps.len()).step_by(steps.len() / 8) {
                rewind.moment.advance(&steps, step);
                let image = rewind.moment.sample(&mut random);
                dimm.load(&mut rewind, &image);
                let mut again = dimm.before();
                let (space, cache) = dimm.boot();
                Ground::open(&space, &options).expect("opened");
                let recovery = cache.history();
                for second in 0..=recovery.len() {
                    again.moment.advance(&recovery, second);
                    let image = again.moment.sample(&mut random);
                    dimm.load(&mut again, &image);
                    let what = format!("{domain} {mode:?} seed {seed} step {step} of recovery {second}");
                    check(&dimm, &options, &commits, step, &what);
                }
            }
        }
    }
}
