//! `wattkeep check`: reads and verifies every stored page; with `--accept-incomplete`, gives up what is
//! lost, by name.
//!
//! Persistent heaps in regions are opened on a copy, and what is wrong with them is said.
//!
//! Without that option nothing is written. With it, a damaged page becomes a page of zeros and is
//! listed: nothing is repaired silently.

use std::path::Path;

use serde_json::json;
use wattkeep_store::disk::{Disk, Wait};
use wattkeep_store::{
    Begin, CheckReport, CommitKind, DamagedPage, OpenError, PageRanges, Purpose, Recovery, Store, UringDisk,
};

use crate::answer::{Answer, Output};
use crate::args::CheckArgs;
use crate::commands::heaps;
use crate::failure::{Exit, Failure};
use crate::opened::PageLog;
use crate::progress;
use crate::text;

/// Ranges of pages in one list of a text for people; the others are counted.
const NAMED: usize = 20;

/// Ranges of pages in one list of JSON; the others are counted.
const LISTED: usize = 10_000;

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
    let whole = report.damaged.is_empty() && audit.is_ok();
    // A heap that lacks pages is damaged, and the pages say where.
    let heaps = if whole { heaps::run(&mut store)? } else { Vec::new() };
    let sound = whole && heaps.iter().all(heaps::Checked::is_sound);
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
    text += &if whole {
        "\nsound: every page is as it was written".to_owned()
    } else {
        format!(
            "\nDAMAGED: copy the store, then give the lost pages up with 'wattkeep check {place} --accept-incomplete'"
        )
    };
    heaps.iter().for_each(|heap| text += &heap.text());
    let json = json!({
        "store": args.store,
        "sound": sound,
        "clean": recovery.clean,
        "pages_checked": report.pages_checked,
        "damaged": damage_json(&store, &report.damaged),
        "heaps": heaps.iter().map(heaps::Checked::json).collect::<Vec<_>>(),
        "index": audit.err(),
        "superblock_copies_valid": recovery.superblock_copies_valid,
        "lost": [],
        "damaged_summaries": [],
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
        "DAMAGED: the store in {name} lacks part of its last commit{}\nnothing was changed; copy the \
         store, then give this up with 'wattkeep check {name} --accept-incomplete'",
        name_loss(recovery)
    );
    let json = json!({
        "store": place, "sound": false, "clean": recovery.clean, "pages_checked": 0, "damaged": [],
        "index": null, "superblock_copies_valid": recovery.superblock_copies_valid,
        "lost": lost_json(recovery), "damaged_summaries": recovery.damaged_batches,
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
    text += &name_loss(&recovery);
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
        "damaged_summaries": recovery.damaged_batches,
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

/// A line for each region that does not add up, and one for what hid its pages.
fn name_loss(recovery: &Recovery) -> String {
    if recovery.lost.is_empty() {
        return String::new();
    }
    let lines = recovery.lost.iter().map(|lost| format!("\nlost: {}", lost.named(NAMED)));
    lines.collect::<String>() + "\nbecause " + &recovery.damage()
}

/// A line for the damaged pages of each region and cause.
fn name_damage(store: &PageLog, damaged: &[DamagedPage]) -> String {
    let mut sorted: Vec<_> = damaged.iter().collect();
    sorted.sort_by_key(|damage| (damage.page.region, &damage.cause, damage.page.page));
    let alike = |a: &&DamagedPage, b: &&DamagedPage| a.page.region == b.page.region && a.cause == b.cause;
    let line = |group: &[&DamagedPage]| {
        let cause = group[0].cause.as_deref().unwrap_or("not the bytes that were written");
        let pages: PageRanges = group.iter().map(|damage| damage.page.page).collect();
        let count = text::pages(pages.pages());
        format!(
            "\nlost: {count} of region '{}', {}: {cause}",
            region_name(store, group[0]),
            pages.named(NAMED)
        )
    };
    sorted.chunk_by(alike).map(line).collect()
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
    lost.map(|lost| {
        json!({
            "region": lost.name, "committed": lost.committed, "found": lost.found, "proven": lost.proven,
            "missing": ranges_json(&lost.missing),
            "older": ranges_json(&lost.older),
            "suspects": ranges_json(&lost.suspects),
        })
    })
    .collect()
}

/// First and last page of each range.
fn ranges_json(pages: &PageRanges) -> serde_json::Value {
    let ranges = pages.ranges();
    let listed: Vec<_> = ranges.iter().take(LISTED).map(|range| [*range.start(), *range.end()]).collect();
    json!({
        "pages": pages.pages(),
        "ranges": listed,
        "ranges_left_out": ranges.len().saturating_sub(LISTED),
    })
}
