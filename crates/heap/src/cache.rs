//! What a thread has at hand: free chunks of each class, and a segment of the log to write to.
//!
//! A thread that has both allocates and frees without a lock. It takes chunks from the others, and gives them
//! back, a batch at a time. When it ends, it gives back all it has; when another one finds no room, that one
//! empties it (see [`crate::desk`]).
//!
//! A chunk that was freed keeps the slot of its record in the log: its next record is written there, and that
//! line is at hand.

use crate::chunks::{Place, SlotAt};
use crate::classes::{ALL, CLASSES};
use crate::core::Core;
use crate::error::Quick;
use crate::log::OpenSegment;

/// A free chunk at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) at: u64,
    /// Says where its record's slot is, if it keeps one.
    pub(crate) slot: SlotAt,
}

impl Ready {
    #[inline(always)]
    pub(crate) fn new(at: u64, place: Place<'_>) -> Self {
        Self { at, slot: place.slot_at() }
    }
}

/// One thread's share of one heap.
pub(crate) struct Cache {
    pub(crate) bins: [Vec<Ready>; CLASSES],
    pub(crate) segment: Option<OpenSegment>,
    /// No other thread can change who has an allocated chunk (see [`crate::desk`]).
    pub(crate) is_alone: bool,
}

impl Cache {
    pub(crate) const fn new(is_alone: bool) -> Self {
        Self { bins: [const { Vec::new() }; CLASSES], segment: None, is_alone }
    }

    /// The segment, with room for one record at least.
    #[inline]
    pub(crate) fn room(&mut self, core: &Core) -> Quick<&mut OpenSegment> {
        self.room_for(core, 1)
    }

    /// The segment, with room to append so many records; a single one may fill a gap.
    #[inline]
    pub(crate) fn room_for(&mut self, core: &Core, records: u32) -> Quick<&mut OpenSegment> {
        if self.segment.as_ref().is_none_or(|segment| !segment.has_room(records)) {
            self.roll(core, records)?;
        }
        Ok(self.segment.as_mut().expect("a segment with room"))
    }

    #[cold]
    fn roll(&mut self, core: &Core, records: u32) -> Quick<()> {
        let next = core.acquire(records)?;
        if let Some(full) = self.segment.replace(next) {
            core.log.give_back(&core.chunks, full)?;
        }
        Ok(())
    }

    /// Keeps a free chunk, which is marked as cached, for the next allocation.
    #[inline(always)]
    pub(crate) fn keep(&mut self, core: &Core, class: u8, ready: Ready) {
        let bin = &mut self.bins[usize::from(class)];
        bin.push(ready);
        if bin.len() > 2 * ALL[usize::from(class)].batch() {
            self.shrink(core, class);
        }
    }

    #[cold]
    fn shrink(&mut self, core: &Core, class: u8) {
        let bin = &mut self.bins[usize::from(class)];
        let keep = ALL[usize::from(class)].batch();
        // The chunks freed last stay: their lines are in the processor's cache.
        core.give_chunks(&mut self.segment, class, bin.drain(..bin.len() - keep));
    }

    /// Gives all chunks back.
    pub(crate) fn empty(&mut self, core: &Core) {
        for (class, bin) in self.bins.iter_mut().enumerate() {
            if !bin.is_empty() {
                core.give_chunks(&mut self.segment, class as u8, bin.drain(..));
            }
        }
    }

    /// Gives back all it has.
    pub(crate) fn give_up(&mut self, core: &Core) {
        self.empty(core);
        if let Some(segment) = self.segment.take() {
            // A segment that cannot be read stays as it is until the next open tells.
            let _ = core.log.give_back(&core.chunks, segment);
        }
    }
}
