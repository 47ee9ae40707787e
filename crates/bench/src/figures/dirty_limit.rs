//! The kernel's own bound on dirty page cache, lowered for a while: `vm.dirty_bytes`.
//!
//! It holds for the whole machine, so it must come back whatever happens to us: a shell in a process
//! group of its own waits for the end of its input, which is our end, too, and writes the values that
//! were there before.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The lowered bound. Dropping it puts the values before back.
pub(super) struct DirtyLimit(Child);

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
        let script = format!("cat > /dev/null; {}; {}", put_back("dirty_background")?, put_back("dirty")?);
        let shell = Command::new("sh")
            .args(["-c", &script])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let limit = Self(shell);
        fs::write(path("dirty_bytes"), bytes.to_string())?;
        fs::write(path("dirty_background_bytes"), bytes.to_string())?;
        Ok(limit)
    }
}

impl Drop for DirtyLimit {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
