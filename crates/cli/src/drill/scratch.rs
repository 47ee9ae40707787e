//! The store that a drill runs on: made for it, removed with it.
//!
//! A marker file says whose it is, so that what a killed drill left behind can be removed by the next
//! one, and nothing else is ever touched.

use std::path::{Path, PathBuf};

use wattkeep_store::{CommitKind, CreateOptions, FileError, Store, UringDisk, store_file};

use super::plan::Plan;
use crate::args::RegionSpec;
use crate::commands::create::add_region;
use crate::failure::{Exit, Failure};
use crate::progress;

/// Name of the region that the workload runs on.
pub(crate) const REGION: &str = "drill";

const FOLDER: &str = "drill-store";
const MARKER: &str = "made-by-wattkeep-drill";

/// A drill's store. Dropping it removes it.
pub(crate) struct Scratch {
    path: PathBuf,
    kept: bool,
}

impl Scratch {
    /// Makes the store with its region, empty.
    pub(crate) fn make(plan: &Plan, budget_pages: u32) -> Result<Self, Failure> {
        let path = plan.directory.join(FOLDER);
        std::fs::create_dir(&path).map_err(|error| Failure::system("make", &path, &error))?;
        let marker = path.join(MARKER);
        std::fs::write(&marker, "").map_err(|error| Failure::system("write", &marker, &error))?;
        let scratch = Self { path, kept: false };
        let bar = progress::bar("reserving space");
        let ticks = bar.clone();
        let mut options = CreateOptions {
            budget_pages,
            progress: Some(Box::new(move |done, total| progress::set(&ticks, done, total))),
            ..CreateOptions::default()
        };
        let mut store = Store::create_in(&scratch.path, &mut options)?;
        let region =
            RegionSpec { name: REGION.to_owned(), bytes: plan.region_bytes, explicit: plan.explicit };
        bar.set_message("reserving space for the region");
        add_region(&mut store, &region)?;
        store.commit(CommitKind::Close)?;
        bar.finish_and_clear();
        Ok(scratch)
    }

    /// Directory of the store.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The drill is over: leaves the store to the person, or removes it.
    pub(crate) fn finish(mut self, keep: bool) -> Result<(), Failure> {
        self.kept = keep;
        let marker = self.path.join(MARKER);
        if keep {
            return std::fs::remove_file(&marker).map_err(|error| Failure::system("remove", &marker, &error));
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes sure that nothing is where the store will be: removes what a killed drill left behind.
pub(crate) fn remove_leftover(plan: &Plan) -> Result<(), Failure> {
    let path = &plan.directory.join(FOLDER);
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let place = path.display();
    if !path.join(MARKER).is_file() {
        let cause = format!(
            "{place} is not a drill's to remove, it may have been kept; remove it with 'wattkeep rm {place}', \
             or drill in another directory"
        );
        return Err(Failure::new(Exit::Occupied, cause));
    }
    if store_file(path).exists()
        && let Err(FileError::InUse { .. }) = UringDisk::open(path)
    {
        let cause = format!("another drill runs in {place}; wait for it, or drill in another directory");
        return Err(Failure::new(Exit::Occupied, cause));
    }
    std::fs::remove_dir_all(path).map_err(|error| Failure::system("remove", path, &error))
}
