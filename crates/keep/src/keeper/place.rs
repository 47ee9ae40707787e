//! Where a new region is mapped: an address that it keeps for life.
//!
//! Pure arithmetic over the catalogue. Does not map anything.

use wattkeep_store::RegionRecord;

use crate::limits::{ADDRESS_BASE, ADDRESS_END, PAGE_SIZE, RESERVE_MIN_BYTES};

/// An address range of `bytes` that no region of the store has; `None` when none is left. Starts at a
/// place that depends on the store and the name, so that two stores rarely ask for the same.
pub fn free_address(regions: &[RegionRecord], uuid: [u8; 16], name: &str, bytes: u64) -> Option<u64> {
    let places = (ADDRESS_END - ADDRESS_BASE) / RESERVE_MIN_BYTES;
    let needed = bytes.div_ceil(RESERVE_MIN_BYTES);
    let mut seed = name.as_bytes().to_vec();
    seed.extend(uuid);
    let first = twox_hash::XxHash3_64::oneshot(&seed) % places;
    let taken = |start: u64, end: u64| {
        regions.iter().any(|region| {
            let length = u64::from(region.reserve_pages.max(region.pages)) * PAGE_SIZE as u64;
            start < region.address + length && region.address < end
        })
    };
    (0..places)
        .map(|step| (first + step) % places)
        .filter(|place| place + needed <= places)
        .map(|place| ADDRESS_BASE + place * RESERVE_MIN_BYTES)
        .find(|start| !taken(*start, start + needed * RESERVE_MIN_BYTES))
}
