//! Starts the keeper: as a process of its own, found beside the program, or as a thread for tests.
//!
//! The keeper gets one socket and nothing else. It lives in its own process group, so that a Ctrl-C
//! meant for the program does not end it before everything is on the SSD.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use wattkeep_sys::socket;

/// Name of the keeper's program.
pub const KEEPER_PROGRAM: &str = "wattkeepd";

/// Names the keeper's program by path, for programs installed in unusual places.
pub const KEEPER_VARIABLE: &str = "WATTKEEP_KEEPER";

/// Where the keeper runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeeperPlace {
    /// In a process of its own: outlives a killed client.
    #[default]
    Process,
    /// In a thread of the client: for tests. Dies with it.
    Thread,
}

/// A started keeper.
#[derive(Debug)]
pub enum Keeper {
    /// A process.
    Process(Child),
    /// A thread.
    Thread(Option<JoinHandle<()>>),
}

impl Keeper {
    /// Starts a keeper; returns the client's end of its socket.
    pub fn start(place: KeeperPlace) -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socket::pair()?;
        let keeper = match place {
            KeeperPlace::Process => {
                let program = find()?;
                let child = Command::new(&program)
                    .arg("--embedded")
                    .stdin(Stdio::from(theirs))
                    .stdout(Stdio::null())
                    .process_group(0)
                    .spawn()
                    .map_err(|e| {
                        io::Error::new(e.kind(), format!("cannot start {}: {e}", program.display()))
                    })?;
                Keeper::Process(child)
            }
            KeeperPlace::Thread => {
                let thread = std::thread::Builder::new()
                    .name("wattkeep-keeper".into())
                    .spawn(move || crate::keeper::serve::run(theirs))?;
                Keeper::Thread(Some(thread))
            }
        };
        Ok((keeper, ours))
    }

    /// Process id of the keeper.
    pub fn pid(&self) -> u32 {
        match self {
            Keeper::Process(child) => child.id(),
            Keeper::Thread(_) => std::process::id(),
        }
    }

    /// Waits until the keeper has ended.
    pub fn wait(&mut self) {
        match self {
            Keeper::Process(child) => drop(child.wait()),
            Keeper::Thread(thread) => drop(thread.take().map(JoinHandle::join)),
        }
    }
}

/// Looks for the keeper's program: the environment variable, beside this program, in the build, PATH.
fn find() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os(KEEPER_VARIABLE) {
        return Ok(path.into());
    }
    let beside = std::env::current_exe().ok();
    let directories = beside.iter().flat_map(|exe| exe.ancestors().skip(1).take(2)).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates =
        directories.chain(std::env::split_paths(&path)).map(|directory| directory.join(KEEPER_PROGRAM));
    candidates.into_iter().find(|candidate| candidate.is_file()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{KEEPER_PROGRAM} is neither beside this program nor on PATH: build it with \
                 'cargo build -p {KEEPER_PROGRAM}', or set {KEEPER_VARIABLE} to its path"
            ),
        )
    })
}
