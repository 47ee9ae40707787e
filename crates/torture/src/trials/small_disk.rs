//! A file system of a few MiB that can be filled: ext4 on a loop device over a small tmpfs.
//!
//! *Full* means no free blocks in ext4. *Thin* means that ext4 believes in more blocks than the tmpfs
//! below can hold, so that writes to fresh blocks fail when ext4 thought that they would not.
//!
//! Needs root and loop devices; without them there is nothing to try, and the trial says so.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::lab::{LIMIT, within};

/// A mounted file system, unmounted when dropped.
pub(crate) struct SmallDisk {
    /// The mount points lie in it, and go after them.
    _scratch: tempfile::TempDir,
    backing: PathBuf,
    mount: PathBuf,
}

impl SmallDisk {
    /// ext4 of `mib` MiB over a tmpfs of `backing_mib` MiB.
    pub(crate) fn new(mib: u64, backing_mib: u64) -> Result<Self, String> {
        let scratch = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (backing, mount) = (scratch.path().join("backing"), scratch.path().join("mount"));
        for directory in [&backing, &mount] {
            std::fs::create_dir(directory).map_err(|e| e.to_string())?;
        }
        let size = format!("size={backing_mib}m,mode=700");
        run("mount", &["-t", "tmpfs", "-o", &size, "wattkeep-torture", text(&backing)])?;
        let disk = Self { _scratch: scratch, backing, mount };
        let image = disk.backing.join("image");
        let made = File::create(&image).and_then(|file| file.set_len(mib << 20));
        made.map_err(|e| format!("cannot make {}: {e}", image.display()))?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        run("mkfs.ext4", &["-q", "-F", "-m", "0", "-J", "size=4", "-E", lazy, text(&image)])?;
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &["-o", "loop,nodiscard", text(&self.backing.join("image")), text(&self.mount)])
    }

    /// Gives the disk room again, and repairs what the lack of it did to ext4, as an operator would.
    pub(crate) fn heal(&self) -> Result<(), String> {
        let mut busy = Ok(());
        // The ring of a killed keeper lets go of its file a moment after the keeper's end.
        let unmounted = within(LIMIT, || {
            busy = run("umount", &[text(&self.mount)]);
            busy.is_ok()
        });
        if !unmounted {
            return busy;
        }
        let _ = std::fs::remove_file(self.backing.join("filler"));
        run("mount", &["-o", "remount,size=1g", text(&self.backing)])?;
        // Its exit code is 1 when it repaired something: what counts is that the mount works.
        let _ = run("e2fsck", &["-f", "-y", text(&self.backing.join("image"))]);
        self.mount()
    }

    /// Where the store goes.
    pub(crate) fn store(&self) -> PathBuf {
        self.mount.join("store")
    }

    /// Writes a file until nothing fits any more: into ext4, or into the tmpfs below it.
    pub(crate) fn fill(&self, thin: bool) -> Result<(), String> {
        let path = if thin { self.backing.join("filler") } else { self.mount.join("filler") };
        let mut file = File::create(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        let piece = vec![1; 64 << 10];
        while file.write_all(&piece).is_ok() {}
        // Says again that the disk is full.
        let _ = file.sync_all();
        Ok(())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for mounted in [&self.mount, &self.backing] {
            let _ = Command::new("umount").args(["-l", text(mounted)]).output();
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|e| format!("cannot run {program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
