//! Stores of every released format open, and contain what they contained when they were written.

use wattkeep_sim::golden::{Contents, STORES, read};
use wattkeep_store::Store;

#[test]
fn every_golden_store_opens_with_exactly_its_contents() {
    for (name, text) in STORES {
        let (disk, contents) = read(text).expect("the text is whole");
        assert!(!contents.pages.is_empty());
        for look in [Store::open_read_only, Store::open_scanned, Store::open] {
            let (mut store, recovery) = look(disk.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(Contents::of(&mut store).as_ref(), Ok(&contents), "{name}");
            assert_eq!(recovery.clean, name != "format-1-killed", "{name}");
            drop(store);
        }
    }
}

#[test]
fn a_golden_store_that_is_changed_is_noticed() {
    let (_, text) = STORES[0];
    let changed = text.replacen("page 1 0 ", "page 1 1 ", 1);
    let (disk, contents) = read(&changed).expect("the text is whole");
    let (mut store, _) = Store::open_read_only(disk).expect("its bytes are as they were");
    assert_ne!(Contents::of(&mut store), Ok(contents));
}
