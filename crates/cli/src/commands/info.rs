//! `wattkeep info`: what a store holds, from its superblock and log, or from its running keeper.

use std::path::Path;

use serde_json::{Value, json};
use wattkeep_keep::protocol::Status;
use wattkeep_power::units::{format_bandwidth, format_size};
use wattkeep_store::superblock::FORMAT_VERSION;
use wattkeep_store::{CommitKind, Recovery, RegionMode, RegionRecord, StoreState};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::keeper::KeeperLine;
use crate::opened::{self, PageLog};
use crate::text::{self, PAGE};

pub(crate) fn run(place: &Path) -> Result<Answer, Failure> {
    if let Some(line) = KeeperLine::connect(place)
        && let Ok(status) = line.status()
    {
        return Ok(running(place, &status));
    }
    let (store, recovery) = opened::read_only(place)?;
    Ok(at_rest(place, &store, &recovery))
}

fn running(place: &Path, status: &Status) -> Answer {
    let mut rows = vec![vec!["region".into(), "size".into(), "address".into(), "mode".into()]];
    for region in &status.regions {
        rows.push(vec![
            region.name.clone(),
            format_size(region.bytes),
            format!("{:#x}", region.address),
            format!("{:?}", region.tracking).to_lowercase(),
        ]);
    }
    let facts = text::facts(&[
        ("store", place.display().to_string()),
        ("in use", format!("by process {}, kept by keeper {}", status.client_pid, status.keeper_pid)),
        ("dirty budget", text::pages(status.budget_pages.into())),
        ("last commit", format!("epoch {}", status.last_commit_epoch)),
        ("log", log_occupancy(status.segments, status.segments_free)),
    ]);
    let text = format!("{facts}\nopen {}", text::table(&rows));
    Answer::new(text, json!({ "store": place, "running": true, "status": status }))
}

fn at_rest(place: &Path, store: &PageLog, recovery: &Recovery) -> Answer {
    let (status, health, commit) = (store.status(), store.health(), store.last_commit());
    let bytes = u64::from(status.segments) * u64::from(wattkeep_store::limits::SEGMENT_PAGES) * PAGE;
    let save = match health.last_save_ok {
        None => "none yet".to_owned(),
        Some(true) => format!("ok, {} in {} ms", text::pages(health.last_save_pages), health.last_save_ms),
        Some(false) => "FAILED".to_owned(),
    };
    let bandwidth = match health.worst_write_bandwidth {
        0 => "not measured".to_owned(),
        bandwidth => format_bandwidth(bandwidth),
    };
    let facts = text::facts(&[
        ("store", place.display().to_string()),
        ("format", FORMAT_VERSION.to_string()),
        ("uuid", text::uuid(store.uuid())),
        ("last shutdown", shutdown(recovery, status.state)),
        (
            "last commit",
            format!(
                "epoch {}, {}, {}, {}",
                commit.epoch.0,
                kind_name(commit.kind),
                text::date(commit.unix_s),
                text::pages(commit.pages)
            ),
        ),
        ("dirty budget", text::pages(store.budget_pages().into())),
        ("unsafe shutdowns", status.unsafe_shutdowns.to_string()),
        ("last save", save),
        ("worst bandwidth", bandwidth),
        ("superblock copies", format!("{} of 4 whole", recovery.superblock_copies_valid)),
        ("log", format!("{}; {}", format_size(bytes), log_occupancy(status.segments, status.free))),
        ("stored", text::pages(status.live_pages)),
    ]);
    let text = format!("{facts}\n{}", regions_table(store.regions()));
    let regions: Vec<_> = store.regions().iter().map(region_json).collect();
    let json = json!({
        "store": place,
        "running": false,
        "format": FORMAT_VERSION,
        "uuid": text::uuid(store.uuid()),
        "clean": recovery.clean,
        "commit": {
            "epoch": commit.epoch.0, "kind": kind_name(commit.kind), "unix_s": commit.unix_s,
            "pages": commit.pages,
        },
        "lost_tail_batches": recovery.lost_tail_batches,
        "budget_pages": store.budget_pages(),
        "unsafe_shutdowns": status.unsafe_shutdowns,
        "superblock_copies_valid": recovery.superblock_copies_valid,
        "health": {
            "last_save_ok": health.last_save_ok, "last_save_ms": health.last_save_ms,
            "last_save_pages": health.last_save_pages, "save_failures": health.save_failures,
            "worst_write_bandwidth": health.worst_write_bandwidth,
        },
        "segments": status.segments,
        "segments_free": status.free,
        "stored_pages": status.live_pages,
        "regions": regions,
    });
    Answer::new(text, json)
}

fn regions_table(regions: &[RegionRecord]) -> String {
    if regions.is_empty() {
        return "no regions yet".to_owned();
    }
    let heading = ["region", "size", "pages", "address", "mode", "created"].map(String::from);
    let mut rows = vec![heading.to_vec()];
    for region in regions {
        rows.push(vec![
            region.name.clone(),
            format_size(u64::from(region.pages) * PAGE),
            text::thousands(region.pages.into()),
            format!("{:#x}", region.address),
            mode_name(region.mode).to_owned(),
            text::date(region.created_unix_s),
        ]);
    }
    text::table(&rows)
}

/// A region of a store at rest.
pub(crate) fn region_json(region: &RegionRecord) -> Value {
    json!({
        "name": region.name,
        "bytes": u64::from(region.pages) * PAGE,
        "pages": region.pages,
        "address": region.address,
        "mode": mode_name(region.mode),
        "created_unix_s": region.created_unix_s,
    })
}

fn mode_name(mode: RegionMode) -> &'static str {
    match mode {
        RegionMode::Transparent => "transparent",
        RegionMode::Explicit => "explicit",
    }
}

/// A commit's kind, as one word.
pub(crate) fn kind_name(kind: CommitKind) -> &'static str {
    match kind {
        CommitKind::Created => "created",
        CommitKind::Checkpoint => "checkpoint",
        CommitKind::Save => "save",
        CommitKind::Close => "close",
    }
}

fn log_occupancy(segments: u32, free: u32) -> String {
    let used = segments.saturating_sub(free);
    format!("{} {} of {} segments used", text::bar(used.into(), segments.into(), 20), used, segments)
}

/// How the last writer ended, for people.
pub(crate) fn shutdown(recovery: &Recovery, state: StoreState) -> String {
    match state {
        StoreState::Closed => "clean: everything was written out".to_owned(),
        StoreState::Saved => "clean: a save completed".to_owned(),
        StoreState::Running => format!(
            "NOT CLEAN: no save; the store opens as of commit {} ({}), {} later batches are lost",
            recovery.commit.epoch.0,
            kind_name(recovery.kind),
            recovery.lost_tail_batches
        ),
    }
}
