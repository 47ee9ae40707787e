//! Finds the files that are, or would be, committed, and reads those that hold text.
//!
//! Asks git, which knows what is ignored; without git (an unpacked archive) walks the folders.

use std::io;
use std::path::Path;
use std::process::Command;

use super::{Report, Rule};

/// Larger files belong into a release, not into every clone.
const FILE_BYTES_MAX: u64 = 512 << 10;

/// Folders that a walk without git leaves out.
const SKIPPED_FOLDERS: [&str; 2] = [".git", "target"];

/// A file below the root. The text is empty where it is not UTF-8.
pub(crate) struct TextFile {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) text: String,
}

impl TextFile {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// What follows the last point of the name; empty without one.
    pub(crate) fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// Reads every file of the workspace, sorted by path.
pub(crate) fn load(root: &Path) -> io::Result<Vec<TextFile>> {
    let mut paths = match paths_from_git(root) {
        Some(paths) => paths,
        None => {
            let mut paths = Vec::new();
            walk(root, "", &mut paths)?;
            paths
        }
    };
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        // A deleted file is still listed until its deletion is committed.
        let Ok(bytes) = std::fs::read(root.join(&path)) else {
            continue;
        };
        let size_bytes = bytes.len() as u64;
        files.push(TextFile { path, size_bytes, text: String::from_utf8(bytes).unwrap_or_default() });
    }
    Ok(files)
}

fn paths_from_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let listing = String::from_utf8(output.stdout).ok()?;
    Some(listing.split_terminator('\0').map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Reports a file that is too large to commit.
pub(crate) fn check_size(file: &TextFile, report: &mut Report) {
    if file.size_bytes > FILE_BYTES_MAX {
        let size_kib = file.size_bytes >> 10;
        let limit_kib = FILE_BYTES_MAX >> 10;
        let instead = format!("{size_kib} KiB: generate it, or keep it below {limit_kib} KiB");
        report.add(&file.path, 1, Rule::FileSize, instead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walking_and_git_see_this_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a workspace");
        let mut walked = Vec::new();
        walk(root, "", &mut walked).expect("the workspace is readable");
        assert!(walked.iter().any(|path| path == "xtask/src/tidy/files.rs"));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
        let loaded = load(root).expect("the workspace is readable");
        let this = loaded.iter().find(|file| file.path == "xtask/src/tidy/files.rs");
        assert!(this.is_some_and(|file| file.text.starts_with("//!") && file.extension() == "rs"));
    }
}
