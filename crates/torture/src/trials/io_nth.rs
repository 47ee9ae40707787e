//! Makes every request of a store's life fail, once and for ever, in every way that a kernel has.
//!
//! Each history is repeated with its first request failing, then its second, and so on past its end:
//! creation, running, saves, cleaning, the digest. Then the same for the opening of what it left, and
//! for reading it. No failure may be taken for success, and what was committed stays.

use wattkeep_sim::disk::{Cut, Fault, FaultKind, MemoryDisk};
use wattkeep_sim::random::Random;
use wattkeep_sim::store_model::{Model, create_options, examine};
use wattkeep_store::{OpenError, Store};

use super::guard::{Bad, guarded};
use super::{Assignment, assigned};
use crate::outcome::Outcome;

const KINDS: [FaultKind; 4] = [FaultKind::Io, FaultKind::NoSpace, FaultKind::Short, FaultKind::Interrupted];
/// Steps of one history.
const STEPS: u64 = 50;

/// One fault's part of a history.
type Part = fn(u64, Fault) -> Result<bool, Bad>;

const PARTS: [(&str, Part); 4] =
    [("creation", creation), ("running", running), ("opening", opening), ("reading", reading)];

pub(crate) fn run(assignment: &Assignment, outcome: &mut Outcome) {
    let count = assigned(assignment);
    let mut random = Random::new(assignment.seed);
    let mut struck = [0u64; PARTS.len()];
    while outcome.tried < count && outcome.bad() == 0 {
        let seed = random.number();
        for ((name, part), struck) in PARTS.into_iter().zip(&mut struck) {
            every_fault(seed, name, part, struck, outcome);
        }
        outcome.tried = struck.iter().sum();
    }
    let parts: Vec<_> =
        PARTS.iter().zip(struck).map(|((name, _), struck)| format!("{struck} {name}")).collect();
    outcome.note = format!("faults while: {}", parts.join(", "));
}

fn every_fault(seed: u64, name: &str, part: Part, struck: &mut u64, outcome: &mut Outcome) {
    for kind in KINDS {
        for for_ever in [false, true] {
            for at in 0.. {
                let fault = Fault { at, kind, for_ever };
                let story = format!("{name}, history of seed {seed}, {fault:?}");
                match guarded(outcome, &story, || part(seed, fault)) {
                    Some(true) => *struck += 1,
                    // Past the last request.
                    Some(false) => break,
                    None => return,
                }
            }
        }
    }
}

/// The parts return whether the fault struck.
fn creation(seed: u64, fault: Fault) -> Result<bool, Bad> {
    let disk = MemoryDisk::new(seed);
    disk.set_fault(Some(fault));
    let made = Store::create(disk.clone(), &mut create_options(seed));
    if disk.requests() <= fault.at {
        return made.map(|_| false).map_err(|error| Bad::Violated(format!("without a fault: {error}")));
    }
    if made.is_ok() {
        return Err(Bad::Violated("a store was made in spite of it".to_owned()));
    }
    drop(made);
    match Store::open(disk.after_cut(Cut::Mixed, seed)) {
        Ok((store, _)) if store.regions().is_empty() => Ok(true),
        Ok(_) => Err(Bad::Violated("regions in a store that was never made".to_owned())),
        Err(OpenError::NeverCreated { .. } | OpenError::TooShort { .. }) => Ok(true),
        // The first copy was torn.
        Err(OpenError::SuperblockDamaged { .. }) => Ok(true),
        Err(error) => Err(Bad::Violated(format!("a half-made store is taken for another thing: {error}"))),
    }
}

fn running(seed: u64, fault: Fault) -> Result<bool, Bad> {
    let mut model = Model::new(seed);
    let at = fault.at + model.disk.requests();
    model.disk.set_fault(Some(Fault { at, ..fault }));
    let failed = model.run(STEPS).map_err(Bad::Violated)?;
    let struck = model.disk.requests() > at;
    model.disk.set_fault(None);
    if failed {
        model.must_stay_failed().map_err(Bad::Violated)?;
    }
    model.crash().map_err(Bad::Lost)?;
    Ok(struck)
}

/// A store in the state in which its history left it, and what it may hold.
fn left_behind(seed: u64) -> Result<(Model, MemoryDisk), Bad> {
    let mut model = Model::new(seed);
    model.run(STEPS).map_err(Bad::Violated)?;
    let disk = model.disk.after_cut(Cut::Mixed, seed);
    Ok((model, disk))
}

fn opening(seed: u64, fault: Fault) -> Result<bool, Bad> {
    let (model, disk) = left_behind(seed)?;
    disk.set_fault(Some(fault));
    let opened = Store::open(disk.clone());
    let struck = disk.requests() > fault.at;
    if opened.is_err() && !struck {
        return Err(Bad::Violated("the opening failed without a fault".to_owned()));
    }
    drop(opened);
    disk.set_fault(None);
    examine(&disk.after_cut(Cut::Mixed, seed), &model.durable).map_err(Bad::Lost)?;
    Ok(struck)
}

fn reading(seed: u64, fault: Fault) -> Result<bool, Bad> {
    let (model, disk) = left_behind(seed)?;
    let (mut store, found, _) = examine(&disk, &model.durable).map_err(Bad::Lost)?;
    let at = fault.at + disk.requests();
    disk.set_fault(Some(Fault { at, ..fault }));
    let report = store.check(&mut |_, _| {}).map_err(|error| Bad::Violated(error.to_string()))?;
    let struck = disk.requests() > at;
    disk.set_fault(None);
    let pages = found.pages.len() as u64;
    if struck == report.damaged.is_empty() || report.pages_checked != pages {
        return Err(Bad::Violated(format!("a check of {pages} pages says {report:?}")));
    }
    Ok(struck)
}
