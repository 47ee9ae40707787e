//! Proves the twin: against a cache that really evicts by chance, and with the bugs that it is there to find.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::random::{Random, seed_from_environment};
use wattkeep_persist::{DomainKind, Space};

/// What the small programs use.
const LINES: usize = 4;

/// Walks of an evicting cache, at most: most images are met in the first thousand.
const WALKS_MAX: u32 = 3_000_000;

/// Records a program on fresh memory.
fn record(domain: DomainKind, program: impl FnOnce(&Space)) -> Vec<Step> {
    let dimm = Dimm::new(LINES * LINE, domain);
    let (space, cache) = dimm.boot();
    program(&space);
    cache.history()
}

fn nothing(domain: DomainKind) -> Moment {
    Moment::new(domain, vec![0; LINES * LINE])
}

/// Every image of every step.
fn all_images(domain: DomainKind, history: &[Step]) -> BTreeSet<Vec<u8>> {
    let mut moment = nothing(domain);
    let mut images = BTreeSet::new();
    for step in 0..=history.len() {
        moment.advance(history, step);
        images.extend((0..moment.images()).map(|number| moment.bytes(&moment.image(number))));
    }
    images
}

/// What the steps leave in a cache that evicts by chance, if the power goes at some step.
fn evicting_cache(domain: DomainKind, history: &[Step], random: &mut Random) -> Vec<u8> {
    let (mut memory, mut visible) = (vec![0; LINES * LINE], vec![0; LINES * LINE]);
    let mut asked: Vec<(usize, usize)> = Vec::new();
    let end = random.below(history.len() as u64 + 1) as usize;
    let busy = 1 + random.below(4);
    let write_back = |memory: &mut Vec<u8>, visible: &[u8], line: usize| {
        memory[line..line + LINE].copy_from_slice(&visible[line..line + LINE]);
    };
    let evict = |memory: &mut Vec<u8>, visible: &[u8], random: &mut Random| {
        while random.chance(1, busy) && busy > 1 {
            write_back(memory, visible, random.below(LINES as u64) as usize * LINE);
        }
    };
    for step in &history[..end] {
        evict(&mut memory, &visible, random);
        match step.event {
            Event::Store(store) => visible[store.at..][..store.len].copy_from_slice(store.bytes()),
            Event::Flush(line) if domain == DomainKind::Adr => asked.push((step.thread, line)),
            // All lines lie in one page.
            Event::Flush(_) => memory.copy_from_slice(&visible),
            Event::Fence => {
                for (_, line) in asked.extract_if(.., |(thread, _)| *thread == step.thread) {
                    write_back(&mut memory, &visible, line);
                }
            }
        }
        // What was asked for may be written at once: then later stores to the line are not in it.
        asked.retain(|(_, line)| {
            let now = random.chance(1, 2);
            if now {
                write_back(&mut memory, &visible, *line);
            }
            !now
        });
        evict(&mut memory, &visible, random);
    }
    memory
}

/// Data in one line, the mark that says it is there in another: the shape of every commit.
const DATA: usize = 0;
const MARK: usize = LINE;

fn store(space: &Space, at: usize, word: u64) {
    space.store(at, word).expect("inside");
}

fn flush(space: &Space, at: usize) {
    space.flush(at, WORD).expect("inside");
}

fn correct(space: &Space) {
    store(space, DATA, 1);
    flush(space, DATA);
    space.fence();
    store(space, MARK, 1);
    flush(space, MARK);
    space.fence();
}

fn missing_flush(space: &Space) {
    store(space, DATA, 1);
    space.fence();
    store(space, MARK, 1);
    flush(space, MARK);
    space.fence();
}

fn missing_fence(space: &Space) {
    store(space, DATA, 1);
    flush(space, DATA);
    store(space, MARK, 1);
    flush(space, MARK);
    space.fence();
}

fn mark_first(space: &Space) {
    store(space, MARK, 1);
    flush(space, MARK);
    space.fence();
    store(space, DATA, 1);
    flush(space, DATA);
    space.fence();
}

fn flush_before_the_store(space: &Space) {
    store(space, DATA + 8, 1);
    flush(space, DATA);
    store(space, DATA, 1);
    space.fence();
    store(space, MARK, 1);
    flush(space, MARK);
    space.fence();
}

fn fence_of_another_thread(space: &Space) {
    store(space, DATA, 1);
    flush(space, DATA);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            space.fence();
            store(space, MARK, 1);
            flush(space, MARK);
            space.fence();
        });
    });
}

fn many_stores(space: &Space) {
    space.write_bytes(DATA + 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).expect("inside");
    flush(space, DATA);
    store(space, DATA, u64::MAX);
    store(space, 2 * LINE, 7);
    space.fence();
    store(space, 2 * LINE, 8);
    flush(space, 2 * LINE);
    store(space, 2 * LINE + 8, 9);
    space.fence();
}

type Program = fn(&Space);

const PROGRAMS: [(&str, Program); 7] = [
    ("correct", correct),
    ("missing_flush", missing_flush),
    ("missing_fence", missing_fence),
    ("mark_first", mark_first),
    ("flush_before_the_store", flush_before_the_store),
    ("fence_of_another_thread", fence_of_another_thread),
    ("many_stores", many_stores),
];

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(image[at..at + WORD].try_into().expect("a word"))
}

/// An image holds the mark without the data.
fn breaks(domain: DomainKind, program: fn(&Space)) -> bool {
    let images = all_images(domain, &record(domain, program));
    images.iter().any(|image| word(image, MARK) == 1 && word(image, DATA) != 1)
}

#[test]
fn the_classic_bugs_are_found_and_correct_code_is_not_blamed() {
    use DomainKind::{Adr, Battery, Eadr, File};
    for domain in [Adr, Battery, Eadr, File] {
        assert!(!breaks(domain, correct), "{domain}");
        assert!(breaks(domain, mark_first), "{domain}");
    }
    // With the cache safe, order is all that counts.
    for domain in [Battery, Eadr] {
        for program in [missing_flush, missing_fence, flush_before_the_store, fence_of_another_thread] {
            assert!(!breaks(domain, program), "{domain}");
        }
    }
    for program in [missing_flush, missing_fence, flush_before_the_store, fence_of_another_thread] {
        assert!(breaks(Adr, program));
    }
    // msync returns when it is done: no fence is needed, but the flush is.
    assert!(!breaks(File, missing_fence) && !breaks(File, fence_of_another_thread));
    assert!(breaks(File, missing_flush) && breaks(File, flush_before_the_store));
}

#[test]
fn the_images_are_those_that_an_evicting_cache_leaves_no_more_and_no_fewer() {
    let mut random = Random::new(seed_from_environment(1));
    for domain in [DomainKind::Adr, DomainKind::File] {
        for (name, program) in PROGRAMS {
            let history = record(domain, program);
            let possible = all_images(domain, &history);
            let mut left = possible.clone();
            for _ in 0..WALKS_MAX {
                let image = evicting_cache(domain, &history, &mut random);
                assert!(possible.contains(&image), "{domain}, {name}: an image is missing: {image:?}");
                left.remove(&image);
                if left.is_empty() {
                    break;
                }
            }
            assert!(left.is_empty(), "{domain}, {name}: {} images that no cache leaves", left.len());
        }
    }
}

#[test]
fn chance_meets_every_image() {
    let history = record(DomainKind::Adr, many_stores);
    let mut random = Random::new(seed_from_environment(1));
    let mut moment = nothing(DomainKind::Adr);
    for step in 0..=history.len() {
        moment.advance(&history, step);
        let all: BTreeSet<_> = (0..moment.images()).map(|n| moment.bytes(&moment.image(n))).collect();
        let met: BTreeSet<_> = (0..4_000).map(|_| moment.bytes(&moment.sample(&mut random))).collect();
        assert_eq!(met, all, "step {step}");
    }
}

#[test]
fn a_line_has_one_image_more_than_pending_stores_and_lines_multiply() {
    let history = record(DomainKind::Adr, |space| {
        (0..3).for_each(|n| store(space, DATA, n + 1));
        (0..4).for_each(|n| store(space, MARK, n + 1));
        space.persist(DATA, WORD).expect("inside");
    });
    let mut moment = nothing(DomainKind::Adr);
    moment.advance(&history, 7);
    assert_eq!((moment.images(), moment.pending()), (4 * 5, 7));
    moment.advance(&history, history.len());
    assert_eq!((moment.images(), moment.pending()), (5, 4));
    assert_eq!(word(moment.durable(), DATA), 3);
}

#[test]
fn words_are_whole_and_other_stores_are_not() {
    let history = record(DomainKind::Adr, |space| {
        space.write_bytes(4, &[0xFF; 16]).expect("inside");
        space.write_bytes(LINE, &[0xFF; 4]).expect("inside");
    });
    let images = all_images(DomainKind::Adr, &history);
    assert!(images.iter().all(|image| [0, u64::MAX].contains(&word(image, 8))));
    assert!(images.iter().any(|image| image[4..8] == [0xFF, 0xFF, 0, 0]), "bytes before the first word");
    assert!(images.iter().any(|image| image[LINE..LINE + 4] == [0xFF, 0, 0, 0]), "less than a word");
}

#[test]
fn memory_goes_back_to_any_image_whatever_programs_did_to_it() {
    let dimm = Dimm::new(LINES * LINE, DomainKind::Adr);
    let mut before = dimm.before();
    let (space, cache) = dimm.boot();
    many_stores(&space);
    drop(space);
    let history = cache.history();
    let mut random = Random::new(seed_from_environment(1));
    for step in 0..=history.len() {
        before.moment.advance(&history, step);
        for _ in 0..20 {
            let image = before.moment.sample(&mut random);
            dimm.load(&mut before, &image);
            let whole = before.moment.bytes(&image);
            assert_eq!(dimm.content()[..LINES * LINE], whole[..LINES * LINE]);
            // A recovery that stores, is cut itself, and whose images are put in place.
            let mut again = dimm.before();
            let (space, cache) = dimm.boot();
            store(&space, random.below(30) as usize * WORD, random.number());
            space.persist(DATA, WORD).expect("inside");
            drop(space);
            let history = cache.history();
            again.moment.advance(&history, random.below(history.len() as u64) as usize);
            let image = again.moment.sample(&mut random);
            dimm.load(&mut again, &image);
            assert_eq!(dimm.content()[..LINES * LINE], again.moment.bytes(&image)[..LINES * LINE]);
            dimm.damage(5, &[9; 100]);
        }
    }
}

#[test]
#[should_panic(expected = "a program stores although its power was cut")]
fn a_program_that_outlives_its_power_cut_is_noticed() {
    let dimm = Dimm::new(LINES * LINE, DomainKind::Adr);
    let (space, _cache) = dimm.boot();
    let space: Arc<Space> = space;
    let _ = dimm.before();
    store(&space, DATA, 1);
}
