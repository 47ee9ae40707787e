//! `wattkeep rm`: removes a region, or a whole store. Asks first, and never touches what is in use.

use std::path::Path;

use serde_json::json;
use wattkeep_keep::protocol::SOCKET_NAME;
use wattkeep_store::{OpenError, Store, UringDisk, store_file};

use super::confirm;
use crate::answer::Answer;
use crate::args::RmArgs;
use crate::failure::Failure;
use crate::opened;
use crate::text;

pub(crate) fn run(args: &RmArgs) -> Result<Answer, Failure> {
    match &args.region {
        Some(region) => remove_region(args, region),
        None => {
            remove_store(&args.store, args.yes)?;
            let text = format!("removed the store in {}", args.store.display());
            Ok(Answer::new(text, json!({ "removed": args.store })))
        }
    }
}

fn remove_region(args: &RmArgs, name: &str) -> Result<Answer, Failure> {
    let (store, _) = opened::read_only(&args.store)?;
    let region = opened::region(&store, &args.store, name)?;
    drop(store);
    let size = text::pages(region.pages.into());
    confirm(&format!("this removes region '{name}' of {size} for ever"), args.yes)?;
    let (note, _) = opened::change(&args.store, |store| {
        store.remove_region(region.id)?;
        Ok(opened::fit_budget(store)?)
    })?;
    let text = format!("removed region '{name}' of {}{note}", args.store.display());
    Ok(Answer::new(text, json!({ "store": args.store, "removed": name })))
}

fn remove_store(place: &Path, yes: bool) -> Result<(), Failure> {
    opened::read_only(place).map(drop).or_else(|failure| check_ours(place, failure))?;
    // Held until the file is gone: nobody opens it in between.
    let lock = UringDisk::open(place)?;
    confirm(&format!("this removes the store in {} and all its regions for ever", place.display()), yes)?;
    let file = store_file(place);
    std::fs::remove_file(&file).map_err(|error| Failure::system("remove", &file, &error))?;
    for extra in [crate::calibrate::FILE, SOCKET_NAME] {
        let _ = std::fs::remove_file(place.join(extra));
    }
    // Only when nothing else is in it.
    let _ = std::fs::remove_dir(place);
    drop(lock);
    Ok(())
}

/// A damaged store of ours may be removed; a file of somebody else's may not.
fn check_ours(place: &Path, failure: Failure) -> Result<(), Failure> {
    let disk = UringDisk::open_read_only(place).map_err(|_| failure)?;
    match Store::open_read_only(disk) {
        Err(error @ OpenError::Foreign { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}
