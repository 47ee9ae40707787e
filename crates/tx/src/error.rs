//! Why a transaction cannot be, and what to do about it.

use std::fmt;

use wattkeep_heap::HeapError;
use wattkeep_persist::Refused;

use crate::versions::VersionsError;

/// What went wrong. Unless it says otherwise, the transaction is aborted and the heap is as before it.
#[derive(Debug)]
pub enum TxError {
    /// The heap refused.
    Heap(HeapError),
    /// The space refused a load or a store.
    Space(Refused),
    /// The transaction changes more than a lane's log holds: said by the call that would overflow it. Every
    /// later one answers with [`Self::Doomed`].
    TooLarge {
        /// Which part of the log.
        part: &'static str,
        /// Bytes that the transaction needs of it up to this call, and with it.
        needed: usize,
        /// Bytes that there are.
        room: usize,
        /// `log_area_bytes` of a heap whose log has so many; none has, if the transaction is larger still.
        log_area_bytes: Option<u64>,
    },
    /// What is freed, or was to be changed, is no live object of the heap.
    NotAllocated {
        /// Its offset.
        at: u64,
    },
    /// Freed twice in one transaction.
    FreedTwice {
        /// Its offset.
        at: u64,
    },
    /// The caller gave the transaction up.
    Aborted,
    /// A transaction was to commit in which another one is open: all of it is aborted.
    NotInnermost,
    /// A nested transaction failed, or a call that cannot be undone alone: the transaction can only be aborted.
    Doomed,
    /// The bytes set apart for the log hold something else, or are too few.
    NotALog {
        /// What is wrong with them, and what to do.
        why: String,
    },
    /// The log was written by a newer version.
    Newer {
        /// Its version.
        version: u32,
    },
    /// A committed record does not match its checksum.
    Damaged {
        /// Where, in bytes of the space.
        at: usize,
        /// What lies there.
        what: String,
    },
    /// The heap has a manager already.
    Managed,
    /// The versioned objects refused.
    Versions(VersionsError),
    /// An earlier commit failed half way: what it decided is in the log, not in the heap.
    Poisoned {
        /// How it failed.
        why: String,
    },
}

impl fmt::Display for TxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap(error) => error.fmt(f),
            Self::Space(refused) => refused.fmt(f),
            Self::Versions(error) => error.fmt(f),
            Self::TooLarge { part, needed, room, log_area_bytes } => {
                write!(
                    f,
                    "the transaction needs {needed} bytes of {part} in its log, which has {room}: split it, \
                     store bulk data into memory that it allocates"
                )?;
                match log_area_bytes {
                    Some(bytes) => write!(f, ", or create the heap with log_area_bytes of {bytes} or more"),
                    None => Ok(()),
                }
            }
            Self::NotAllocated { at } => write!(f, "there is no live object at {at:#x}: nothing was changed"),
            Self::FreedTwice { at } => {
                write!(f, "the object at {at:#x} was freed in this transaction already")
            }
            Self::Aborted => f.write_str("the transaction was aborted"),
            Self::NotInnermost => f.write_str(
                "a transaction that was begun inside of this one is open: commit or drop that one first",
            ),
            Self::Doomed => f.write_str(
                "a nested transaction or an earlier call failed, so the transaction can only be aborted: \
                     mend that, and run it again",
            ),
            Self::NotALog { why } => write!(f, "the heap has no log for transactions: {why}"),
            Self::Newer { version } => write!(
                f,
                "the transaction log has format {version}, this program knows {}: use a newer wattkeep",
                crate::record::VERSION
            ),
            Self::Damaged { at, what } => write!(
                f,
                "{what} at {at:#x} is damaged, so committed changes cannot be replayed: restore a copy of the \
                 heap, or save what Heap::open finds without them"
            ),
            Self::Managed => {
                f.write_str("the heap has a transaction manager already: share that one, or drop it first")
            }
            Self::Poisoned { why } => write!(
                f,
                "an earlier commit failed half way ({why}): open the heap again, which completes it"
            ),
        }
    }
}

impl std::error::Error for TxError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Heap(error) => Some(error),
            Self::Space(refused) => Some(refused),
            Self::Versions(error) => Some(error),
            _ => None,
        }
    }
}

impl From<HeapError> for TxError {
    fn from(error: HeapError) -> Self {
        Self::Heap(error)
    }
}

impl From<VersionsError> for TxError {
    fn from(error: VersionsError) -> Self {
        Self::Versions(error)
    }
}

impl From<Refused> for TxError {
    fn from(refused: Refused) -> Self {
        Self::Space(refused)
    }
}
