//! Opens the store of a session, or makes it; waits for a keeper that still writes the last one out.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::Timespec;
use wattkeep_store::{CommitKind, CreateOptions, FileError, Recovery, Store, UringDisk, store_file};
use wattkeep_sys::socket;

use crate::protocol::{SOCKET_NAME, SessionOptions};

/// How long an opening waits for a keeper that is still writing the last session out: a budget of 6 GiB at
/// 100 MB/s.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// How long an opening waits for a keeper that seems to serve somebody: a killed program's keeper learns
/// of the kill a moment later than whoever starts the program again.
const RESTART_PATIENCE: Duration = Duration::from_secs(1);

/// The store in `directory`, and what recovery found in it.
pub(super) fn open_store(
    directory: &Path,
    options: &SessionOptions,
) -> Result<(Store<UringDisk>, Option<String>), String> {
    let began = Instant::now();
    let worth_waiting =
        || began.elapsed() < RESTART_PATIENCE || began.elapsed() < LOCK_PATIENCE && is_draining(directory);
    loop {
        let opened = match options.create_if_missing && !store_file(directory).exists() {
            true => Store::create_in(directory, &mut CreateOptions::default()).map(|store| Ok((store, None))),
            false => UringDisk::open(directory).map(recover),
        };
        match opened {
            Ok(store) => return store,
            // The keeper of a killed program may be writing it out, or just now making it.
            Err(FileError::InUse { .. } | FileError::Exists { .. }) if worth_waiting() => {
                std::thread::yield_now();
                let _ = rustix::thread::nanosleep(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 });
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn recover(disk: UringDisk) -> Result<(Store<UringDisk>, Option<String>), String> {
    let (store, recovery) = Store::open(disk).map_err(|e| e.to_string())?;
    Ok((store, Some(describe(&recovery))))
}

/// What recovery found, in words for people.
fn describe(recovery: &Recovery) -> String {
    let image = match recovery.kind {
        CommitKind::Created => "empty store",
        CommitKind::Checkpoint => "last checkpoint",
        CommitKind::Save => "completed save",
        CommitKind::Close => "orderly close",
    };
    if recovery.clean {
        return format!("{image}, complete");
    }
    format!(
        "{image}, epoch {}: the last session ended without a save, what it wrote later is lost ({} batches dropped)",
        recovery.commit.epoch.0, recovery.lost_tail_batches
    )
}

/// A keeper without a listening socket holds the store: its client has ended, it is writing out.
fn is_draining(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    socket::connect_to(directory.as_fd(), Path::new(SOCKET_NAME)).is_err()
}
