//! Starts the program, looks at its memory once an epoch, and ends when it does.
//!
//! One thread, woken by three things: a visitor at the door, the program's end, the end of an epoch. An
//! epoch lasts at least as long as asked for: when a look takes longer, the next epoch begins after it.
//! A recording that fails lets the program run on, unwatched, and tells at its end.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use wattkeep_sys::signal;

use crate::door::{Door, Wish};
use crate::error::RecordError;
use crate::inside::DOOR_VARIABLE;
use crate::trace::TraceFile;
use crate::watch::{Watch, probe};

/// The library that is loaded into the program.
pub const LIBRARY: &str = "libwattkeep_preload.so";

/// Names the library by path, where it is not beside this program.
pub const LIBRARY_VARIABLE: &str = "WATTKEEP_PRELOAD";

/// How long the program may run before somebody is told that it has not loaded the library.
const SILENCE: Duration = Duration::from_secs(2);

/// What to record, and where to.
#[derive(Debug)]
pub struct Order {
    /// The program, as found on PATH.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Shortest time between two looks.
    pub epoch: Duration,
    /// An empty file for the trace.
    pub trace: File,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording {
    /// The program's exit code; 128 and its signal when one ended it.
    pub exit: u8,
    /// From the program's begin to its end.
    pub run: Duration,
    /// Looks at the memory.
    pub epochs: u64,
    /// Time that all looks took, on the recorder's thread.
    pub looking: Duration,
    /// Longest time between two looks.
    pub epoch_longest: Duration,
    /// Pages recorded: one written in two epochs counts twice.
    pub pages: u64,
    /// Minor faults of the program while it was watched, its own and those added.
    pub minor_faults: u64,
    /// Most mappings at once that belong to a userfaultfd of the program's own: they are not recorded.
    pub mappings_refused: u64,
}

/// Runs the program and records it to its end; `silent` is called once when it runs and has not loaded
/// the library.
///
/// # Errors
/// Before the program starts: the kernel is too old, the library is missing. Else see [`RecordError`].
pub fn record(order: Order, mut silent: impl FnMut()) -> Result<Recording, RecordError> {
    probe().map_err(RecordError::Kernel)?;
    let library = find_library()?;
    let door = Door::open().map_err(system("listen for the program"))?;
    let trace = TraceFile::begin(order.trace).map_err(RecordError::Trace)?;
    let program = order.program.to_string_lossy().into_owned();
    let mut child = Command::new(&order.program)
        .args(&order.arguments)
        .env("LD_PRELOAD", preload(library))
        .env(DOOR_VARIABLE, door.place())
        .spawn()
        .map_err(|source| RecordError::Start { program: program.clone(), source })?;
    let mut recorder = Recorder::new(&child, order.epoch, trace);
    let end = recorder.follow(&child, &door, &mut silent);
    if let Err(error) = end {
        recorder.fail(RecordError::System { act: "watch the program", source: error });
    }
    let status = child.wait().map_err(system("wait for the program"))?;
    let _ = signal::pass_requests_to_end(0);
    recorder.finish(program, status)
}

fn system(act: &'static str) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::System { act, source }
}

/// The library: the environment variable, beside this program, in the build.
fn find_library() -> Result<PathBuf, RecordError> {
    let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let this = std::env::current_exe().ok();
    let beside = this.iter().flat_map(|exe| exe.ancestors().skip(1).take(2)).map(|place| place.join(LIBRARY));
    let library = named.or_else(|| beside.into_iter().find(|path| path.is_file()));
    let library = library.and_then(|path| path.canonicalize().ok()).ok_or(RecordError::LibraryMissing)?;
    if library.to_string_lossy().contains([' ', ':']) {
        return Err(RecordError::LibraryPath(library));
    }
    Ok(library)
}

/// Ours first, then what is preloaded anyway.
fn preload(library: PathBuf) -> OsString {
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

struct Recorder {
    pid: u32,
    epoch: Duration,
    trace: TraceFile,
    watch: Option<Watch>,
    error: Option<RecordError>,
    begun: Option<Instant>,
    last_look: Instant,
    faults_before: u64,
    so_far: Recording,
}

impl Recorder {
    fn new(child: &Child, epoch: Duration, trace: TraceFile) -> Self {
        Self {
            pid: child.id(),
            epoch,
            trace,
            watch: None,
            error: None,
            begun: None,
            last_look: Instant::now(),
            faults_before: 0,
            so_far: Recording::default(),
        }
    }

    /// Until the program has ended; it is not waited for yet.
    fn follow(&mut self, child: &Child, door: &Door, silent: &mut dyn FnMut()) -> io::Result<()> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let program = pidfd_open(pid, PidfdFlags::empty())?;
        signal::pass_requests_to_end(pid.as_raw_nonzero().get())?;
        let start = Instant::now();
        let mut told = false;
        loop {
            let left = match (&self.watch, self.begun, told) {
                (Some(_), _, _) => Some(self.epoch.saturating_sub(self.last_look.elapsed())),
                (None, None, false) => Some(SILENCE.saturating_sub(start.elapsed())),
                _ => None,
            };
            let (visited, ended) = wait(door, &program, left)?;
            if visited {
                self.answer(door)?;
            } else if ended {
                self.take_last_figures();
                return Ok(());
            } else if self.watch.is_some() {
                self.look(true);
            } else if self.begun.is_none() && !told && start.elapsed() >= SILENCE {
                told = true;
                silent();
            }
        }
    }

    fn answer(&mut self, door: &Door) -> io::Result<()> {
        while let Some((visitor, wish)) = door.next_visit(self.pid)? {
            match wish {
                Wish::Begin(Some(memory)) => self.begin(memory),
                Wish::Begin(None) => self.fail(RecordError::MemoryRefused),
                Wish::End => self.look(true),
            }
            visitor.go_on();
        }
        Ok(())
    }

    /// A program image begins: what its loader wrote is looked at, and left out.
    fn begin(&mut self, memory: OwnedFd) {
        match Watch::new(self.pid, memory) {
            Ok(watch) => self.watch = Some(watch),
            Err(source) => return self.fail(RecordError::System { act: "read the program's maps", source }),
        }
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            self.faults_before = minor_faults(self.pid).unwrap_or(0);
        }
        self.look(false);
    }

    fn look(&mut self, recorded: bool) {
        let (Some(watch), Some(begun)) = (&mut self.watch, self.begun) else { return };
        let (trace, start) = (&mut self.trace, Instant::now());
        let time = start - begun;
        let mut file_error = None;
        let found = watch.look(|run| match recorded {
            true => trace.add(time, run).map_err(|error| {
                let kind = error.kind();
                file_error = Some(error);
                kind.into()
            }),
            false => Ok(()),
        });
        let flushed = trace.end_epoch();
        let so_far = &mut self.so_far;
        so_far.looking += start.elapsed();
        so_far.epochs += u64::from(recorded);
        if recorded {
            so_far.epoch_longest = so_far.epoch_longest.max(start - self.last_look);
        }
        self.last_look = start;
        match (found, file_error.or(flushed.err())) {
            (_, Some(error)) => self.fail(RecordError::Trace(error)),
            (Ok(look), None) => so_far.mappings_refused = so_far.mappings_refused.max(look.refused),
            (Err(source), None) => {
                self.fail(RecordError::System { act: "read which pages were written", source });
            }
        }
    }

    /// Gives the recording up: without its userfaultfd, nothing of the program's memory is protected.
    fn fail(&mut self, error: RecordError) {
        self.watch = None;
        self.error.get_or_insert(error);
    }

    /// The program has ended, but its process is still to be asked.
    fn take_last_figures(&mut self) {
        let faults = minor_faults(self.pid).unwrap_or(0);
        self.so_far.minor_faults = faults.saturating_sub(self.faults_before);
        self.so_far.run = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
    }

    fn finish(self, program: String, status: ExitStatus) -> Result<Recording, RecordError> {
        match (self.error, self.begun) {
            (Some(error), _) => Err(error),
            (None, None) => Err(RecordError::NotLoaded { program }),
            (None, Some(_)) => {
                Ok(Recording { exit: exit_code(status), pages: self.trace.pages(), ..self.so_far })
            }
        }
    }
}

/// Whether somebody is at the door, and whether the program has ended; neither when time is up.
fn wait(door: &Door, program: &OwnedFd, left: Option<Duration>) -> io::Result<(bool, bool)> {
    let timeout = left.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let listener = door.listener();
    let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::new(program, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok((false, false)),
        other => {
            other?;
            Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty()))
        }
    }
}

/// As a shell tells it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Minor faults of a process, all threads, from its tenth word in `/proc/PID/stat`.
fn minor_faults(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = text.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(7)?.parse().ok()
}
