//! Rolls back transactions that had not ended.
//!
//! A lane holds the records of one transaction at a time, from its beginning. Those with a TID above the
//! lane's done mark are of one that did not end: their old bytes go home. A record that does not match its
//! check was torn away before its store, with all that were appended with it, or is damaged: a record of a
//! later append tells.

use wattkeep_persist::Space;

use super::{Lists, Log, Recovered, digest_fits, list_of, lists_of, mark_at, parts_of, read_data, record_at};
use crate::error::TxError;
use crate::lane::{Bytes, put};
use crate::layout::{LaneLayout, Part};
use crate::record::{Kind, Record, Slot, TID_MAX, without_ordinal};

/// Rolls back what is unfinished, and publishes what is finished. The answer is what was done, and the
/// highest TID in the log.
pub(crate) fn recover(log: &Log<'_>) -> Result<(Recovered, u64), TxError> {
    let mut recovered = Recovered::default();
    let mut last = log.floor;
    let mut lanes = Vec::new();
    for lane in 0..log.layout.lanes {
        let place = log.layout.lane(lane);
        let mark = mark_at(log.space, place.done_at(), "the done mark of a lane")?;
        let (done, listed) = (mark >> 1, mark & 1 == 1);
        let lists = if listed && done > log.floor.max(log.heap.published(lane)?) {
            Some(lists_of_done(log, lane, done)?)
        } else {
            None
        };
        let unfinished = unfinished(log.space, &place, log.floor.max(done))?;
        last = last.max(done).max(unfinished.unwrap_or(0)).max(highest_slot(log, lane)?);
        lanes.push((lane, done, lists, unfinished));
    }
    let finished = lanes.iter().filter_map(|(lane, done, lists, _)| Some((*lane, *done, lists.as_ref()?)));
    log.check_lists(finished)?;
    for (lane, _, _, unfinished) in &lanes {
        let Some(tid) = *unfinished else { continue };
        recovered.dropped += 1;
        let place = log.layout.lane(*lane);
        each_valid(log.space, &place, tid, |_, record, old| {
            put(log.space, record.home as usize, old)?;
            Ok(log.space.flush(record.home as usize, old.len())?)
        })?;
    }
    log.space.fence();
    for (lane, done, lists, _) in &lanes {
        if let Some(lists) = lists {
            recovered.published += log.publish(*lane, *done, lists)?;
        }
    }
    Ok((recovered, last))
}

/// The list of the transaction that the done mark names.
fn lists_of_done(log: &Log<'_>, lane: u32, done: u64) -> Result<Lists, TxError> {
    let place = log.layout.lane(lane);
    let start = place.start(Part::Slots);
    for half in 0..2 {
        let slot = log.space.read::<Slot>(start + half * size_of::<Slot>())?.parse(lane);
        let Some(slot) = slot.filter(|slot| slot.tid == done) else { continue };
        if let Some(list) = list_of(log.space, &place, &slot)?
            && digest_fits(&slot, 0, 0, &list)
        {
            return Ok(lists_of(&slot, &list));
        }
    }
    Err(TxError::Damaged { at: start, what: format!("the list of transaction {done}") })
}

/// The highest TID of the two slots that undo uses: one may be of a transaction that never ended.
fn highest_slot(log: &Log<'_>, lane: u32) -> Result<u64, TxError> {
    let start = log.layout.lane(lane).start(Part::Slots);
    let mut highest = 0;
    for half in 0..2 {
        let slot = log.space.read::<Slot>(start + half * size_of::<Slot>())?.parse(lane);
        highest = highest.max(slot.map_or(0, |slot| slot.tid));
    }
    Ok(highest)
}

/// The highest TID of any record: redo leaves records without a slot behind, which undo must not take for
/// its own.
pub(crate) fn highest_record(log: &Log<'_>) -> Result<u64, TxError> {
    let mut highest = 0;
    for lane in 0..log.layout.lanes {
        let place = log.layout.lane(lane);
        for kind in [Kind::Word, Kind::Object] {
            let (part, _, entry) = parts_of(kind);
            let mut data = Vec::new();
            for at in (0..place.room(part)).step_by(entry) {
                let record = record_at(log.space, &place, kind, at)?;
                let tid = record.tid & TID_MAX;
                if tid > highest
                    && read_data(log.space, &place, kind, &record, &mut data)?
                    && record.matches(&data).is_some()
                {
                    highest = tid;
                }
            }
        }
    }
    Ok(highest)
}

/// The TID above `done` that the lane holds records of.
fn unfinished(space: &Space, lane: &LaneLayout, done: u64) -> Result<Option<u64>, TxError> {
    let mut found: Option<u64> = None;
    for kind in [Kind::Word, Kind::Object] {
        let (part, _, entry) = parts_of(kind);
        let start = lane.start(part);
        let (mut data, mut gap) = (Vec::new(), None);
        for index in 0..lane.room(part) / entry {
            let record = record_at(space, lane, kind, index * entry)?;
            let (tid, ordinal) = without_ordinal(record.tid);
            let valid = tid > done
                && read_data(space, lane, kind, &record, &mut data)?
                && record.matches(&data).is_some();
            if !valid {
                gap.get_or_insert(index);
                continue;
            }
            let other = found.is_some_and(|found| found != tid);
            if other || gap.is_some_and(|gap| gap < index.saturating_sub(ordinal)) {
                let at = start + gap.unwrap_or(index) * entry;
                return Err(TxError::Damaged { at, what: format!("a record of transaction {tid}") });
            }
            found = Some(tid);
        }
    }
    Ok(found)
}

/// Each record of transaction `tid` that matches its check, with its data.
fn each_valid(
    space: &Space,
    lane: &LaneLayout,
    tid: u64,
    mut each: impl FnMut(Kind, &Record, &[u8]) -> Result<(), TxError>,
) -> Result<(), TxError> {
    let mut data = Vec::new();
    for kind in [Kind::Word, Kind::Object] {
        let (part, _, entry) = parts_of(kind);
        for index in 0..lane.room(part) / entry {
            let record = record_at(space, lane, kind, index * entry)?;
            if record.tid & TID_MAX == tid
                && read_data(space, lane, kind, &record, &mut data)?
                && record.matches(&data).is_some()
            {
                each(kind, &record, &data)?;
            }
        }
    }
    Ok(())
}

/// Each record of transaction `tid`, which this program logged up to `used`, with its data.
pub(crate) fn each_record(
    space: &Space,
    lane: &LaneLayout,
    used: &Bytes,
    tid: u64,
    mut each: impl FnMut(&Record, &[u8]) -> Result<(), TxError>,
) -> Result<(), TxError> {
    let mut data = Vec::new();
    for kind in [Kind::Word, Kind::Object] {
        let (part, _, entry) = parts_of(kind);
        for at in (0..used.of(part)).step_by(entry) {
            let record = record_at(space, lane, kind, at)?;
            let whole = record.tid & TID_MAX == tid && read_data(space, lane, kind, &record, &mut data)?;
            if !whole || record.matches(&data).is_none() {
                let what = format!("a record of transaction {tid}");
                return Err(TxError::Damaged { at: lane.start(part) + at, what });
            }
            each(&record, &data)?;
        }
    }
    Ok(())
}
