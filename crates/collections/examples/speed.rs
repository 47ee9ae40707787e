//! How long an insert and an update of a hash table take, in processor time, one transaction each:
//! `cargo run --release -p wattkeep-collections --example speed`, with another count of entries than 500,000
//! if one is given. The volatile tables show what the processor's caches alone cost.

use std::collections::HashMap as Volatile;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use wattkeep_collections::{Error, HashMap, Structure};
use wattkeep_heap::{Heap, Options};
use wattkeep_persist::{Anonymous, Domain, Space};
use wattkeep_tx::{Logging, Manager};

const SPACE_BYTES: usize = 1 << 30;
const ENTRIES: u64 = 500_000;

/// Inserts, and updates, of one measurement.
const TURN: u64 = 50_000;

/// Pairs of a transaction while the table is filled.
const BATCH: u64 = 1_000;

/// A key, or a value: as in the paper.
type Field = [u8; 64];

/// Time that this thread had a processor: other programs do not count.
fn busy() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bytes that look random, the same on every run.
fn field(number: u64) -> Field {
    let mut field = [0; 64];
    let mut state = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for word in field.as_chunks_mut::<8>().0 {
        state = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        state ^= state >> 27;
        *word = state.to_le_bytes();
    }
    field
}

/// A table that is measured.
trait Table {
    fn put(&mut self, pairs: &[(Field, Field)]);
}

struct Ours {
    manager: Manager,
    map: HashMap<Field, Field>,
}

impl Ours {
    fn new(logging: Logging) -> Self {
        let space = Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), Domain::Battery));
        let heap = Arc::new(Heap::create(space, &Options::default()).expect("room"));
        let options = wattkeep_tx::Options { logging, ..Default::default() };
        let manager = Manager::open(heap, &options).expect("a new log");
        let map = manager.run(HashMap::create).expect("room");
        Self { manager, map }
    }
}

impl Table for Ours {
    fn put(&mut self, pairs: &[(Field, Field)]) {
        let map = &self.map;
        self.manager
            .run(|tx| pairs.iter().try_for_each(|(key, value)| map.insert(tx, key, value).map(drop)))
            .map_err(|error: Error| error.to_string())
            .expect("room");
    }
}

impl Table for Volatile<Field, Box<Field>> {
    fn put(&mut self, pairs: &[(Field, Field)]) {
        for (key, value) in pairs {
            match self.get_mut(key) {
                Some(place) => **place = *value,
                None => drop(self.insert(*key, Box::new(*value))),
            }
        }
    }
}

/// Nothing at all: what the measurement itself costs.
struct Nothing;

impl Table for Nothing {
    fn put(&mut self, pairs: &[(Field, Field)]) {
        black_box(pairs);
    }
}

#[inline(never)]
fn inserts(table: &mut impl Table, from: u64) {
    for number in from..from + TURN {
        table.put(&[(field(number), field(number + 1))]);
    }
}

#[inline(never)]
fn updates(table: &mut impl Table, keys: u64, round: u64) {
    for number in round * TURN..(round + 1) * TURN {
        let key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) % keys;
        table.put(&[(field(key), field(number))]);
    }
}

fn measure(what: &str, entries: u64, rounds: u64, table: &mut impl Table) {
    let pairs = |from: u64| (from..from + BATCH).map(|number| (field(number), field(number + 1)));
    (0..entries).step_by(BATCH as usize).for_each(|from| table.put(&pairs(from).collect::<Vec<_>>()));
    let entries = entries.next_multiple_of(BATCH);
    let mut best = [Duration::MAX; 2];
    for round in 0..rounds {
        let begun = busy();
        inserts(table, entries + round * TURN);
        best[0] = best[0].min(busy() - begun);
        let begun = busy();
        updates(table, entries + (round + 1) * TURN, round);
        best[1] = best[1].min(busy() - begun);
    }
    let each = best.map(|best| best.as_nanos() as f64 / TURN as f64);
    println!("{what:<28} insert {:7.1} ns   update {:7.1} ns", each[0], each[1]);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().map_or(ENTRIES, |count| count.parse().expect("a count of entries"));
    let rounds = arguments.next().map_or(5, |count| count.parse().expect("a count of rounds"));
    let only = arguments.next();
    let wanted = |what: &str| only.as_deref().is_none_or(|only| only == what);
    if wanted("nothing") {
        measure("nothing", entries, rounds, &mut Nothing);
    }
    if wanted("volatile") {
        measure("std HashMap, boxed values", entries, rounds, &mut Volatile::<Field, Box<Field>>::new());
    }
    for (what, logging) in [("redo", Logging::Redo), ("undo", Logging::Undo)] {
        if wanted(what) {
            measure(&format!("ours, {what}"), entries, rounds, &mut Ours::new(logging));
        }
    }
}
