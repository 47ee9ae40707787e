//! The machine's disk: what survives a cut of its power, and what does not.
//!
//! The guest writes to a qcow2 overlay that is new for every cut. What it writes to a cluster for the first
//! time is reached by a table that QEMU keeps in its own memory until the guest flushes, or the table's cache
//! runs over: SIGKILL loses it, as a disk loses its volatile cache. A second write to the same cluster
//! survives without a flush, so some later writes outlive earlier ones.
//!
//! Not modelled: a write torn inside 4 KiB, and a disk that loses what it flushed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the guest keeps its store, inside its file system.
const STORE_IN_GUEST: &str = "/store/wattkeep.store";

/// One disk, in a folder of its own.
pub(super) struct Disk {
    folder: PathBuf,
    /// What a cut can lose at once, in bytes. Small ones also mean many tables, some of which are written
    /// back without a flush.
    cluster_bytes: u64,
    kept: bool,
}

impl Disk {
    /// A disk with an empty file system, copied from the guest's image.
    pub(super) fn new(guest: &Path, cluster_bytes: u64) -> Result<Self, String> {
        let folder = guest.join("disk");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)
                .map_err(|e| format!("cannot empty {}: {e}", folder.display()))?;
        }
        std::fs::create_dir(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        let disk = Self { folder, cluster_bytes, kept: false };
        copy(&guest.join("empty.img"), &disk.base())?;
        Ok(disk)
    }

    /// Puts a cache before the disk. Nothing written from now on is safe before it is flushed.
    pub(super) fn power_on(&self) -> Result<(), String> {
        let options = format!("cluster_size={},backing_fmt=raw,backing_file=base.img", self.cluster_bytes);
        let mut command = Command::new("qemu-img");
        run(command.args(["create", "-q", "-f", "qcow2", "-o", &options]).arg(self.overlay()))
    }

    /// After a cut: what reached the disk is the disk from now on.
    pub(super) fn power_off(&self) -> Result<(), String> {
        run(Command::new("qemu-img").args(["commit", "-q", "-f", "qcow2"]).arg(self.overlay()))?;
        std::fs::remove_file(self.overlay()).map_err(|e| format!("cannot remove the overlay: {e}"))
    }

    /// The image that the machine uses.
    pub(super) fn overlay(&self) -> String {
        self.folder.join("overlay.qcow2").display().to_string()
    }

    /// Takes the store out of a copy of the disk, without a guest: replays the journal of the file system,
    /// and reads the file. The folder it lies in, or `None` when the disk holds no store.
    pub(super) fn store(&self) -> Result<Option<PathBuf>, String> {
        let (image, folder) = (self.folder.join("copy.img"), self.folder.join("store"));
        copy(&self.base(), &image)?;
        run(Command::new("e2fsck").args(["-p", "-E", "journal_only"]).arg(&image))?;
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        let file = wattkeep_store::store_file(&folder);
        let dump = format!("dump {STORE_IN_GUEST} {}", file.display());
        run(Command::new("debugfs").args(["-R", &dump]).arg(&image))?;
        Ok(file.exists().then_some(folder))
    }

    /// Leaves the images where they are: they are the evidence of a failure.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.kept = true;
        self.folder.clone()
    }

    fn base(&self) -> PathBuf {
        self.folder.join("base.img")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Copies an image with its holes.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().map_err(|e| format!("cannot run {name}: {e}; 'make power-cut' installs it"))?;
    // e2fsck says 1 when it repaired what a cut leaves.
    let good = output.status.success() || name == "e2fsck" && output.status.code() == Some(1);
    if good {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{name}: {}: {words}", output.status))
}
