//! Opens a store that no program has open: to look, or to change it.
//!
//! Invariant: what [`change`] opened is committed as closed again, so a command leaves no store that
//! looks as if its program had died.

use std::path::Path;

use wattkeep_store::disk::Wait;
use wattkeep_store::types::PAGE_SIZE;
use wattkeep_store::{
    CommitKind, Event, FileError, Recovery, RegionRecord, SlotRun, Store, StoreError, UringDisk,
};

use crate::failure::{Exit, Failure};
use crate::keeper::KeeperLine;
use crate::progress;

/// A page log on a real SSD.
pub(crate) type PageLog = Store<UringDisk>;

/// Opens for looking: nothing is written.
pub(crate) fn read_only(directory: &Path) -> Result<(PageLog, Recovery), Failure> {
    let disk = UringDisk::open_read_only(directory).map_err(|error| in_use(directory, error))?;
    Ok(Store::open_read_only(disk)?)
}

/// Opens for writing, does `change`, and closes.
pub(crate) fn change<T>(
    directory: &Path,
    change: impl FnOnce(&mut PageLog) -> Result<T, Failure>,
) -> Result<(T, Recovery), Failure> {
    let disk = UringDisk::open(directory).map_err(|error| in_use(directory, error))?;
    let (mut store, recovery) = Store::open(disk)?;
    let changed = change(&mut store);
    // Also after an error: a refused change leaves a good store.
    let closed = store.commit(CommitKind::Close);
    let changed = changed?;
    closed?;
    Ok((changed, recovery))
}

/// A note for people, when the last session was cut off.
pub(crate) fn note(recovery: &Recovery) -> String {
    if recovery.clean {
        return String::new();
    }
    format!(
        "\nnote: the last session ended without a save; what it wrote after commit {} is lost",
        recovery.commit.epoch.0
    )
}

/// The region of that name.
pub(crate) fn region(store: &PageLog, place: &Path, name: &str) -> Result<RegionRecord, Failure> {
    store.region_by_name(name).cloned().ok_or_else(|| {
        let known: Vec<_> = store.regions().iter().map(|region| format!("'{}'", region.name)).collect();
        let has = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let place = place.display();
        let cause =
            format!("there is no region '{name}' in {place}, it has {has}; see 'wattkeep info {place}'");
        Failure::new(Exit::Store, cause)
    })
}

/// Hands every page of the region that was ever written to `take`, in the order of the log, reading many
/// at a time.
pub(crate) fn each_page(
    store: &mut PageLog,
    region: &RegionRecord,
    doing: &'static str,
    mut take: impl FnMut(u32, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let bar = progress::bar(doing);
    let mut runs = store.slots_in_log_order().peekable();
    let (mut flying, mut events, mut done) = (Vec::new(), Vec::new(), 0);
    loop {
        while let Some(run) = runs.peek() {
            if !run.pages.iter().any(|page| page.region == region.id) {
                runs.next();
            } else if store.start_read(run.first_slot, run.pages.len() as u32, run.first_slot)? {
                flying.extend(runs.next());
            } else {
                break;
            }
        }
        if flying.is_empty() {
            break;
        }
        store.poll(Wait::One, &mut events)?;
        for event in events.drain(..) {
            let Event::Read { token, buffer, result, .. } = event else { continue };
            let Some(at) = flying.iter().position(|run: &SlotRun| run.first_slot == token) else { continue };
            let run = flying.swap_remove(at);
            result.map_err(|error| {
                Failure::new(
                    Exit::System,
                    format!("cannot read region '{}': {error}; see 'dmesg'", region.name),
                )
            })?;
            for (page, bytes) in run.pages.iter().zip(buffer.chunks(PAGE_SIZE)) {
                if page.region == region.id {
                    if !store.verify(*page, bytes) {
                        return Err(damaged(region, page.page));
                    }
                    take(page.page, bytes)?;
                    done += 1;
                }
            }
            progress::set(&bar, done, region.pages.into());
            store.recycle(buffer);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn damaged(region: &RegionRecord, page: u32) -> Failure {
    let cause =
        format!("page {page} of region '{}' is damaged; list the damage with 'wattkeep check'", region.name);
    Failure::new(Exit::Store, cause)
}

/// Pages of all regions.
pub(crate) fn region_pages(store: &PageLog) -> u64 {
    store.regions().iter().map(|region| u64::from(region.pages)).sum()
}

/// Lowers a budget that is above what the regions have left. Says so.
pub(crate) fn fit_budget(store: &mut PageLog) -> Result<String, StoreError> {
    let (budget, most) = (store.budget_pages(), region_pages(store));
    if most == 0 || u64::from(budget) <= most {
        return Ok(String::new());
    }
    store.set_budget(u32::try_from(most).unwrap_or(u32::MAX))?;
    Ok(format!("\nthe dirty budget is now {}: it was above the regions", crate::text::pages(most)))
}

/// Whether a keeper runs, or is still writing out, makes a different sentence.
fn in_use(directory: &Path, error: FileError) -> Failure {
    if !matches!(error, FileError::InUse { .. }) {
        return error.into();
    }
    let place = directory.display();
    let keeper = KeeperLine::connect(directory).and_then(|line| line.status().ok());
    let cause = match keeper {
        Some(status) => format!(
            "process {} has the store in {place} open; end it, or see 'wattkeep status {place}'",
            status.client_pid
        ),
        None => format!(
            "a keeper is still writing the last session of {place} out, or another command has it open; \
             try again, or see 'fuser -v {place}/wattkeep.store'"
        ),
    };
    Failure::new(Exit::Occupied, cause)
}
