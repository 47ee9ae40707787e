//! `wattkeep status`: is my data safe right now? The first line answers; the numbers follow.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use wattkeep_keep::protocol::Status;
use wattkeep_power::budget::default_window;
use wattkeep_power::units::{format_duration_ns, format_size};
use wattkeep_store::{Recovery, StoreState};

use crate::answer::{Answer, Output, write_out};
use crate::args::StatusArgs;
use crate::calibrate;
use crate::failure::Failure;
use crate::keeper::KeeperLine;
use crate::opened::{self, PageLog};
use crate::text;

const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &StatusArgs, output: Output) -> Result<Answer, Failure> {
    loop {
        let answer = look(&args.store)?;
        if !args.watch {
            return Ok(answer);
        }
        if !output.json {
            // Clears the terminal and goes to its top.
            write_out("\x1b[2J\x1b[H");
        }
        if !answer.show(output) {
            return Ok(Answer::printed());
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

fn look(place: &Path) -> Result<Answer, Failure> {
    if let Some(status) = KeeperLine::connect(place).and_then(|line| line.status().ok()) {
        return Ok(running(place, &status));
    }
    let (store, recovery) = opened::read_only(place)?;
    Ok(at_rest(place, &store, &recovery))
}

/// One sentence, and whether it is good news.
fn verdict(status: &Status) -> (bool, String) {
    let dirty = format!(
        "{} of at most {} pages would have to be saved now",
        text::thousands(status.dirty_pages.into()),
        text::thousands(status.budget_pages.into())
    );
    match status.state.as_str() {
        "armed" => (true, format!("SAFE: armed; {dirty}")),
        "saved" => (true, "SAFE: saved; writers wait for 'wattkeep resume'".to_owned()),
        "saving" => (false, format!("NOT YET SAFE: saving; {dirty}")),
        "failed" => (false, format!("NOT SAFE: failed: {}", status.reason)),
        _ => (false, format!("NOT SAFE: not armed: {}", status.reason)),
    }
}

fn running(place: &Path, status: &Status) -> Answer {
    let (safe, first) = verdict(status);
    let note =
        if status.reason.is_empty() || !safe { String::new() } else { format!(" ({})", status.reason) };
    let window = calibrate::load(place).ok().flatten().and_then(|calibration| {
        let pages = u64::from(status.budget_pages);
        default_window(pages, &calibrate::save_cost(&calibration, pages))
    });
    let place_name = place.display();
    let window = match window {
        Some(window) => format!("{} needed for the budget", format_duration_ns(window)),
        None => format!("not calibrated: run 'wattkeep calibrate {place_name}'"),
    };
    let bar = text::bar(status.dirty_pages.into(), status.budget_pages.into(), 30);
    let waits =
        format!("{} in all {}", text::thousands(status.permit_waits), text::millis(status.permit_wait_ms));
    let facts = text::facts(&[
        (
            "dirty",
            format!(
                "{bar} {} of {}",
                text::pages(status.dirty_pages.into()),
                text::pages(status.budget_pages.into())
            ),
        ),
        ("highest", text::pages(status.max_dirty_pages.into())),
        ("save window", window),
        ("fault mode", format!("{}: {}", status.fault_mode, status.fault_mode_reason)),
        ("policy", status.policy.clone()),
        ("swap", status.memory_locked.clone()),
        ("faults", text::thousands(status.faults)),
        (
            "dirtied, cleaned",
            format!("{}, {}", text::thousands(status.dirtied_pages), text::thousands(status.cleaned_pages)),
        ),
        ("waits for permits", waits),
        ("written to SSD", format_size(status.ssd_bytes)),
        ("free segments", format!("{} of {}", status.segments_free, status.segments)),
        ("still to restore", text::pages(status.restore_pages_left)),
        (
            "last commit",
            format!("epoch {}, {} checkpoints in this session", status.last_commit_epoch, status.checkpoints),
        ),
        ("checkpoints given up", status.checkpoints_given_up.to_string()),
        ("quiesces missed", status.quiesces_missed.to_string()),
        ("client, keeper", format!("process {}, process {}", status.client_pid, status.keeper_pid)),
    ]);
    let json = json!({ "store": place, "running": true, "safe": safe, "verdict": first, "status": status });
    Answer::new(format!("{first}{note}\n{facts}"), json).that_holds(safe)
}

fn at_rest(place: &Path, store: &PageLog, recovery: &Recovery) -> Answer {
    let status = store.status();
    let safe = status.state != StoreState::Running;
    let epoch = recovery.commit.epoch.0;
    let first = match status.state {
        StoreState::Closed => format!("SAFE: nothing is open; everything was written out at commit {epoch}"),
        StoreState::Saved => format!("SAFE: nothing is open; a save completed at commit {epoch}"),
        StoreState::Running => format!(
            "NOT SAFE: the last session ended without a save; what it wrote after commit {epoch} is lost"
        ),
    };
    let facts = text::facts(&[
        ("last shutdown", super::info::shutdown(recovery, status.state)),
        ("dirty budget", text::pages(store.budget_pages().into())),
        ("unsafe shutdowns", status.unsafe_shutdowns.to_string()),
        ("stored", text::pages(status.live_pages)),
    ]);
    let json = json!({
        "store": place,
        "running": false,
        "safe": safe,
        "verdict": first,
        "clean": recovery.clean,
        "commit_epoch": epoch,
        "budget_pages": store.budget_pages(),
        "unsafe_shutdowns": status.unsafe_shutdowns,
        "stored_pages": status.live_pages,
    });
    Answer::new(format!("{first}\n{facts}"), json).that_holds(safe)
}
