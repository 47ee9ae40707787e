//! `wattkeep resize` and `wattkeep rename`: changes to a region at rest.

use serde_json::json;
use wattkeep_power::units::format_size;

use super::confirm;
use crate::answer::Answer;
use crate::args::{RenameArgs, ResizeArgs};
use crate::failure::{Exit, Failure};
use crate::opened;
use crate::text::PAGE;

pub(crate) fn resize(args: &ResizeArgs) -> Result<Answer, Failure> {
    let (store, _) = opened::read_only(&args.store)?;
    let region = opened::region(&store, &args.store, &args.region)?;
    drop(store);
    let (name, pages) = (&args.region, u32::try_from(args.size / PAGE).unwrap_or(u32::MAX));
    if pages > region.reserve_pages.max(region.pages) {
        let reserve = format_size(u64::from(region.reserve_pages) * PAGE);
        let cause = format!(
            "region '{name}' keeps {reserve} of addresses and cannot grow beyond; make a new region of that size"
        );
        return Err(Failure::new(Exit::Occupied, cause));
    }
    if pages < region.pages {
        let cut = format_size(u64::from(region.pages - pages) * PAGE);
        confirm(&format!("this cuts {cut} off region '{name}' for ever"), args.yes)?;
    }
    let (note, recovery) = opened::change(&args.store, |store| {
        store.resize_region(region.id, pages)?;
        Ok(opened::fit_budget(store)?)
    })?;
    let text = format!("region '{name}' has {} now{note}{}", format_size(args.size), opened::note(&recovery));
    Ok(Answer::new(text, json!({ "store": args.store, "region": name, "bytes": args.size, "pages": pages })))
}

pub(crate) fn rename(args: &RenameArgs) -> Result<Answer, Failure> {
    let (store, _) = opened::read_only(&args.store)?;
    let region = opened::region(&store, &args.store, &args.region)?;
    drop(store);
    let ((), recovery) = opened::change(&args.store, |store| Ok(store.rename_region(region.id, &args.new)?))?;
    let text = format!("region '{}' is '{}' now{}", args.region, args.new, opened::note(&recovery));
    Ok(Answer::new(text, json!({ "store": args.store, "region": args.new, "before": args.region })))
}
