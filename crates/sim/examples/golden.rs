//! Writes the golden stores of the present format, once, when it is released: see docs/format.md.
//!
//! `cargo run -p wattkeep-sim --example golden -- crates/store/tests/golden`

use std::path::PathBuf;

use wattkeep_sim::disk::{Cut, MemoryDisk};
use wattkeep_sim::golden::{Contents, write};
use wattkeep_store::disk::Wait;
use wattkeep_store::superblock::FORMAT_VERSION;
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{Begin, CommitKind, CreateOptions, NewRegion, Purpose, RegionMode, Store};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("name the directory of the golden stores")?);
    for ending in ["closed", "killed", "saved"] {
        let file = directory.join(format!("format-{FORMAT_VERSION}-{ending}.txt"));
        if file.exists() {
            return Err(
                format!("{} exists: a golden store is made once and never again", file.display()).into()
            );
        }
        std::fs::write(&file, store(ending)?)?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Regions of both modes, one shrunk and grown; old versions; a cut; a digest, or a lost tail.
fn store(ending: &str) -> Outcome<String> {
    let disk = MemoryDisk::new(1);
    let mut options = CreateOptions {
        uuid: Some(*b"golden-store-id."),
        seed: Some(0x90_1d),
        budget_pages: 4,
        segment_pages: Some(8),
        progress: None,
    };
    let mut store = Store::create(disk.clone(), &mut options)?;
    let new = |name: &str, mode, pages| NewRegion {
        name: name.to_owned(),
        mode,
        pages,
        reserve_pages: 0,
        address: 0,
    };
    let table = store.create_region(new("table", RegionMode::Transparent, 20))?;
    let log = store.create_region(new("log", RegionMode::Explicit, 9))?;
    append(&mut store, table, 0..9, 1)?;
    append(&mut store, log, 0..9, 1)?;
    store.commit(CommitKind::Checkpoint)?;
    store.resize_region(log, 5)?;
    store.resize_region(log, 7)?;
    append(&mut store, table, 3..13, 2)?;
    store.commit(match ending {
        "closed" => CommitKind::Close,
        "saved" => CommitKind::Save,
        _ => CommitKind::Checkpoint,
    })?;
    let contents = Contents::of(&mut store)?;
    if ending == "killed" {
        append(&mut store, table, 10..20, 3)?;
    }
    drop(store);
    Ok(write(&contents, &disk.after_cut(Cut::KeepAll, 1)))
}

fn append(
    store: &mut Store<MemoryDisk>,
    region: RegionId,
    pages: std::ops::Range<u32>,
    version: u8,
) -> Outcome<()> {
    let mut left = pages;
    let mut events = Vec::new();
    while !left.is_empty() {
        match store.begin(Purpose::Writeback, left.len())? {
            Begin::Batch(mut batch) => {
                for page in left.by_ref().take(batch.room()) {
                    // Few bytes that are not zero, at both ends: the text stays short.
                    let mut bytes = [0; PAGE_SIZE];
                    bytes[..3].copy_from_slice(&[version, region.0 as u8, page as u8]);
                    bytes[PAGE_SIZE - 1] = version;
                    *batch.next_page() = bytes;
                    batch.push(PageId { region, page }, store.hash(&bytes), 0);
                }
                store.submit(batch);
            }
            Begin::Busy => store.poll(Wait::One, &mut events)?,
            Begin::NoSpace => return Err("the store is full".into()),
        }
    }
    for _ in 0..100 {
        store.poll(Wait::One, &mut events)?;
    }
    Ok(())
}
