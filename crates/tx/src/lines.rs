//! The bytes that a transaction changes, as cache lines with a mask: in order of their first change.
//!
//! With redo a line carries its new bytes until the commit; with undo it says which bytes are logged. Few
//! lines are searched one by one, many through a table; what was never changed is told by a filter of 64
//! bits, so that a read beside the changes costs one test.
//!
//! Invariants: no line is there twice; a byte of a word run belongs to a whole aligned word; runs never
//! overlap, so their order does not matter; the tally is that of the runs, with redo.
//!
//! Does not know the space, the log, or what is durable.

use std::ops::Range;

use wattkeep_persist::{LINE, WORD};

/// So many lines are searched without a table.
const QUICK: usize = 12;

#[derive(Clone, Copy, Debug)]
struct Head {
    line: u64,
    /// The bytes that were changed.
    mask: u64,
    /// Those of them that are logged as words.
    words: u64,
}

/// Consecutive bytes that one record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they belong.
    pub(crate) home: u64,
    pub(crate) word: bool,
    /// Where they lie in [`Lines::bytes`].
    pub(crate) bytes: Range<usize>,
}

/// What runs take: records of words, records of objects, bytes of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) words: usize,
    pub(crate) objects: usize,
    pub(crate) object_bytes: usize,
}

impl Tally {
    #[inline]
    pub(crate) fn fits(&self, most: &Self) -> bool {
        self.words <= most.words && self.objects <= most.objects && self.object_bytes <= most.object_bytes
    }
}

/// The lines that were changed.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// What the runs of what is staged take.
    tally: Tally,
    heads: Vec<Head>,
    /// Of each line; behind them, what earlier transactions left.
    bytes: Vec<[u8; LINE]>,
    /// Place of a line in `heads`, plus one; empty while there are few lines.
    table: Vec<u32>,
    filter: u64,
}

/// Pieces of `at..at + len`, one a line: the line, where in it, and where in the range.
#[inline]
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let from = (at as usize + done) % LINE;
        let bytes = (LINE - from).min(len - done);
        let piece = ((at + done as u64) / LINE as u64, from..from + bytes, done..done + bytes);
        done += bytes;
        Some(piece)
    })
}

#[inline]
fn mask_of(range: &Range<usize>) -> u64 {
    (u64::MAX >> (LINE - range.len())) << range.start
}

#[inline]
fn spread(line: u64) -> u64 {
    line.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[inline]
fn filter_bit(line: u64) -> u64 {
    1 << (spread(line) >> 58)
}

impl Lines {
    /// Nothing was changed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Forgets everything, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.table.clear();
        self.filter = 0;
        self.tally = Tally::default();
    }

    /// What the runs of what is staged take.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Memory it holds on to.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() * LINE + self.heads.capacity() * size_of::<Head>() + self.table.capacity() * 4
    }

    #[inline]
    fn find(&self, line: u64) -> Option<usize> {
        if self.filter & filter_bit(line) == 0 {
            return None;
        }
        if self.table.is_empty() {
            return self.heads.iter().rposition(|head| head.line == line);
        }
        let mut slot = self.slot(line);
        loop {
            match self.table[slot] {
                0 => return None,
                place if self.heads[place as usize - 1].line == line => return Some(place as usize - 1),
                _ => slot = (slot + 1) & (self.table.len() - 1),
            }
        }
    }

    fn slot(&self, line: u64) -> usize {
        (spread(line) >> 32) as usize & (self.table.len() - 1)
    }

    #[inline]
    fn find_or_add(&mut self, line: u64) -> usize {
        match self.find(line) {
            Some(place) => place,
            None => self.add(line),
        }
    }

    #[inline]
    fn add(&mut self, line: u64) -> usize {
        let place = self.heads.len();
        self.filter |= filter_bit(line);
        self.heads.push(Head { line, mask: 0, words: 0 });
        if place == self.bytes.len() {
            self.more_bytes();
        }
        if place >= QUICK {
            self.enter_in_table();
        }
        place
    }

    #[cold]
    fn more_bytes(&mut self) {
        self.bytes.push([0; LINE]);
    }

    /// Enters the last line; all of them when the table is new or grows.
    fn enter_in_table(&mut self) {
        let mut first = self.heads.len() - 1;
        if self.heads.len() * 2 > self.table.len() {
            let slots = (self.heads.len() * 4).next_power_of_two();
            self.table.clear();
            self.table.resize(slots, 0);
            first = 0;
        }
        for place in first..self.heads.len() {
            let mut slot = self.slot(self.heads[place].line);
            while self.table[slot] != 0 {
                slot = (slot + 1) & (self.table.len() - 1);
            }
            self.table[slot] = place as u32 + 1;
        }
    }

    /// Keeps `bytes` as what is to be stored at `at`. As soon as the runs take more than `most`, it stops, and
    /// answers with how many bytes it left out.
    #[inline]
    pub(crate) fn stage(&mut self, at: u64, bytes: &[u8], words: bool, most: &Tally) -> Result<(), usize> {
        for (line, within, part) in pieces(at, bytes.len()) {
            let place = self.find_or_add(line);
            if self.change(place, &within, words) && !self.tally.fits(most) {
                return Err(bytes.len() - part.end);
            }
            self.bytes[place][within].copy_from_slice(&bytes[part]);
        }
        Ok(())
    }

    /// [`Self::stage`] of a word that lies on a word: of a length that is known.
    #[inline]
    pub(crate) fn stage_word(&mut self, at: u64, word: [u8; WORD], most: &Tally) -> Result<(), usize> {
        let (line, first) = (at / LINE as u64, at as usize % LINE / WORD);
        let place = self.find_or_add(line);
        let within = first * WORD..(first + 1) * WORD;
        if self.change(place, &within, true) && !self.tally.fits(most) {
            return Err(0);
        }
        self.bytes[place].as_chunks_mut().0[first] = word;
        Ok(())
    }

    /// Changes these bytes of the line, and keeps the tally. False if it is as it was.
    #[inline]
    fn change(&mut self, place: usize, within: &Range<usize>, words: bool) -> bool {
        let (head, bytes) = (&mut self.heads[place], mask_of(within));
        if words && bytes & head.mask == 0 {
            (head.mask, head.words) = (head.mask | bytes, head.words | bytes);
            self.tally.words += within.len() / WORD;
        } else if !words && head.mask == 0 {
            // A new line, the last one.
            head.mask = bytes;
            self.tally.object_bytes += within.len();
            self.tally.objects += usize::from(place == 0 || !self.joined(place - 1));
        } else if bytes & !(if words { head.words } else { head.objects() }) == 0 {
            return false;
        } else {
            self.change_some(place, bytes, words);
        }
        true
    }

    #[inline(never)]
    fn change_some(&mut self, place: usize, bytes: u64, words: bool) {
        let (before, joints_before) = (self.heads[place].tally(), self.joints(place));
        self.heads[place].change(bytes, words);
        let (after, joints_after) = (self.heads[place].tally(), self.joints(place));
        let Tally { words, objects, object_bytes } = &mut self.tally;
        *words = *words + after.words - before.words;
        *objects = *objects + after.objects + joints_before - before.objects - joints_after;
        *object_bytes = *object_bytes + after.object_bytes - before.object_bytes;
    }

    /// Runs of the lines beside this one that it makes one run with its own.
    fn joints(&self, place: usize) -> usize {
        [place.checked_sub(1), Some(place)].into_iter().flatten().filter(|first| self.joined(*first)).count()
    }

    /// A run of the line goes on in the one behind it.
    fn joined(&self, place: usize) -> bool {
        let [first, second] = [self.heads.get(place), self.heads.get(place + 1)];
        first.zip(second).is_some_and(|(first, second)| {
            first.line + 1 == second.line && first.objects() >> (LINE - 1) & second.objects() & 1 == 1
        })
    }

    /// Puts what is staged over `into`, which was read at `at`.
    #[inline(always)]
    pub(crate) fn overlay(&self, at: u64, into: &mut [u8]) {
        if !self.is_empty() {
            self.overlay_some(at, into);
        }
    }

    #[inline(never)]
    fn overlay_some(&self, at: u64, into: &mut [u8]) {
        for (line, within, part) in pieces(at, into.len()) {
            let Some(place) = self.find(line) else { continue };
            let (mask, wanted) = (self.heads[place].mask, mask_of(&within));
            if mask & wanted == wanted {
                into[part].copy_from_slice(&self.bytes[place][within]);
            } else {
                for (byte, to) in within.zip(&mut into[part]) {
                    if mask >> byte & 1 == 1 {
                        *to = self.bytes[place][byte];
                    }
                }
            }
        }
    }

    /// The runs of `len` bytes at `at` that were not there yet; they are from now on. [`Run::bytes`] counts
    /// from the beginning of the first run.
    pub(crate) fn mark(&mut self, at: u64, len: usize, words: bool, new: &mut Vec<Run>) {
        new.clear();
        let mut bytes = 0;
        for (line, within, _) in pieces(at, len) {
            let place = self.find_or_add(line);
            let fresh = mask_of(&within) & !self.heads[place].mask;
            self.heads[place].change(fresh, words);
            let as_words = self.heads[place].words & fresh;
            let mut from = 0;
            while let Some((run, word)) = next_run(fresh, as_words, from) {
                from = run.end;
                let home = line * LINE as u64 + run.start as u64;
                match new.last_mut() {
                    Some(last) if !word && !last.word && last.end() == home => last.bytes.end += run.len(),
                    _ => new.push(Run { home, word, bytes: bytes..bytes + run.len() }),
                }
                bytes += run.len();
            }
        }
    }

    /// All runs, in the order of the first change; those that continue each other are one.
    pub(crate) fn runs(&self, runs: &mut Vec<Run>) {
        runs.clear();
        for (place, head) in self.heads.iter().enumerate() {
            let mut from = 0;
            while let Some((run, word)) = next_run(head.mask, head.words, from) {
                from = run.end;
                let home = head.line * LINE as u64 + run.start as u64;
                let bytes = place * LINE + run.start..place * LINE + run.end;
                match runs.last_mut() {
                    Some(last)
                        if !word && !last.word && last.end() == home && last.bytes.end == bytes.start =>
                    {
                        last.bytes.end = bytes.end;
                    }
                    _ => runs.push(Run { home, word, bytes }),
                }
            }
        }
    }

    /// The staged bytes that [`Run::bytes`] points into.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_flattened()
    }

    /// Offset of each line, in order of the first change.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        self.heads.iter().map(|head| head.line as usize * LINE)
    }
}

impl Head {
    /// The bytes that are logged as objects.
    #[inline]
    fn objects(&self) -> u64 {
        self.mask & !self.words
    }

    /// What the line's runs take, as if there were no other line.
    fn tally(&self) -> Tally {
        let objects = self.objects();
        Tally {
            words: self.words.count_ones() as usize / WORD,
            objects: (objects & !(objects << 1)).count_ones() as usize,
            object_bytes: objects.count_ones() as usize,
        }
    }

    #[inline]
    fn change(&mut self, bytes: u64, words: bool) {
        if words {
            // A word that was begun as part of an object stays in the object's record.
            self.words |= bytes & !whole_words(whole_words(bytes) & self.mask);
        } else {
            self.words &= !whole_words(bytes & self.words);
        }
        self.mask |= bytes;
    }
}

/// The bytes of each word that any of `bytes` lies in.
fn whole_words(bytes: u64) -> u64 {
    let mut words = 0;
    let mut rest = bytes;
    while rest != 0 {
        let word = 0xFF << (rest.trailing_zeros() as usize / WORD * WORD);
        words |= word;
        rest &= !word;
    }
    words
}

/// The first run of a line at or behind `from`, and whether it is a word.
#[inline]
fn next_run(mask: u64, words: u64, from: usize) -> Option<(Range<usize>, bool)> {
    if from == LINE || mask >> from == 0 {
        return None;
    }
    let start = from + (mask >> from).trailing_zeros() as usize;
    if words >> start & 1 == 1 {
        return Some((start..start + WORD, true));
    }
    let bytes = ((mask & !words) >> start).trailing_ones() as usize;
    Some((start..start + bytes, false))
}

impl Run {
    /// Behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.home + self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wattkeep_sim::random::Random;

    use super::*;

    /// What the lines must say, byte by byte.
    type Model = BTreeMap<u64, u8>;

    fn runs_of(lines: &Lines) -> Vec<Run> {
        let mut runs = Vec::new();
        lines.runs(&mut runs);
        runs
    }

    /// Histories, and how long they are: an interpreter takes minutes for a few.
    const SEEDS: u64 = if cfg!(miri) { 2 } else { 200 };
    const STEPS: u64 = if cfg!(miri) { 16 } else { 60 };

    const ANY: Tally = Tally { words: usize::MAX, objects: usize::MAX, object_bytes: usize::MAX };

    fn bytes_of(lines: &Lines) -> Model {
        let mut bytes = Model::new();
        let runs = runs_of(lines);
        assert_eq!(lines.tally(), Tally::of(&runs), "{runs:?}");
        for run in runs {
            assert!(!run.word || run.home.is_multiple_of(8) && run.bytes.len() == 8, "{run:?}");
            for (offset, byte) in lines.bytes()[run.bytes.clone()].iter().enumerate() {
                let before = bytes.insert(run.home + offset as u64, *byte);
                assert!(before.is_none(), "{run:?} overlaps another");
            }
        }
        bytes
    }

    #[test]
    fn what_is_staged_is_what_runs_and_reads_tell() {
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let (mut lines, mut model) = (Lines::default(), Model::new());
            // Few lines and many: with and without a table.
            let span = if seed % 2 == 0 { 300 } else { 6000 };
            for step in 0..random.below(STEPS) {
                let (mut at, mut len) = (random.below(span), random.below(150) as usize);
                let words = random.below(2) == 0;
                if words {
                    (at, len) = (at / 8 * 8, len / 8 * 8);
                }
                let stored: Vec<u8> = (0..len).map(|byte| (byte as u64 + step * 7) as u8).collect();
                lines.stage(at, &stored, words, &ANY).expect("any");
                model.extend((at..).zip(stored));
                assert_eq!(bytes_of(&lines), model, "seed {seed}");
                let (from, len) = (random.below(span), random.below(200));
                let mut read = vec![0xEE; len as usize];
                lines.overlay(from, &mut read);
                let expected: Vec<u8> =
                    (from..from + len).map(|at| model.get(&at).copied().unwrap_or(0xEE)).collect();
                assert_eq!(read, expected, "seed {seed}");
            }
            lines.clear();
            assert!(lines.is_empty() && runs_of(&lines).is_empty());
        }
    }

    #[test]
    fn a_byte_is_new_once() {
        for seed in 0..SEEDS {
            let mut random = Random::new(seed);
            let (mut lines, mut model, mut new) = (Lines::default(), Model::new(), Vec::new());
            for _ in 0..random.below(STEPS) {
                let (mut at, mut len) = (random.below(2000), random.below(150));
                let words = random.below(2) == 0;
                if words {
                    (at, len) = (at / 8 * 8, len / 8 * 8);
                }
                lines.mark(at, len as usize, words, &mut new);
                let expected: Vec<u64> = (at..at + len).filter(|at| !model.contains_key(at)).collect();
                let marked: Vec<u64> = new.iter().flat_map(|run| run.home..run.end()).collect();
                assert_eq!(marked, expected, "seed {seed}");
                assert!(new.iter().all(|run| !run.word || run.bytes.len() == 8), "seed {seed}: {new:?}");
                model.extend(expected.into_iter().map(|at| (at, 0)));
            }
        }
    }

    #[test]
    fn an_object_over_many_lines_is_one_run_and_its_words_stay_in_it() {
        let mut lines = Lines::default();
        lines.stage(40, &[1; 4096], false, &ANY).expect("any");
        lines.stage(80, &[2; 8], true, &ANY).expect("any");
        let runs = runs_of(&lines);
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].home, runs[0].bytes.len(), runs[0].word), (40, 4096, false));
        lines.clear();
        lines.stage(80, &[2; 16], true, &ANY).expect("any");
        assert_eq!(runs_of(&lines).iter().filter(|run| run.word).count(), 2);
        lines.stage(84, &[3; 8], false, &ANY).expect("any");
        let places: Vec<_> = runs_of(&lines).iter().map(|run| (run.home, run.bytes.len())).collect();
        assert_eq!(places, [(80, 16)]);
    }
}
