//! Neighbours that allocate while we measure: processes where the program can be one, else threads.
//!
//! All of them have ended when this is dropped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::figures::BenchError;
use crate::neighbour;

/// As many as the machine of the measurements has cores.
const COUNT: u64 = 2;

/// How long they run before anything is measured: each steps through its pages more than once.
const SETTLE: Duration = Duration::from_millis(300);

/// Running neighbours.
pub(super) struct Neighbours {
    children: Vec<Child>,
    enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    /// Starts them. `program` is one that becomes a neighbour when it is asked to: see
    /// [`crate::figures::Options::neighbour`].
    pub(super) fn start(program: Option<&Path>) -> Result<Self, BenchError> {
        let mut started =
            Self { children: Vec::new(), enough: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for seed in 1..=COUNT {
            match program {
                Some(program) => started.children.push(
                    Command::new(program)
                        .args(["bench-neighbour", &seed.to_string()])
                        .stdin(Stdio::piped())
                        .stdout(Stdio::null())
                        .spawn()
                        .map_err(BenchError::while_("starting a program that allocates beside us"))?,
                ),
                None => {
                    let enough = started.enough.clone();
                    started.threads.push(std::thread::spawn(move || {
                        // One that finds no memory is no neighbour any more.
                        let _ = neighbour::run(seed, || enough.load(Ordering::Relaxed));
                    }));
                }
            }
        }
        std::thread::sleep(SETTLE);
        Ok(started)
    }

    /// Their process ids.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    /// What they are, for a note.
    pub(super) fn kind(&self) -> &'static str {
        if self.threads.is_empty() { "processes" } else { "threads" }
    }

    /// All of them still run.
    pub(super) fn are_alive(&mut self) -> bool {
        let children = self.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(None)));
        children && self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_run_until_they_are_dropped_and_none_is_left() {
        // A program that waits for the end of its input, as a neighbour does.
        let script = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&script, "#!/bin/sh\nexec cat > /dev/null\n").expect("written");
        let path = script.into_temp_path();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("executable");
        for program in [None, Some(&*path)] {
            let mut neighbours = Neighbours::start(program).expect("started");
            assert!(neighbours.are_alive());
            let pids = neighbours.pids();
            assert_eq!(pids.len(), if program.is_some() { COUNT as usize } else { 0 });
            drop(neighbours);
            assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
        }
    }
}
