//! Segments are recycled and cleaned many times under small logs, beside checkpoints, closes and crashes,
//! and the store stays exact.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{PAGE, Random, Scoreboard, options, plays, put, put_announced, within};
use wattkeep::{Region, RegionOptions, Store};

const PAGES: usize = 512;

fn regions(store: &Store) -> [Region; 2] {
    let bytes = (PAGES * PAGE) as u64;
    [
        store.region("transparent", RegionOptions::transparent().create(bytes)).expect("a region"),
        store.region("explicit", RegionOptions::explicit().create(bytes)).expect("a region"),
    ]
}

/// One store of a walk that both sides of a crash can repeat. Half of the stores go to an eighth of the
/// pages, so that segments empty unevenly.
fn step(random: &mut Random) -> (usize, usize, u64) {
    let value = random.next();
    let page = if value & 1 == 0 { random.below(PAGES) } else { random.below(PAGES / 8) };
    (usize::from(value & 2 != 0), page, value)
}

/// Overwrites for `time`; `oracle` knows what every page must hold.
fn overwrite(regions: &[Region; 2], oracle: &mut [Vec<u64>; 2], random: &mut Random, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        for _ in 0..64 {
            let (region, page, value) = step(random);
            match region {
                0 => put(&regions[0], page, 0, value),
                _ => put_announced(&regions[1], page, 0, value),
            }
            oracle[region][page] = value;
        }
    }
}

#[test]
fn a_small_log_is_recycled_many_times_and_stays_exact() {
    for budget in ["8", "100%"] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut oracle = [vec![0u64; PAGES], vec![0u64; PAGES]];
        let mut random = Random(3);
        let (mut written, mut log) = (0, 0);
        for session in 0..4 {
            let store = options().budget("50%").open(directory.path()).expect("opens");
            let regions = regions(&store);
            store.set_budget(budget).expect("a budget");
            for (region, wanted) in regions.iter().zip(&oracle) {
                assert_eq!(&common::first_words(region), wanted, "budget {budget}, session {session}");
            }
            log = std::fs::metadata(directory.path().join("wattkeep.store")).expect("a store").len();
            within(Duration::from_secs(1), || {
                overwrite(&regions, &mut oracle, &mut random, Duration::from_millis(40));
                store.checkpoint().expect("a checkpoint");
                overwrite(&regions, &mut oracle, &mut random, Duration::from_millis(40));
                store.status().expect("a status").ssd_bytes > log / 2
            });
            let status = store.status().expect("a status");
            assert_eq!(status.state, "armed", "{}", status.reason);
            written += status.ssd_bytes;
            drop(regions);
            store.close().expect("closes");
        }
        // How often a busy machine gets round is not the point, but a log that never turned proves nothing.
        assert!(written > log / 8, "budget {budget}: {written} bytes written to a log of {log}");
    }
}

/// A keeper that is killed under pressure leaves a checkpoint, exactly: the last that was asked for, or a
/// later one that the log itself asked for. One thread stores, so it is a prefix of that thread's stores.
#[test]
fn a_crash_under_log_pressure_comes_back_to_a_checkpoint() {
    let test = "a_crash_under_log_pressure_comes_back_to_a_checkpoint";
    if let Some(directory) = plays("client") {
        let store = options().budget("40%").open(&directory).expect("opens");
        let regions = regions(&store);
        let board = Scoreboard::open(&directory, 3);
        let mut oracle = regions.each_ref().map(common::first_words);
        let mut random = Random(store.keeper_pid().into());
        for _ in 0..3 {
            overwrite(&regions, &mut oracle, &mut random, Duration::from_millis(60));
            store.checkpoint().expect("a checkpoint");
        }
        let image: Vec<u8> = oracle.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(directory.join("oracle"), image).expect("written");
        board.set(2, random.0);
        board.set(1, store.keeper_pid().into());
        board.set(0, 1);
        overwrite(&regions, &mut oracle, &mut random, Duration::from_secs(60));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let board = Scoreboard::open(directory.path(), 3);
    let mut random = Random(8);
    for round in 0..6 {
        board.set(0, 0);
        let mut child = common::child(test, "client", directory.path());
        assert!(within(Duration::from_secs(10), || board.get(0) == 1), "{}", child.said());
        std::thread::sleep(Duration::from_millis(random.below(300) as u64));
        common::send(board.get(1) as i32, libc::SIGKILL);
        child.kill();
        let image = std::fs::read(directory.path().join("oracle")).expect("an oracle");
        let mut expected: Vec<u64> =
            image.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect();
        let store = options().open(directory.path()).expect("opens");
        let found: Vec<u64> = regions(&store).iter().flat_map(common::first_words).collect();
        let mut differ = expected.iter().zip(&found).filter(|(wanted, found)| wanted != found).count();
        let (at_first, mut walk, mut steps) = (differ, Random(board.get(2)), 0);
        while differ > 0 && steps < 20_000_000 {
            let (region, page, value) = step(&mut walk);
            let place = region * PAGES + page;
            differ -= usize::from(expected[place] != found[place]);
            expected[place] = value;
            differ += usize::from(value != found[place]);
            steps += 1;
        }
        assert_eq!(
            differ, 0,
            "round {round}: no prefix of the stores; {at_first} pages differ from the checkpoint"
        );
        store.close().expect("closes");
    }
}

/// The story: each save ate a segment of the reserve; sessions shorter than a restore never cleaned; after
/// some fifteen of them the log had no room for the last pages.
#[test]
fn many_short_sessions_wear_nothing_out() {
    let directory = tempfile::tempdir().expect("a directory");
    for session in 1..60u64 {
        let store = options().budget("50%").open(directory.path()).expect("opens");
        // Every other session opens one region only: the other one's pages are in no memory.
        let region = store
            .region(
                if session % 2 == 0 { "even" } else { "odd" },
                RegionOptions::transparent().create((PAGES * PAGE) as u64),
            )
            .expect("a region");
        let mut random = Random(session);
        (0..20).for_each(|_| put(&region, random.below(PAGES), 1, session));
        put(&region, 0, 0, session);
        drop(region);
        store.close().unwrap_or_else(|e| panic!("session {session}: {e}"));
    }
    let store = options().open(directory.path()).expect("opens");
    for (name, last) in [("even", 58), ("odd", 59)] {
        let region = store.region(name, RegionOptions::transparent()).expect("a region");
        assert_eq!(common::get(&region, 0, 0), last);
    }
}

/// Half of a region was dirtied and a checkpoint made, again and again, under a budget of all of it. Each
/// checkpoint jumped from above the mark where cleaning begins to below the save's reserve, where it may
/// not begin any more; the eighth one never answered, and the save at the end had no room.
#[test]
fn large_checkpoints_leave_the_save_its_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("100%").open(directory.path()).expect("opens");
    let region = store.region("r", RegionOptions::transparent().create(64 << 20)).expect("a region");
    let pages = region.len() / PAGE;
    let mut random = Random(7);
    for page in 0..pages {
        put(&region, page, 0, page as u64);
    }
    for round in 0..14u64 {
        for _ in 0..pages / 2 {
            put(&region, random.below(pages), 1, round);
        }
        store.checkpoint().expect("a checkpoint");
    }
    for page in 0..pages {
        put(&region, page, 1, 99);
    }
    let report = store.save().expect("the save has its room");
    assert!(report.pages as usize >= pages / 2, "{report:?}");
    store.resume().expect("resumes");
    region.close();
    store.close().expect("closes");
}
