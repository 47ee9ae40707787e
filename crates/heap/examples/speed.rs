//! How long an allocation, a free and an open take, in processor time:
//! `cargo run --release -p wattkeep-heap --example speed`, with another count than 10 million if one is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use wattkeep_heap::{Heap, Options};
use wattkeep_persist::{Anonymous, Domain, Space};

const SPACE_BYTES: usize = 3 << 30;
const COUNT: usize = 10_000_000;
const LIVE: usize = 10_000;

/// Time that this thread had a processor: other programs do not count.
fn busy() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn report(what: &str, count: usize, begun: Duration) {
    let each = (busy() - begun).as_nanos() as f64 / count as f64;
    println!("{what}: {each:.1} ns each");
}

/// What is asked for, beside the pages that hold it, after many objects of all sizes came and went.
fn fragmentation(random: &mut Xoshiro256PlusPlus, count: usize) {
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), Domain::Battery));
    let heap = Heap::create(space, &Options::default()).expect("room");
    let mut live = vec![(0, 0); count / 40];
    for _ in 0..count {
        let number = random.next_u64();
        let slot = (number >> 32) as usize % live.len();
        let bytes = 16 << (number % 8) | number >> 8 & 15;
        if live[slot].0 != 0 {
            heap.free(live[slot].0).expect("an object");
        }
        live[slot] = (heap.alloc(bytes).expect("room"), bytes);
    }
    let asked: u64 = live.iter().map(|(_, bytes)| bytes).sum();
    let report = heap.check(None).expect("readable");
    let held: u64 = report.classes.iter().map(|class| class.held_bytes).sum();
    println!(
        "16 to 2063 B, {} objects after {count}: {asked} bytes asked for, {held} held, {:.0} %, log {}",
        live.len(),
        asked as f64 / held as f64 * 100.0,
        report.log_bytes
    );
}

fn main() {
    let count = std::env::args().nth(1).map_or(COUNT, |count| count.parse().expect("a count"));
    let space = Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), Domain::Battery));
    let heap = Heap::create(space.clone(), &Options::default()).expect("room");

    let begun = busy();
    for _ in 0..count {
        let at = heap.alloc(64).expect("room");
        heap.free(at).expect("an object");
    }
    report("64 B, allocate and free", count, begun);

    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for (what, sizes) in [("64 B", [64; 4]), ("16 to 1024 B", [16, 64, 256, 1024])] {
        let mut live: Vec<u64> = (0..LIVE).map(|_| heap.alloc(sizes[0]).expect("room")).collect();
        let begun = busy();
        for _ in 0..count {
            let number = random.next_u64();
            let slot = &mut live[(number >> 32) as usize % LIVE];
            heap.free(*slot).expect("an object");
            *slot = heap.alloc(sizes[number as usize % 4]).expect("room");
        }
        report(&format!("{what}, replace one of {LIVE}"), count, begun);
        live.into_iter().for_each(|at| heap.free(at).expect("an object"));
    }

    let begun = busy();
    for _ in 0..count {
        heap.alloc(64).expect("room");
    }
    report("64 B, allocate", count, begun);
    drop(heap);
    let begun = Instant::now();
    let heap = Heap::open(space).expect("a heap");
    println!("open with {count} objects: {:?}", begun.elapsed());
    let begun = Instant::now();
    heap.alloc(64).expect("room");
    println!("first allocation: {:?}", begun.elapsed());
    drop(heap);
    fragmentation(&mut random, count);
}
