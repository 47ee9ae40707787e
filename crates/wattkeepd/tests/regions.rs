//! Regions through a real keeper process: what is stored comes back, whatever ends the program.
#![allow(unsafe_code, missing_docs)]

use wattkeep::{RegionOptions, Store, StoreOptions};

const MIB: u64 = 1 << 20;

fn options() -> StoreOptions {
    // SAFETY: tests set the same value, before any of their threads read it.
    unsafe { std::env::set_var("WATTKEEP_KEEPER", env!("CARGO_BIN_EXE_wattkeepd")) };
    Store::options().create_if_missing(true).checkpoint_interval_ms(0)
}

fn write(region: &wattkeep::Region, page: usize, value: u64) {
    assert!(page * 4096 < region.len());
    // SAFETY: inside the region.
    unsafe { region.as_ptr().add(page * 4096).cast::<u64>().write_volatile(value) }
}

fn read(region: &wattkeep::Region, page: usize) -> u64 {
    assert!(page * 4096 < region.len());
    // SAFETY: inside the region.
    unsafe { region.as_ptr().add(page * 4096).cast::<u64>().read_volatile() }
}

#[test]
fn what_was_stored_comes_back_after_an_orderly_close() {
    let directory = tempfile::tempdir().unwrap();
    let store = options().budget("64").open(directory.path()).unwrap();
    let region = store.region("a", RegionOptions::transparent().create(16 * MIB)).unwrap();
    let pages = region.len() / 4096;
    for round in 1..4u64 {
        for page in 0..pages {
            write(&region, page, page as u64 * round);
        }
    }
    let status = store.status().unwrap();
    assert!(status.max_dirty_pages <= 64, "{status:?}");
    region.close();
    store.close().unwrap();
    let store = options().open(directory.path()).unwrap();
    let region = store.region("a", RegionOptions::transparent()).unwrap();
    for page in 0..pages {
        assert_eq!(read(&region, page), page as u64 * 3, "page {page}");
    }
}
