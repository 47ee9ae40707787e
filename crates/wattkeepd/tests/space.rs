//! Regions as spaces of persistent bytes: pages brought in ahead of their first access.
#![allow(missing_docs)]

mod common;

use common::{PAGE, options};
use wattkeep::persist::{Domain, Frames, Space};
use wattkeep::{FaultMode, Region, RegionOptions, Store};

const PAGES: usize = 64;

fn open(directory: &std::path::Path, mode: FaultMode) -> Store {
    options().budget("32").fault_mode(mode).open(directory).expect("opens")
}

fn explicit(store: &Store) -> Region {
    store.region("a", RegionOptions::explicit().create((PAGES * PAGE) as u64)).expect("a region")
}

fn in_memory(frames: &Frames, space: &Space) -> Vec<usize> {
    let frames = frames.of(space, 0, PAGES);
    (0..PAGES).filter(|page| frames[*page] != 0).collect()
}

#[test]
fn fresh_pages_of_an_explicit_region_come_ahead_and_count_as_clean() {
    for mode in [FaultMode::Signal, FaultMode::Monitor, FaultMode::Mprotect] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = open(directory.path(), mode);
        let space = explicit(&store).into_space(Domain::Battery);
        assert_eq!(space.populate(16 * PAGE, 16 * PAGE), Ok(true), "{mode:?}");
        if let Some(frames) = Frames::open() {
            assert_eq!(in_memory(&frames, &space), Vec::from_iter(16..32), "{mode:?}");
        }
        let mut bytes = vec![1; 16 * PAGE];
        space.read_bytes(16 * PAGE, &mut bytes).expect("inside");
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(store.status().expect("a status").dirty_pages, 0, "{mode:?}");

        space.store(20 * PAGE, 7).expect("announced");
        space.store(40 * PAGE, 8).expect("announced");
        assert_eq!(store.status().expect("a status").dirty_pages, 2, "{mode:?}");
        // One page of each was stored to.
        assert_eq!(space.populate(16 * PAGE, 16 * PAGE), Ok(false));
        assert_eq!(space.populate(32 * PAGE, 16 * PAGE), Ok(false));
        drop(space);
        store.close().expect("closes");

        let store = open(directory.path(), mode);
        let space = explicit(&store).into_space(Domain::Battery);
        // A page that the store has is the keeper's to fill, however early somebody asks.
        assert_eq!(space.populate(16 * PAGE, 32 * PAGE), Ok(false));
        assert_eq!(space.populate(48 * PAGE, 16 * PAGE), Ok(true));
        let words: Vec<u64> = (0..PAGES).map(|page| space.load(page * PAGE).expect("inside")).collect();
        let expected =
            |page| [(20, 7), (40, 8)].iter().find(|(at, _)| *at == page).map_or(0, |(_, word)| *word);
        assert_eq!(words, Vec::from_iter((0..PAGES).map(expected)), "{mode:?}");
    }
}

#[test]
fn a_page_brought_in_ahead_is_saved_once_it_is_stored_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), FaultMode::Signal);
    let space = explicit(&store).into_space(Domain::Battery);
    assert_eq!(space.populate(0, PAGES * PAGE), Ok(true));
    for page in 0..PAGES {
        // More pages than the budget: some are cleaned meanwhile.
        space.store(page * PAGE + 8, page as u64 + 1).expect("announced");
    }
    let status = store.status().expect("a status");
    assert!(status.max_dirty_pages <= 32, "{status:?}");
    store.save().expect("a save");
    drop(space);
    drop(store);
    let store = open(directory.path(), FaultMode::Signal);
    let space = explicit(&store).into_space(Domain::Battery);
    for page in 0..PAGES {
        assert_eq!(space.load(page * PAGE + 8), Ok(page as u64 + 1));
    }
}

/// A page that is in memory would be mapped writable at its first touch, and its stores go unseen.
#[test]
fn no_page_of_a_region_with_faults_comes_ahead() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path(), FaultMode::Signal);
    for (name, tracking) in [("t", RegionOptions::transparent()), ("c", RegionOptions::checking())] {
        let region = store.region(name, tracking.create((PAGES * PAGE) as u64)).expect("a region");
        let space = region.into_space(Domain::Battery);
        assert_eq!(space.populate(0, PAGES * PAGE), Ok(false));
        assert_eq!(space.piece(PAGE), None);
        if let Some(frames) = Frames::open() {
            assert!(in_memory(&frames, &space).is_empty());
        }
    }
}
