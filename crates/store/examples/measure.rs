//! Measures what the save window depends on: append bandwidth beside raw sequential writes of the
//! same device in the same run, alternating, and the time to open a store of 4 GiB.
//!
//! `cargo run --release -p wattkeep-store --example measure -- DIRECTORY [GIB]`

use std::path::Path;
use std::time::Instant;

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{Begin, CommitKind, CreateOptions, NewRegion, Purpose, RegionMode, Store, UringDisk};
use wattkeep_sys::buffer::AlignedBuffer;

type Failure = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;
const SAVE_PAGES: u32 = 256 * 1024;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name a directory on the device to measure")?;
    let gib: u32 = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let directory = Path::new(&directory).join("measure");
    let pages = gib * SAVE_PAGES;
    let begun = Instant::now();
    let mut options = CreateOptions { budget_pages: SAVE_PAGES, ..CreateOptions::default() };
    let mut store = Store::create_in(&directory, &mut options)?;
    let mode = RegionMode::Explicit;
    let new = NewRegion { name: "table".into(), mode, pages, reserve_pages: pages, address: 0 };
    let region = store.create_region(new)?;
    println!("create, {gib} GiB region: {:.2} s", begun.elapsed().as_secs_f64());
    let mut source = AlignedBuffer::zeroed(64 << 20);
    fill(&mut source);
    for start in (0..pages).step_by(SAVE_PAGES as usize) {
        append(&mut store, region, start, &source)?;
    }
    store.commit(CommitKind::Save)?;
    drop(store);
    measure_open(&directory)?;
    measure_append(&directory, region, &source)?;
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn measure_open(directory: &Path) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        let disk = UringDisk::open(directory)?;
        let begun = Instant::now();
        let (store, recovery) = Store::open(disk)?;
        let time = begun.elapsed().as_secs_f64() * 1e3;
        println!(
            "open: {time:.1} ms, {} segments, {} pages, free {}",
            recovery.segments_scanned,
            recovery.commit.pages,
            store.status().free
        );
    }
    Ok(())
}

fn measure_append(directory: &Path, region: RegionId, source: &[u8]) -> Result<(), Failure> {
    let (mut store, _) = Store::open(UringDisk::open(directory)?)?;
    let raw_directory = directory.join("raw");
    let mut options = CreateOptions { budget_pages: SAVE_PAGES, ..CreateOptions::default() };
    drop(Store::create_in(&raw_directory, &mut options)?);
    let mut raw = UringDisk::open(&raw_directory)?;
    let gib = f64::from(SAVE_PAGES) * PAGE_SIZE as f64 / 1e9;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        raw_writes(&mut raw)?;
        let raw_speed = gib / begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        append(&mut store, region, 0, source)?;
        store.commit(CommitKind::Save)?;
        let ours = gib / begun.elapsed().as_secs_f64();
        println!("save {ours:.2} GB/s, raw {raw_speed:.2} GB/s, ratio {:.2}", ours / raw_speed);
    }
    Ok(())
}

/// Bytes that no device can compress away.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u64;
    for word in bytes.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_le_bytes());
    }
}

/// Sequential 1 MiB writes, four in flight, then a flush.
fn raw_writes(disk: &mut UringDisk) -> Result<(), Failure> {
    let mut idle: Vec<_> = (0..4).map(|_| AlignedBuffer::zeroed(1 << 20)).collect();
    idle.iter_mut().for_each(|buffer| fill(buffer));
    let (mut next, end) = (4u64 << 20, (4u64 << 20) + u64::from(SAVE_PAGES) * PAGE_SIZE as u64);
    let mut done = Vec::new();
    while next < end || disk.in_flight() > 0 {
        while let Some(buffer) = idle.pop_if(|_| next < end) {
            disk.write(0, next, buffer, 1 << 20);
            next += 1 << 20;
        }
        disk.reap(Wait::One, &mut done)?;
        for completion in done.drain(..) {
            completion.result?;
            idle.extend(completion.buffer);
        }
    }
    disk.flush(0);
    while done.is_empty() {
        disk.reap(Wait::One, &mut done)?;
    }
    Ok(())
}

fn append(store: &mut Store<UringDisk>, region: RegionId, start: u32, source: &[u8]) -> Result<(), Failure> {
    let (mut next, mut events) = (0, Vec::new());
    while next < SAVE_PAGES {
        match store.begin(Purpose::Save, (SAVE_PAGES - next) as usize)? {
            Begin::Batch(mut batch) => {
                while batch.room() > 0 && next < SAVE_PAGES {
                    let from = (next as usize * PAGE_SIZE) % source.len();
                    let bytes = batch.next_page();
                    bytes.copy_from_slice(&source[from..from + PAGE_SIZE]);
                    bytes[..4].copy_from_slice(&next.to_le_bytes());
                    let checksum = store.hash(bytes);
                    batch.push(PageId { region, page: start + next }, checksum, 0);
                    next += 1;
                }
                store.submit(batch);
                store.poll(Wait::No, &mut events)?;
            }
            Begin::Busy => store.poll(Wait::One, &mut events)?,
            Begin::NoSpace => return Err("no space in the store".into()),
        }
        events.clear();
    }
    Ok(())
}
