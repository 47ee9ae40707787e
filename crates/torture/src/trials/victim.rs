//! A subject as its killer holds it: started, listened to, killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::subject::SubjectOptions;

/// How long a subject may take to verify its image and to begin.
const START_LIMIT: Duration = Duration::from_secs(20);

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
    pub(crate) wrong: Option<String>,
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
        if options.explicit {
            command.arg("--explicit");
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?;
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
            wrong: None,
        })
    }

    /// Waits until it has verified its image and stores.
    pub(crate) fn wait_until_it_stores(&mut self) -> Result<(), NoStart> {
        let deadline = Instant::now() + START_LIMIT;
        while self.at.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(NoStart::Silent(format!("no word for {} s", START_LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(match self.wrong.take() {
                        Some(cause) => NoStart::Wrong(cause),
                        None => NoStart::Silent(format!("it ended: {}", self.last_words())),
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

    /// What it wrote to its standard error.
    pub(crate) fn last_words(&mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut text);
        }
        text.trim().to_owned()
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
    }
}
