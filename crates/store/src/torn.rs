//! Finds copies of committed versions that a power cut tore.
//!
//! A copy that cleaning wrote after the last commit belongs to the image as soon as its summary is
//! valid, but its data may not have reached the medium: no flush was waited for. Such a batch is
//! therefore read and verified. A torn one was never covered by a flush, nor was any batch after it
//! in its segment, so the versions that they copied are all still in place: the batches are dropped
//! like the lost tail, and erased like it, because the next commit would take them for verified.

use std::io;

use wattkeep_sys::buffer::AlignedBuffer;

use crate::disk::{Disk, Wait};
use crate::hash::Hasher;
use crate::layout::Geometry;
use crate::scan::{FoundBatch, Scan};
use crate::superblock::Commit;
use crate::types::PAGE_SIZE;

/// Reads in flight: each up to a whole segment.
const READS: usize = 4;

/// Removes the torn copies from the scan and returns them.
pub(crate) fn take_torn_copies<D: Disk>(
    disk: &mut D,
    geometry: Geometry,
    hasher: &Hasher,
    commit: Commit,
    scan: &mut Scan,
) -> io::Result<Vec<FoundBatch>> {
    let copy =
        |batch: &FoundBatch| batch.head.epoch <= commit.epoch && batch.head.sequence > commit.last_sequence;
    let copies: Vec<_> = scan.batches.iter().filter(|batch| copy(batch)).cloned().collect();
    let torn = find_torn(disk, geometry, hasher, &copies, scan)?;
    let is_torn = |batch: &FoundBatch| {
        copy(batch)
            && torn.iter().any(|first| {
                geometry.segment_of(first.head.position) == geometry.segment_of(batch.head.position)
                    && first.head.sequence <= batch.head.sequence
            })
    };
    let (taken, kept) = std::mem::take(&mut scan.batches).into_iter().partition(is_torn);
    scan.batches = kept;
    Ok(taken)
}

fn find_torn<D: Disk>(
    disk: &mut D,
    geometry: Geometry,
    hasher: &Hasher,
    copies: &[FoundBatch],
    scan: &Scan,
) -> io::Result<Vec<FoundBatch>> {
    let len = geometry.segment_pages() as usize * PAGE_SIZE;
    let mut idle: Vec<_> = (0..READS.min(copies.len())).map(|_| AlignedBuffer::zeroed(len)).collect();
    let (mut next, mut torn, mut done) = (0, Vec::new(), Vec::new());
    while next < copies.len() || disk.in_flight() > 0 {
        while let Some(buffer) = idle.pop_if(|_| next < copies.len()) {
            let batch = &copies[next];
            let bytes = batch.count as usize * PAGE_SIZE;
            disk.read(next as u64, geometry.offset_of(batch.first_slot()), buffer, bytes);
            next += 1;
        }
        disk.reap(Wait::One, &mut done)?;
        for completion in done.drain(..) {
            let batch = &copies[completion.token as usize];
            let buffer = completion.buffer.expect("a read returns its buffer");
            let (got, wanted) = (completion.result?, batch.count as usize * PAGE_SIZE);
            if got != wanted {
                return Err(crate::device::short_read(got, wanted));
            }
            let entries = &scan.entries[batch.first..batch.first + batch.count as usize];
            let whole = entries.iter().zip(buffer.chunks(PAGE_SIZE)).all(|(entry, bytes)| {
                entry.page.region == crate::summary::VOID_REGION || hasher.page(bytes) == entry.checksum
            });
            if !whole {
                torn.push(batch.clone());
            }
            idle.push(buffer);
        }
    }
    Ok(torn)
}
