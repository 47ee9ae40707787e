//! Regions through a real keeper process: what is stored comes back.
#![allow(missing_docs)]

mod common;

use common::{get, options, put};
use wattkeep::RegionOptions;

const MIB: u64 = 1 << 20;

#[test]
fn what_was_stored_comes_back_after_an_orderly_close() {
    let directory = tempfile::tempdir().unwrap();
    let store = options().budget("64").open(directory.path()).unwrap();
    let region = store.region("a", RegionOptions::transparent().create(16 * MIB)).unwrap();
    let pages = region.len() / 4096;
    for round in 1..4u64 {
        for page in 0..pages {
            put(&region, page, 0, page as u64 * round);
        }
    }
    let status = store.status().unwrap();
    assert!(status.max_dirty_pages <= 64, "{status:?}");
    region.close();
    store.close().unwrap();
    let store = options().open(directory.path()).unwrap();
    let region = store.region("a", RegionOptions::transparent()).unwrap();
    for page in 0..pages {
        assert_eq!(get(&region, page, 0), page as u64 * 3, "page {page}");
    }
}
