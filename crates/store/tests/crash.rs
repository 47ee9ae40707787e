//! Crash the store thousands of times, at every kind of moment, and compare with the model.
//!
//! `WATTKEEP_SEED=<seed>` replays one run; `WATTKEEP_CRASHES=<n>` makes a longer soak.

use wattkeep_sim::disk::{Fault, FaultKind};
use wattkeep_sim::store_model::{Model, Statistics};

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
        let steps = model.random.below(60);
        model.run(steps).unwrap_or_else(|cause| panic!("seed {seed}: {cause}"));
        model.crash().unwrap_or_else(|cause| panic!("seed {seed}: {cause}"));
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
        total += history(seed, 100);
    }
    println!("{total:?}");
    assert!(total.tails > 0 && total.commits > 0 && total.recovery_crashes > 0);
    assert!(total.by_digest > 0 && total.by_digest < total.crashes);
}
