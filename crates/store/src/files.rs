//! The device on a real file: O_DIRECT and io_uring, one file per store, locked while open.
//!
//! Invariants: every byte below `size` was really written once, so that a write cannot meet a full
//! file system; one process at a time has the store open for writing. Never retries. Does not know
//! what the bytes mean.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use wattkeep_sys::buffer::AlignedBuffer;
use wattkeep_sys::file::{Lock, lock};
use wattkeep_sys::uring::{Completed, RingFile};

use crate::commit::CreateOptions;
use crate::disk::{Completion, Disk, Token, Wait};
use crate::error::CreateError;
use crate::limits::{PIECE_BYTES, QUEUE_DEPTH};
use crate::store::Store;

/// Zeros are written this many pieces at a time when the file grows.
const ZERO_WRITES: usize = 4;

/// The file of the store in `directory`.
pub fn store_file(directory: &Path) -> PathBuf {
    directory.join("wattkeep.store")
}

/// A store being created has this name until it is whole.
fn unfinished_file(directory: &Path) -> PathBuf {
    directory.join("wattkeep.store.unfinished")
}

/// Why the file of a store could not be opened or made.
#[derive(Debug)]
#[expect(missing_docs, reason = "a variant's comment and message say what its fields are")]
pub enum FileError {
    /// There is no store in the directory.
    Missing { directory: PathBuf },
    /// There is one already.
    Exists { directory: PathBuf },
    /// The caller may not.
    NoPermission { directory: PathBuf },
    /// The file system is mounted read-only.
    ReadOnlyFileSystem { directory: PathBuf },
    /// Another process has the store open.
    InUse { directory: PathBuf },
    /// The file system refuses O_DIRECT.
    NoDirectIo { directory: PathBuf },
    /// The kernel, or a container's filter, refuses io_uring.
    NoUring { source: io::Error },
    /// Making the new store failed; its file was removed.
    Create { source: CreateError },
    /// Anything else.
    Io { directory: PathBuf, what: &'static str, source: io::Error },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { directory } => {
                let directory = directory.display();
                write!(f, "there is no store in {directory}; run 'wattkeep create {directory}'")
            }
            Self::Exists { directory } => {
                let directory = directory.display();
                write!(f, "there is a store in {directory} already; see 'wattkeep info {directory}'")
            }
            Self::NoPermission { directory } => {
                let directory = directory.display();
                write!(f, "no permission for the store in {directory}; see 'ls -la {directory}'")
            }
            Self::ReadOnlyFileSystem { directory } => {
                let directory = directory.display();
                write!(f, "{directory} is mounted read-only; see 'findmnt -T {directory}'")
            }
            Self::InUse { directory } => {
                let directory = directory.display();
                write!(
                    f,
                    "another process has the store in {directory} open; \
                     see 'wattkeep status {directory}'"
                )
            }
            Self::NoDirectIo { directory } => {
                let directory = directory.display();
                write!(
                    f,
                    "the file system of {directory} has no direct I/O; choose a directory on \
                     ext4, xfs or btrfs ('findmnt -T {directory}')"
                )
            }
            Self::NoUring { source } => write!(
                f,
                "io_uring is refused: {source}; see 'sysctl kernel.io_uring_disabled', and in \
                 a container its seccomp profile"
            ),
            Self::Create { source } => source.fmt(f),
            Self::Io { directory, what, source } => {
                let directory = directory.display();
                write!(f, "cannot {what} in {directory}: {source}; see 'ls -la {directory}'")
            }
        }
    }
}

impl std::error::Error for FileError {}

/// The file of a store, for direct I/O through a ring of its own.
#[derive(Debug)]
pub struct UringDisk {
    file: RingFile,
    directory: PathBuf,
    size: u64,
    completed: Vec<Completed>,
}

impl UringDisk {
    /// Opens the store's file for writing and locks it.
    pub fn open(directory: &Path) -> Result<Self, FileError> {
        Self::open_file(directory, &store_file(directory), OFlags::RDWR, Lock::Exclusive)
    }

    /// Opens the store's file for reading, beside other readers.
    pub fn open_read_only(directory: &Path) -> Result<Self, FileError> {
        Self::open_file(directory, &store_file(directory), OFlags::RDONLY, Lock::Shared)
    }

    fn open_file(directory: &Path, path: &Path, flags: OFlags, kind: Lock) -> Result<Self, FileError> {
        let flags = flags | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::open(path, flags, mode).map_err(|errno| open_error(directory, errno))?;
        lock(file.as_fd(), kind).map_err(|source| match source.raw_os_error() {
            Some(code) if code == Errno::AGAIN.raw_os_error() || code == Errno::ACCESS.raw_os_error() => {
                FileError::InUse { directory: directory.to_owned() }
            }
            _ => FileError::Io { directory: directory.to_owned(), what: "lock the store", source },
        })?;
        if !is_named(&file, path) {
            return Err(FileError::InUse { directory: directory.to_owned() });
        }
        Self::over(directory, file)
    }

    fn over(directory: &Path, file: OwnedFd) -> Result<Self, FileError> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| FileError::Io {
            directory: directory.to_owned(),
            what: "look at the store",
            source: errno.into(),
        })?;
        let size = stat.st_size as u64;
        let file = RingFile::new(file, QUEUE_DEPTH).map_err(|source| FileError::NoUring { source })?;
        Ok(Self { file, directory: directory.to_owned(), size, completed: Vec::new() })
    }

    /// Writes zeros from `from` to `to`, several pieces in flight.
    fn write_zeros(&mut self, from: u64, to: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let mut idle: Vec<_> = (0..ZERO_WRITES).map(|_| AlignedBuffer::zeroed(PIECE_BYTES)).collect();
        let (mut next, mut written, mut failed) = (from, 0, None);
        while (next < to && failed.is_none()) || self.file.in_flight() > 0 {
            while let Some(buffer) = idle.pop_if(|_| next < to && failed.is_none()) {
                let len = (to - next).min(PIECE_BYTES as u64);
                self.file.write(len, next, buffer, len as usize, PIECE_BYTES);
                next += len;
            }
            let mut done = std::mem::take(&mut self.completed);
            self.file.reap(Some(None), &mut done)?;
            for completed in done.drain(..) {
                idle.extend(completed.buffer);
                match completed.result {
                    Ok(bytes) if bytes as u64 == completed.token => written += completed.token,
                    Ok(_) => failed = Some(io::Error::from(io::ErrorKind::WriteZero)),
                    Err(error) => failed = Some(error),
                }
            }
            self.completed = done;
            progress(written, to - from);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Whether the open file still has this name. A lock is had only after the file was opened: whoever held
/// it until then may have renamed the file meanwhile.
fn is_named(file: &OwnedFd, path: &Path) -> bool {
    let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let ours = rustix::fs::fstat(file).map(identity);
    ours.is_ok() && ours == rustix::fs::lstat(path).map(identity)
}

fn open_error(directory: &Path, errno: Errno) -> FileError {
    let directory = directory.to_owned();
    match errno {
        Errno::NOENT | Errno::NOTDIR => FileError::Missing { directory },
        Errno::EXIST => FileError::Exists { directory },
        Errno::ACCESS | Errno::PERM => FileError::NoPermission { directory },
        Errno::ROFS => FileError::ReadOnlyFileSystem { directory },
        Errno::INVAL => FileError::NoDirectIo { directory },
        other => FileError::Io { directory, what: "open the store", source: other.into() },
    }
}

impl Disk for UringDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn place(&self) -> String {
        self.directory.display().to_string()
    }

    fn grow(&mut self, from: u64, size: u64, progress: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        assert!(self.file.in_flight() == 0, "growing blocks: nothing else is in flight");
        let old = self.size;
        // In one go first: long extents.
        let grown = rustix::fs::fallocate(self.file.file(), FallocateFlags::empty(), from, size - from)
            .or_else(|errno| match errno {
                // Not every file system can; writing the zeros allocates as well.
                Errno::OPNOTSUPP => Ok(()),
                other => Err(io::Error::from(other)),
            })
            .and_then(|()| self.write_zeros(from, size, progress))
            .and_then(|()| Ok(rustix::fs::fsync(self.file.file())?));
        match grown {
            Ok(()) => {
                self.size = self.size.max(size);
                Ok(())
            }
            Err(error) => {
                // Give the space back: a full file system hurts everybody.
                let _ = rustix::fs::ftruncate(self.file.file(), old);
                Err(error)
            }
        }
    }

    fn write(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize) {
        self.file.write(token, offset, buffer, len, PIECE_BYTES);
    }

    fn read(&mut self, token: Token, offset: u64, buffer: AlignedBuffer, len: usize) {
        self.file.read(token, offset, buffer, len, PIECE_BYTES);
    }

    fn flush(&mut self, token: Token) {
        self.file.sync_data(token);
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Completion>) -> io::Result<()> {
        let wait = match wait {
            Wait::No => None,
            Wait::One => Some(None),
            Wait::AtMost(time) => Some(Some(time)),
        };
        let mut completed = std::mem::take(&mut self.completed);
        let outcome = self.file.reap(wait, &mut completed);
        done.extend(completed.drain(..).map(|Completed { token, buffer, result }| Completion {
            token,
            buffer,
            result,
        }));
        self.completed = completed;
        outcome
    }

    fn in_flight(&self) -> usize {
        self.file.in_flight()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.ring_fd())
    }
}

impl Store<UringDisk> {
    /// Makes a store in `directory`, which is made if it does not exist. The file has its name only
    /// once it is whole; on an error it is removed.
    pub fn create_in(directory: &Path, options: &mut CreateOptions) -> Result<Self, FileError> {
        let owned = || directory.to_owned();
        match std::fs::create_dir_all(directory) {
            Ok(()) => {}
            Err(error) => return Err(io_error(directory, "make the directory", error)),
        }
        if store_file(directory).symlink_metadata().is_ok() {
            return Err(FileError::Exists { directory: owned() });
        }
        let path = unfinished_file(directory);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let disk = UringDisk::open_file(directory, &path, flags, Lock::Exclusive)?;
        let made = rustix::fs::ftruncate(disk.file.file(), 0)
            .map_err(|errno| io_error(directory, "empty the new store", errno.into()))
            .and_then(|()| {
                Store::create(UringDisk { size: 0, ..disk }, options)
                    .map_err(|source| FileError::Create { source })
            })
            .and_then(|store| {
                publish(directory, &path)
                    .map_err(|source| io_error(directory, "name the new store", source))
                    .map(|()| store)
            });
        if made.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        made
    }
}

/// Gives the file its name, durably, unless one of that name exists.
fn publish(directory: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags};
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(CWD, path, CWD, store_file(directory), flags) {
        // Not every file system can; the lock on the unfinished file keeps others out.
        Err(Errno::INVAL) => std::fs::rename(path, store_file(directory))?,
        other => other?,
    }
    std::fs::File::open(directory)?.sync_all()
}

fn io_error(directory: &Path, what: &'static str, source: io::Error) -> FileError {
    let directory = directory.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => FileError::NoPermission { directory },
        io::ErrorKind::ReadOnlyFilesystem => FileError::ReadOnlyFileSystem { directory },
        io::ErrorKind::AlreadyExists => FileError::Exists { directory },
        _ => FileError::Io { directory, what, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The story: whoever makes a store opens the unfinished file, then locks it. Another maker could
    /// finish in between, name the file, end, and so give up its lock: the second one then emptied a
    /// store that was in use already.
    #[test]
    fn a_file_that_was_renamed_before_its_lock_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = unfinished_file(directory.path());
        std::fs::write(&path, b"unfinished").unwrap();
        let opened: OwnedFd = std::fs::File::open(&path).unwrap().into();
        assert!(is_named(&opened, &path));
        publish(directory.path(), &path).unwrap();
        assert!(!is_named(&opened, &path));
        std::fs::write(&path, b"the next one").unwrap();
        assert!(!is_named(&opened, &path));
    }
}
