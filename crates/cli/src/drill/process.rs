//! The child as its parent holds it: started, listened to, and killed together with its keeper.
//!
//! Dropping it kills both: no drill leaves a process behind.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::ProgressBar;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::child::{ChildConfig, ChildNews};
use super::mirror::Mirror;
use crate::failure::{Exit, Failure};
use crate::keeper::wait_until_readable;
use crate::memory::{Board, Word};
use crate::progress;

/// How long the last words of a process that ended may take to arrive.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(100);

/// How long a killed process may take to give its memory back.
const DEATH_PATIENCE: Duration = Duration::from_secs(120);

/// A running child.
pub(crate) struct DrillChild {
    child: Child,
    board: Board,
    mirror: Option<Mirror>,
    news: Receiver<ChildNews>,
    complaints: Arc<Mutex<String>>,
    keeper: Option<OwnedFd>,
}

impl DrillChild {
    /// Starts this very program as the child; for a heap, with a mirror of so many bytes.
    pub(crate) fn start(config: &ChildConfig, mirrored_bytes: Option<u64>) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(Exit::System, format!("cannot start the workload: {error}; see 'ulimit -a'"))
        };
        let (board, memory) = Board::create(mirrored_bytes.unwrap_or(0)).map_err(failed)?;
        let mirror = mirrored_bytes.map(|bytes| Mirror::open(memory.as_fd(), bytes));
        let mirror = mirror.transpose().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("drill-child")
            .arg(serde_json::to_string(config).expect("strings and numbers"))
            .stdin(Stdio::from(memory))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (sender, news) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let Ok(said) = serde_json::from_str(&line) else { continue };
                    if sender.send(said).is_err() {
                        return;
                    }
                }
            });
        }
        let complaints = Arc::new(Mutex::new(String::new()));
        if let Some(mut stderr) = child.stderr.take() {
            let complaints = complaints.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                    if let Ok(mut text) = complaints.lock() {
                        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
                    }
                }
            });
        }
        Ok(Self { child, board, mirror, news, complaints, keeper: None })
    }

    /// Waits until the workload is in the region.
    pub(crate) fn wait_until_loaded(&mut self, bar: &ProgressBar) -> Result<(), Failure> {
        loop {
            match self.news.recv_timeout(Duration::from_millis(50)) {
                Ok(ChildNews::Opened { keeper_pid }) => self.keeper = open_process(keeper_pid),
                Ok(ChildNews::Loaded) => return Ok(()),
                Ok(ChildNews::Failed { cause, exit }) => {
                    return Err(self.with_last_words(Failure::new(Exit::from_number(exit), cause)));
                }
                Err(RecvTimeoutError::Timeout) => progress::set(bar, self.board.get(Word::Loaded), 1_000_000),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    /// Lets the workload begin.
    pub(crate) fn go(&self) {
        self.board.set(Word::Go, 1);
    }

    /// Operations that are complete.
    pub(crate) fn steps(&self) -> u64 {
        self.board.get(Word::Steps)
    }

    /// What its heap stored, once it is killed.
    pub(crate) fn take_mirror(&mut self) -> Option<Mirror> {
        self.mirror.take()
    }

    /// An error if the child cannot go on.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        if let Ok(ChildNews::Failed { cause, exit }) = self.news.try_recv() {
            return Err(self.with_last_words(Failure::new(Exit::from_number(exit), cause)));
        }
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// Everything that child and keeper wrote to standard error.
    pub(crate) fn complaints(&self) -> String {
        self.complaints.lock().map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// The failure, with what child and keeper said last: the reason is often there.
    pub(crate) fn with_last_words(&self, failure: Failure) -> Failure {
        // What was just written may still be in the pipe.
        std::thread::sleep(LAST_WORDS_PATIENCE);
        let complaints = self.complaints();
        let words: Vec<_> = complaints.lines().filter(|line| !line.contains("RUST_BACKTRACE")).collect();
        let last = &words[words.len().saturating_sub(3)..];
        if last.is_empty() {
            return failure;
        }
        Failure::new(failure.exit, format!("{} (last words: {})", failure.cause, last.join(" / ")))
    }

    fn ended(&mut self) -> Failure {
        let how = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let complaints = self.complaints();
        let last = complaints.lines().last().unwrap_or("it said nothing");
        Failure::new(Exit::System, format!("the workload ended unexpectedly ({how}): {last}; see 'dmesg'"))
    }

    /// Kills the child and its keeper, and waits until both are gone: with them goes the DRAM.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        let _ = self.child.kill();
        if let Some(keeper) = &self.keeper {
            let _ = pidfd_send_signal(keeper, Signal::KILL);
        }
        let _ = self.child.wait();
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        if wait_until_readable(keeper.as_fd(), DEATH_PATIENCE) {
            return Ok(());
        }
        Err(Failure::new(Exit::System, "the killed keeper does not end; see 'dmesg'"))
    }
}

impl Drop for DrillChild {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn open_process(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}
