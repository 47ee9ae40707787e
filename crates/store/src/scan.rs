//! Reads the summaries of a store: which batches does the log hold?
//!
//! Invariants: a segment's batches form a chain from its first page; the chain ends where no valid
//! batch of a higher sequence follows, so that what an earlier life of the segment left behind it
//! is never taken. Reads only. Does not know which batches belong to an image.

use std::io;

use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::mutant;

use crate::bytes::u32_at;
use crate::disk::{Disk, Wait};
use crate::hash::Hasher;
use crate::layout::{Geometry, summary_pages};
use crate::limits::{SCAN_READS, SUMMARY_PAGES_MAX};
use crate::summary::{Entry, Expected, SummaryFault, SummaryHead, UntrustedSummary};
use crate::types::PAGE_SIZE;

/// A batch that the scan found.
#[derive(Clone, Debug)]
pub(crate) struct FoundBatch {
    pub(crate) head: SummaryHead,
    /// Its entries in [`Scan::entries`].
    pub(crate) first: usize,
    pub(crate) count: u32,
}

impl FoundBatch {
    /// The slot of its first page of data.
    pub(crate) fn first_slot(&self) -> u32 {
        self.head.position + summary_pages(self.count)
    }
}

/// What the log holds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) batches: Vec<FoundBatch>,
    pub(crate) entries: Vec<Entry>,
    /// Places where a chain ended at bytes that say that they are a batch of this store there.
    pub(crate) damaged: Vec<u32>,
}

impl Scan {
    /// The entries of one of its batches, with the slots of their pages.
    pub(crate) fn placed_entries(&self, batch: &FoundBatch) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = &self.entries[batch.first..batch.first + batch.count as usize];
        (batch.first_slot()..).zip(entries)
    }

    /// Takes another scan's batches in addition.
    pub(crate) fn append(&mut self, other: &Self) {
        let moved = self.entries.len();
        self.entries.extend_from_slice(&other.entries);
        let batches = other.batches.iter().cloned();
        self.batches.extend(batches.map(|batch| FoundBatch { first: batch.first + moved, ..batch }));
    }
}

/// Where the walk of a segment's chain stands.
#[derive(Clone, Copy, Debug)]
struct Walk {
    segment: u32,
    /// Pages from the start of the segment to the next batch.
    at: u32,
    /// The sequence of the batch before.
    sequence: u64,
    /// Pages to read.
    pages: u32,
}

/// What one look at a summary means for the walk.
enum Step {
    Next(Walk),
    End,
}

pub(crate) struct Scanner<'a, D: Disk> {
    disk: &'a mut D,
    geometry: Geometry,
    hasher: Hasher,
    uuid_low: u64,
    scan: Scan,
    /// By token: the walk whose bytes are being read.
    walks: Vec<Walk>,
    next_segment: u32,
}

impl<'a, D: Disk> Scanner<'a, D> {
    pub(crate) fn new(disk: &'a mut D, geometry: Geometry, hasher: Hasher, uuid_low: u64) -> Self {
        // Room for all that can be there: growing would copy it several times. Memory is touched only
        // where entries are found.
        let most = geometry.segments() as usize * geometry.segment_entries() as usize;
        let scan = Scan { entries: Vec::with_capacity(most), ..Scan::default() };
        Self { disk, geometry, hasher, uuid_low, scan, walks: Vec::new(), next_segment: 0 }
    }

    /// Walks every chain, many segments at a time.
    pub(crate) fn run(mut self) -> io::Result<Scan> {
        let mut done = Vec::new();
        while self.walks.len() < SCAN_READS {
            let Some(walk) = self.first_walk() else { break };
            self.walks.push(walk);
            let buffer = AlignedBuffer::zeroed(SUMMARY_PAGES_MAX as usize * PAGE_SIZE);
            self.read(self.walks.len() - 1, buffer);
        }
        while self.disk.in_flight() > 0 {
            self.disk.reap(Wait::One, &mut done)?;
            for completion in done.drain(..) {
                let number = completion.token as usize;
                let walk = self.walks[number];
                let buffer = completion.buffer.expect("a read returns its buffer");
                let (got, len) = (completion.result?, walk.pages as usize * PAGE_SIZE);
                if got != len {
                    return Err(crate::device::short_read(got, len));
                }
                if let Some(next) = self.follow(walk, &buffer[..len]).or_else(|| self.first_walk()) {
                    self.walks[number] = next;
                    self.read(number, buffer);
                }
            }
        }
        Ok(self.scan)
    }

    fn first_walk(&mut self) -> Option<Walk> {
        let segment = self.next_segment;
        if segment == self.geometry.segments() {
            return None;
        }
        self.next_segment += 1;
        Some(Walk { segment, at: 0, sequence: 0, pages: SUMMARY_PAGES_MAX })
    }

    fn read(&mut self, number: usize, buffer: AlignedBuffer) {
        let walk = self.walks[number];
        let slot = self.geometry.first_slot(walk.segment) + walk.at;
        let len = walk.pages as usize * PAGE_SIZE;
        self.disk.read(number as u64, self.geometry.offset_of(slot), buffer, len);
    }

    /// Takes the batches that lie in `bytes`. Returns what to read next, if the chain may go on.
    fn follow(&mut self, mut walk: Walk, bytes: &[u8]) -> Option<Walk> {
        let start = walk.at;
        loop {
            let offset = (walk.at - start) as usize * PAGE_SIZE;
            let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) else {
                return Some(walk);
            };
            match self.step(walk, rest) {
                Step::Next(next) if next.at == walk.at => return Some(next),
                Step::Next(next) => walk = next,
                Step::End => return None,
            }
        }
    }

    fn step(&mut self, walk: Walk, bytes: &[u8]) -> Step {
        let mut position = self.geometry.first_slot(walk.segment) + walk.at;
        if mutant::planted("summary-position-unchecked") {
            position = u32_at(bytes, 32) % self.geometry.first_slot(self.geometry.segments());
        }
        let pages_left = self.geometry.segment_pages() - walk.at;
        let expected = Expected { uuid_low: self.uuid_low, position, pages_left };
        let first = self.scan.entries.len();
        let found = UntrustedSummary(bytes).validate_into(&expected, &self.hasher, &mut self.scan.entries);
        match found {
            Ok(head) if head.sequence.0 > walk.sequence => {
                let count = (self.scan.entries.len() - first) as u32;
                self.scan.batches.push(FoundBatch { head, first, count });
                let at = walk.at + summary_pages(count) + count;
                self.after(Walk { at, sequence: head.sequence.0, ..walk }, count)
            }
            Ok(_) => {
                self.scan.entries.truncate(first);
                Step::End
            }
            // The rest of this read is too short for it: read again from here.
            Err(SummaryFault::Longer(pages)) => Step::Next(Walk { pages, ..walk }),
            Err(SummaryFault::Damaged) => {
                self.scan.damaged.push(position);
                Step::End
            }
            Err(SummaryFault::NoBatch) => Step::End,
        }
    }

    /// The walk after a batch. Batches in a segment are often alike, so a short summary is expected
    /// after a short one.
    fn after(&self, walk: Walk, count: u32) -> Step {
        let left = self.geometry.segment_pages() - walk.at;
        if left < 2 {
            return Step::End;
        }
        Step::Next(Walk { pages: summary_pages(count).min(left), ..walk })
    }
}

/// Looks for summaries at every page of every segment: for what the chains should have reached when they do
/// not add up. Returns the valid batches among them, and of damaged ones what [`UntrustedSummary::salvage`]
/// finds: evidence of what is lost, never part of an image.
pub(crate) fn find_overlooked<D: Disk>(
    disk: &mut D,
    geometry: Geometry,
    hasher: &Hasher,
    uuid_low: u64,
    reached: &Scan,
) -> io::Result<Scan> {
    let mut found = Scan::default();
    let known: std::collections::HashSet<u32> =
        reached.batches.iter().map(|batch| batch.head.position).collect();
    let segment_pages = geometry.segment_pages();
    let len = segment_pages as usize * PAGE_SIZE;
    let (mut buffer, mut done) = (AlignedBuffer::zeroed(len), Vec::new());
    for segment in 0..geometry.segments() {
        disk.read(0, geometry.offset_of(geometry.first_slot(segment)), buffer, len);
        while done.is_empty() {
            disk.reap(Wait::One, &mut done)?;
        }
        let completion = done.pop().expect("one read was started");
        buffer = completion.buffer.expect("a read returns its buffer");
        let got = completion.result?;
        if got != len {
            return Err(crate::device::short_read(got, len));
        }
        for at in 0..segment_pages {
            let position = geometry.first_slot(segment) + at;
            if known.contains(&position) {
                continue;
            }
            let expected = Expected { uuid_low, position, pages_left: segment_pages - at };
            let summary = UntrustedSummary(&buffer[at as usize * PAGE_SIZE..]);
            let first = found.entries.len();
            let head = match summary.validate_into(&expected, hasher, &mut found.entries) {
                Ok(head) => Some(head),
                Err(SummaryFault::Damaged) => {
                    found.damaged.push(position);
                    summary.salvage(&expected, hasher, &mut found.entries)
                }
                Err(SummaryFault::NoBatch | SummaryFault::Longer(_)) => None,
            };
            let count = (found.entries.len() - first) as u32;
            found.batches.extend(head.map(|head| FoundBatch { head, first, count }));
        }
    }
    Ok(found)
}
