//! Stores of every released format, as text: what must open for ever.
//!
//! ```text
//! region 1 transparent 20 table        id, mode, pages, name
//! page 1 0 2ab4...                     region, page, checksum of its bytes (XXH3-64, seed 0)
//! size 4915200                         bytes of the file
//! at 0 57415454...                     offset and bytes; all others are zero
//! ```
//!
//! Lines of bytes come behind the others, in the order of their offsets. Only reading and writing of
//! that text is here; what a format means is the store's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::hash::Hasher;
use wattkeep_store::types::{PAGE_SIZE, PageId, RegionId};
use wattkeep_store::{RegionMode, Store};
use wattkeep_sys::buffer::AlignedBuffer;

use crate::disk::MemoryDisk;

/// Every golden store: its name, and its text.
pub const STORES: [(&str, &str); 3] = [
    ("format-1-closed", include_str!("../../store/tests/golden/format-1-closed.txt")),
    ("format-1-killed", include_str!("../../store/tests/golden/format-1-killed.txt")),
    ("format-1-saved", include_str!("../../store/tests/golden/format-1-saved.txt")),
];

/// Bytes in one line. A line of zeros is left out.
const LINE_BYTES: usize = 32;

/// What a store holds: id, mode, size and name of each region, and a checksum of each stored page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// By id: whether it is explicit, its pages, its name.
    pub regions: BTreeMap<u32, (bool, u32, String)>,
    /// By page.
    pub pages: BTreeMap<PageId, u64>,
}

impl Contents {
    /// Reads everything that a store holds.
    pub fn of<D: Disk>(store: &mut Store<D>) -> Result<Self, String> {
        let mut contents = Self::default();
        let hasher = Hasher::new(0);
        for region in store.regions() {
            let explicit = region.mode == RegionMode::Explicit;
            contents.regions.insert(region.id.0, (explicit, region.pages, region.name.clone()));
        }
        let mut bytes = [0; PAGE_SIZE];
        let ids: Vec<_> = store.regions().iter().map(|region| region.id).collect();
        let pages: Vec<_> = ids.into_iter().flat_map(|id| store.stored_pages(id)).collect();
        for page in pages {
            store.read_page_blocking(page, &mut bytes).map_err(|error| error.to_string())?;
            contents.pages.insert(page, hasher.page(&bytes).0);
        }
        Ok(contents)
    }
}

/// Writes a store's bytes and contents as text.
pub fn write(contents: &Contents, disk: &MemoryDisk) -> String {
    let mut text = String::new();
    for (id, (explicit, pages, name)) in &contents.regions {
        let mode = if *explicit { "explicit" } else { "transparent" };
        let _ = writeln!(text, "region {id} {mode} {pages} {name}");
    }
    for (page, checksum) in &contents.pages {
        let _ = writeln!(text, "page {} {} {checksum:016x}", page.region.0, page.page);
    }
    let bytes = disk.peek(0, disk.size() as usize);
    let _ = writeln!(text, "size {}", bytes.len());
    for (number, line) in bytes.chunks(LINE_BYTES).enumerate() {
        if line.iter().any(|&byte| byte != 0) {
            let used = line.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let digits: String = line[..used].iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "at {} {digits}", number * LINE_BYTES);
        }
    }
    text
}

/// Reads the text back: the store's bytes, on a disk, and what it must contain.
pub fn read(text: &str) -> Result<(MemoryDisk, Contents), String> {
    let mut contents = Contents::default();
    let mut bytes = Vec::new();
    for line in text.lines() {
        parse(line, &mut contents, &mut bytes)
            .ok_or_else(|| format!("not a line of a golden store: {line}"))?;
    }
    Ok((disk_of(&bytes)?, contents))
}

fn parse(line: &str, contents: &mut Contents, bytes: &mut Vec<u8>) -> Option<()> {
    let words: Vec<_> = line.split(' ').collect();
    match words[..] {
        ["region", id, mode, pages, name] => {
            let region = (mode == "explicit", pages.parse().ok()?, name.to_owned());
            contents.regions.insert(id.parse().ok()?, region);
        }
        ["page", region, page, checksum] => {
            let page = PageId { region: RegionId(region.parse().ok()?), page: page.parse().ok()? };
            contents.pages.insert(page, u64::from_str_radix(checksum, 16).ok()?);
        }
        ["size", size] => bytes.resize(size.parse().ok()?, 0),
        ["at", offset, digits] => {
            let offset: usize = offset.parse().ok()?;
            for (at, pair) in digits.as_bytes().chunks(2).enumerate() {
                let pair = std::str::from_utf8(pair).ok()?;
                *bytes.get_mut(offset + at)? = u8::from_str_radix(pair, 16).ok()?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// A disk that holds these bytes, durably.
pub fn disk_of(bytes: &[u8]) -> Result<MemoryDisk, String> {
    let mut disk = MemoryDisk::new(1);
    disk.grow(0, bytes.len() as u64, &mut |_, _| {}).map_err(|error| error.to_string())?;
    let mut done = Vec::new();
    for (number, page) in bytes.chunks(PAGE_SIZE).enumerate() {
        if page.iter().any(|&byte| byte != 0) {
            let mut buffer = AlignedBuffer::zeroed(PAGE_SIZE);
            buffer[..page.len()].copy_from_slice(page);
            disk.write(0, (number * PAGE_SIZE) as u64, buffer, PAGE_SIZE);
        }
    }
    while disk.in_flight() > 0 {
        disk.reap(Wait::One, &mut done).map_err(|error| error.to_string())?;
    }
    disk.flush(0);
    while disk.in_flight() > 0 {
        disk.reap(Wait::One, &mut done).map_err(|error| error.to_string())?;
    }
    Ok(disk)
}
