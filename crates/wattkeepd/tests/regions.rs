//! Regions and stores as a person handles them: made, found again, grown, copied, moved, refused with a
//! clear message; and what is stored comes back.
#![allow(missing_docs)]

mod common;

use std::path::Path;
use std::process::Command;

use common::{PAGE, first_words, get, options, pages, put};
use wattkeep::{FaultMode, KeeperPlace, Region, RegionOptions, Store, Tracking};

const MIB: u64 = 1 << 20;

fn open(directory: &Path) -> Store {
    options().budget("10%").open(directory).expect("opens")
}

fn table(store: &Store, name: &str, pages: u64) -> Region {
    store.region(name, RegionOptions::transparent().create(pages * PAGE as u64)).expect("a region")
}

fn refused<T>(result: Result<T, wattkeep::Error>) -> String {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(e) => {
            let text = e.to_string();
            assert!(!text.contains("panicked") && !text.contains("unwrap"), "{text}");
            text
        }
    }
}

#[test]
fn what_was_stored_comes_back_after_an_orderly_close() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("64").open(directory.path()).expect("opens");
    let region = store.region("a", RegionOptions::transparent().create(16 * MIB)).expect("a region");
    for round in 1..4u64 {
        (0..pages(&region)).for_each(|page| put(&region, page, 0, page as u64 * round));
    }
    let status = store.status().expect("a status");
    assert!(status.max_dirty_pages <= 64, "{status:?}");
    region.close();
    store.close().expect("closes");
    let store = options().open(directory.path()).expect("opens");
    let region = store.region("a", RegionOptions::transparent()).expect("a region");
    (0..pages(&region)).for_each(|page| assert_eq!(get(&region, page, 0), page as u64 * 3));
    assert!(store.recovered().is_some_and(|text| text.contains("orderly close")));
}

#[test]
fn a_store_is_made_only_when_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = refused(options().create_if_missing(false).open(directory.path()));
    assert!(text.contains("there is no store") && text.contains("wattkeep create"), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0, "nothing was made");
    let text = refused(options().create_if_missing(false).open(directory.path().join("no/where")));
    assert!(text.contains("there is no store"), "{text}");
}

#[test]
fn a_missing_region_names_those_that_exist() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let _known = table(&store, "known", 8);
    let text = refused(store.region("unknown", RegionOptions::transparent()));
    assert!(text.contains("no region 'unknown'") && text.contains("known"), "{text}");
}

#[test]
fn bad_sizes_and_names_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    for bytes in [0, 1, 4095, 4097, u64::MAX, u64::MAX - 4095] {
        let text = refused(store.region("a", RegionOptions::transparent().create(bytes)));
        assert!(text.contains("whole number of pages") || text.contains("more than a region"), "{text}");
    }
    for name in [String::new(), "x".repeat(129), "x".repeat(70_000)] {
        let text = refused(store.region(&name, RegionOptions::transparent().create(4096)));
        assert!(text.contains("1 to 128 bytes") || text.contains("too long"), "{text}");
    }
    // The session survives all of it.
    put(&table(&store, "good", 8), 0, 0, 1);
}

#[test]
fn bad_budgets_are_refused_and_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let region = table(&store, "a", 100);
    store.set_budget("7").expect("a good budget");
    for text in ["0", "0%", "101", "101%", "1TiB", "12parsecs", "", "-3", "4095B", "many"] {
        let said = refused(store.set_budget(text));
        assert!(said.contains("budget"), "'{text}': {said}");
        assert_eq!(store.status().expect("a status").budget_pages, 7, "'{text}' changed the budget");
    }
    for text in ["0", "parsecs"] {
        let other = tempfile::tempdir().expect("a directory");
        let said = refused(options().budget(text).open(other.path()));
        assert!(said.contains("budget"), "{said}");
    }
    (0..100).for_each(|page| put(&region, page, 0, 1));
    assert!(store.status().expect("a status").max_dirty_pages <= 10);
}

#[test]
fn a_region_grows_in_place() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("50%").open(directory.path()).expect("opens");
        let region = table(&store, "a", 16);
        (0..16).for_each(|page| put(&region, page, 0, 1 + page as u64));
        let address = region.as_ptr();
        for size in [17, 64, 1000] {
            region.grow(size * PAGE as u64).expect("it grows");
            assert_eq!((region.as_ptr(), pages(&region) as u64), (address, size));
            assert_eq!(get(&region, size as usize - 1, 7), 0, "{mode}: new bytes are zero");
            put(&region, size as usize - 1, 0, size);
        }
        let text = refused(region.grow(8 * PAGE as u64));
        assert!(text.contains("cannot shrink"), "{text}");
        let text = refused(region.grow(1 << 50));
        assert!(text.contains("cannot grow") || text.contains("more than"), "{text}");
        drop(region);
        store.close().expect("closes");
        let store = options().fault_mode(mode).open(directory.path()).expect("opens");
        let region = store.region("a", RegionOptions::transparent()).expect("a region");
        assert_eq!((region.as_ptr(), pages(&region)), (address, 1000));
        for page in 0..1000 {
            let wanted = match page {
                0..16 => 1 + page as u64,
                16 | 63 | 999 => page as u64 + 1,
                _ => 0,
            };
            assert_eq!(get(&region, page, 0), wanted, "{mode}: page {page}");
        }
    }
}

#[test]
fn a_shared_budget_bounds_several_regions() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("50%").open(directory.path()).expect("opens");
    let regions: Vec<_> = (0..5).map(|n| table(&store, &format!("r{n}"), 100)).collect();
    store.set_budget("20").expect("a budget");
    for round in 0..3 {
        for page in 0..100 {
            regions.iter().for_each(|region| put(region, page, round, 7));
        }
    }
    let held = store.session().control().ledger.0.permits();
    assert!(held.held <= 20 && held.limit == 20, "{held:?}");
}

/// The story: a closed region's pages could not be protected any more, so they never became clean, and
/// the others had no permits left.
#[test]
fn a_closed_region_gives_its_permits_to_the_others() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = options().fault_mode(mode).budget("50%").open(directory.path()).expect("opens");
        let (first, second) = (table(&store, "first", 100), table(&store, "second", 100));
        store.set_budget("10").expect("a budget");
        (0..10).for_each(|page| put(&first, page, 0, 3));
        drop(first);
        let base = second.as_ptr() as usize;
        let stored = common::in_time(std::time::Duration::from_secs(5), move || {
            (0..100).for_each(|page| common::poke(base + page * PAGE, 4));
        });
        if stored.is_none() {
            std::mem::forget(second);
            panic!("{mode}: the other region starves");
        }
        drop(second);
        store.close().expect("closes");
        let store = open(directory.path());
        let first = table(&store, "first", 100);
        assert!((0..10).all(|page| get(&first, page, 0) == 3), "{mode}");
    }
}

/// The story: the memory of a region is sealed against a second mapping, so a region that was closed could
/// not be opened again before the store was.
#[test]
fn a_closed_region_opens_again_in_the_same_session() {
    for mode in [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor] {
        for options in [RegionOptions::transparent(), RegionOptions::explicit()] {
            let directory = tempfile::tempdir().expect("a directory");
            let store =
                common::options().fault_mode(mode).budget("50%").open(directory.path()).expect("opens");
            let other = table(&store, "other", 50);
            let mut wanted = vec![0u64; 200];
            let mut random = common::Random(11);
            // More often than a session has room for regions.
            for round in 1..20u64 {
                let region =
                    store.region("a", options.clone().create(200 * PAGE as u64)).expect("opens again");
                assert_eq!(first_words(&region), wanted, "{mode}, round {round}");
                for _ in 0..100 {
                    let (page, value) = (random.below(200), random.next());
                    common::put_announced(&region, page, 0, value);
                    wanted[page] = value;
                    put(&other, page % 50, 0, value);
                }
                match round % 3 {
                    0 => drop(store.checkpoint().expect("a checkpoint")),
                    1 => region.close(),
                    _ => drop(region),
                }
            }
            let held = || store.session().control().ledger.0.permits().held;
            assert!(held() <= store.status().expect("a status").budget_pages);
            store.checkpoint().expect("a checkpoint");
            assert!(common::within(std::time::Duration::from_secs(5), || held() == 0), "no permit is lost");
            drop(other);
            store.close().expect("closes");
            let store = open(directory.path());
            assert_eq!(first_words(&table(&store, "a", 200)), wanted, "{mode}");
        }
    }
}

/// The story: the second of several small regions could not be opened, or even the first, because the
/// budget named for all of them was above those there were; and the region refused was left in the store.
#[test]
fn small_regions_open_one_by_one_under_an_absolute_budget() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("100pages").open(directory.path()).expect("opens");
    let first = table(&store, "first", 30);
    let status = store.status().expect("a status");
    assert_eq!((status.budget_pages, status.state.as_str()), (30, "armed"));
    assert!(status.reason.contains("100pages"), "{}", status.reason);
    let second = table(&store, "second", 90);
    let status = store.status().expect("a status");
    assert_eq!((status.budget_pages, status.reason.as_str()), (100, ""));
    (0..30).for_each(|page| put(&first, page, 0, 1));
    (0..90).for_each(|page| put(&second, page, 0, 1));
    assert!(store.status().expect("a status").max_dirty_pages <= 100);
}

/// A store instruction across a page border needs both pages at once: with one permit it would stall, and
/// nobody would know why.
#[test]
fn the_status_names_the_danger_of_a_budget_of_one_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let note = |store: &Store| store.status().expect("a status").reason;
    let _explicit = store.region("e", RegionOptions::explicit().create(16 * 4096)).expect("a region");
    store.set_budget("1").expect("a budget");
    assert_eq!(note(&store), "", "explicit regions need one page at a time");
    let _transparent = table(&store, "t", 16);
    store.set_budget("1").expect("a budget");
    assert!(note(&store).contains("page border"), "{}", note(&store));
    store.set_budget("2").expect("a budget");
    assert_eq!(note(&store), "");
}

#[test]
fn a_region_that_cannot_be_opened_is_not_left_in_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = options().budget("100B").open(directory.path()).expect("opens");
    let text = refused(store.region("a", RegionOptions::transparent().create(8 * PAGE as u64)));
    assert!(text.contains("less than one page"), "{text}");
    let text = refused(store.region("a", RegionOptions::transparent()));
    assert!(text.contains("no region 'a'"), "{text}");
    store.set_budget("4").expect("a budget");
    put(&table(&store, "a", 16), 15, 0, 1);
}

#[test]
fn a_second_attach_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let _region = table(&store, "a", 8);
    let text = refused(store.region("a", RegionOptions::transparent()));
    assert!(text.contains("open already"), "{text}");
    for place in [KeeperPlace::Process, KeeperPlace::Thread] {
        let text = refused(options().keeper(place).open(directory.path()));
        assert!(text.contains("another process has the store") && text.contains("wattkeep status"), "{text}");
    }
}

#[test]
fn an_occupied_address_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let region = table(&store, "a", 8);
    put(&region, 3, 0, 33);
    let address = region.as_ptr() as usize;
    drop(region);
    store.close().expect("closes");
    let squatter = common::occupy(address + 5 * PAGE);
    let store = open(directory.path());
    let text = refused(store.region("a", RegionOptions::transparent()));
    assert!(text.contains(&format!("{address:#x}")) && text.contains("/maps"), "{text}");
    drop(squatter);
    // Once the range is free, the same session opens the region.
    let region = store.region("a", RegionOptions::transparent()).expect("free now");
    assert_eq!(get(&region, 3, 0), 33);
}

#[test]
fn a_store_is_copied_and_moved_by_ordinary_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let store = open(&path("one"));
    let region = table(&store, "a", 200);
    (0..200).for_each(|page| put(&region, page, 0, 5 + page as u64));
    let before = first_words(&region);
    drop(region);
    store.close().expect("closes");
    let run = |program: &str, flags: &[&str], from: &str, to: &str| {
        let status = Command::new(program).args(flags).arg(path(from)).arg(path(to)).status();
        assert!(status.expect("it runs").success());
    };
    run("cp", &["-r"], "one", "two");
    run("mv", &[], "one", "three");
    for name in ["two", "three"] {
        let store = options().create_if_missing(false).open(path(name)).expect("opens");
        assert_eq!(first_words(&table(&store, "a", 200)), before, "{name}");
    }
    let text = refused(options().create_if_missing(false).open(path("one")));
    assert!(text.contains("there is no store"), "{text}");
}

/// The story: a keeper looks for an address that its program has not mapped, and the program maps it later. Two
/// stores that were opened at once chose the same one, and one of them was refused. Copies of a store, which are
/// made to choose the same, met each time.
#[test]
fn stores_that_are_opened_at_once_find_a_place_each() {
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["one", "two"].map(|name| directory.path().join(name));
    for round in 0..20 {
        open(&paths[0]).close().expect("closes");
        let copied = Command::new("cp").arg("-r").args(&paths).status().expect("it runs");
        assert!(copied.success());
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let openers = paths.each_ref().map(|path| {
                scope.spawn(|| {
                    let store = open(path);
                    together.wait();
                    let region = table(&store, "a", 16);
                    put(&region, 0, 0, round);
                    (store, region)
                })
            });
            let opened = openers.map(|opener| opener.join().expect("both find a place"));
            opened.iter().for_each(|(_, region)| assert_eq!(get(region, 0, 0), round));
        });
        paths.iter().for_each(|path| std::fs::remove_dir_all(path).expect("its directory"));
    }
}

#[test]
fn raw_pointers_into_a_region_stay_valid() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let (first, second) = (table(&store, "first", 50), table(&store, "second", 50));
    // A list that runs through both regions.
    let at = |page: usize| {
        let region = if page.is_multiple_of(2) { &first } else { &second };
        region.as_ptr() as usize + page / 2 * PAGE
    };
    for page in 0..100 {
        common::poke(at(page), if page == 99 { 0 } else { at(page + 1) as u64 });
        common::poke(at(page) + 8, page as u64);
    }
    let head = at(0);
    drop((first, second));
    store.close().expect("closes");
    let store = open(directory.path());
    let (_second, _first) = (table(&store, "second", 50), table(&store, "first", 50));
    let (mut address, mut count) = (head, 0);
    while address != 0 {
        assert_eq!(common::peek(address + 8), count);
        (address, count) = (common::peek(address) as usize, count + 1);
    }
    assert_eq!(count, 100);
}

#[test]
fn two_stores_in_one_program_do_not_meet() {
    let directories: Vec<_> = (0..2).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let stores: Vec<_> = directories.iter().map(|directory| open(directory.path())).collect();
    let regions: Vec<_> = (0..16).map(|n| table(&stores[n % 2], &format!("r{n}"), 20)).collect();
    for (n, region) in regions.iter().enumerate() {
        (0..20).for_each(|page| put(region, page, 0, n as u64));
    }
    for (n, region) in regions.iter().enumerate() {
        assert!(first_words(region).iter().all(|word| *word == n as u64));
    }
}

#[test]
fn a_region_keeps_its_tracking() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let explicit = store.region("e", RegionOptions::explicit().create(8 * 4096)).expect("a region");
    let transparent = table(&store, "t", 8);
    assert_eq!((explicit.tracking(), transparent.tracking()), (Tracking::Explicit, Tracking::Transparent));
    drop((explicit, transparent));
    store.close().expect("closes");
    let store = open(directory.path());
    let explicit = store.region("e", RegionOptions::transparent()).expect("a region");
    let transparent = store.region("t", RegionOptions::explicit()).expect("a region");
    assert_eq!((explicit.tracking(), transparent.tracking()), (Tracking::Explicit, Tracking::Transparent));
}

#[test]
fn a_foreign_or_damaged_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("wattkeep.store");
    for (bytes, says) in [
        (vec![0u8; 8 << 20], "never finished"),
        (b"SQLite format 3\0".repeat(1 << 19), "not a Wattkeep store"),
        (vec![0u8; 0], ""),
        (vec![7u8; 100], ""),
    ] {
        std::fs::write(&file, &bytes).expect("written");
        let text = refused(options().open(directory.path()));
        assert!(text.contains(says) && text.len() > 20, "{text}");
        assert!(std::fs::read(&file).expect("read") == bytes, "the file was changed");
    }
}

/// The story: the path went to the keeper as text; bytes that are no text became a question mark, and the
/// store was made somewhere else.
#[test]
fn a_directory_whose_name_is_no_text_is_used_or_refused() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(std::ffi::OsStr::from_bytes(b"st\xffre"));
    match options().open(&path) {
        Ok(_) => assert!(path.join("wattkeep.store").exists()),
        Err(e) => assert!(e.to_string().contains("UTF-8"), "{e}"),
    }
    for entry in std::fs::read_dir(directory.path()).expect("a directory") {
        assert_eq!(entry.expect("an entry").path(), path, "a store under another name");
    }
}

#[test]
fn closing_a_store_with_open_regions_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let region = table(&store, "a", 8);
    let text = refused(store.clone().close());
    assert!(text.contains("close"), "{text}");
    put(&region, 1, 0, 9);
    drop((region, store));
    let store = open(directory.path());
    assert_eq!(get(&table(&store, "a", 8), 1, 0), 9);
}

#[test]
fn a_missing_keeper_program_is_named() {
    let test = "a_missing_keeper_program_is_named";
    if let Some(directory) = common::plays("client") {
        common::set_keeper("/no/such/wattkeepd");
        let text = refused(wattkeep::Store::options().create_if_missing(true).open(&directory));
        assert!(text.contains("/no/such/wattkeepd"), "{text}");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let child = common::child(test, "client", directory.path());
    let (code, _, said) = child.end(std::time::Duration::from_secs(10));
    assert_eq!(code, Some(0), "{said}");
}
