//! What can go wrong with a data structure, and what to do about it.

use std::fmt;

use wattkeep_heap::HeapError;
use wattkeep_persist::Refused;
use wattkeep_tx::TxError;

use crate::kind::{Kind, OtherFormat};

/// Why an operation on a data structure failed. Inside a transaction: hand it on, so that it aborts. A change
/// that fails half way leaves it no choice: the transaction can only be aborted.
#[derive(Debug)]
pub enum Error {
    /// The transaction failed.
    Tx(TxError),
    /// The heap failed.
    Heap(HeapError),
    /// The bytes cannot be had.
    Space(Refused),
    /// What lies there is something else.
    WrongKind {
        /// Where, for people: a root, or an offset.
        place: String,
        /// What the program took it for.
        wanted: Kind,
        /// The tag that lies there.
        found: u64,
    },
    /// There is no such root.
    NoRoot {
        /// Its name.
        root: String,
    },
    /// It was destroyed, or the transaction that made it was aborted.
    Gone {
        /// What it was, or would have been.
        kind: Kind,
    },
    /// The bytes contradict each other.
    Damaged {
        /// Offset of the part that does.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Two transactions wait for each other's data structures: this one must abort.
    Deadlock,
    /// The same thread changes this structure in a transaction that has not ended.
    OwnTransaction,
    /// One change of such a structure may log more than the heap's log has room for: it is not made.
    LogTooSmall {
        /// What it would have been.
        kind: Kind,
        /// Bytes that a change may log.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// A key, value, string or index that the structure cannot hold.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        size: u64,
        /// How large it may be.
        most: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tx(why) => why.fmt(f),
            Self::Heap(why) => why.fmt(f),
            Self::Space(why) => why.fmt(f),
            Self::WrongKind { place, wanted, found } => match Kind::of_tag(*found) {
                Some(found) => write!(f, "{place} holds {found}, not {wanted}: open it as what it is"),
                None => match OtherFormat::of_tag(*found) {
                    Some(other) => write!(f, "{place} holds {other}"),
                    None => write!(
                        f,
                        "{place} holds nothing that this version knows (tag {found:#018x}), where {wanted} was \
                         expected: run 'wattkeep check'"
                    ),
                },
            },
            Self::NoRoot { root } => write!(f, "there is no root '{root}': create it in a transaction"),
            Self::Gone { kind } => write!(
                f,
                "{kind} that is gone: it was destroyed, or the transaction that made it was aborted; drop the \
                 handle, create another one"
            ),
            Self::Damaged { at, what } => {
                write!(f, "damaged at offset {at:#x}: {what}; run 'wattkeep check'")
            }
            Self::Deadlock => f.write_str(
                "two transactions wait for each other's data structures: run this one again, and change \
                 structures in the same order everywhere",
            ),
            Self::OwnTransaction => f.write_str(
                "this thread changes the structure in a transaction that has not ended: read it through the \
                 transaction",
            ),
            Self::LogTooSmall { kind, needed, room } => write!(
                f,
                "one change of {kind} may log {needed} bytes, and the heap's log has room for {room}: keep what is \
                 so large in memory of its own and a Ptr to it here, or create the heap with a larger \
                 log_area_bytes"
            ),
            Self::TooLarge { what, size, most } => write!(f, "{what} of {size}, where {most} is the most"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tx(why) => Some(why),
            Self::Heap(why) => Some(why),
            Self::Space(why) => Some(why),
            _ => None,
        }
    }
}

impl From<TxError> for Error {
    fn from(why: TxError) -> Self {
        Self::Tx(why)
    }
}

impl From<HeapError> for Error {
    fn from(why: HeapError) -> Self {
        Self::Heap(why)
    }
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Self {
        Self::Space(why)
    }
}
