//! A hash table of millions of entries that goes on where it was killed.
//!
//! ```text
//! cargo build --release -p wattkeepd
//! cargo run --release -p wattkeep --example table -- /var/tmp/table.store 5000000
//! ```
//!
//! Kill it at any moment (`kill -9`), and run it again: every transaction that had committed is there, none
//! is there in part. At the end it reads every entry back.

use std::error::Error;

use wattkeep::collections::{HashMap, Structure};
use wattkeep::{RegionOptions, Store};

/// Entries of a transaction.
const AT_ONCE: u64 = 100;

/// Bytes that an entry takes, with its share of the table: the region is made as large as that needs.
const ENTRY_BYTES: u64 = 192;

type Entry = [u64; 8];

fn entry(key: u64) -> Entry {
    std::array::from_fn(|power| key.wrapping_pow(power as u32))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "table.store".into());
    let entries: u64 = arguments.next().map_or(Ok(1_000_000), |entries| entries.parse())?;

    let store = Store::options().create_if_missing(true).budget("64MiB").open(directory)?;
    let bytes = (entries * ENTRY_BYTES).next_multiple_of(1 << 20) + (64 << 20);
    let heap = store.heap("table", RegionOptions::explicit().create(bytes))?;
    let powers: HashMap<u64, Entry> = HashMap::open_or_create_root(&heap, "powers")?;

    let here = powers.len()?;
    println!("{here} entries are here; going on to {entries}");
    for first in (here..entries).step_by(AT_ONCE as usize) {
        let keys = first..entries.min(first + AT_ONCE);
        heap.run(|tx| keys.into_iter().try_for_each(|key| powers.insert(tx, &key, &entry(key)).map(|_| ())))?;
        if first % (entries / 10).max(1) < AT_ONCE {
            println!("{} entries", powers.len()?);
        }
    }

    let kept = powers.len()?;
    for key in 0..kept {
        assert_eq!(powers.get(&key)?, Some(entry(key)), "entry {key} is not what was committed");
    }
    println!("all {kept} entries are what they were when they were committed");
    drop((powers, heap));
    Ok(store.close()?)
}
