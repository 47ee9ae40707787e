//! Mutates valid bytes that come from outside: no panic, no hang, and each is refused or keeps its meaning.
//!
//! A mutated superblock or summary gets a valid checksum half of the time: else nothing behind the
//! checksum would ever be met.

mod command;
mod heaps;
mod shared;

use std::path::Path;

use shared::Shared;
use wattkeep_keep::control::block::{Control, Event};
use wattkeep_keep::protocol::{Notice, Reply, Request};
use wattkeep_power::spec::parse_budget;
use wattkeep_power::units::{parse_duration_ns, parse_size_bytes};
use wattkeep_sim::golden::{STORES, read};
use wattkeep_sim::random::Random;
use wattkeep_store::disk::Disk;
use wattkeep_store::hash::{self, Hasher};
use wattkeep_store::limits::{SEGMENTS_START, SUPERBLOCK_COPIES, SUPERBLOCK_SPACING};
use wattkeep_store::summary::{self, Expected, UntrustedSummary};
use wattkeep_store::superblock::{SUPERBLOCK_BYTES, UntrustedSuperblock};
use wattkeep_store::types::PAGE_SIZE;

use super::guard::{Bad, guarded};
use super::lab::wattkeep_program;
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// Seed of the golden stores' hashes.
const GOLDEN_SEED: u64 = 0x901d;

/// Messages of each kind, valid.
const MESSAGES: [&str; 7] = [
    concat!(
        r#"{"ask":"hello","protocol":1,"store":"/mnt","options":{"create_if_missing":true,"budget":"11%","#,
        r#""policy":"fifo","checkpoint_interval_ms":0,"quiesce_ms":10,"fault_mode":"signal","#,
        r#""fault_mode_reason":"","fill_ahead":false}}"#,
    ),
    r#"{"ask":"open_region","name":"table","create_bytes":4096,"tracking":"explicit","reserve_bytes":0}"#,
    r#"{"ask":"grow","index":0,"bytes":8192}"#,
    r#"{"ask":"set_budget","budget":"64MiB"}"#,
    r#"{"ask":"status"}"#,
    r#"{"reply":"welcome","recovered":null,"budget_pages":7}"#,
    r#"{"notice":"quiesce","question":7}"#,
];

const TEXTS: [&str; 8] = ["4096", "4096pages", "64MiB", "11%", "1.5GiB", "250ms", "2s", "0.5m"];

/// Valid bytes to begin from.
struct Corpus {
    superblocks: Vec<Vec<u8>>,
    /// With the slot of each.
    summaries: Vec<(u32, Vec<u8>)>,
    uuid_low: u64,
    control: Control,
    shared: Shared,
}

/// A damaged heap takes as long as so many inputs of the others.
const INPUTS_PER_HEAP: u64 = 100;

/// A call of the real command takes as long as so many inputs of the others.
const INPUTS_PER_CALL: u64 = 1_500;

type Target = fn(&Corpus, &mut Random) -> Result<(), Bad>;

/// The targets, and how many of a hundred inputs each gets.
const TARGETS: [(&str, u64, Target); 6] = [
    ("superblock", 15, superblock),
    ("summary", 25, one_summary),
    ("message", 25, message),
    ("news", 5, news),
    ("control block", 5, |corpus, random| corpus.shared.damage_and_use(random)),
    ("text", 25, text),
];

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let Some(corpus) = guarded(outcome, "corpus", || corpus().map_err(Bad::Violated)) else { return };
    let mut inputs = [0u64; TARGETS.len()];
    while outcome.tried < count && outcome.bad() == 0 {
        let mut share = random.below(100);
        for ((name, part, target), inputs) in TARGETS.into_iter().zip(&mut inputs) {
            if share < part {
                let seed = random.number();
                guarded(outcome, &format!("{name}, input of seed {seed}"), || {
                    target(&corpus, &mut Random::new(seed))
                });
                *inputs += 1;
                outcome.tried += 1;
                break;
            }
            share -= part;
        }
    }
    let program = match wattkeep_program() {
        Ok(program) => program,
        Err(missing) => return outcome.violate(missing),
    };
    let calls = commands(count / INPUTS_PER_CALL, &program, &mut random, outcome);
    let heaps = heaps::run(count / INPUTS_PER_HEAP, &program, &mut random, outcome);
    let parts: Vec<_> =
        TARGETS.iter().zip(inputs).map(|((name, ..), inputs)| format!("{inputs} {name}")).collect();
    outcome.note = format!("{}, {calls} calls of the real command, {heaps}", parts.join(", "));
}

/// Calls the real command line. Returns how often.
fn commands(calls: u64, program: &Path, random: &mut Random, outcome: &mut Outcome) -> u64 {
    let scratch = tempfile::tempdir().expect("a directory");
    for call in 0..calls {
        let seed = random.number();
        let story = format!("command line, input of seed {seed}");
        guarded(outcome, &story, || command::call(program, scratch.path(), &mut Random::new(seed)));
        outcome.tried += 1;
        if outcome.bad() > 0 {
            return call;
        }
    }
    calls
}

fn corpus() -> Result<Corpus, String> {
    let (mut superblocks, mut summaries) = (Vec::new(), Vec::new());
    for (_, text) in STORES {
        let (disk, _) = read(text)?;
        for copy in 0..SUPERBLOCK_COPIES {
            superblocks.push(disk.peek(copy * SUPERBLOCK_SPACING, SUPERBLOCK_BYTES));
        }
        for (slot, at) in (SEGMENTS_START..disk.size()).step_by(PAGE_SIZE).enumerate() {
            let page = disk.peek(at, PAGE_SIZE);
            if page.starts_with(&summary::MAGIC) {
                summaries.push((slot as u32, page));
            }
        }
    }
    let uuid_low = u64::from_le_bytes(superblocks[0][64..72].try_into().expect("eight bytes"));
    let (control, _) = Control::create().map_err(|error| error.to_string())?;
    Ok(Corpus { superblocks, summaries, uuid_low, control, shared: Shared::new()? })
}

/// One to four changes: a bit, a byte, an extreme number in a field, or bytes from elsewhere.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    let len = bytes.len() as u64;
    for _ in 0..=random.below(4) {
        // Mostly where the fields are.
        let end = if random.chance(3, 4) { len.min(640) } else { len };
        let at = random.below(end) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.number() as u8,
            2 => {
                let at = at / 4 * 4;
                let extreme = [0, 1, u32::MAX, u32::MAX - 1, 1 << 31, 1 << 16][random.below(6) as usize];
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&extreme.to_le_bytes()[..end - at]);
            }
            _ => {
                let from = random.below(len) as usize;
                let count = (random.below(32) as usize).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + count, at);
            }
        }
    }
}

fn superblock(corpus: &Corpus, random: &mut Random) -> Result<(), Bad> {
    let number = random.below(corpus.superblocks.len() as u64);
    let mut bytes = corpus.superblocks[number as usize].clone();
    let copy = number % SUPERBLOCK_COPIES;
    mutate(&mut bytes, random);
    // What an unknown compat flag stood for is not kept.
    bytes[32..40].fill(0);
    if random.chance(1, 2) {
        bytes[16..32].fill(0);
        let checksum = hash::superblock(&bytes).to_le_bytes();
        bytes[16..32].copy_from_slice(&checksum);
    }
    if let Ok(found) = UntrustedSuperblock::new(&bytes).validate(copy) {
        let mut again = vec![0; SUPERBLOCK_BYTES];
        found.encode(copy, &mut again);
        if again != bytes {
            return Err(Bad::Violated(
                "an accepted superblock is written back with another meaning".to_owned(),
            ));
        }
    }
    Ok(())
}

fn one_summary(corpus: &Corpus, random: &mut Random) -> Result<(), Bad> {
    let (position, page) = &corpus.summaries[random.below(corpus.summaries.len() as u64) as usize];
    let (mut bytes, hasher) = (page.clone(), Hasher::new(GOLDEN_SEED));
    mutate(&mut bytes, random);
    if random.chance(1, 2) {
        bytes[40..56].fill(0);
        let checksum = hasher.summary(&bytes).to_le_bytes();
        bytes[40..56].copy_from_slice(&checksum);
    }
    let expected = Expected { uuid_low: corpus.uuid_low, position: *position, pages_left: 8 - position % 8 };
    let mut entries = Vec::new();
    if let Ok(head) = UntrustedSummary(&bytes).validate_into(&expected, &hasher, &mut entries) {
        let mut again = vec![0; PAGE_SIZE];
        summary::encode(&head, entries.into_iter(), &hasher, &mut again);
        if again != bytes {
            return Err(Bad::Violated("an accepted summary is written back with another meaning".to_owned()));
        }
    }
    Ok(())
}

fn message(_: &Corpus, random: &mut Random) -> Result<(), Bad> {
    let mut bytes = MESSAGES[random.below(MESSAGES.len() as u64) as usize].as_bytes().to_vec();
    mutate(&mut bytes, random);
    bytes.truncate(bytes.len() - random.below(8) as usize / 7);
    fn same<T: PartialEq + serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<(), Bad> {
        let Ok(found) = serde_json::from_slice::<T>(bytes) else { return Ok(()) };
        let again =
            serde_json::to_vec(&found).ok().and_then(|bytes| serde_json::from_slice::<T>(&bytes).ok());
        if again == Some(found) {
            Ok(())
        } else {
            Err(Bad::Violated("a message changed its meaning".to_owned()))
        }
    }
    same::<Request>(&bytes)?;
    same::<Reply>(&bytes)?;
    same::<Notice>(&bytes)
}

/// A hostile client may push any number.
fn news(corpus: &Corpus, random: &mut Random) -> Result<(), Bad> {
    let value = random.number();
    corpus.control.events.push(value);
    let Some(Event::Dirtied(page) | Event::Queued(page) | Event::Wanted(page) | Event::Urgent(page)) =
        corpus.control.next_event()
    else {
        return Err(Bad::Violated("news was lost".to_owned()));
    };
    if page.page == value as u32 { Ok(()) } else { Err(Bad::Violated("news of another page".to_owned())) }
}

fn text(_: &Corpus, random: &mut Random) -> Result<(), Bad> {
    let mut bytes = TEXTS[random.below(TEXTS.len() as u64) as usize].as_bytes().to_vec();
    mutate(&mut bytes, random);
    let text = String::from_utf8_lossy(&bytes);
    let errors = [
        parse_budget(&text).err().map(|error| error.to_string()),
        parse_size_bytes(&text).err().map(|error| error.to_string()),
        parse_duration_ns(&text).err().map(|error| error.to_string()),
    ];
    match errors.into_iter().flatten().find(|message| !message.contains("examples")) {
        None => Ok(()),
        Some(message) => Err(Bad::Violated(format!("'{text}' is refused without an example: {message}"))),
    }
}
