//! Where a benchmark keeps its stores: a directory that goes when the benchmark ends, or when the next one
//! begins, if a signal ended this one.
//!
//! The directory is locked as long as its process lives, and named after it: one that is neither locked nor a
//! living process's is nobody's.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use super::BenchError;

const PREFIX: &str = "wattkeep-bench-";

/// A directory that is removed, with the stores in it, when the benchmark ends.
pub(super) struct Scratch {
    path: PathBuf,
    /// Locked.
    _directory: File,
}

impl Scratch {
    pub(super) fn new(within: &Path) -> Result<Self, BenchError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        remove_abandoned(within);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = within.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let doing = || format!("making {} for the benchmark's stores", path.display());
        std::fs::create_dir_all(&path).map_err(BenchError::while_(doing()))?;
        let directory = File::open(&path).map_err(BenchError::while_(doing()))?;
        // Where the file system has no locks, the name must do.
        let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { path, _directory: directory })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes what benchmarks left that a signal ended. What cannot be removed stays.
fn remove_abandoned(within: &Path) {
    let Ok(entries) = std::fs::read_dir(within) else { return };
    for entry in entries.flatten().filter(is_abandoned) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

fn is_abandoned(entry: &std::fs::DirEntry) -> bool {
    let name = entry.file_name();
    let Some((process, _)) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')) else {
        return false;
    };
    let is_dead = process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists();
    // The process may live where this one does not see it.
    is_dead
        && entry.file_type().is_ok_and(|kind| kind.is_dir())
        && File::open(entry.path())
            .is_ok_and(|directory| flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A benchmark that a time limit ended left gigabytes in /tmp for good.
    #[test]
    fn what_a_killed_benchmark_left_goes_when_the_next_one_begins() {
        let within = tempfile::tempdir().expect("a directory");
        let mut dead = std::process::Command::new("true").spawn().expect("a process");
        dead.wait().expect("it ends");
        let of = |process: u32| within.path().join(format!("{PREFIX}{process}-0"));
        let (left, held, living) = (of(dead.id()), of(dead.id() + 1_000_000_000), of(1));
        let others = [within.path().join("wattkeep-bench-notes"), within.path().join("something")];
        [&left, &held, &living].into_iter().chain(&others).for_each(|path| {
            std::fs::create_dir_all(path.join("store")).expect("a directory");
        });
        let lock = File::open(&held).expect("a directory");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");

        let scratch = Scratch::new(within.path()).expect("a directory");
        let (own, again) = (scratch.path().to_owned(), Scratch::new(within.path()).expect("another"));
        assert!(!left.exists(), "nobody's");
        assert!(held.exists() && living.exists() && others.iter().all(|path| path.exists()), "somebody's");
        assert!(own.exists() && again.path() != own);
        drop((scratch, again));
        assert!(!own.exists());
    }
}
