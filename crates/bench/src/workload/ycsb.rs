//! The core mixes of the Yahoo Cloud Serving Benchmark over a [`Table`].
//!
//! | mix | operations | records asked for |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | scrambled zipfian, 0.99 |
//! | B | 95 % reads, 5 % updates | scrambled zipfian, 0.99 |
//! | C | reads | scrambled zipfian, 0.99 |
//! | D | 95 % reads, 5 % inserts | the latest: zipfian 0.99 by age |
//! | F | 50 % reads, 50 % read-modify-writes | scrambled zipfian, 0.99 |
//!
//! A read reads the whole record. An update rewrites one field of 100 bytes, chosen evenly, as the
//! YCSB does by default, and the record's header of 24 bytes. A read-modify-write reads the whole
//! record, then updates a field with bytes that depend on what it read. An insert writes a whole
//! record and the table's next key; once the slots are full it overwrites the oldest record.
//!
//! Invariants: those of [`super`]; keys asked for are always in the table.
//!
//! Does not know offsets: the table does.

use super::pattern::fold;
use super::random::Random;
use super::table::{FIELDS, Table};
use super::zipf::{Universe, ZIPF_CONSTANT, Zipf, scramble};
use super::{Counts, Memory, Workload};
use crate::spec::YcsbMix;

/// How a mix is to run, where the YCSB leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YcsbOptions {
    /// Fields that an update rewrites, of the record's ten: 1 is the YCSB's default, 10 its
    /// `writeallfields=true`. Taken as 1 to 10.
    pub fields: usize,
    /// What the zipfian ranks of A, B, C and F range over.
    pub universe: Universe,
}

impl Default for YcsbOptions {
    fn default() -> Self {
        Self { fields: 1, universe: Universe::Loaded }
    }
}

/// One of the YCSB's core mixes.
#[derive(Clone, Debug)]
pub struct Ycsb {
    mix: YcsbMix,
    fields: usize,
    read_percent: u64,
    region_bytes: u64,
    table: Table,
    zipf: Zipf,
    random: Random,
    next_key: u64,
    step: u64,
    counts: Counts,
}

impl Ycsb {
    /// The mix over a region of `region_bytes`, at least [`super::REGION_BYTES_MIN`].
    pub fn new(mix: YcsbMix, options: YcsbOptions, seed: u64, region_bytes: u64) -> Self {
        let table = Table::for_region(region_bytes);
        let items = match mix {
            YcsbMix::D => table.loaded(),
            _ => options.universe.items(table.loaded()),
        };
        Self {
            mix,
            fields: options.fields.clamp(1, FIELDS),
            read_percent: match mix {
                YcsbMix::A | YcsbMix::F => 50,
                YcsbMix::B | YcsbMix::D => 95,
                YcsbMix::C => 100,
            },
            region_bytes,
            table,
            zipf: Zipf::new(items, ZIPF_CONSTANT),
            random: Random::new(seed),
            next_key: table.loaded(),
            step: 0,
            counts: Counts::default(),
        }
    }

    /// The layout of the table it runs on.
    pub fn table(&self) -> Table {
        self.table
    }

    /// Draws the key of the next request.
    #[inline]
    fn draw_key(&mut self) -> u64 {
        let rank = self.zipf.draw(&mut self.random);
        match self.mix {
            // Ranks range over the records in the table, so the newest less the rank is in it.
            YcsbMix::D => self.next_key - 1 - rank,
            _ => scramble(rank, self.table.loaded()),
        }
    }

    #[inline]
    fn read<M: Memory + ?Sized>(&mut self, memory: &M, key: u64) -> u64 {
        let sum = fold(&self.table.read(memory, key));
        self.counts.fold_in(sum);
        sum
    }

    #[inline]
    fn update<M: Memory + ?Sized>(&mut self, memory: &mut M, key: u64, carry: u64) {
        let first = self.random.below(FIELDS as u64) as usize;
        let written = self.table.update(memory, key, first, self.fields, self.step, carry);
        self.counts.bytes_written += written;
    }

    #[inline]
    fn insert<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        self.counts.bytes_written += self.table.insert(memory, self.next_key, self.step);
        self.counts.inserts += 1;
        self.next_key += 1;
        if self.zipf.items() < self.table.slots() {
            self.zipf.grow();
        }
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &str {
        self.mix.name()
    }

    fn load<M: Memory + ?Sized>(&mut self, memory: &mut M, progress: &mut dyn FnMut(f64)) {
        assert_eq!(memory.len(), self.region_bytes, "made for another region");
        self.table.load(memory, progress);
    }

    #[inline]
    fn step<M: Memory + ?Sized>(&mut self, memory: &mut M) {
        self.step += 1;
        let reads = self.random.below(100) < self.read_percent;
        if !reads && self.mix == YcsbMix::D {
            return self.insert(memory);
        }
        let key = self.draw_key();
        if reads {
            self.read(memory, key);
            self.counts.reads += 1;
        } else if self.mix == YcsbMix::F {
            let carry = self.read(memory, key);
            self.update(memory, key, carry);
            self.counts.read_modify_writes += 1;
        } else {
            self.update(memory, key, 0);
            self.counts.updates += 1;
        }
    }

    fn steps(&self) -> u64 {
        self.step
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::table::{TableDamage, verify};
    use crate::workload::zipf::zeta;

    const BYTES: usize = 4 << 20;

    fn after(mix: YcsbMix, fields: usize, steps: u64) -> (Ycsb, Vec<u8>) {
        let mut memory = vec![0; BYTES];
        let options = YcsbOptions { fields, ..YcsbOptions::default() };
        let mut ycsb = Ycsb::new(mix, options, 11, BYTES as u64);
        ycsb.load(&mut memory, &mut |_| ());
        ycsb.run(&mut memory, steps);
        (ycsb, memory)
    }

    #[test]
    fn records_verify_after_100_000_operations_of_every_mix() {
        for mix in [YcsbMix::A, YcsbMix::B, YcsbMix::C, YcsbMix::D, YcsbMix::F] {
            for fields in [1, 3, 10] {
                let (ycsb, memory) = after(mix, fields, 100_000);
                let whole = verify(&memory).unwrap_or_else(|damage: TableDamage| {
                    panic!("{}, {fields} fields: {damage}", mix.name())
                });
                let wrapped = mix == YcsbMix::D;
                let records = if wrapped { ycsb.table().slots() } else { ycsb.table().loaded() };
                assert_eq!(whole.records, records);
                assert_eq!(whole.newest_step > 0, mix != YcsbMix::C);
            }
        }
    }

    #[test]
    fn each_mix_has_the_shares_of_the_ycsb() {
        for (mix, read_share) in
            [(YcsbMix::A, 0.5), (YcsbMix::B, 0.95), (YcsbMix::C, 1.0), (YcsbMix::D, 0.95), (YcsbMix::F, 0.5)]
        {
            let counts = after(mix, 1, 100_000).0.counts();
            assert_eq!(counts.operations(), 100_000);
            let share = counts.reads as f64 / 100_000.0;
            assert!((share - read_share).abs() < 0.01, "{} {share}", mix.name());
        }
    }

    #[test]
    fn a_scrambled_hot_set_is_spread_over_the_pages() {
        let mut ycsb = after(YcsbMix::C, 1, 0).0;
        let mut hits = vec![0_u32; ycsb.table().loaded() as usize];
        for _ in 0..200_000 {
            hits[ycsb.draw_key() as usize] += 1;
        }
        let mut hottest: Vec<usize> = (0..hits.len()).collect();
        hottest.sort_by_key(|&key| std::cmp::Reverse(hits[key]));
        let mut pages: Vec<usize> = hottest[..100].iter().map(|key| key / 4).collect();
        pages.sort_unstable();
        pages.dedup();
        assert!(pages.len() > 80, "{} pages", pages.len());
    }

    #[test]
    fn hashing_leaves_a_known_share_of_the_records_unasked_for() {
        let records = 1_000_000;
        let mut asked = vec![false; records as usize];
        for rank in 0..records {
            asked[scramble(rank, records) as usize] = true;
        }
        let never = asked.iter().filter(|asked| !**asked).count() as f64 / records as f64;
        assert!((0.35..0.42).contains(&never), "{never}");
    }

    #[test]
    fn the_latest_tenth_of_d_gets_the_share_that_the_law_gives_it() {
        // Beyond the wrap, where the number of records stands still.
        let mut ycsb = after(YcsbMix::D, 1, 20_000).0;
        let records = ycsb.table().slots();
        assert_eq!(ycsb.zipf.items(), records);
        let draws = 400_000;
        let latest = (0..draws).filter(|_| ycsb.next_key - 1 - ycsb.draw_key() < records / 10).count();
        let drawn = latest as f64 / f64::from(draws);
        let law = zeta(records / 10, ZIPF_CONSTANT) / zeta(records, ZIPF_CONSTANT);
        assert!((drawn / law - 1.0).abs() < 0.015, "drawn {drawn}, law {law}");
    }

    #[test]
    fn the_stock_universe_is_flatter_than_the_law_over_the_records() {
        let share_of_hot_tenth = |universe| {
            let options = YcsbOptions { universe, ..YcsbOptions::default() };
            let mut ycsb = Ycsb::new(YcsbMix::A, options, 1, 64 << 20);
            let mut hits = vec![0_u32; ycsb.table().loaded() as usize];
            for _ in 0..1_000_000 {
                hits[ycsb.draw_key() as usize] += 1;
            }
            hits.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
            let hot: u32 = hits[..hits.len() / 10].iter().sum();
            f64::from(hot) / 1e6
        };
        let (loaded, stock) = (share_of_hot_tenth(Universe::Loaded), share_of_hot_tenth(Universe::Stock));
        assert!(stock + 0.15 < loaded, "stock {stock}, loaded {loaded}");
    }
}
