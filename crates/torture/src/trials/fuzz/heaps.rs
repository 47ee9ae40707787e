//! Heaps with damaged bytes: of the heap itself, its log, its roots, the logs of its transactions, its hash
//! tables, B+tree, vector and string.
//!
//! Each is opened, checked, read and changed, as its program would. What is refused is refused with one line, and
//! a refused heap, or log, has not been written to. Anything else may read as other values, but comes to an end,
//! takes no panic, and no memory without a bound: what a limit on address space stops is a panic, too. The real
//! `wattkeep check` looks at some of them in a store, and calls none of those sound that a program is refused.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use wattkeep::collections::{BTree, BytesMap, Error, HashMap, PString, Structure, Vector};
use wattkeep::{RegionOptions, Store};
use wattkeep_heap::Heap;
use wattkeep_persist::{Anonymous, Domain, Space};
use wattkeep_sim::random::Random;
use wattkeep_tx::{Logging, Manager, Options};

use super::command;
use crate::outcome::Outcome;
use crate::trials::guard::{Bad, guarded};

const SPACE_BYTES: usize = 2 << 20;
const PAGE: usize = 4096;
/// The heap's own pages: superblock, lanes, directory, roots.
const HEAP_PAGES: usize = 11;
const LOG_BYTES: u64 = 64 << 10;
/// Transactions before and behind the older image.
const TRANSACTIONS: [u64; 2] = [120, 60];
/// Kind of a record of an allocation, and where its check begins (docs/heap.md).
const ALLOCATION: u64 = 2;
const CHECK_BIT: u32 = 56;
/// How far an iterator is followed: damage may make a structure look very long.
const FAR: usize = 5_000;
/// Changes of a damaged structure.
const CHANGES: u64 = 24;
/// Address space that one trial may take: a heap's tables have some hundred MiB.
const ADDRESS_BYTES: u64 = 16 << 30;
/// One of so many damaged heaps is put into a store, for the real command.
const CHECKED: u64 = 250;

/// A heap as a kill left it, amid its transactions.
struct Image {
    logging: Logging,
    bytes: Vec<u8>,
    /// The same some transactions ago.
    older: Vec<u8>,
    /// Where its parts lie.
    parts: Vec<Range<usize>>,
}

/// One of each.
struct Structures {
    map: HashMap<u64, u64>,
    bytes: BytesMap,
    tree: BTree<u64, u64>,
    vector: Vector<u64>,
    text: PString,
}

impl Structures {
    fn make(manager: &Manager) -> Result<Self, Error> {
        Ok(Self {
            map: HashMap::open_or_create_root(manager, "map")?,
            bytes: BytesMap::open_or_create_root(manager, "bytes")?,
            tree: BTree::open_or_create_root(manager, "tree")?,
            vector: Vector::open_or_create_root(manager, "vector")?,
            text: PString::open_or_create_root(manager, "text")?,
        })
    }

    /// Changes each of them in a transaction.
    fn change(&self, manager: &Manager, number: u64) -> Result<(), Error> {
        manager.run(|tx| {
            self.map.insert(tx, &number, &number)?;
            self.bytes.insert(tx, &number.to_le_bytes(), &vec![7; number as usize % 60])?;
            self.tree.insert(tx, &number, &number)?;
            self.vector.push(tx, &number)?;
            if number.is_multiple_of(3) {
                self.map.remove(tx, &(number / 2))?;
                self.bytes.remove(tx, &(number / 2).to_le_bytes())?;
                self.tree.remove(tx, &(number / 2))?;
            }
            self.text.push_str(tx, "more")
        })
    }
}

/// Tries so many damaged heaps. Returns how many were opened, refused and checked by the command.
pub(super) fn run(count: u64, program: &Path, random: &mut Random, outcome: &mut Outcome) -> String {
    crate::trials::raw::take_large_memory_from_the_kernel();
    let made = guarded(outcome, "heaps to damage", || {
        [Logging::Redo, Logging::Undo]
            .into_iter()
            .map(image)
            .collect::<Result<Vec<_>, _>>()
            .map_err(Bad::Violated)
    });
    let Some(images) = made else { return String::new() };
    let (mut refused, mut checked) = (0, 0);
    let scratch = tempfile::tempdir().expect("a directory");
    for input in 0..count {
        let seed = random.number();
        let random = &mut Random::new(seed);
        let image = &images[random.below(2) as usize];
        let mut bytes = image.bytes.clone();
        image.damage(&mut bytes, random);
        let story = format!("heap, input of seed {seed}");
        let is_refused = guarded(outcome, &story, || limited(|| look(image.logging, &bytes, random)));
        refused += u64::from(is_refused == Some(true));
        if let Some(is_refused) = is_refused.filter(|_| input % CHECKED == 0) {
            let directory = scratch.path().join(format!("store-{input}"));
            guarded(outcome, &story, || check(program, &directory, &bytes, is_refused));
            checked += 1;
        }
        outcome.tried += 1;
        if outcome.bad() > 0 {
            break;
        }
    }
    format!("{count} heaps, of which {refused} were refused and {checked} seen by wattkeep check")
}

fn space_of(bytes: &[u8]) -> Arc<Space> {
    let space = Space::new(Arc::new(Anonymous::new(bytes.len())), Domain::Battery);
    space.write_bytes(0, bytes).expect("as long as the image");
    Arc::new(space)
}

fn bytes_of(space: &Space) -> Vec<u8> {
    let mut bytes = vec![0; space.len()];
    space.read_bytes(0, &mut bytes).expect("all of it");
    bytes
}

fn image(logging: Logging) -> Result<Image, String> {
    let space = space_of(&[0; SPACE_BYTES]);
    let guard = logging == Logging::Undo;
    let options = wattkeep_heap::Options { log_area_bytes: LOG_BYTES, guard, ..Default::default() };
    let heap = Arc::new(Heap::create(space.clone(), &options).map_err(|error| error.to_string())?);
    let manager = Manager::open(heap.clone(), &Options { logging, ..Options::default() });
    let manager = manager.map_err(|error| error.to_string())?;
    let text = |error: Error| error.to_string();
    let all = Structures::make(&manager).map_err(text)?;
    let [before, behind] = TRANSACTIONS;
    (0..before).try_for_each(|number| all.change(&manager, number)).map_err(text)?;
    let older = bytes_of(&space);
    (before..before + behind).try_for_each(|number| all.change(&manager, number)).map_err(text)?;
    let found = [all.map.check(), all.bytes.check(), all.tree.check(), all.vector.check(), all.text.check()];
    let mut parts = Vec::new();
    for findings in found {
        let reached = findings.map_err(text)?.reached;
        parts.extend(reached.into_iter().map(|(at, bytes)| at as usize..(at + bytes.max(8)) as usize));
    }
    let log = heap.log_area();
    let bytes = bytes_of(&space);
    let mut own = vec![0..PAGE, PAGE..2 * PAGE, 2 * PAGE..3 * PAGE, 3 * PAGE..HEAP_PAGES * PAGE];
    own.push(log.start as usize..log.end as usize);
    own.extend(
        (0..SPACE_BYTES).step_by(PAGE).map(|at| at..at + PAGE).filter(|page| is_log(&bytes[page.clone()])),
    );
    // Twice as likely as all the structures' parts together.
    let times = 2 * parts.len() / own.len() + 1;
    own.into_iter().for_each(|range| parts.extend(std::iter::repeat_n(range, times)));
    Ok(Image { logging, bytes, older, parts })
}

/// Whether a page is a segment of the heap's log: most words that it has are records of allocations.
fn is_log(page: &[u8]) -> bool {
    let words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    words.filter(|word| word & 0xf == ALLOCATION && word >> CHECK_BIT != 0).count() > 32
}

impl Image {
    /// A word of a part that holds something.
    fn place(&self, random: &mut Random) -> usize {
        loop {
            let part = self.parts[random.below(self.parts.len() as u64) as usize].clone();
            let at = (part.start + random.below(part.len() as u64) as usize) / 8 * 8;
            if self.bytes[at / 64 * 64..][..64].iter().any(|byte| *byte != 0) {
                return at;
            }
        }
    }

    /// One to four changes: a bit, a word, a word or a line from elsewhere, an older line or page.
    fn damage(&self, bytes: &mut [u8], random: &mut Random) {
        for _ in 0..=random.below(4) {
            let (at, from) = (self.place(random), self.place(random));
            let (line, page) = (at / 64 * 64, at / PAGE * PAGE);
            match random.below(7) {
                0 => bytes[at + random.below(8) as usize] ^= 1 << random.below(8),
                1 => {
                    let extreme = [0, 1, u64::MAX, 1 << 63, SPACE_BYTES as u64 - 8, u64::from(u32::MAX)];
                    let word = extreme[random.below(6) as usize];
                    bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
                }
                2 => bytes[at..at + 8].copy_from_slice(&random.number().to_ne_bytes()),
                3 => bytes[at..at + 8].copy_from_slice(&self.bytes[from..from + 8]),
                4 => bytes[line..line + 64].copy_from_slice(&self.bytes[from / 64 * 64..][..64]),
                5 => bytes[line..line + 64].copy_from_slice(&self.older[line..line + 64]),
                _ => bytes[page..page + PAGE].copy_from_slice(&self.older[page..page + PAGE]),
            }
        }
    }
}

/// Runs under a limit on address space.
fn limited<T>(run: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::As);
    let limit = Rlimit { current: Some(ADDRESS_BYTES), maximum: before.maximum };
    // Where the limit is lower already, it stays.
    let _ = setrlimit(Resource::As, limit);
    let answer = run();
    let _ = setrlimit(Resource::As, before);
    answer
}

/// One line that says something.
fn clear(error: &dyn Display) -> Result<(), Bad> {
    let text = error.to_string();
    if text.trim().is_empty() || text.contains('\n') {
        return Err(Bad::Violated(format!("an error that is not one line: '{text}'")));
    }
    Ok(())
}

fn untouched(space: &Space, bytes: &[u8], error: &dyn Display) -> Result<(), Bad> {
    clear(error)?;
    if bytes_of(space) == bytes {
        return Ok(());
    }
    Err(Bad::Violated(format!("it was refused ('{error}'), and written to")))
}

/// Opens a heap, and uses all that is in it. True if the heap or its transactions are refused.
fn look(logging: Logging, bytes: &[u8], random: &mut Random) -> Result<bool, Bad> {
    let space = space_of(bytes);
    let heap = match Heap::open(space.clone()) {
        Ok(heap) => Arc::new(heap),
        Err(error) => return untouched(&space, bytes, &error).map(|()| true),
    };
    if let Err(error) = heap.check(None) {
        clear(&error)?;
    }
    let opened = bytes_of(&space);
    let manager = match Manager::open(heap.clone(), &Options { logging, ..Options::default() }) {
        Ok(manager) => manager,
        Err(error) => return untouched(&space, &opened, &error).map(|()| true),
    };
    let ended = |ended: Result<(), Error>| ended.map_or_else(|error| clear(&error), Ok);
    let all = match Structures::make(&manager) {
        Ok(all) => all,
        Err(error) => return clear(&error).map(|()| false),
    };
    for findings in
        [all.map.check(), all.bytes.check(), all.tree.check(), all.vector.check(), all.text.check()]
    {
        ended(findings.map(|_| ()))?;
    }
    let _ = (all.map.iter().take(FAR).count(), all.bytes.iter().take(FAR).count());
    let _ = (all.tree.range(..).take(FAR).count(), all.vector.iter().take(FAR).count());
    ended(all.text.get().map(|_| ()))?;
    for _ in 0..CHANGES {
        let number = random.below(TRANSACTIONS[0] * 2);
        ended(all.map.get(&number).map(|_| ()))?;
        ended(all.tree.get(&number).map(|_| ()))?;
        ended(all.bytes.get(&number.to_le_bytes()).map(|_| ()))?;
        ended(all.vector.get(number).map(|_| ()))?;
        ended(all.change(&manager, number))?;
    }
    if random.chance(1, 4) {
        ended(manager.run(|tx| all.map.destroy(tx)))?;
        ended(manager.run(|tx| all.tree.destroy(tx)))?;
    }
    drop((manager, heap));
    // Whatever the damage led to: it opens, or is refused.
    Heap::open(space).map_or_else(|error| clear(&error), |_| Ok(())).map(|()| false)
}

/// Puts the heap into a store, and lets the real command check it.
fn check(program: &Path, directory: &Path, bytes: &[u8], is_refused: bool) -> Result<(), Bad> {
    let violated = |error: &dyn Display| Bad::Violated(format!("a store for wattkeep check: {error}"));
    let store = Store::options().create_if_missing(true).budget("100%").open(directory);
    let store = store.map_err(|error| violated(&error))?;
    let region = store.region("heap", RegionOptions::explicit().create(SPACE_BYTES as u64));
    let space = region.map_err(|error| violated(&error))?.into_space(Domain::Battery);
    space.write_bytes(0, bytes).map_err(|error| violated(&error))?;
    drop(space);
    store.close().map_err(|error| violated(&error))?;
    let arguments = ["check".to_owned(), "--json".to_owned(), directory.display().to_string()];
    let output = command::run(program, &arguments, directory, Stdio::piped())?;
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| violated(&error))?;
    match report["heaps"].get(0) {
        Some(heap) if is_refused && heap["sound"] == true && heap["refused"].is_null() => {
            // The heap itself may be sound, and the logs of its transactions not.
            let alone = Heap::open(space_of(bytes)).and_then(|heap| heap.check(None));
            alone.map(|_| ()).map_err(|error| Bad::Violated(format!("called sound, and refused: {error}")))
        }
        _ => Ok(()),
    }
}
