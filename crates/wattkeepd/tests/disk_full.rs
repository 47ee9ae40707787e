//! A full file system: at the creation of a store, of a region, and when one grows. Each is one clear
//! error; no half store is left, and what was there goes on.
//!
//! Needs a file system of its own: skipped where mounting one is not allowed.
#![allow(missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{PAGE, get, options, put};
use wattkeep::RegionOptions;

/// A small ext4 on a loop device, unmounted when dropped.
struct SmallDisk {
    directory: tempfile::TempDir,
    mount: PathBuf,
}

impl SmallDisk {
    fn new(mib: u64) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let (image, mount) = (directory.path().join("disk"), directory.path().join("mount"));
        std::fs::create_dir(&mount).expect("a mount point");
        std::fs::File::create(&image).expect("an image").set_len(mib << 20).expect("a length");
        let run = |program: &str, arguments: &[&Path]| {
            Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let made = run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &image])
            && run("mount", &[Path::new("-o"), Path::new("loop"), &image, &mount]);
        if !made {
            eprintln!("skipped: this test may not mount a file system");
            return None;
        }
        Some(Self { directory, mount })
    }

    fn store(&self) -> PathBuf {
        self.mount.join("store")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        let _ = &self.directory;
    }
}

#[test]
fn no_half_store_is_left_on_a_disk_that_is_too_small() {
    let Some(disk) = SmallDisk::new(24) else { return };
    let refused = options().open(disk.store()).err().expect("no room").to_string();
    assert!(refused.contains("free some space") && refused.contains("df "), "{refused}");
    let left: Vec<_> = std::fs::read_dir(disk.store())
        .map(|entries| entries.map(|entry| entry.expect("an entry").file_name()).collect())
        .unwrap_or_default();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn a_full_disk_refuses_a_larger_region_and_keeps_the_old_one() {
    let Some(disk) = SmallDisk::new(160) else { return };
    let store = options().budget("10%").open(disk.store()).expect("opens");
    let region =
        store.region("a", RegionOptions::transparent().create((1000 * PAGE) as u64)).expect("a region");
    (0..1000).for_each(|page| put(&region, page, 0, 1));
    let refused = region.grow(1 << 30).expect_err("no room").to_string();
    assert!(refused.contains("free some space") && refused.contains("df "), "{refused}");
    let refused =
        store.region("b", RegionOptions::transparent().create(1 << 30)).err().expect("no room").to_string();
    assert!(refused.contains("free some space"), "{refused}");
    assert_eq!(region.len(), 1000 * PAGE);
    (0..1000).for_each(|page| put(&region, page, 1, 2));
    store.checkpoint().expect("the session goes on");
    assert_eq!(store.status().expect("a status").state, "armed");
    drop(region);
    store.close().expect("closes");
    let store = options().open(disk.store()).expect("opens");
    let text = store.region("b", RegionOptions::transparent()).err().expect("none").to_string();
    assert!(text.contains("no region 'b'"), "{text}");
    let region = store.region("a", RegionOptions::transparent()).expect("a region");
    assert!((0..1000).all(|page| (get(&region, page, 0), get(&region, page, 1)) == (1, 2)));
}

/// The space was written once when the store was made: a disk that fills up later does not matter.
#[test]
fn a_disk_that_fills_up_later_stops_nobody() {
    let Some(disk) = SmallDisk::new(160) else { return };
    let store = options().budget("10%").open(disk.store()).expect("opens");
    let region =
        store.region("a", RegionOptions::transparent().create((1000 * PAGE) as u64)).expect("a region");
    let filler = vec![1u8; 1 << 20];
    let path = disk.mount.join("filler");
    let mut file = std::fs::File::create(path).expect("a file");
    while std::io::Write::write_all(&mut file, &filler).is_ok() {}
    let _ = file.sync_all();
    for round in 0..20 {
        (0..1000).for_each(|page| put(&region, page, 0, round));
        store.checkpoint().expect("a checkpoint");
    }
    store.save().expect("a save");
    drop(region);
    store.close().expect("closes");
    let store = options().open(disk.store()).expect("opens");
    let region = store.region("a", RegionOptions::transparent()).expect("a region");
    assert!((0..1000).all(|page| get(&region, page, 0) == 19));
}
