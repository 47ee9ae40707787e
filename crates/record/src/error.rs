//! Why there is no recording.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::recorder::{LIBRARY, LIBRARY_VARIABLE};

/// Why a program was not recorded, or not to its end.
#[derive(Debug)]
pub enum RecordError {
    /// The kernel cannot tell which pages were written.
    Kernel(Errno),
    /// The preloaded library is nowhere.
    LibraryMissing,
    /// The library's path cannot stand in LD_PRELOAD.
    LibraryPath(PathBuf),
    /// The program did not start.
    Start {
        /// Its name, as typed.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The program ended without ever loading the library.
    NotLoaded {
        /// Its name, as typed.
        program: String,
    },
    /// The program's userfaultfd was refused, though the recorder's own was not.
    MemoryRefused,
    /// The trace cannot be written; the program ran on to its end.
    Trace(io::Error),
    /// Another system call failed.
    System {
        /// What it was for.
        act: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(errno @ (Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP)) => write!(
                f,
                "this kernel cannot tell which pages a program writes (PAGEMAP_SCAN and asynchronous write \
                 protection: {errno}): Linux 6.7 or newer is needed; see 'uname -r'"
            ),
            Self::Kernel(errno) => write!(
                f,
                "the kernel refuses to watch memory (userfaultfd: {errno}): a container's filter may forbid \
                 it; run outside of it"
            ),
            Self::LibraryMissing => write!(
                f,
                "{LIBRARY} is not beside this program: build it with 'cargo build -p wattkeep-preload', or \
                 set {LIBRARY_VARIABLE} to its path"
            ),
            Self::LibraryPath(path) => write!(
                f,
                "the path {} has a space or a colon, which LD_PRELOAD takes for its end: copy the library \
                 elsewhere, and set {LIBRARY_VARIABLE} to its path",
                path.display()
            ),
            Self::Start { program, source } => {
                write!(f, "cannot start {program}: {source}; see 'command -v {program}'")
            }
            Self::NotLoaded { program } => write!(
                f,
                "{program} ran, but never loaded the recording library: statically linked and setuid \
                 programs cannot be recorded; see 'file {program}'"
            ),
            Self::MemoryRefused => write!(
                f,
                "the kernel refuses the program a userfaultfd, though not us: it filters its own system \
                 calls; see 'man 2 seccomp'"
            ),
            Self::Trace(source) => {
                write!(f, "cannot write the trace: {source}; the program ran on; see 'df .'")
            }
            Self::System { act, source } => write!(f, "cannot {act}: {source}; see 'dmesg' and 'ulimit -a'"),
        }
    }
}

impl std::error::Error for RecordError {}
