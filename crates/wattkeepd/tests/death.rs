//! Promises 5 and 6: the death of the program loses no store that it made; the death of the keeper
//! fails closed: writers stall, they never write untracked, and the store opens as its last checkpoint.
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{PAGE, Process, Random, Scoreboard, get, options, pages, plays, put, put_announced, within};
use wattkeep::{FaultMode, Region, RegionOptions, Store};

const PAGES: usize = 200;
const THREADS: usize = 2;

fn mode_of(name: &str) -> FaultMode {
    match name {
        "signal" => FaultMode::Signal,
        "mprotect" => FaultMode::Mprotect,
        _ => FaultMode::Monitor,
    }
}

fn regions(store: &Store) -> [Region; THREADS] {
    let bytes = (PAGES * PAGE) as u64;
    [
        store.region("transparent", RegionOptions::transparent().create(bytes)).expect("a region"),
        store.region("explicit", RegionOptions::explicit().create(bytes)).expect("a region"),
    ]
}

/// The page that a thread stores its `count`th value to: a walk that both sides can repeat.
fn page_of(thread: usize, count: u64) -> usize {
    Random(count.wrapping_mul(31) + thread as u64).below(PAGES)
}

/// Each thread stores 1, 2, 3 ... to pages of a known walk, and says after each how far it is.
fn writer_child(directory: &Path, mode: FaultMode) {
    let store = options().fault_mode(mode).budget("20").open(directory).expect("opens");
    let board = Scoreboard::open(directory, THREADS + 1);
    let regions = regions(&store);
    board.set(THREADS, store.keeper_pid().into());
    std::thread::scope(|scope| {
        for (thread, region) in regions.iter().enumerate() {
            let board = &board;
            scope.spawn(move || {
                for count in board.get(thread) + 1.. {
                    let page = page_of(thread, count);
                    if thread == 0 {
                        put(region, page, 0, count);
                    } else {
                        put_announced(region, page, 0, count);
                    }
                    board.set(thread, count);
                }
            });
        }
    });
}

/// The values that the pages must hold after `count` stores, from the values before.
fn replay(expected: &mut [u64], thread: usize, from: u64, to: u64) {
    (from + 1..=to).for_each(|count| expected[page_of(thread, count)] = count);
}

/// Kills a writing child at random moments; after each kill every store it told us of is there, and at
/// most one more: the one it had no time to tell of.
fn kills(test: &str, mode: FaultMode, rounds: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), THREADS + 1);
    let mut expected = vec![vec![0u64; PAGES]; THREADS];
    let mut done = [0u64; THREADS];
    let mut random = Random(mode as u64 + 1);
    for round in 0..rounds {
        board.set(THREADS, 0);
        let mut child = common::child(test, &mode.to_string(), directory.path());
        assert!(within(Duration::from_secs(10), || board.get(THREADS) > 0), "round {round}: no start");
        std::thread::sleep(Duration::from_micros(random.below(6_000) as u64));
        child.kill();
        let store = match options().fault_mode(mode).open(directory.path()) {
            Ok(store) => store,
            Err(e) => panic!("{mode}, kill {round}: {e}; the keeper said: {}", child.said()),
        };
        let recovered = store.recovered().unwrap_or("a new store").to_owned();
        let regions = regions(&store);
        for thread in 0..THREADS {
            let told = board.get(thread);
            replay(&mut expected[thread], thread, done[thread], told);
            let last = page_of(thread, told + 1);
            let found = common::first_words(&regions[thread]);
            for page in 0..PAGES {
                let wanted = expected[thread][page];
                let untold = page == last && found[page] == told + 1;
                assert!(
                    found[page] == wanted || untold,
                    "{mode}, kill {round}, thread {thread}, page {page}: {} instead of {wanted} of {told}; \
                     recovered: {recovered}; the keeper said: {}",
                    found[page],
                    child.said()
                );
            }
            if found[last] == told + 1 {
                expected[thread][last] = told + 1;
                board.set(thread, told + 1);
            }
            done[thread] = board.get(thread);
        }
        drop(regions);
        store.close().expect("closes");
    }
    assert!(done.iter().all(|count| *count > rounds as u64), "too few stores to mean anything: {done:?}");
}

fn kill_test(test: &str, mode: &str, rounds: usize) {
    match plays(mode) {
        Some(directory) => writer_child(&directory, mode_of(mode)),
        None => kills(test, mode_of(mode), rounds),
    }
}

#[test]
fn a_killed_program_loses_no_store_in_signal_mode() {
    kill_test("a_killed_program_loses_no_store_in_signal_mode", "signal", 50);
}

#[test]
fn a_killed_program_loses_no_store_in_mprotect_mode() {
    kill_test("a_killed_program_loses_no_store_in_mprotect_mode", "mprotect", 25);
}

#[test]
fn a_killed_program_loses_no_store_in_monitor_mode() {
    kill_test("a_killed_program_loses_no_store_in_monitor_mode", "monitor", 25);
}

/// The story: a fork shares the program's sockets. A killed program whose child lived on kept its
/// keeper waiting, and its store locked, until the child ended.
#[test]
fn a_killed_program_is_dead_although_its_child_lives() {
    let test = "a_killed_program_is_dead_although_its_child_lives";
    if let Some(directory) = plays("parent") {
        let store = options().budget("20").open(&directory).expect("opens");
        let region =
            store.region("a", RegionOptions::transparent().create((PAGES * PAGE) as u64)).expect("a region");
        (0..PAGES).for_each(|page| put(&region, page, 0, 7));
        let board = Scoreboard::open(&directory, 1);
        let child = common::fork_sleeper(Duration::from_secs(8));
        board.set(0, child as u64);
        std::thread::sleep(Duration::from_secs(60));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 1);
    let mut parent = common::child(test, "parent", directory.path());
    assert!(within(Duration::from_secs(10), || board.get(0) > 0));
    parent.kill();
    let began = std::time::Instant::now();
    let store = loop {
        match options().open(directory.path()) {
            Ok(store) => break store,
            Err(e) => assert!(began.elapsed() < Duration::from_secs(4), "{e}"),
        }
    };
    common::send(board.get(0) as i32, libc::SIGKILL);
    let region = store.region("a", RegionOptions::transparent()).expect("a region");
    assert!(common::first_words(&region).iter().all(|word| *word == 7));
}

/// Kills the keeper under running writers. `cut` values were checkpointed, `later` ones were not.
fn keeper_dies(test: &str, mode: FaultMode) {
    if let Some(directory) = plays("client") {
        let store = options().fault_mode(mode).budget("50").open(&directory).expect("opens");
        let board = Scoreboard::open(&directory, 4);
        let region =
            store.region("a", RegionOptions::transparent().create((PAGES * PAGE) as u64)).expect("a region");
        (0..PAGES).for_each(|page| put(&region, page, 0, 1));
        store.checkpoint().expect("a checkpoint");
        (0..30).for_each(|page| put(&region, page, 0, 2));
        board.set(0, store.keeper_pid().into());
        // The parent kills the keeper now; the service thread says so, and closes the grants.
        let control = store.session().control();
        let closed = || control.freeze() == wattkeep_keep::control::block::Freeze::Closed;
        assert!(within(Duration::from_secs(5), closed));
        // Which page is dirty now is told by where a store goes through: page 29 was stored to last.
        let stored = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                put(&region, 29, 0, 3);
                stored.store(1, Ordering::SeqCst);
                put(&region, 150, 0, 3);
                board.set(2, 1);
            });
            within(Duration::from_secs(2), || stored.load(Ordering::SeqCst) == 1);
            board.set(1, 1 + stored.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(500));
            board.set(3, 1 + get(&region, 150, 0));
            std::thread::sleep(Duration::from_secs(60));
        });
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 4);
    let child = common::child(test, "client", directory.path());
    assert!(within(Duration::from_secs(10), || board.get(0) > 0));
    common::send(board.get(0) as i32, libc::SIGKILL);
    assert!(within(Duration::from_secs(10), || board.get(3) > 0), "{mode}");
    assert_eq!(board.get(1), 2, "{mode}: a store to a dirty page goes on");
    assert_eq!((board.get(2), board.get(3)), (0, 2), "{mode}: a store to a clean page stalls");
    child.signal(libc::SIGKILL);
    let (_, _, said) = child.end(Duration::from_secs(5));
    assert!(said.contains("the keeper ended unexpectedly"), "{said}");
    let store = options().fault_mode(mode).open(directory.path()).expect("opens");
    assert!(
        store.recovered().is_some_and(|text| text.contains("last checkpoint")),
        "{:?}",
        store.recovered()
    );
    let region = store.region("a", RegionOptions::transparent()).expect("a region");
    assert!(
        common::first_words(&region).iter().all(|word| *word == 1),
        "{mode}: a mix of checkpoint and later"
    );
}

#[test]
fn writers_stall_when_the_keeper_is_killed_in_signal_mode() {
    keeper_dies("writers_stall_when_the_keeper_is_killed_in_signal_mode", FaultMode::Signal);
}

#[test]
fn writers_stall_when_the_keeper_is_killed_in_mprotect_mode() {
    keeper_dies("writers_stall_when_the_keeper_is_killed_in_mprotect_mode", FaultMode::Mprotect);
}

#[test]
fn writers_stall_when_the_keeper_is_killed_in_monitor_mode() {
    keeper_dies("writers_stall_when_the_keeper_is_killed_in_monitor_mode", FaultMode::Monitor);
}

/// Writers store rising stamps, first to page a, then to page b; checkpoints run; both processes are
/// killed. What opens is a cut: for every pair `b <= a <= b + 1`, and not older than the last checkpoint
/// that was answered.
fn cuts(test: &str, mode: FaultMode, rounds: usize) {
    const PAIRS: usize = 3;
    if let Some(directory) = plays("client") {
        let store = options().fault_mode(mode).budget("40").open(&directory).expect("opens");
        let regions = regions(&store);
        let board = Scoreboard::open(&directory, 16);
        // Each pair goes on from where it was recovered to. The story: it went on at a + 1, while b was at
        // a - 1; a cut between the first two stores then looked torn.
        let from = |pair: usize| get(&regions[usize::from(pair == 1)], 2 * pair, 0);
        for pair in 0..PAIRS {
            board.set(pair, get(&regions[usize::from(pair == 1)], 2 * pair + 1, 0));
            board.set(4 + pair, 0);
        }
        board.set(15, store.keeper_pid().into());
        std::thread::scope(|scope| {
            for pair in 0..PAIRS {
                let (regions, board, from) = (&regions, &board, from(pair));
                scope.spawn(move || {
                    let mut random = Random(pair as u64);
                    for stamp in from.. {
                        let region = &regions[usize::from(pair == 1)];
                        if pair == 1 {
                            put_announced(region, 2 * pair, 0, stamp);
                            put_announced(region, 2 * pair + 1, 0, stamp);
                        } else {
                            put(region, 2 * pair, 0, stamp);
                            put(region, 2 * pair + 1, 0, stamp);
                        }
                        board.set(pair, stamp);
                        // Noise, so that pages come and go.
                        put(&regions[0], 20 + random.below(PAGES - 20), 1 + pair, stamp);
                    }
                });
            }
            loop {
                let before: Vec<_> = (0..PAIRS).map(|pair| board.get(pair)).collect();
                if store.checkpoint().is_ok() {
                    (0..PAIRS).for_each(|pair| board.set(4 + pair, before[pair]));
                    board.at(8).fetch_add(1, Ordering::SeqCst);
                }
            }
        });
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 16);
    let mut random = Random(9);
    for round in 0..rounds {
        board.set(15, 0);
        let child = common::child(test, "client", directory.path());
        let checkpoints = board.get(8);
        let wanted = checkpoints + 1 + random.below(20) as u64;
        assert!(within(Duration::from_secs(10), || board.get(8) >= wanted), "{mode}: checkpoints stopped");
        std::thread::sleep(Duration::from_micros(random.below(3_000) as u64));
        let keeper = board.get(15) as i32;
        common::send(keeper, libc::SIGSTOP);
        child.signal(libc::SIGKILL);
        common::send(keeper, libc::SIGKILL);
        drop(child);
        let store = options().fault_mode(mode).open(directory.path()).expect("opens");
        let regions = regions(&store);
        for pair in 0..PAIRS {
            let region = &regions[usize::from(pair == 1)];
            let (a, b) = (get(region, 2 * pair, 0), get(region, 2 * pair + 1, 0));
            assert!(b <= a && a <= b + 1, "{mode}, round {round}, pair {pair}: a torn cut, {a} and {b}");
            let answered = board.get(4 + pair);
            assert!(b >= answered, "{mode}, round {round}, pair {pair}: {b}, checkpoint had {answered}");
        }
        drop(regions);
        store.close().expect("closes");
    }
}

#[test]
fn a_crash_comes_back_to_a_consistent_cut_in_signal_mode() {
    cuts("a_crash_comes_back_to_a_consistent_cut_in_signal_mode", FaultMode::Signal, 12);
}

#[test]
fn a_crash_comes_back_to_a_consistent_cut_in_mprotect_mode() {
    cuts("a_crash_comes_back_to_a_consistent_cut_in_mprotect_mode", FaultMode::Mprotect, 12);
}

#[test]
fn a_crash_comes_back_to_a_consistent_cut_in_monitor_mode() {
    cuts("a_crash_comes_back_to_a_consistent_cut_in_monitor_mode", FaultMode::Monitor, 8);
}

/// A child of the children above must not be left behind.
#[test]
fn a_keeper_ends_after_its_killed_program() {
    let test = "a_keeper_ends_after_its_killed_program";
    if let Some(directory) = plays("client") {
        let store = options().budget("20").open(&directory).expect("opens");
        let region =
            store.region("a", RegionOptions::transparent().create((PAGES * PAGE) as u64)).expect("a region");
        put(&region, pages(&region) - 1, 0, 5);
        Scoreboard::open(&directory, 1).set(0, store.keeper_pid().into());
        std::thread::sleep(Duration::from_secs(60));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 1);
    let mut child: Process = common::child(test, "client", directory.path());
    assert!(within(Duration::from_secs(10), || board.get(0) > 0));
    child.kill();
    let keeper = board.get(0);
    let gone = || {
        let status = std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    };
    assert!(within(Duration::from_secs(5), gone), "keeper {keeper} lives on");
}
