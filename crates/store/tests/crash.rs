//! Crash the store thousands of times, at every kind of moment, and compare with the model.
//!
//! `WATTKEEP_SEED=<seed>` replays one run; `WATTKEEP_CRASHES=<n>` makes a longer soak.

mod model;

use model::{Model, Statistics};
use wattkeep_sim::disk::{Fault, FaultKind};
use wattkeep_store::StoreError;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One history of one store: steps, with a crash wherever the power happens to go.
fn history(seed: u64, crashes: u64) -> Statistics {
    let mut model = Model::new(seed);
    while model.statistics.crashes < crashes {
        // The disk stops at some request; nothing works from there on, as without power.
        let at = model.disk.requests() + model.random.below(120);
        model.disk.set_fault(Some(Fault { at, kind: FaultKind::Io, for_ever: true }));
        for _ in 0..model.random.below(60) {
            match model.step() {
                Ok(()) => {}
                Err(StoreError::Poisoned { .. } | StoreError::NoSpace { .. }) => break,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if model.random.chance(1, 20) {
                model.store().audit().expect("the counts hold");
            }
        }
        model.crash();
    }
    model.statistics
}

#[test]
fn after_every_crash_the_last_commit_is_there_exactly() {
    let crashes = number("WATTKEEP_CRASHES", 4_000);
    if let Ok(seed) = std::env::var("WATTKEEP_SEED") {
        let seed = seed.parse().expect("WATTKEEP_SEED is a number");
        println!("{:?}", history(seed, 100));
        return;
    }
    let mut total = Statistics::default();
    for seed in 0..crashes.div_ceil(100) {
        println!("seed {seed}: replay with WATTKEEP_SEED={seed}");
        let one = history(seed, 100);
        total.crashes += one.crashes;
        total.commits += one.commits;
        total.batches += one.batches;
        total.cleanings += one.cleanings;
        total.tails += one.tails;
        total.recovery_crashes += one.recovery_crashes;
        total.stuck += one.stuck;
        total.by_digest += one.by_digest;
    }
    println!("{total:?}");
    assert!(total.tails > 0 && total.commits > 0 && total.recovery_crashes > 0);
    assert!(total.by_digest > 0 && total.by_digest < total.crashes);
}
