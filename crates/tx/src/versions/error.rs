//! Why versioned objects cannot be had.

use std::fmt;

use wattkeep_persist::Refused;

use super::layout::Shape;

/// A refusal; the objects are as they were.
#[derive(Clone, Debug, PartialEq)]
pub enum VersionsError {
    /// Not a shape that objects can have.
    Shape {
        /// What is wrong with it.
        why: &'static str,
    },
    /// No objects lie here, or their bytes are damaged.
    Damaged {
        /// Offset of what cannot be believed.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such object.
    NoObject {
        /// Its number.
        object: u64,
        /// How many there are.
        objects: u64,
    },
    /// Bytes of another length than the object's.
    Length {
        /// Their length.
        bytes: usize,
        /// The object's.
        object_bytes: usize,
    },
    /// A threshold outside of 0 to 1, or a bound of no operations.
    Pace {
        /// The threshold.
        threshold: f64,
        /// The bound.
        behind_max: u64,
    },
    /// The space refused.
    Space(Refused),
    /// Persisting failed before: what was committed since is not persistent, and nothing will be.
    Failed(Refused),
    /// A transaction's commit failed half way: whether its writes count is known when they are opened again.
    Undecided,
    /// The system gave no thread.
    Thread(String),
    /// The objects belong to the transactions of a heap.
    NeedsTransactions {
        /// Where they lie.
        at: usize,
    },
    /// Another thread's transaction has the objects, or this thread's has not ended.
    Busy,
    /// The objects are open already.
    AlreadyOpen {
        /// Where they lie.
        at: u64,
    },
    /// The objects were made with another shape.
    OtherShape {
        /// The shape they have.
        found: Shape,
    },
    /// The objects lie in another heap than the transaction's.
    OtherHeap,
    /// The objects were destroyed.
    Destroyed,
    /// There is no number for another epoch.
    UsedUp,
}

impl VersionsError {
    /// The same, as the answer to everything that follows.
    pub(super) fn into_final(self) -> Self {
        match self {
            Self::Space(refused) => Self::Failed(refused),
            error => error,
        }
    }
}

impl fmt::Display for VersionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { why } => write!(f, "versioned objects cannot have this shape: {why}"),
            Self::Damaged { at, why } => {
                write!(f, "the versioned objects are damaged at offset {at:#x}: {why}; restore a checkpoint")
            }
            Self::NoObject { object, objects } => {
                write!(
                    f,
                    "there is no versioned object {object}: they are numbered from 0 to below {objects}"
                )
            }
            Self::Length { bytes, object_bytes } => {
                write!(f, "{bytes} bytes for a versioned object of {object_bytes}: pass all of it")
            }
            Self::Pace { threshold, behind_max } => write!(
                f,
                "a persistence threshold lies above 0 and up to 1, and at least one operation is let ahead: \
                 not {threshold} and {behind_max}"
            ),
            Self::Space(refused) => refused.fmt(f),
            Self::Failed(refused) => {
                write!(f, "persisting failed, so nothing more is accepted: {refused}; open the objects again")
            }
            Self::Undecided => f.write_str(
                "a transaction that wrote the versioned objects failed half way: open the heap and the objects \
                 again",
            ),
            Self::Thread(why) => write!(f, "no thread to persist with: {why}"),
            Self::NeedsTransactions { at } => write!(
                f,
                "the versioned objects at offset {at:#x} belong to the transactions of a heap, whose log has to \
                 be recovered first: open them with 'Versioned::open'"
            ),
            Self::Busy => f.write_str(
                "a transaction that has not ended has the versioned objects: end it first, or let threads that \
                 share them take a lock before they begin",
            ),
            Self::AlreadyOpen { at } => {
                write!(f, "the versioned objects at offset {at:#x} are open already: share that handle")
            }
            Self::OtherShape { found } => write!(
                f,
                "there are {} versioned objects of {} bytes in {} versions: open them as such",
                found.objects, found.object_bytes, found.versions as u8
            ),
            Self::UsedUp => f.write_str("the epochs of the versioned objects are used up: copy them into new ones"),
            Self::OtherHeap => f.write_str("a transaction of one heap cannot change the objects of another"),
            Self::Destroyed => f.write_str("the versioned objects were destroyed, or are about to be"),
        }
    }
}

impl std::error::Error for VersionsError {}

impl From<Refused> for VersionsError {
    fn from(refused: Refused) -> Self {
        Self::Space(refused)
    }
}
