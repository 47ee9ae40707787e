//! A slice of every campaign, and bugs that they must find.
//!
//! `WATTKEEP_SEED=<seed>` replays one history, and prints the shortest script that fails.

use wattkeep_sim::campaign::{self, histories};
use wattkeep_sim::random::seed_from_environment;
use wattkeep_sim::script::Script;
use wattkeep_sim::tally::{Bad, Tally};
use wattkeep_sim::world::{Planted, Settings, Trouble, World};

const SEED: u64 = 1;

fn quiet(_: &Tally) {}

#[track_caller]
fn clean(tally: &Tally) {
    println!("{tally}");
    assert!(tally.is_clean(), "{tally}");
}

#[test]
fn whole_histories_keep_every_promise() {
    if std::env::var("WATTKEEP_SEED").is_ok() {
        let failed = campaign::replay(seed_from_environment(SEED));
        return assert!(
            failed.is_none(),
            "{}",
            failed.map(|(what, s)| format!("{what}\n{s}")).unwrap_or_default()
        );
    }
    let tally = campaign::histories(300, SEED, &mut quiet);
    clean(&tally);
    assert!(tally.noted("power cuts") > 300);
}

#[test]
fn a_cut_at_any_write_leaves_the_last_commit_whole() {
    let tally = campaign::crash(6_000, SEED, &mut quiet);
    clean(&tally);
    assert!(tally.tried >= 6_000 && tally.noted("restored") > 100);
}

#[test]
fn a_cut_during_recovery_does_no_harm() {
    let tally = campaign::recrash(1_000, 100, SEED, &mut quiet);
    clean(&tally);
    assert!(tally.noted("double") >= 1_000 && tally.noted("triple") >= 100);
}

#[test]
fn every_short_history_can_be_cut_anywhere() {
    let tally = campaign::enumerate(4_000, SEED, &mut quiet);
    clean(&tally);
    assert_eq!(tally.noted("sequences"), campaign::enumerate::sequences().len() as u64);
}

#[test]
fn no_more_pages_are_dirty_than_the_budget_allows() {
    let tally = campaign::auditor(100_000, SEED, &mut quiet);
    clean(&tally);
    assert!(tally.noted("budget changes") > 1_000);
}

#[test]
fn every_save_ends_while_the_energy_lasts() {
    let tally = campaign::power(1_000, SEED, &mut quiet);
    clean(&tally);
    assert!(tally.noted("simulated hours") > 1_000);
    assert!(tally.noted("saves missed") > 10 && tally.noted("flaps") > 100);
}

#[test]
fn a_budget_that_trusts_a_faster_ssd_is_found() {
    let tally = campaign::power::outages(400, SEED, Some(Planted::OptimisticBandwidth), &mut quiet);
    println!("{tally}");
    assert!(tally.violations > 3, "{tally}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let (settings, script) = (histories::settings(5), histories::script(5));
    let shows: Vec<String> = (0..2)
        .map(|_| {
            let mut world = World::new(settings.clone(), script.seed).expect("a healthy disk");
            let seen = script.ops.iter().map(|op| {
                world.apply(*op).expect("a healthy history");
                world.show()
            });
            seen.collect()
        })
        .collect();
    assert!(shows[0] == shows[1], "two runs of one seed differ");
}

#[test]
fn a_script_can_be_read_as_it_was_written() {
    for seed in 0..50 {
        let script = histories::script(seed);
        assert_eq!(script.to_string().parse::<Script>(), Ok(script));
    }
}

/// How the histories of a machine with a planted bug fail, and the first of them, shortened.
fn found(planted: Planted) -> (u32, String) {
    let (mut failed, mut shortest) = (0, None);
    for seed in 0..40 {
        let settings = Settings { planted: Some(planted), ..histories::settings(seed) };
        let script = histories::script(seed);
        if let Err(bad) = histories::run(&settings, &script) {
            assert!(!matches!(bad, Bad::Trouble(Trouble::Stopped(_))), "{bad}");
            failed += 1;
            shortest.get_or_insert_with(|| {
                let script = histories::shorten(&settings, &script, &bad);
                assert!(script.ops.len() < 20, "shortened to {} steps:\n{script}", script.ops.len());
                format!("{bad}\n{script}")
            });
        }
    }
    (failed, shortest.unwrap_or_default())
}

#[test]
fn an_ssd_that_only_says_that_it_flushed_is_found() {
    let (failed, first) = found(Planted::LyingFlush);
    println!("{failed} of 40: {first}");
    assert!(failed > 20 && first.contains("lost"), "{failed} of 40: {first}");
}

#[test]
fn a_kernel_that_leaves_protected_pages_open_is_found() {
    let (failed, first) = found(Planted::LeakyProtection);
    println!("{failed} of 40: {first}");
    assert!(failed > 20, "{failed} of 40: {first}");
}
