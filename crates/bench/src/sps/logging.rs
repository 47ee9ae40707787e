//! Strings behind a redo log: new values go to the log, durably, and then in place.
//!
//! ```text
//! 0        head      64 B   number of the log's first record
//! 64       records   576 B each: number, the two strings, checksum; their new values
//! 1 MiB    strings
//! ```
//!
//! One fence a swap: the checksum tells a whole record from a torn one, so no mark is written behind it. When
//! the log is full, what it put in place is flushed, and the log begins again: only then may a record go.
//!
//! Invariant: a string that differs from its durable bytes is in the log.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash3_64;
use wattkeep_persist::{LINE, Space, WORD};

use super::plain::write_originals;
use super::{STRING_BYTES, SpsError, Strings, Text};

/// Bytes of the log, as the transactions' own.
const LOG_BYTES: usize = 1 << 20;
const RECORD_BYTES: usize = LINE + 2 * STRING_BYTES;
const RECORDS_MAX: usize = (LOG_BYTES - LINE) / RECORD_BYTES;

/// Words of a record's head: number, one string, the other, checksum.
const HEAD_BYTES: usize = 4 * WORD;

/// Strings and their log.
pub struct Logging {
    space: Arc<Space>,
    strings: usize,
    /// Number of the next record, and how many are in the log.
    number: u64,
    logged: usize,
    disk: Option<File>,
    record: Box<[u8; RECORD_BYTES]>,
}

/// Bytes that so many strings take, with the log.
pub fn bytes(strings: usize) -> usize {
    LOG_BYTES + strings * STRING_BYTES
}

fn record_at(place: usize) -> usize {
    LINE + place * RECORD_BYTES
}

fn string_at(string: usize) -> usize {
    LOG_BYTES + string * STRING_BYTES
}

fn checksum(record: &[u8; RECORD_BYTES]) -> u64 {
    let head = XxHash3_64::oneshot(&record[..HEAD_BYTES - WORD]);
    XxHash3_64::oneshot_with_seed(head, &record[LINE..])
}

fn word(record: &[u8; RECORD_BYTES], number: usize) -> u64 {
    let bytes = &record[number * WORD..(number + 1) * WORD];
    u64::from_le_bytes(bytes.try_into().expect("the bytes of a word"))
}

impl Logging {
    /// Makes the strings. With `disk` the log is also written to that file, whenever it is full.
    ///
    /// # Errors
    /// The space refuses, or the disk.
    pub fn make(space: Arc<Space>, strings: usize, disk: Option<&Path>) -> Result<Self, SpsError> {
        write_originals(&space, LOG_BYTES, strings)?;
        let disk = disk.map(File::create).transpose().map_err(SpsError::Disk)?;
        let record = Box::new([0; RECORD_BYTES]);
        let mut logging = Self { space, strings, number: 1, logged: 0, disk, record };
        logging.begin_again()?;
        Ok(logging)
    }

    /// Finds the strings after a crash: records that are whole, from the log's first one, are put in place.
    ///
    /// # Errors
    /// The space refuses.
    pub fn recover(space: Arc<Space>, strings: usize) -> Result<Self, SpsError> {
        let first = space.load(0)?;
        let record = Box::new([0; RECORD_BYTES]);
        let mut logging = Self { space, strings, number: first, logged: 0, disk: None, record };
        while logging.logged < RECORDS_MAX && logging.read_record()? {
            logging.put_in_place()?;
            logging.number += 1;
            logging.logged += 1;
        }
        logging.begin_again()?;
        Ok(logging)
    }

    /// Whether the next record is whole.
    fn read_record(&mut self) -> Result<bool, SpsError> {
        self.space.read_bytes(record_at(self.logged), &mut self.record[..])?;
        let record = &self.record;
        let strings = self.strings as u64;
        Ok(word(record, 0) == self.number
            && word(record, 3) == checksum(record)
            && word(record, 1) < strings
            && word(record, 2) < strings)
    }

    fn put_in_place(&self) -> Result<(), SpsError> {
        let (one, other) = (word(&self.record, 1) as usize, word(&self.record, 2) as usize);
        let (first, second) = self.record[LINE..].split_at(STRING_BYTES);
        self.space.write_bytes(string_at(one), first)?;
        Ok(self.space.write_bytes(string_at(other), second)?)
    }

    fn log(&mut self, one: usize, other: usize, first: &Text, second: &Text) -> Result<(), SpsError> {
        if self.logged == RECORDS_MAX {
            self.empty()?;
        }
        let record = &mut self.record;
        record[LINE..LINE + STRING_BYTES].copy_from_slice(first);
        record[LINE + STRING_BYTES..].copy_from_slice(second);
        for (place, value) in [self.number, one as u64, other as u64].into_iter().enumerate() {
            record[place * WORD..(place + 1) * WORD].copy_from_slice(&value.to_le_bytes());
        }
        let sum = checksum(record);
        record[HEAD_BYTES - WORD..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        let at = record_at(self.logged);
        self.space.write_bytes(at, &record[..])?;
        self.space.persist(at, RECORD_BYTES)?;
        self.number += 1;
        self.logged += 1;
        Ok(())
    }

    /// Makes durable what the log put in place, so that its records may go.
    fn empty(&mut self) -> Result<(), SpsError> {
        if let Some(disk) = &mut self.disk {
            let mut log = vec![0; record_at(self.logged)];
            self.space.read_bytes(0, &mut log)?;
            let written = disk.seek(SeekFrom::Start(0)).and_then(|_| disk.write_all(&log));
            written.and_then(|()| disk.sync_data()).map_err(SpsError::Disk)?;
        }
        for place in 0..self.logged {
            for string in [WORD, 2 * WORD] {
                let string = self.space.load(record_at(place) + string)? as usize;
                self.space.flush(string_at(string), STRING_BYTES)?;
            }
        }
        self.begin_again()
    }

    fn begin_again(&mut self) -> Result<(), SpsError> {
        self.space.fence();
        self.space.store(0, self.number)?;
        self.space.persist(0, WORD)?;
        self.logged = 0;
        Ok(())
    }
}

impl Strings for Logging {
    fn read(&self, string: usize, into: &mut Text) -> Result<(), SpsError> {
        Ok(self.space.read_bytes(string_at(string), into)?)
    }

    fn swap(&mut self, one: usize, other: usize) -> Result<(), SpsError> {
        let (mut first, mut second) = ([0; STRING_BYTES], [0; STRING_BYTES]);
        self.read(one, &mut first)?;
        self.read(other, &mut second)?;
        self.log(one, other, &second, &first)?;
        self.put_in_place()
    }

    fn settle(&mut self) -> Result<(), SpsError> {
        self.empty()
    }
}

#[cfg(test)]
mod tests {
    use wattkeep_persist::{Anonymous, Domain};

    use super::*;
    use crate::sps::Swaps;

    /// What a crash may leave of strings that are in the log is anything: the log has them.
    #[test]
    fn a_log_brings_back_what_was_not_durable_in_place() {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(bytes(100))), Domain::Battery));
        let mut logging = Logging::make(space.clone(), 100, None).expect("made");
        let mut swaps = Swaps::new(100, 3);
        // Once around and a bit.
        swaps.run(&mut logging, RECORDS_MAX as u64 + 200).expect("swapped");
        for place in 0..logging.logged {
            for string in [WORD, 2 * WORD] {
                let string = space.load(record_at(place) + string).expect("a record") as usize;
                space.write_bytes(string_at(string), &[0xdb; STRING_BYTES]).expect("damaged");
            }
        }
        assert!(swaps.verify(&logging).is_err());
        let mut recovered = Logging::recover(space.clone(), 100).expect("recovered");
        swaps.verify(&recovered).expect("every string");
        // A record that is torn was never committed.
        swaps.run(&mut recovered, 2).expect("swapped");
        let number = recovered.number;
        space.write_bytes(record_at(1) + LINE, &[7]).expect("torn");
        assert_eq!(Logging::recover(space, 100).expect("recovered").number, number - 1);
    }
}
