//! A subject as its killer holds it: started, listened to, killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::heard::Heard;
use super::subject::SubjectOptions;

/// How long a subject may take to verify its image and to begin.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long its last words may take.
const WORDS_LIMIT: Duration = Duration::from_secs(2);

/// A running subject, and what it has said.
pub(crate) struct Victim {
    child: Child,
    lines: Receiver<String>,
    pub(crate) heard: Heard,
    /// What it and its keeper write to their standard error.
    pub(crate) words: Words,
}

/// Standard error of a program and its keeper, as far as it was written.
#[derive(Clone, Default)]
pub(crate) struct Words(Arc<Mutex<String>>);

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.lock().map(|text| text.trim().replace('\n', "; ")).unwrap_or_default())
    }
}

impl Words {
    /// Waits, a while, for those of a program that has ended: they come through another pipe than its answers. That
    /// does not end with the program where its keeper lives on.
    fn wait_for_some(&self) {
        let deadline = Instant::now() + WORDS_LIMIT;
        while self.to_string().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Collects lines in a thread, to the end of the pipe.
    fn of(stderr: impl std::io::Read + Send + 'static) -> Self {
        let words = Self::default();
        let into = words.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Ok(mut text) = into.0.lock() {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        });
        words
    }
}

/// Why a subject did not begin.
pub(crate) enum NoStart {
    /// The image is not exact.
    Wrong(String),
    /// It ended, or said nothing in time.
    Silent(String),
}

impl Victim {
    /// Starts a subject in this directory.
    pub(crate) fn start(options: &SubjectOptions) -> Result<Self, String> {
        Self::start_as("subject", &options.directory, &options.words())
    }

    /// Starts this program with a command that speaks as a subject does.
    pub(crate) fn start_as(command: &str, directory: &Path, words: &[String]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut child = Command::new(program)
            .arg(command)
            .arg(directory)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
        let words = Words::of(child.stderr.take().ok_or("no standard error")?);
        let (sender, lines) = channel();
        let stdout = child.stdout.take().ok_or("no standard output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, heard: Heard::default(), words })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it has verified its image and stores.
    pub(crate) fn wait_until_it_stores(&mut self) -> Result<(), NoStart> {
        self.wait_until(|victim| !victim.heard.at.is_empty())
    }

    /// Listens until it has said what is waited for.
    pub(crate) fn wait_until(&mut self, said: impl Fn(&Self) -> bool) -> Result<(), NoStart> {
        let deadline = Instant::now() + START_LIMIT;
        while !said(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.heard.hear(&line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(NoStart::Silent(format!("no word for {} s", START_LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.wait();
                    return Err(match self.heard.wrong.take() {
                        Some(cause) => {
                            NoStart::Wrong(format!("{cause}; recovered: {}", self.heard.recovered))
                        }
                        None => {
                            self.words.wait_for_some();
                            NoStart::Silent(format!("it ended: {}", self.words))
                        }
                    });
                }
            }
        }
        Ok(())
    }

    /// Lets it run for so long, and listens.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.heard.hear(&line);
        }
    }

    /// Kills it, and hears what was still on the way.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        while let Ok(line) = self.lines.recv() {
            self.heard.hear(&line);
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Options of a subject that lives in this directory.
pub(crate) fn in_directory(directory: &Path, seed: u64) -> SubjectOptions {
    SubjectOptions {
        directory: directory.to_owned(),
        pages: 256,
        threads: 2,
        budget: "11%".to_owned(),
        mode: wattkeep::FaultMode::Signal,
        explicit: false,
        seed,
        checkpoint_ms: 0,
        tell_ms: 1,
        fork: false,
        regions_known: 0,
        regions: 0,
        grow_pages: 0,
    }
}
