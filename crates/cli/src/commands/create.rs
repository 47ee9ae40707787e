//! `wattkeep create`: a new store, with regions in it.
//!
//! Everything is checked before anything is made; what fails half way is removed.

use serde_json::json;
use wattkeep_keep::keeper::place::free_address;
use wattkeep_keep::limits::RESERVE_MIN_BYTES;
use wattkeep_power::spec::BudgetSpec;
use wattkeep_power::units::format_size;
use wattkeep_store::{CommitKind, CreateOptions, NewRegion, RegionMode, Store, store_file};

use crate::answer::{Answer, Output};
use crate::args::{CreateArgs, RegionSpec};
use crate::failure::{Exit, Failure};
use crate::opened::PageLog;
use crate::progress;
use crate::text::{self, PAGE};

pub(crate) fn run(args: &CreateArgs, _output: Output) -> Result<Answer, Failure> {
    let new_directory = args.store.symlink_metadata().is_err();
    create(args).inspect_err(|_| {
        if new_directory {
            // Only when it is empty.
            let _ = std::fs::remove_dir(&args.store);
        }
    })
}

fn create(args: &CreateArgs) -> Result<Answer, Failure> {
    let pages: u64 = args.regions.iter().map(|region| region.bytes / PAGE).sum();
    let budget_pages = budget_pages(args.budget.as_ref(), pages)?;
    check_names(&args.regions)?;
    let bar = progress::bar("reserving space");
    let ticks = bar.clone();
    let mut options = CreateOptions {
        budget_pages,
        progress: Some(Box::new(move |done, total| progress::set(&ticks, done, total))),
        ..CreateOptions::default()
    };
    let mut store = Store::create_in(&args.store, &mut options)?;
    bar.set_message("reserving space for the regions");
    let made = args.regions.iter().try_for_each(|region| add_region(&mut store, region));
    let finished = made.and_then(|()| Ok(store.commit(CommitKind::Close)?));
    bar.finish_and_clear();
    if let Err(failure) = finished {
        let _ = std::fs::remove_file(store_file(&args.store));
        return Err(failure);
    }
    let place = args.store.display();
    let text = format!(
        "created {place} with {} regions, a dirty budget of {}; see 'wattkeep info {place}'",
        args.regions.len(),
        text::pages(budget_pages.into())
    );
    let regions: Vec<_> = store.regions().iter().map(super::info::region_json).collect();
    let json = json!({
        "store": args.store,
        "uuid": text::uuid(store.uuid()),
        "budget_pages": budget_pages,
        "regions": regions,
    });
    Ok(Answer::new(text, json))
}

/// Adds a region at a free address, as a program would that makes it by itself.
pub(crate) fn add_region(store: &mut PageLog, region: &RegionSpec) -> Result<(), Failure> {
    let reserve_bytes = region.bytes.max(RESERVE_MIN_BYTES);
    let address =
        free_address(store.regions(), store.uuid(), &region.name, reserve_bytes).ok_or_else(|| {
            let size = format_size(reserve_bytes);
            let cause =
                format!("no address range of {size} is left for region '{}'; make it smaller", region.name);
            Failure::new(Exit::Occupied, cause)
        })?;
    let mode = if region.explicit { RegionMode::Explicit } else { RegionMode::Transparent };
    let page_count = |bytes: u64| u32::try_from(bytes / PAGE).unwrap_or(u32::MAX - 1);
    store.create_region(NewRegion {
        name: region.name.clone(),
        mode,
        pages: page_count(region.bytes),
        reserve_pages: page_count(reserve_bytes),
        address,
    })?;
    Ok(())
}

/// The budget in pages. Without regions, or a word about it: what the library takes, a tenth.
fn budget_pages(budget: Option<&BudgetSpec>, region_pages: u64) -> Result<u32, Failure> {
    let next = "see 'wattkeep create --help'";
    match budget {
        None if region_pages == 0 => Ok(0),
        None => Ok(u32::try_from((region_pages / 10).max(1)).unwrap_or(u32::MAX)),
        Some(BudgetSpec::Percent(_)) if region_pages == 0 => Err(Failure::usage(format!(
            "a budget that is a share needs regions to be a share of; name them with --region, {next}"
        ))),
        Some(BudgetSpec::Percent(share)) if share.of_rounded_down(region_pages) == 0 => Ok(1),
        Some(budget) if region_pages == 0 => {
            budget.resolve(u64::from(u32::MAX)).map_err(|e| Failure::usage(format!("{e}; {next}")))
        }
        Some(budget) => budget.resolve(region_pages).map_err(|e| Failure::usage(format!("{e}; {next}"))),
    }
}

fn check_names(regions: &[RegionSpec]) -> Result<(), Failure> {
    for (at, region) in regions.iter().enumerate() {
        if regions[..at].iter().any(|other| other.name == region.name) {
            let name = &region.name;
            return Err(Failure::usage(format!("two regions are named '{name}'; give each its own name")));
        }
        if region.name.len() > wattkeep_store::limits::NAME_BYTES_MAX {
            return Err(Failure::usage(format!(
                "the name '{}' is too long; take a shorter one",
                region.name
            )));
        }
    }
    if regions.len() > wattkeep_store::limits::REGIONS_MAX {
        let most = wattkeep_store::limits::REGIONS_MAX;
        return Err(Failure::usage(format!("a store holds at most {most} regions; make a second store")));
    }
    Ok(())
}
