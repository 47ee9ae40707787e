//! Settings of the whole machine, changed for a while, that must come back whatever happens to us.
//!
//! A shell in a process group of its own waits for the end of its input, which is our end, too, and runs
//! the commands that put back what was there before.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Dropping it runs the commands, and waits until they are done.
pub(super) struct PutBack(Child);

impl PutBack {
    /// Starts the shell that will run `commands`. Change the settings only afterwards.
    pub(super) fn by(commands: &str) -> io::Result<Self> {
        let shell = Command::new("sh")
            .args(["-c", &format!("cat > /dev/null; {commands}")])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(shell))
    }
}

impl Drop for PutBack {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_comes_back_when_it_is_dropped_and_not_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let setting = directory.path().join("setting");
        std::fs::write(&setting, "changed").expect("written");
        let put_back = PutBack::by(&format!("echo before > {}", setting.display())).expect("a shell");
        assert_eq!(std::fs::read_to_string(&setting).expect("there"), "changed");
        drop(put_back);
        assert_eq!(std::fs::read_to_string(&setting).expect("there"), "before\n");
    }
}
