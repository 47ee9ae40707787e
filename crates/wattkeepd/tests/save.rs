//! Promises 2 and 3: a save freezes and holds the frozen image exactly, with or without the help of the
//! program; writers go on after a resume.
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{PAGE, Random, Scoreboard, get, in_time, options, pages, plays, put, put_announced, within};
use wattkeep::{FaultMode, Region, RegionOptions, Store};
use wattkeep_keep::protocol::{Reply, Request};

const PAGES: usize = 300;

/// Pages of each region, the budget of both, and what a save then has to write.
#[derive(Clone, Copy)]
struct Size {
    pages: usize,
    budget: &'static str,
    saved_pages_min: u32,
}

const SMALL: Size = Size { pages: PAGES, budget: "80", saved_pages_min: 1 };

/// More than a segment: the save copies with a second thread.
const LARGE: Size = Size { pages: 6000, budget: "5000", saved_pages_min: 1021 };

fn regions(store: &Store) -> [Region; 2] {
    regions_of(store, PAGES)
}

fn regions_of(store: &Store, pages: usize) -> [Region; 2] {
    let bytes = (pages * PAGE) as u64;
    [
        store.region("transparent", RegionOptions::transparent().create(bytes)).expect("a region"),
        store.region("explicit", RegionOptions::explicit().create(bytes)).expect("a region"),
    ]
}

/// Stores random values for ever, counting them.
fn scribble(regions: &[Region], thread: usize, stop: &AtomicBool, count: &AtomicU64) {
    let mut random = Random(thread as u64);
    while !stop.load(Ordering::Relaxed) {
        let (page, value) = (random.below(pages(&regions[0])), random.next());
        if thread.is_multiple_of(2) {
            put(&regions[0], page, thread, value);
        } else {
            put_announced(&regions[1], page, thread, value);
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A program that saves while three threads write, and puts the frozen image aside.
fn saving_child(directory: &Path, mode: FaultMode, size: Size) {
    let store = options().fault_mode(mode).budget(size.budget).open(directory).expect("opens");
    let board = Scoreboard::open(directory, 3);
    let regions = regions_of(&store, size.pages);
    // Most of the budget is dirty, whatever the threads come to do.
    (0..size.pages).for_each(|page| put(&regions[0], page, 3, page as u64));
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (regions, stop, count) = (&regions, &stop, &count);
            scope.spawn(move || scribble(regions, thread, stop, count));
        }
        std::thread::sleep(Duration::from_millis(40));
        let report = store.save().expect("a save");
        assert!(report.pages >= size.saved_pages_min, "{report:?}");
        let image: Vec<u8> = regions.iter().flat_map(common::image).collect();
        std::fs::write(directory.join("image"), image).expect("written");
        board.set(2, report.unsettled_pages.into());
        board.set(1, store.keeper_pid().into());
        board.set(0, 1);
        std::thread::sleep(Duration::from_secs(60));
    });
}

/// Every page as it was frozen, but for those that the save's report calls unsettled.
///
/// The story: on a busy machine a thread lost its processor for more than 5 ms inside a grant. The save
/// took its page as it stood, as documented, and the thread stored to it after the image was put aside.
fn save_is_exact(test: &str, mode: FaultMode, size: Size) {
    if let Some(directory) = plays("client") {
        return saving_child(&directory, mode, size);
    }
    for _ in 0..4 {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Scoreboard::open(directory.path(), 3);
        let mut child = common::child(test, "client", directory.path());
        assert!(within(Duration::from_secs(10), || board.get(0) == 1), "{mode}: {}", child.said());
        // Some time for a store that the freeze let through to spoil the image.
        std::thread::sleep(Duration::from_millis(20));
        common::send(board.get(1) as i32, libc::SIGKILL);
        child.kill();
        let wanted = std::fs::read(directory.path().join("image")).expect("an image");
        let store = options().fault_mode(mode).open(directory.path()).expect("opens");
        assert!(store.recovered().is_some_and(|text| text.contains("save")), "{:?}", store.recovered());
        let found: Vec<u8> = regions_of(&store, size.pages).iter().flat_map(common::image).collect();
        let differs = |page: &usize| {
            let bytes = page * PAGE..(page + 1) * PAGE;
            wanted[bytes.clone()] != found[bytes]
        };
        let pages: Vec<_> = (0..wanted.len() / PAGE).filter(differs).collect();
        let unsettled = board.get(2) as usize;
        assert!(
            pages.len() <= unsettled,
            "{mode}: pages {pages:?} of {} differ, {unsettled} were unsettled",
            2 * size.pages
        );
    }
}

#[test]
fn a_save_holds_the_frozen_image_in_signal_mode() {
    save_is_exact("a_save_holds_the_frozen_image_in_signal_mode", FaultMode::Signal, SMALL);
}

#[test]
fn a_save_holds_the_frozen_image_in_mprotect_mode() {
    save_is_exact("a_save_holds_the_frozen_image_in_mprotect_mode", FaultMode::Mprotect, SMALL);
}

#[test]
fn a_save_holds_the_frozen_image_in_monitor_mode() {
    save_is_exact("a_save_holds_the_frozen_image_in_monitor_mode", FaultMode::Monitor, SMALL);
}

#[test]
fn a_save_of_many_segments_holds_the_frozen_image() {
    save_is_exact("a_save_of_many_segments_holds_the_frozen_image", FaultMode::Signal, LARGE);
}

/// Twenty quick saves: more than the log's reserve would last if it were not won back.
#[test]
fn writers_stand_still_from_a_save_to_its_resume() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("80").open(directory.path()).expect("opens");
        let regions = regions(&store);
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (regions, stop, count) = (&regions, &stop, &count);
                scope.spawn(move || scribble(regions, thread, stop, count));
            }
            for round in 0..20 {
                std::thread::sleep(Duration::from_millis(3));
                let report = store.save().unwrap_or_else(|e| panic!("{mode}, save {round}: {e}"));
                // A thread may still store to nothing but the page it had just opened.
                std::thread::sleep(Duration::from_millis(2));
                let frozen: Vec<u8> = regions.iter().flat_map(common::image).collect();
                std::thread::sleep(Duration::from_millis(2));
                let later: Vec<u8> = regions.iter().flat_map(common::image).collect();
                let changed = frozen.chunks(PAGE).zip(later.chunks(PAGE)).filter(|(a, b)| a != b).count();
                let unsettled = report.unsettled_pages as usize;
                assert!(changed <= unsettled, "{mode}, save {round}: stores came through to {changed} pages");
                store.resume().expect("a resume");
                let before = count.load(Ordering::Relaxed);
                let moves = within(Duration::from_secs(2), || count.load(Ordering::Relaxed) > before);
                assert!(moves, "{mode}, save {round}: writers stand still after the resume");
            }
            stop.store(true, Ordering::Relaxed);
        });
        let before: Vec<u8> = regions.iter().flat_map(common::image).collect();
        drop(regions);
        store.close().expect("closes");
        let store = options().open(directory.path()).expect("opens");
        let after: Vec<u8> = self::regions(&store).iter().flat_map(common::image).collect();
        assert!(before == after, "{mode}");
    }
}

/// Walks of counted stores, as in the tests of process death, by a program that is stopped.
fn stopped(test: &str, mode: FaultMode) {
    let page_of = |count: u64| Random(count).below(PAGES);
    if let Some(directory) = plays("client") {
        let store = options().fault_mode(mode).budget("30").open(&directory).expect("opens");
        let board = Scoreboard::open(&directory, 2);
        let regions = regions(&store);
        board.set(1, store.keeper_pid().into());
        for count in 1.. {
            put(&regions[0], page_of(count), 0, count);
            board.set(0, count);
        }
    }
    let mut random = Random(5);
    for _ in 0..6 {
        let directory = tempfile::tempdir().expect("a directory");
        let board = Scoreboard::open(directory.path(), 2);
        let mut child = common::child(test, "client", directory.path());
        assert!(within(Duration::from_secs(10), || board.get(0) > 100), "{mode}: {}", child.said());
        std::thread::sleep(Duration::from_micros(random.below(4_000) as u64));
        child.signal(libc::SIGSTOP);
        match common::ask_keeper(directory.path(), &Request::Save) {
            Reply::Saved(_) => {}
            other => panic!("{mode}: {other:?}"),
        }
        common::send(board.get(1) as i32, libc::SIGKILL);
        child.kill();
        let told = board.get(0);
        let mut expected = vec![0u64; PAGES];
        (1..=told).for_each(|count| expected[page_of(count)] = count);
        let store = options().fault_mode(mode).open(directory.path()).expect("opens");
        let found = common::first_words(&regions(&store)[0]);
        for page in 0..PAGES {
            let untold = page == page_of(told + 1) && found[page] == told + 1;
            assert!(found[page] == expected[page] || untold, "{mode}: page {page} of {told} stores");
        }
    }
}

#[test]
fn a_save_needs_no_help_of_a_stopped_program_in_signal_mode() {
    stopped("a_save_needs_no_help_of_a_stopped_program_in_signal_mode", FaultMode::Signal);
}

#[test]
fn a_save_needs_no_help_of_a_stopped_program_in_mprotect_mode() {
    stopped("a_save_needs_no_help_of_a_stopped_program_in_mprotect_mode", FaultMode::Mprotect);
}

/// The story: a page copied as it stood had no mark of its own; a batch of such pages alone was never
/// counted as arrived, and the save waited for it for ever.
#[test]
fn a_save_ends_although_an_announcement_is_held() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("30").open(directory.path()).expect("opens");
        let regions = regions(&store);
        // A page that is dirty before is announced by a hazard pointer, another one by a pin.
        for (region, dirty) in regions.iter().flat_map(|region| [(region, false), (region, true)]) {
            (0..2 * u64::from(dirty)).for_each(|value| put_announced(region, 0, 1, value));
            let held = region.will_write(0, PAGE).expect("an announcement");
            put(region, 0, 0, 41);
            let saving = store.clone();
            let saved = in_time(Duration::from_secs(5), move || saving.save());
            assert!(saved.is_some_and(|saved| saved.is_ok()), "{mode}, {}: no end", region.name());
            store.resume().expect("a resume");
            let address = region.as_ptr() as usize;
            let stored = in_time(Duration::from_secs(2), move || common::poke(address, 42));
            assert!(stored.is_some(), "{mode}, {}: the announced page is closed", region.name());
            drop(held);
            (0..60).for_each(|page| put_announced(region, page, 1, 7));
            store.checkpoint().expect("a checkpoint");
            assert_eq!(store.session().control().ledger.0.permits().held, 0, "{mode}, {}", region.name());
        }
    }
}

/// The story: a checkpoint that gave up left the pages of the busy thread protected, while their words
/// said that they were open: the thread faulted for ever.
#[test]
fn an_announced_page_stays_usable_beside_checkpoints() {
    in_every_mode(|mode| {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("30").open(directory.path()).expect("opens");
        let regions = regions(&store);
        for (region, dirty) in regions.iter().flat_map(|region| [(region, false), (region, true)]) {
            (0..2 * u64::from(dirty)).for_each(|value| put_announced(region, 0, 1, value));
            let _held = region.will_write(0, PAGE).expect("an announcement");
            for round in 0..5 {
                // With a page announced, a checkpoint may give up, but says so.
                if let Err(e) = store.checkpoint() {
                    assert!(e.to_string().contains("try again"), "{mode}: {e}");
                }
                let address = region.as_ptr() as usize;
                let stored = in_time(Duration::from_secs(2), move || common::poke(address, round));
                assert!(stored.is_some(), "{mode}, {}: round {round} hangs", region.name());
                assert_eq!(get(region, 0, 0), round);
            }
        }
    });
}

/// All at once: a checkpoint that gives up takes half a second.
fn in_every_mode(test: impl Fn(FaultMode) + Sync) {
    std::thread::scope(|scope| {
        for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
            let test = &test;
            scope.spawn(move || test(mode));
        }
    });
}

/// The story: a checkpoint that another program asked for was to be tried again when the session ended. Its refusal
/// was never sent: that program took the keeper for one that had died.
#[test]
fn whoever_waits_for_a_checkpoint_hears_of_the_end_of_the_session() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("30").open(directory.path()).expect("opens");
    let [transparent, explicit] = regions(&store);
    put_announced(&explicit, 0, 1, 7);
    let held = explicit.will_write(0, PAGE).expect("an announcement");
    let path = directory.path().to_owned();
    let asker = std::thread::spawn(move || common::try_to_ask_keeper(&path, &Request::Checkpoint));
    // The pauses between tries grow: the session ends in one of them.
    let tries = || store.status().expect("a keeper").checkpoints_given_up;
    assert!(within(Duration::from_secs(5), || tries() >= 4), "{} tries", tries());
    drop(held);
    drop((transparent, explicit));
    store.close().expect("a close");
    match asker.join().expect("no panic") {
        Err(why) => assert!(why.contains("the end of the session"), "{why}"),
        Ok(answer) => assert!(matches!(answer, Reply::Saved(_)), "{answer:?}"),
    }
}

/// What `will_write` promises to system calls: the announced range can be read into, whatever the
/// keeper does meanwhile.
#[test]
fn a_system_call_into_an_announced_range_works_beside_checkpoints() {
    in_every_mode(|mode| {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("30").open(directory.path()).expect("opens");
        let regions = regions(&store);
        let _held = regions[0].will_write(0, 4 * PAGE).expect("an announcement");
        for _ in 0..5 {
            let _ = store.checkpoint();
            let read = common::read_zeros_into(regions[0].as_ptr() as usize, 4 * PAGE);
            assert_eq!(read.expect("no EFAULT"), 4 * PAGE, "{mode}");
        }
    });
}
