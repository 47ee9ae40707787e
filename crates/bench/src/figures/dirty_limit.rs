//! The kernel's own bound on dirty page cache, lowered for a while: `vm.dirty_bytes`.
//!
//! It holds for the whole machine: see [`super::put_back`].

use std::fs;
use std::io;
use std::path::PathBuf;

use super::put_back::PutBack;

/// The lowered bound. Dropping it puts the values before back.
pub(super) struct DirtyLimit {
    _put_back: PutBack,
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys/vm").join(name)
}

/// The command that puts a value back. The kernel keeps either the bytes or the ratio, and shows 0 for
/// the other: writing one clears the other.
fn put_back(what: &str) -> io::Result<String> {
    let mut name = format!("{what}_bytes");
    let mut value = fs::read_to_string(path(&name))?.trim().to_owned();
    if value == "0" {
        name = format!("{what}_ratio");
        value = fs::read_to_string(path(&name))?.trim().to_owned();
    }
    let number: u64 = value.parse().map_err(|_| io::Error::other(format!("vm.{name} is '{value}'")))?;
    Ok(format!("echo {number} > {}", path(&name).display()))
}

impl DirtyLimit {
    /// Lowers the bound, and the one above which the kernel cleans ahead, to `bytes`.
    pub(super) fn lower_to(bytes: u64) -> io::Result<Self> {
        let commands = format!("{}; {}", put_back("dirty_background")?, put_back("dirty")?);
        let limit = Self { _put_back: PutBack::by(&commands)? };
        fs::write(path("dirty_bytes"), bytes.to_string())?;
        fs::write(path("dirty_background_bytes"), bytes.to_string())?;
        Ok(limit)
    }
}
