//! A virtual machine whose mains can fail: QEMU, ended by SIGKILL.
//!
//! Its second serial line is the subject's standard input and output. A line that was cut off in the middle was
//! not said.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::disk::Disk;
use crate::trials::heard::Heard;

/// How long a step of the guest may take before it hangs: booting, recovering, saving. An emulated
/// machine on a busy host is two orders of magnitude slower than a real one.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// The guest's memory: the initramfs, the region and the keeper's buffers.
const MEMORY: &str = "384M";

/// A running machine, and what its subject has said.
pub(super) struct Machine {
    qemu: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    pub(super) heard: Heard,
    /// The guest runs our script.
    booted: bool,
    /// The subject ended by itself; the end is what it said.
    ended: Option<String>,
    /// For people, when it ended too soon.
    last_line: String,
}

/// Why a guest did not come as far as it should.
#[derive(Debug)]
pub(super) enum Stuck {
    /// It does not like its image, and said why.
    Wrong(String),
    /// It said nothing in time, or ended.
    Silent(String),
}

impl Machine {
    /// Switches the machine on. `words` are the subject's, after those for the guest's script.
    pub(super) fn boot(guest: &Path, disk: &Disk, words: &[String]) -> Result<Self, String> {
        let append = format!("console=ttyS0 quiet panic=-1 mitigations=off -- {}", words.join(" "));
        let console = guest.join("console.log");
        // When this process dies, the machine must not stay.
        let mut qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", MEMORY])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(guest.join("vmlinuz"))
            .arg("-initrd")
            .arg(guest.join("initramfs"))
            .args(["-append", &append])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line"])
            .args([
                "-drive",
                &format!("if=none,id=disk,format=qcow2,cache=writeback,file={}", disk.overlay()),
            ])
            .args(["-device", "nvme,drive=disk,serial=wattkeep"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start qemu-system-x86_64: {e}"))?;
        let orders = qemu.stdin.take().ok_or("no standard input")?;
        let mut stdout = BufReader::new(qemu.stdout.take().ok_or("no standard output")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(Self {
            qemu,
            orders,
            lines,
            heard: Heard::default(),
            booted: false,
            ended: None,
            last_line: String::new(),
        })
    }

    /// Listens until the guest runs our script.
    pub(super) fn wait_until_booted(&mut self) -> Result<(), Stuck> {
        self.wait("boot", |machine| machine.booted)
    }

    /// Listens until the subject has verified what it found, and stores.
    pub(super) fn wait_until_it_stores(&mut self) -> Result<(), Stuck> {
        self.wait("recovery", |machine| !machine.heard.at.is_empty())
    }

    /// Listens until the subject has told what is in the saved image of all its `threads`.
    pub(super) fn wait_until_saved(&mut self, threads: u64) -> Result<(), Stuck> {
        self.wait("save", |machine| machine.heard.saved.len() as u64 == threads)
    }

    /// Announces the cut.
    pub(super) fn announce(&mut self) {
        // A machine that is gone already is found out by the wait that follows.
        let _ = self.orders.write_all(b"save\n").and_then(|()| self.orders.flush());
    }

    /// Lets it run for so long, and listens.
    pub(super) fn run_for(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.hear(&line);
        }
    }

    /// Cuts the power, and hears what was still on the line.
    pub(super) fn cut(mut self) -> Heard {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        while let Ok(line) = self.lines.recv() {
            self.hear(&line);
        }
        std::mem::take(&mut self.heard)
    }

    fn wait(&mut self, step: &str, done: impl Fn(&Self) -> bool) -> Result<(), Stuck> {
        let deadline = Instant::now() + STEP_LIMIT;
        while !done(self) {
            if let Some(cause) = self.heard.wrong.take() {
                return Err(Stuck::Wrong(format!("{cause}; {}", self.heard.recovered)));
            }
            if let Some(end) = &self.ended {
                let last = &self.last_line;
                return Err(Stuck::Silent(format!("{step}: the subject ended ({end}): {last}")));
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Stuck::Silent(format!("{step}: not done after {} s", STEP_LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Stuck::Silent(format!("{step}: the machine went down")));
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, line: &str) {
        match line.split_once(' ') {
            None if line == "booted" => self.booted = true,
            Some(("ended", end)) => self.ended = Some(end.to_owned()),
            _ => {
                self.heard.hear(line);
                line.clone_into(&mut self.last_line);
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
