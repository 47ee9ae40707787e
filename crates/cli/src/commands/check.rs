//! `wattkeep check`: reads and verifies every stored page; with `--accept-incomplete`, gives up what is
//! lost, by name.
//!
//! Without that option nothing is written. With it, a damaged page becomes a page of zeros and is
//! listed: nothing is repaired silently.

use std::path::Path;

use serde_json::json;
use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::{
    Begin, CheckReport, CommitKind, DamagedPage, OpenError, Purpose, Recovery, Store, UringDisk,
};

use crate::answer::{Answer, Output};
use crate::args::CheckArgs;
use crate::failure::{Exit, Failure};
use crate::opened::PageLog;
use crate::progress;
use crate::text;

/// Damaged pages that are named in a text for people; the others are counted.
const NAMED: usize = 20;

pub(crate) fn run(args: &CheckArgs, _output: Output) -> Result<Answer, Failure> {
    if args.accept_incomplete {
        return accept(&args.store);
    }
    let disk = UringDisk::open_read_only(&args.store)?;
    let (mut store, recovery) = match Store::open_scanned(disk) {
        Err(OpenError::Incomplete { recovery, .. }) => return Ok(incomplete(&args.store, &recovery)),
        opened => opened?,
    };
    let report = verify(&mut store)?;
    let audit = store.audit();
    let sound = report.damaged.is_empty() && audit.is_ok();
    let place = args.store.display();
    let mut text = format!("{} verified in {place}", text::pages(report.pages_checked));
    if recovery.superblock_copies_valid < 4 {
        text += &format!("\n{} of 4 superblock copies are whole", recovery.superblock_copies_valid);
    }
    text += &crate::opened::note(&recovery);
    if let Err(cause) = &audit {
        text += &format!("\nthe index does not add up: {cause}");
    }
    text += &name_damage(&store, &report.damaged);
    text += &if sound {
        "\nsound: every page is as it was written".to_owned()
    } else {
        format!(
            "\nDAMAGED: copy the store, then give the lost pages up with 'wattkeep check {place} --accept-incomplete'"
        )
    };
    let json = json!({
        "store": args.store,
        "sound": sound,
        "clean": recovery.clean,
        "pages_checked": report.pages_checked,
        "damaged": damage_json(&store, &report.damaged),
        "index": audit.err(),
        "superblock_copies_valid": recovery.superblock_copies_valid,
        "lost": [],
    });
    Ok(Answer::new(text, json).that_holds(sound))
}

fn verify(store: &mut PageLog) -> Result<CheckReport, Failure> {
    let bar = progress::bar("verifying");
    let report = store.check(&mut |done, total| progress::set(&bar, done, total));
    bar.finish_and_clear();
    Ok(report?)
}

fn incomplete(place: &Path, recovery: &Recovery) -> Answer {
    let name = place.display();
    let text = format!(
        "DAMAGED: the store in {name} lacks part of its last commit: {}\nnothing was changed; copy the \
         store, then give the rest up with 'wattkeep check {name} --accept-incomplete'",
        recovery.loss()
    );
    let json = json!({
        "store": place, "sound": false, "clean": recovery.clean, "pages_checked": 0, "damaged": [],
        "index": null, "superblock_copies_valid": recovery.superblock_copies_valid,
        "lost": lost_json(recovery),
    });
    Answer::new(text, json).that_holds(false)
}

fn accept(place: &Path) -> Result<Answer, Failure> {
    let (mut store, recovery) = Store::open_incomplete(UringDisk::open(place)?)?;
    let report = verify(&mut store)?;
    let names = name_damage(&store, &report.damaged);
    let damaged = damage_json(&store, &report.damaged);
    write_zeros(&mut store, &report.damaged)?;
    store.commit(CommitKind::Close)?;
    let whole = recovery.lost.is_empty() && report.damaged.is_empty();
    let mut text = format!("{} verified in {}", text::pages(report.pages_checked), place.display());
    if !recovery.lost.is_empty() {
        text += &format!("\ngiven up: {}", recovery.loss());
    }
    text += &names;
    text +=
        if whole { "\nnothing was lost" } else { "\nthe store is good again, without what is named above" };
    let json = json!({
        "store": place,
        "sound": true,
        "clean": recovery.clean,
        "pages_checked": report.pages_checked,
        "damaged": damaged,
        "lost": lost_json(&recovery),
    });
    Ok(Answer::new(text, json))
}

/// Makes damaged pages pages of zeros.
fn write_zeros(store: &mut PageLog, damaged: &[DamagedPage]) -> Result<(), Failure> {
    let (mut rest, mut events) = (damaged, Vec::new());
    while !rest.is_empty() {
        match store.begin(Purpose::Save, rest.len())? {
            Begin::Batch(mut batch) => {
                let count = rest.len().min(batch.room());
                for damage in &rest[..count] {
                    let bytes = batch.next_page();
                    bytes.fill(0);
                    let checksum = store.hash(bytes);
                    batch.push(damage.page, checksum, 0);
                }
                rest = &rest[count..];
                store.submit(batch);
            }
            Begin::Busy => store.poll(Wait::One, &mut events)?,
            Begin::NoSpace if store.disk().in_flight() > 0 => store.poll(Wait::One, &mut events)?,
            Begin::NoSpace => {
                let cause =
                    "the log has no room left to rewrite damaged pages; run 'wattkeep dump' on each region";
                return Err(Failure::new(Exit::System, cause));
            }
        }
        events.clear();
    }
    Ok(())
}

fn region_name(store: &PageLog, damage: &DamagedPage) -> String {
    store.region(damage.page.region).map_or_else(|| "?".to_owned(), |region| region.name.clone())
}

fn name_damage(store: &PageLog, damaged: &[DamagedPage]) -> String {
    let line = |damage: &DamagedPage| {
        let cause = damage.cause.as_deref().unwrap_or("its bytes are not those that were written");
        let name = region_name(store, damage);
        format!("\nlost: page {} of region '{name}' (slot {}): {cause}", damage.page.page, damage.slot)
    };
    let mut text: String = damaged.iter().take(NAMED).map(line).collect();
    if damaged.len() > NAMED {
        text += &format!("\nlost: {} pages more; name them all with --json", damaged.len() - NAMED);
    }
    text
}

fn damage_json(store: &PageLog, damaged: &[DamagedPage]) -> Vec<serde_json::Value> {
    let one = |damage: &DamagedPage| {
        json!({
            "region": region_name(store, damage),
            "page": damage.page.page,
            "slot": damage.slot,
            "cause": damage.cause,
        })
    };
    damaged.iter().map(one).collect()
}

fn lost_json(recovery: &Recovery) -> Vec<serde_json::Value> {
    let lost = recovery.lost.iter();
    lost.map(|lost| json!({ "region": lost.name, "committed": lost.committed, "found": lost.found }))
        .collect()
}
