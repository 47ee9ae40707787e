//! A subject as its killer holds it: started, listened to, killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::subject::SubjectOptions;

/// How long a subject may take to verify its image and to begin.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running subject, and what it has said.
pub(crate) struct Victim {
    child: Child,
    lines: Receiver<String>,
    /// What each thread found in the image, and how far it was when last heard of.
    pub(crate) found: BTreeMap<u64, u64>,
    pub(crate) at: BTreeMap<u64, u64>,
    /// How far each thread was before the last checkpoint that completed.
    pub(crate) checkpoint: BTreeMap<u64, u64>,
    pub(crate) keeper: Option<i32>,
    /// What it recovered, in its keeper's words.
    pub(crate) recovered: String,
    /// What it and its keeper write to their standard error.
    pub(crate) words: Words,
    pub(crate) wrong: Option<String>,
    /// A child that it forked.
    pub(crate) forked: Option<i32>,
    /// Regions beside the first that hold their mark.
    pub(crate) regions: u64,
    /// It asked its keeper and found none.
    pub(crate) keeper_gone: bool,
    /// What it was refused: a region, or room for one to grow.
    pub(crate) refused: Option<String>,
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
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("subject")
            .arg(&options.directory)
            .args(["--pages", &options.pages.to_string(), "--threads", &options.threads.to_string()])
            .args(["--budget", &options.budget, "--mode", &options.mode.to_string()])
            .args(["--seed", &options.seed.to_string(), "--tell-ms", &options.tell_ms.to_string()])
            .args(["--checkpoint-ms", &options.checkpoint_ms.to_string()]);
        command
            .args(["--regions", &options.regions.to_string()])
            .args(["--regions-known", &options.regions_known.to_string()])
            .args(["--grow-pages", &options.grow_pages.to_string()]);
        command.args(options.explicit.then_some("--explicit"));
        command.args(options.fork.then_some("--fork"));
        let mut child = command
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
        Ok(Self {
            child,
            lines,
            found: BTreeMap::new(),
            at: BTreeMap::new(),
            checkpoint: BTreeMap::new(),
            keeper: None,
            recovered: String::new(),
            words,
            wrong: None,
            forked: None,
            regions: 0,
            keeper_gone: false,
            refused: None,
        })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it has verified its image and stores.
    pub(crate) fn wait_until_it_stores(&mut self) -> Result<(), NoStart> {
        self.wait_until(|victim| !victim.at.is_empty())
    }

    /// Listens until it has said what is waited for.
    pub(crate) fn wait_until(&mut self, said: impl Fn(&Self) -> bool) -> Result<(), NoStart> {
        let deadline = Instant::now() + START_LIMIT;
        while !said(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(NoStart::Silent(format!("no word for {} s", START_LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.wait();
                    return Err(match self.wrong.take() {
                        Some(cause) => NoStart::Wrong(format!("{cause}; recovered: {}", self.recovered)),
                        None => NoStart::Silent(format!("it ended: {}", self.words)),
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
            self.hear(&line);
        }
    }

    /// Kills it, and hears what was still on the way.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        while let Ok(line) = self.lines.recv() {
            self.hear(&line);
        }
    }

    fn hear(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let word = words.next().unwrap_or_default();
        let numbers = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let pair = numbers.0.parse().ok().zip(numbers.1.parse().ok());
        match (word, pair) {
            ("found", Some((thread, number))) => drop(self.found.insert(thread, number)),
            ("at", Some((thread, number))) => drop(self.at.insert(thread, number)),
            ("checkpoint", Some((thread, number))) => drop(self.checkpoint.insert(thread, number)),
            ("keeper", _) => self.keeper = numbers.0.parse().ok(),
            ("recovered", _) => self.recovered = line.to_owned(),
            ("forked", _) => self.forked = numbers.0.parse().ok(),
            ("region", Some((regions, _))) => self.regions = regions,
            ("keeper-gone", _) => self.keeper_gone = true,
            ("no-region" | "not-grown", _) => self.refused = Some(line.to_owned()),
            ("wrong", _) => self.wrong = Some(line.to_owned()),
            _ => {}
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
