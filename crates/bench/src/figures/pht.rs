//! The papers' persistent hash table beside others: keys and values of 64 bytes, changed by transactions.
//! `pht.pmdk`, `pht.lmdb`, `pht.redb`, `pht.floor`.
//!
//! All tables hold the same entries before. A turn inserts new keys and updates random old ones, one
//! transaction each, then does both in transactions of 100. The figure is inserts and updates together;
//! `.insert`, `.update` and `.batch` are shown for themselves, and the other places of our table, too.
//!
//! `pht.floor` is a table that survives nothing, on the same stream: what the memory's latency alone costs.

use std::collections::HashMap as Volatile;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wattkeep_collections::{Error, HashMap, Structure};
use wattkeep_tx::{Manager, Options, Tx};

use super::places::{Place, Stand, new_heap};
use super::rounds::{Side, Turns};
use super::{Bench, BenchError, Scratch};
use crate::measure::{Figure, Reach};
use crate::rival::{self, Absent, Field, TMPFS, Table, field};

/// Entries before the first turn: the least that the paper measures.
const LOADED: u64 = 500_000;
const QUICK_LOADED: u64 = 1_000;

/// A file is synced page by page: loading as many would take hours.
const FILE_LOADED: u64 = 100;

/// Inserts, and updates, of a turn at most; and as many again in batches.
const TURN: u64 = 50_000;
const QUICK_TURN: u64 = 200;

/// Pairs of a transaction while loading.
const LOAD_BATCH: u64 = 1_000;

/// Pairs of a transaction where batches are measured.
const BATCH: u64 = 100;

/// Changes between two looks at the clock, where a change takes microseconds.
const CHANGES_AT_ONCE: u64 = 16;

/// New keys looked up after each turn: they must be there.
const CHECKED: u64 = 100;

/// Chains of the rival's table: as many as entries, so that it is never rebuilt.
const BUCKETS: usize = 1 << 20;
const POOL_BYTES: usize = 1 << 30;

const UNIT: &str = "Mop/s";
const OURS: &str = "the hash table";

/// What a turn measures, and what ids call it.
const THINGS: [&str; 4] = ["", ".insert", ".update", ".batch"];

type Pair = (Field, Field);

/// Our table.
struct Ours {
    manager: Manager,
    map: HashMap<Field, Field>,
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Side { who: OURS, why: error.to_string() }
}

impl Ours {
    fn create(stand: &Stand, bench: &Bench) -> Result<Self, BenchError> {
        let heap = Arc::new(new_heap(&stand.space, bench)?);
        let manager = Manager::open(heap, &Options::default()).map_err(failed)?;
        let map = manager.run(HashMap::create).map_err(|error: Error| failed(error))?;
        Ok(Self { manager, map })
    }
}

impl Table for Ours {
    fn put(&mut self, pairs: &[Pair]) -> Result<(), Absent> {
        let put_all = |tx: &mut Tx<'_>| {
            pairs.iter().try_for_each(|(key, value)| self.map.insert(tx, key, value).map(drop))
        };
        self.manager.run(put_all).map_err(|error: Error| error.to_string())
    }

    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent> {
        self.map.get(key).map_err(|error| error.to_string())
    }
}

/// The table of a program that keeps nothing: no transaction, no log, values where the allocator puts them.
impl Table for Volatile<Field, Box<Field>> {
    fn put(&mut self, pairs: &[Pair]) -> Result<(), Absent> {
        for (key, value) in pairs {
            match self.get_mut(key) {
                Some(place) => **place = *value,
                None => drop(self.insert(*key, Box::new(*value))),
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent> {
        Ok(Volatile::get(self, key).map(|value| **value))
    }
}

/// One who takes turns with its table.
struct Player<T> {
    who: &'static str,
    table: T,
    inserted: u64,
    updates: u64,
    turn: u64,
    slice: Duration,
    /// Changes between two looks at the clock.
    changes_at_once: u64,
}

impl<T: Table> Player<T> {
    fn load(who: &'static str, table: T, bench: &Bench, entries: u64) -> Result<Self, BenchError> {
        let turn = if bench.quick { QUICK_TURN } else { TURN };
        let mut player = Self {
            who,
            table,
            inserted: 0,
            updates: 0,
            turn,
            slice: bench.slice,
            changes_at_once: CHANGES_AT_ONCE,
        };
        while player.inserted < entries {
            player.insert(LOAD_BATCH.min(entries - player.inserted))?;
        }
        Ok(player)
    }

    fn put(&mut self, pairs: &[Pair]) -> Result<(), BenchError> {
        self.table.put(pairs).map_err(|why| BenchError::Side { who: self.who, why })
    }

    /// Inserts `count` new keys in one transaction.
    fn insert(&mut self, count: u64) -> Result<(), BenchError> {
        let first = self.inserted;
        self.inserted += count;
        let pair = |number| (field(number), field(number + 1));
        if count == 1 {
            return self.put(&[pair(first)]);
        }
        self.put(&(first..first + count).map(pair).collect::<Vec<_>>())
    }

    /// Updates `count` random keys in one transaction.
    fn update(&mut self, count: u64) -> Result<(), BenchError> {
        let (first, inserted) = (self.updates, self.inserted);
        self.updates += count;
        let pair = |number: u64| (field(updated(number, inserted)), field(number));
        if count == 1 {
            return self.put(&[pair(first)]);
        }
        self.put(&(first..first + count).map(pair).collect::<Vec<_>>())
    }

    /// Makes changes of `count` pairs until the turn's pairs or its time are used up; pairs, and seconds.
    fn run(
        &mut self,
        count: u64,
        mut change: impl FnMut(&mut Self, u64) -> Result<(), BenchError>,
    ) -> Result<(f64, f64), BenchError> {
        let began = Instant::now();
        let mut done = 0;
        while done < self.turn
            && (!(done / count).is_multiple_of(self.changes_at_once) || began.elapsed() < self.slice)
        {
            change(self, count)?;
            done += count;
        }
        Ok((done as f64, began.elapsed().as_secs_f64()))
    }

    fn take_turn(&mut self) -> Result<[f64; THINGS.len()], BenchError> {
        let rate = |(pairs, seconds): (f64, f64)| pairs / seconds / 1e6;
        let both = |a: (f64, f64), b: (f64, f64)| 2.0 / (1.0 / rate(a) + 1.0 / rate(b));
        let inserts = self.run(1, Self::insert)?;
        let updates = self.run(1, Self::update)?;
        let insert_batches = self.run(BATCH, Self::insert)?;
        let update_batches = self.run(BATCH, Self::update)?;
        self.check()?;
        Ok([both(inserts, updates), rate(inserts), rate(updates), both(insert_batches, update_batches)])
    }
}

impl<T: Table> Player<T> {
    /// Looks up the newest keys, and the value that was updated last. Not measured.
    fn check(&mut self) -> Result<(), BenchError> {
        let failed = |why| BenchError::Side { who: self.who, why };
        for number in self.inserted - CHECKED..self.inserted {
            let found = self.table.get(&field(number)).map_err(failed)?;
            found.ok_or_else(|| failed(format!("key {number} is lost")))?;
        }
        let last = self.updates - 1;
        let found = self.table.get(&field(updated(last, self.inserted))).map_err(failed)?;
        if found == Some(field(last)) { Ok(()) } else { Err(failed(format!("update {last} is lost"))) }
    }

    fn side<'a>(mut self) -> Side<'a, { THINGS.len() }>
    where
        T: 'a,
    {
        Box::new(move |_| self.take_turn())
    }
}

/// The key that update `number` changes, of so many.
fn updated(number: u64, keys: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) % keys
}

/// Rivals as ids call them, by name, and what we have to reach beside them.
const RIVALS: [(&str, &str, Reach); 4] = [
    ("pmdk", "libpmemobj hash table on tmpfs, forced pmem", Reach::AtLeast(10.0)),
    ("lmdb", "LMDB on tmpfs, NOSYNC | WRITEMAP", Reach::AtLeast(3.0)),
    ("redb", "redb on tmpfs, Durability::None", Reach::AtLeast(3.0)),
    ("floor", "std::collections::HashMap with boxed values, volatile", Reach::Shown),
];

/// Measures all tables in turns.
pub(super) fn run(bench: &mut Bench) -> Result<Vec<Figure>, BenchError> {
    let loaded = if bench.quick { QUICK_LOADED } else { LOADED };
    let (mut stands, mut sides) = (Vec::new(), Vec::new());
    for place in Place::ALL {
        let stand = place.make(bench, "pht")?;
        let entries = if place == Place::File { loaded.min(FILE_LOADED) } else { loaded };
        let mut player = Player::load(OURS, Ours::create(&stand, bench)?, bench, entries)?;
        if place == Place::File {
            player.changes_at_once = 1;
        }
        sides.push(player.side());
        stands.push(stand);
    }
    let scratch = Scratch::new(Path::new(TMPFS))?;
    let lmdb = scratch.path().join("lmdb");
    std::fs::create_dir(&lmdb).map_err(BenchError::while_("making a directory for LMDB"))?;
    let pmdk = rival::pmdk_table(&scratch.path().join("pool"), POOL_BYTES, BUCKETS);
    let theirs = [
        join(bench, &mut sides, RIVALS[0].1, pmdk, loaded)?,
        join(bench, &mut sides, RIVALS[1].1, rival::lmdb(&lmdb), loaded)?,
        join(bench, &mut sides, RIVALS[2].1, rival::redb(&scratch.path().join("redb")), loaded)?,
        join(bench, &mut sides, RIVALS[3].1, Ok(Volatile::new()), loaded)?,
    ];
    let pids: Vec<u32> = stands.iter().filter_map(Stand::keeper_pid).collect();
    let turns = bench.take_turns(bench.rounds, &pids, sides)?;
    stands.into_iter().try_for_each(|stand| stand.close(bench))?;
    let mut figures = Vec::new();
    for (what, thing) in THINGS.iter().enumerate() {
        for (rival, theirs) in RIVALS.iter().zip(&theirs) {
            figures.extend(beside(rival, theirs, &turns, what, thing));
        }
    }
    Ok(figures)
}

/// Lets a rival take turns, if there is one: its number among the sides.
fn join<'a>(
    bench: &Bench,
    sides: &mut Vec<Side<'a, { THINGS.len() }>>,
    who: &'static str,
    rival: Result<impl Table + 'a, Absent>,
    entries: u64,
) -> Result<Result<usize, Absent>, BenchError> {
    Ok(match rival {
        Ok(table) => {
            sides.push(Player::load(who, table, bench, entries)?.side());
            Ok(sides.len() - 1)
        }
        Err(why) => Err(why),
    })
}

/// Figures of one thing beside one rival: on the region, and of inserts and updates on all places.
fn beside(
    (rival, name, reach): &(&str, &str, Reach),
    theirs: &Result<usize, Absent>,
    turns: &Turns<{ THINGS.len() }>,
    what: usize,
    thing: &str,
) -> Vec<Figure> {
    let places = if what == 0 { &Place::ALL[..] } else { &Place::ALL[..1] };
    let figure = |(ours, place): (usize, &Place)| {
        let id = format!("pht.{rival}{thing}{}", place.suffix());
        let reach = if id.matches('.').count() == 1 { reach } else { &Reach::Shown };
        match theirs {
            Ok(theirs) => Figure::beside(&id, name, UNIT, &turns.rounds(ours, *theirs, what), reach)
                .with_note(turns.others.clone()),
            Err(why) => Figure::missing(&id, name, UNIT, reach, why),
        }
    };
    places.iter().enumerate().map(figure).collect()
}
