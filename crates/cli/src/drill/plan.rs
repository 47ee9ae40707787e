//! What a drill is to do, checked before anything is made: values, directory, space, memory.

use std::path::{Path, PathBuf};

use wattkeep_bench::workload::{HeapPlan, WorkloadError};
use wattkeep_bench::{AnyWorkload, WorkloadSpec};
use wattkeep_keep::types::{FaultMode, PolicyName};
use wattkeep_power::units::format_size;
use wattkeep_store::layout::Geometry;
use wattkeep_store::limits::SEGMENT_PAGES;
use wattkeep_store::store_file;

use super::child::ChildConfig;
use crate::args::{DrillArgs, Mode};
use crate::failure::{Exit, Failure};
use crate::text::{self, PAGE};

/// Bytes of memory and disk that are left to everybody else.
const SLACK_BYTES: u64 = 256 << 20;

/// What runs in the region.
pub(crate) enum Work {
    /// Writes to its bytes.
    Bytes(AnyWorkload),
    /// Transactions on a heap.
    Heap(HeapPlan),
}

impl Work {
    fn new(args: &DrillArgs) -> Result<Self, WorkloadError> {
        match &args.workload {
            WorkloadSpec::Heap => HeapPlan::new(args.seed, args.size).map(Self::Heap),
            spec => AnyWorkload::new(spec, args.seed, args.size).map(Self::Bytes),
        }
    }
}

/// A drill that can be done, as far as can be known.
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    pub(crate) workload_name: String,
    pub(crate) work: Work,
    pub(crate) region_bytes: u64,
    pub(crate) region_pages: u32,
    pub(crate) budget_pages: u32,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) explicit: bool,
    pub(crate) policy: PolicyName,
    pub(crate) fault_mode: Option<FaultMode>,
}

impl Plan {
    pub(crate) fn check(args: &DrillArgs) -> Result<Self, Failure> {
        let next = "see 'wattkeep drill --help'";
        let pages = args.size / PAGE;
        let region_pages =
            u32::try_from(pages).map_err(|_| Failure::usage(format!("the region is too large; {next}")))?;
        let budget_pages =
            args.budget.resolve(pages).map_err(|error| Failure::usage(format!("{error}; {next}")))?;
        let work = Work::new(args).map_err(|error| Failure::usage(format!("{error}; {next}")))?;
        let explicit = match (&work, args.mode) {
            (Work::Heap(_), Some(Mode::Transparent)) => {
                return Err(Failure::usage(format!("a heap announces its stores: leave --mode out; {next}")));
            }
            (Work::Heap(_), _) => true,
            (Work::Bytes(_), mode) => mode == Some(Mode::Explicit),
        };
        check_directory(&args.directory)?;
        let most_dirty = if args.no_unlimited { budget_pages } else { region_pages };
        check_space(&args.directory, region_pages, most_dirty)?;
        check_memory(args.size)?;
        Ok(Self {
            directory: args.directory.clone(),
            workload_name: args.workload.to_string(),
            work,
            region_bytes: args.size,
            region_pages,
            budget_pages,
            seconds: args.seconds,
            seed: args.seed,
            explicit,
            policy: args.policy.into(),
            fault_mode: args.fault_mode.map(FaultMode::from),
        })
    }

    /// One line for people.
    pub(crate) fn title(&self) -> String {
        let mode = if self.explicit { "explicit, " } else { "" };
        format!(
            "{} on {}, {mode}at most {} dirty, seed {}",
            self.workload_name,
            format_size(self.region_bytes),
            text::pages(self.budget_pages.into()),
            self.seed
        )
    }

    /// Bytes that are mirrored outside of the machine.
    pub(crate) fn mirrored_bytes(&self) -> Option<u64> {
        matches!(self.work, Work::Heap(_)).then_some(self.region_bytes)
    }

    /// What the load writes, for people.
    pub(crate) fn load(&self) -> String {
        match &self.work {
            Work::Bytes(_) => format_size(self.region_bytes),
            Work::Heap(plan) => format!("{} entries", text::thousands(plan.loaded())),
        }
    }

    /// What a child is told.
    pub(crate) fn child_config(&self, store: &Path, budget_pages: u32) -> ChildConfig {
        ChildConfig {
            store: store.to_owned(),
            workload: self.workload_name.clone(),
            seed: self.seed,
            budget_pages,
            explicit: self.explicit,
            policy: self.policy,
            fault_mode: self.fault_mode,
        }
    }

    /// The moment of the cut in seconds: anywhere in the last 40 % of the run, as the seed says.
    pub(crate) fn cut_s(&self) -> f64 {
        // splitmix64's finaliser: neighbouring seeds give moments far apart.
        let mut bits = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        self.seconds * (0.6 + 0.4 * share)
    }
}

fn check_directory(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Failure::system("make the directory", directory, &error))?;
    if store_file(directory).symlink_metadata().is_ok() {
        let place = directory.display();
        let cause = format!("{place} holds a store; drill in a directory of its own, as in '{place}-drill'");
        return Err(Failure::new(Exit::Occupied, cause));
    }
    Ok(())
}

fn check_space(directory: &Path, region_pages: u32, budget_pages: u32) -> Result<(), Failure> {
    let space = rustix::fs::statvfs(directory)
        .map_err(|errno| Failure::system("look at the file system of", directory, &errno.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let geometry = Geometry::new(SEGMENT_PAGES, 1).expect("the segment size is a power of two");
    let reserve = geometry.save_reserve_segments(budget_pages);
    let segments = geometry.segments_needed(region_pages.into(), reserve);
    let needed = segments.saturating_mul(u64::from(SEGMENT_PAGES) * PAGE).saturating_add(SLACK_BYTES);
    if needed > free {
        let place = directory.display();
        let cause = format!(
            "no space: the drill needs {} in {place}, {} are free; choose a smaller --size, or --no-unlimited, \
             or free some space ('df {place}')",
            format_size(needed),
            format_size(free)
        );
        return Err(Failure::new(Exit::System, cause));
    }
    Ok(())
}

fn check_memory(region_bytes: u64) -> Result<(), Failure> {
    let Some(free) = wattkeep_sys::huge::available_bytes() else { return Ok(()) };
    // The region and the oracle; the index and the tracking take less than a hundredth.
    let needed = region_bytes.saturating_mul(2).saturating_add(region_bytes / 64).saturating_add(SLACK_BYTES);
    if needed > free {
        let cause = format!(
            "no memory: region and oracle take {}, {} are free; choose a smaller --size ('free -h')",
            format_size(needed),
            format_size(free)
        );
        return Err(Failure::new(Exit::System, cause));
    }
    Ok(())
}
