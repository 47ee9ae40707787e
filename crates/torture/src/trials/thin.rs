//! Lets the disk fill up under a store: when it is made, while it runs, when a region grows, in a save.
//!
//! Every block of a store was written once before it was promised, so a disk that fills up later stops
//! nobody. What does not fit is refused in words that help, leaves nothing behind, and loses nothing.
//!
//! One disk lies: when a region grows on a thin one, ext4 itself may lose a write of its own and go
//! read-only. Then the keeper says so, writers stop, and the last checkpoint is there once the disk is
//! repaired.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use wattkeep::FaultMode;
use wattkeep_keep::protocol::{Reply, Request};
use wattkeep_sim::random::Random;

use super::lab::{adopt_orphans, ask, ends, send};
use super::small_disk::SmallDisk;
use super::subject::SubjectOptions;
use super::victim::{NoStart, Victim, in_directory};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

/// A disk that a store of the trial fits on, and one that it does not.
const ROOMY_MIB: u64 = 96;
const SMALL_MIB: u64 = 20;

/// More pages than the roomy disk has.
const TOO_MANY_PAGES: u64 = 64 << 10;

/// When the disk is full.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Creating,
    Running,
    Growing,
    Saving,
}

const PHASES: [Phase; 4] = [Phase::Creating, Phase::Running, Phase::Growing, Phase::Saving];

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    adopt_orphans();
    if let Err(why) = SmallDisk::new(SMALL_MIB, SMALL_MIB) {
        outcome.note = "not run".to_owned();
        return outcome.violate(format!("no small file system can be made, so nothing was tried: {why}"));
    }
    while outcome.tried < count && outcome.bad() == 0 {
        let phase = PHASES[(outcome.tried % PHASES.len() as u64) as usize];
        let (thin, seed) = (random.chance(1, 2), random.number());
        if let Err(cause) = one_run(phase, thin, seed, &mut random) {
            let kind = if thin { "thin" } else { "full" };
            return outcome.lose(1, format!("seed {seed}, a {kind} disk, {phase:?}: {cause}"));
        }
        outcome.tried += 1;
    }
}

fn one_run(phase: Phase, thin: bool, seed: u64, random: &mut Random) -> Result<(), String> {
    let mib = if matches!(phase, Phase::Creating) { SMALL_MIB } else { ROOMY_MIB };
    // ext4 over a thin tmpfs believes in twice what there is.
    let disk = SmallDisk::new(if thin { 2 * mib } else { mib }, mib + 8)?;
    let mut options = in_directory(&disk.store(), seed);
    options.mode = [FaultMode::Signal, FaultMode::Mprotect, FaultMode::Monitor][random.below(3) as usize];
    options.explicit = random.chance(1, 4);
    options.checkpoint_ms = 5;
    if matches!(phase, Phase::Creating) {
        return refuses_to_create(&options, &disk);
    }
    options.grow_pages = if matches!(phase, Phase::Growing) { TOO_MANY_PAGES } else { 0 };
    let mut victim = Victim::start(&options)?;
    victim.wait_until_it_stores().map_err(said)?;
    if matches!(phase, Phase::Growing) {
        victim.wait_until(|victim| victim.heard.refused.is_some()).map_err(said)?;
        let why = victim.heard.refused.clone().unwrap_or_default();
        if !why.contains("free some space") {
            return Err(format!("a region that does not fit is not refused in words that help: {why}"));
        }
    }
    disk.fill(thin)?;
    let before = victim.heard.at.clone();
    victim.run_for(Duration::from_millis(40));
    let lies = thin && matches!(phase, Phase::Growing) && victim.heard.at == before;
    if victim.heard.at == before && (!lies || victim.words.to_string().is_empty()) {
        return Err(format!("writers stand still on a full disk: {}", victim.words));
    }
    if matches!(phase, Phase::Saving) {
        match ask(&options.directory, &Request::Save)? {
            Reply::Saved(_) => send(victim.heard.keeper.unwrap_or(0), Signal::KILL),
            other => return Err(format!("no save on a full disk: {other:?}")),
        }
    }
    victim.kill();
    // A disk that stops taking writes may do so in the drain, too.
    let lied = thin && matches!(phase, Phase::Growing) && !victim.words.to_string().is_empty();
    let told = std::mem::take(if lied { &mut victim.heard.checkpoint } else { &mut victim.heard.at });
    if !ends(victim.heard.keeper.unwrap_or(0)) {
        return Err("the keeper does not end".to_owned());
    }
    disk.heal()?;
    holds_everything(SubjectOptions { grow_pages: 0, ..options }, &told)
}

fn refuses_to_create(options: &SubjectOptions, disk: &SmallDisk) -> Result<(), String> {
    let mut victim = Victim::start(options)?;
    let refused = match victim.wait_until_it_stores() {
        Ok(()) => return Err("a store was made where none fits".to_owned()),
        Err(why) => said(why),
    };
    if !refused.contains("free some space") {
        return Err(format!("it is not refused in words that help: {refused}"));
    }
    let left = std::fs::read_dir(disk.store()).map_or(0, Iterator::count);
    if left > 0 { Err(format!("{left} files are left of a store that was not made")) } else { Ok(()) }
}

fn holds_everything(options: SubjectOptions, told: &BTreeMap<u64, u64>) -> Result<(), String> {
    let mut next = Victim::start(&options)?;
    next.wait_until_it_stores().map_err(said)?;
    for (thread, number) in told {
        let found = next.heard.found.get(thread).copied().unwrap_or(0);
        if found < *number {
            return Err(format!("{found} of {number} stores of thread {thread}"));
        }
    }
    next.kill();
    if ends(next.heard.keeper.unwrap_or(0)) { Ok(()) } else { Err("the keeper does not end".to_owned()) }
}

fn said(why: NoStart) -> String {
    match why {
        NoStart::Wrong(cause) | NoStart::Silent(cause) => cause,
    }
}
