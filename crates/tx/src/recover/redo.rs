//! Applies committed transactions again, in the order of their TIDs over all lanes.
//!
//! A lane's slots follow each other from its beginning, with rising TIDs above the floor. The first that
//! does not ends the lane; if a later one is a slot above the floor, the one between is damaged. A slot whose
//! records do not fit its digest was torn by the cut if it is the last one and nothing promised more;
//! otherwise it is damaged. The witness of a slot promises that it was whole: it is stored behind the slot's
//! fence, but not flushed, so only a cut that loses lines or pages takes it away from a slot that counted.

use wattkeep_persist::mutant;

use super::{Lists, Log, Recovered, list_of, lists_of, parts_of, read_data, record_at};
use crate::error::TxError;
use crate::lane::{Bytes, put};
use crate::record::{Kind, ORDERED, SEALED, Slot, mix};

/// A transaction in the log.
struct Found {
    lane: u32,
    slot: Slot,
    /// Where its records begin.
    before: Bytes,
    lists: Lists,
}

/// Replays the log. The answer is what was done, and the highest TID in it.
pub(crate) fn recover(log: &Log<'_>) -> Result<(Recovered, u64), TxError> {
    let mut recovered = Recovered::default();
    let mut found = Vec::new();
    let mut last = log.floor;
    for lane in 0..log.layout.lanes {
        last = last.max(scan_lane(log, lane, &mut found, &mut recovered)?);
    }
    if !mutant::planted("tx-replayed-by-lane") {
        found.sort_by_key(|transaction| transaction.slot.tid);
    }
    log.check_lists(found.iter().map(|found| (found.lane, found.slot.tid, &found.lists)))?;
    for transaction in &found {
        apply(log, transaction)?;
    }
    log.space.fence();
    for transaction in &found {
        recovered.published += log.publish(transaction.lane, transaction.slot.tid, &transaction.lists)?;
    }
    recovered.replayed = found.len() as u64;
    Ok((recovered, last))
}

/// Adds the lane's transactions to `found`; the answer is the highest TID in it.
fn scan_lane(
    log: &Log<'_>,
    lane: u32,
    found: &mut Vec<Found>,
    recovered: &mut Recovered,
) -> Result<u64, TxError> {
    let place = log.layout.lane(lane);
    let slot_at =
        |number: usize| Ok::<_, TxError>(log.space.read::<Slot>(place.slot_at(number))?.parse(lane));
    let is_witnessed = |number: usize, behind: u64| {
        let has_place = number + 1 < place.slots();
        let witness = Slot::witness(lane, number, behind);
        Ok::<_, TxError>(has_place && log.space.load(place.witness_at(number))? == witness)
    };
    let (mut last, mut before, mut count) = (log.floor, Bytes::default(), 0);
    while count < place.slots()
        && let Some(slot) = slot_at(count)?.filter(|slot| slot.tid > last)
    {
        match verify(log, lane, &slot, &before)? {
            Some(lists) => {
                found.push(Found { lane, slot, before, lists });
                if mutant::planted("tx-replayed-before-judged") {
                    found.last().map_or(Ok(()), |early| apply(log, early))?;
                }
            }
            None if may_be_torn(&slot)
                && !is_witnessed(count, last)?
                && next_is_over(log, &slot_at, count + 1, place.slots())? =>
            {
                recovered.dropped += 1
            }
            None => {
                let (at, what) = (place.slot_at(count), format!("a record of transaction {}", slot.tid));
                return Err(TxError::Damaged { at, what });
            }
        }
        (last, count) = (slot.tid, count + 1);
        advance(&mut before, &slot);
    }
    // What ends the lane was torn, or never written; unless somebody knows better.
    let damaged = |what: String| Err(TxError::Damaged { at: place.slot_at(count), what });
    let published = log.heap.published(lane)?;
    if published > last {
        // A slot is durable before the heap hears of its transaction.
        return damaged(format!("the commit slot of transaction {published}"));
    }
    if is_witnessed(count, last)? {
        return damaged(format!("the commit slot behind that of transaction {last}"));
    }
    for number in count..place.slots() {
        if let Some(slot) = slot_at(number)?.filter(|slot| slot.tid > log.floor) {
            return damaged(format!("a commit slot before transaction {}", slot.tid));
        }
    }
    Ok(last)
}

/// Whether a cut may have taken records of the slot: nothing was fenced between them.
fn may_be_torn(slot: &Slot) -> bool {
    slot.flags & (SEALED | ORDERED) == 0
}

/// Whether no slot of the log follows.
fn next_is_over(
    log: &Log<'_>,
    slot_at: &impl Fn(usize) -> Result<Option<Slot>, TxError>,
    next: usize,
    slots: usize,
) -> Result<bool, TxError> {
    Ok(next == slots || slot_at(next)?.is_none_or(|slot| slot.tid <= log.floor))
}

/// Where the records behind those of `slot` begin.
fn advance(before: &mut Bytes, slot: &Slot) {
    for (kind, count) in [(Kind::Word, slot.words), (Kind::Object, slot.objects)] {
        let (part, _, entry) = parts_of(kind);
        before.add(part, count as usize * entry);
    }
}

/// The lists of the transaction, if all its records are as they were logged.
fn verify(log: &Log<'_>, lane: u32, slot: &Slot, before: &Bytes) -> Result<Option<Lists>, TxError> {
    let place = log.layout.lane(lane);
    let mut digests = [0; 2];
    let mut data = Vec::new();
    for (number, (kind, count)) in
        [(Kind::Word, slot.words), (Kind::Object, slot.objects)].into_iter().enumerate()
    {
        let (part, _, entry) = parts_of(kind);
        if before.of(part) + count as usize * entry > place.room(part) {
            return Ok(None);
        }
        for index in 0..count as usize {
            let record = record_at(log.space, &place, kind, before.of(part) + index * entry)?;
            if record.tid != slot.tid || !read_data(log.space, &place, kind, &record, &mut data)? {
                return Ok(None);
            }
            let Some(hash) = record.matches(&data) else { return Ok(None) };
            digests[number] = mix([digests[number], hash]);
        }
    }
    let Some(list) = list_of(log.space, &place, slot)? else { return Ok(None) };
    Ok(super::digest_fits(slot, digests[0], digests[1], &list).then(|| lists_of(slot, &list)))
}

/// Stores what the transaction's records hold, and begins to write it back.
fn apply(log: &Log<'_>, transaction: &Found) -> Result<(), TxError> {
    let place = log.layout.lane(transaction.lane);
    let mut data = Vec::new();
    let Found { slot, before, .. } = transaction;
    for (kind, count) in [(Kind::Word, slot.words), (Kind::Object, slot.objects)] {
        let (part, _, entry) = parts_of(kind);
        for index in 0..count as usize {
            let record = record_at(log.space, &place, kind, before.of(part) + index * entry)?;
            read_data(log.space, &place, kind, &record, &mut data)?;
            put(log.space, record.home as usize, &data)?;
            log.space.flush(record.home as usize, data.len())?;
        }
    }
    Ok(())
}
