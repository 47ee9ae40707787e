//! Errors as a person sees them: one line, `wattkeep: CAUSE; NEXT COMMAND`, and an exit code.
//!
//! The libraries' own messages name cause and next command already; this file chooses the code.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use wattkeep_keep::client::session::SessionError;
use wattkeep_store::{FileError, OpenError, ReadError, StoreError};

/// Documented in `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked about is not so.
    NotSo = 1,
    /// The command line, or a value in it.
    Usage = 2,
    /// The store is missing, foreign, newer or damaged; or the region is missing.
    Store = 3,
    /// In use, or occupied.
    Occupied = 4,
    /// The system refused: space, permission, I/O, userfaultfd.
    System = 5,
    /// A bug of ours.
    Bug = 70,
}

impl Exit {
    /// For `main`.
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }

    /// From a code that a child sent.
    pub(crate) fn from_number(number: u8) -> Self {
        let all = [Self::NotSo, Self::Usage, Self::Store, Self::Occupied, Self::System];
        all.into_iter().find(|exit| *exit as u8 == number).unwrap_or(Self::Bug)
    }
}

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: String,
    pub(crate) exit: Exit,
}

impl Failure {
    /// `cause` names the next command, too.
    pub(crate) fn new(exit: Exit, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), exit }
    }

    /// A value that makes no sense.
    pub(crate) fn usage(cause: impl Display) -> Self {
        Self::new(Exit::Usage, cause.to_string())
    }

    /// The system refused to `act` on `place`.
    pub(crate) fn system(act: &str, place: &Path, error: &io::Error) -> Self {
        let place = place.display();
        let next = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                format!("free some space ('df {place}')")
            }
            io::ErrorKind::OutOfMemory => "free some memory ('free -h')".to_owned(),
            _ => format!("see 'ls -la {place}'"),
        };
        Self::new(Exit::System, format!("cannot {act} {place}: {error}; {next}"))
    }

    /// Prints the line, and gives the code to exit with.
    pub(crate) fn print(&self) -> ExitCode {
        let cause: Vec<_> = self.cause.split_whitespace().collect();
        eprintln!("wattkeep: {}", cause.join(" "));
        self.exit.code()
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let exit = match &error {
            FileError::Missing { .. } => Exit::Store,
            FileError::Exists { .. } | FileError::InUse { .. } => Exit::Occupied,
            FileError::NoPermission { .. }
            | FileError::ReadOnlyFileSystem { .. }
            | FileError::NoDirectIo { .. }
            | FileError::NoUring { .. }
            | FileError::Create { .. }
            | FileError::Io { .. } => Exit::System,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Read { .. } | OpenError::Write { .. } => Exit::System,
            _ => Exit::Store,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::RegionExists { .. } | StoreError::TooManyRegions => Exit::Occupied,
            StoreError::NoSuchRegion { .. } => Exit::Store,
            StoreError::BadName { .. } | StoreError::TooLarge { .. } => Exit::Usage,
            StoreError::TooManyShrinks { .. } => Exit::Occupied,
            StoreError::Poisoned { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::NoSpace { .. }
            | StoreError::PagesForgotten { .. } => Exit::System,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Device { .. } => Self::new(Exit::System, error.to_string()),
            ReadError::Damaged { .. } => Self::new(Exit::Store, error.to_string()),
            ReadError::Store(error) => error.into(),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::System(error) => {
                Self::new(Exit::System, format!("{error}; see 'dmesg' and 'ulimit -a'"))
            }
            other => Self::new(Exit::System, other.to_string()),
        }
    }
}

/// Prints clap's error as our one line; help and version as they are.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("no command was given; see 'wattkeep --help'").print();
    }
    let text = error.to_string();
    let cause = text.split("\n\n").next().unwrap_or_default();
    let cause = cause.strip_prefix("error: ").unwrap_or(cause);
    let command = std::env::args().nth(1).filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
    let known = command.filter(|_| kind != ErrorKind::InvalidSubcommand);
    let help = known.map_or_else(|| "wattkeep --help".into(), |command| format!("wattkeep {command} --help"));
    Failure::usage(format!("{cause}; see '{help}'")).print()
}

/// Turns a bug of ours into one line and an exit code of its own.
pub(crate) fn report_bugs_in_one_line() {
    std::panic::set_hook(Box::new(|bug| {
        let payload = bug.payload();
        let what = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        let place = bug.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        let cause = format!("this is a bug in wattkeep{place}: {what}; please report it with this line");
        Failure::new(Exit::Bug, cause).print();
        std::process::exit(Exit::Bug as i32);
    }));
}
