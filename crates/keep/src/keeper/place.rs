//! Where a new region is mapped: an address that it keeps for life.
//!
//! Pure arithmetic over the catalogue. Does not map anything.

use std::ops::Range;

use wattkeep_store::RegionRecord;

use crate::limits::{ADDRESS_BASE, ADDRESS_END, PAGE_SIZE, RESERVE_MIN_BYTES};

/// An address range of `bytes` that no region of the store has; `None` when none is left. Starts at a
/// place that depends on the store and the name, so that two stores rarely ask for the same.
pub fn free_address(regions: &[RegionRecord], uuid: [u8; 16], name: &str, bytes: u64) -> Option<u64> {
    free_address_beside(&[], regions, uuid, name, bytes)
}

/// The same, for a program that has mapped the ranges `occupied`: of other stores, for example. One in
/// 768 pairs of regions would meet otherwise, and an address is for life.
pub fn free_address_beside(
    occupied: &[Range<u64>],
    regions: &[RegionRecord],
    uuid: [u8; 16],
    name: &str,
    bytes: u64,
) -> Option<u64> {
    let places = (ADDRESS_END - ADDRESS_BASE) / RESERVE_MIN_BYTES;
    let needed = bytes.div_ceil(RESERVE_MIN_BYTES);
    let mut seed = name.as_bytes().to_vec();
    seed.extend(uuid);
    let first = twox_hash::XxHash3_64::oneshot(&seed) % places;
    let taken = |start: u64, end: u64| {
        occupied.iter().any(|range| start < range.end && range.start < end)
            || regions.iter().any(|region| {
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

/// The ranges in a text of /proc/PID/maps. Lines that say nothing of an address are passed over.
pub fn mapped_ranges(maps: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_keeps_clear_of_what_its_program_has_mapped() {
        let uuid = [7; 16];
        let first = free_address(&[], uuid, "table", 4096).expect("an address");
        let maps =
            format!("{:x}-{:x} rw-s 00000000 00:01 8 /memfd:other\nnonsense\n", first + 4096, first + 8192);
        let beside = free_address_beside(&mapped_ranges(&maps), &[], uuid, "table", 4096);
        assert!(beside.is_some_and(|place| place.abs_diff(first) >= RESERVE_MIN_BYTES));
    }
}
