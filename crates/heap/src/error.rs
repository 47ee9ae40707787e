//! Why the heap refuses: the cause, and what to do.
//!
//! After any of these the heap is as it was before the call.

use std::fmt;

use wattkeep_persist::Refused;

/// Why a heap cannot be opened, or a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapError {
    /// The space refused a load or a store.
    Space(Refused),
    /// The space has no room for a heap.
    TooSmall {
        /// What there is.
        bytes: u64,
        /// What is needed at least.
        least: u64,
    },
    /// Larger than what a record of the log can name.
    SpaceTooLarge {
        /// What there is.
        bytes: u64,
        /// What a heap can use.
        most: u64,
    },
    /// An option makes no sense.
    Options(&'static str),
    /// There is a heap already.
    Exists,
    /// Another open heap has the space.
    InUse,
    /// The system gives no thread to read the log.
    NoThread {
        /// What it says.
        why: String,
    },
    /// The system no longer lets a second thread know when the first one at this heap is not amid a call.
    NoBarrier {
        /// What it says.
        why: String,
    },
    /// There is no heap here.
    NotAHeap,
    /// A later version of this program wrote it.
    NewerVersion {
        /// The version of the heap.
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// The space is shorter than the heap in it.
    Truncated {
        /// Bytes at create.
        created: u64,
        /// Bytes now.
        now: u64,
    },
    /// Bytes of the heap's own are not what it wrote.
    Damaged {
        /// Which.
        what: &'static str,
        /// Where they lie.
        at: u64,
    },
    /// No room for so many bytes.
    OutOfSpace {
        /// What was wanted.
        bytes: u64,
    },
    /// More than an object can have.
    TooLarge {
        /// What was wanted.
        bytes: u64,
        /// What an object can have.
        most: u64,
    },
    /// An alignment that is no power of two, or too large.
    Alignment {
        /// What was wanted.
        align: u64,
    },
    /// It was freed before, or never given out.
    DoubleFree {
        /// The offset.
        at: u64,
    },
    /// The offset is not that of an object of this heap.
    Foreign {
        /// The offset.
        at: u64,
    },
    /// The object belongs to another owner: a transaction, or volatile capacity.
    WrongOwner {
        /// The offset.
        at: u64,
        /// Whose it is.
        owner: &'static str,
    },
    /// The guard word behind an object was overwritten.
    Overrun {
        /// The object.
        at: u64,
    },
    /// A root's name is empty or too long.
    RootName {
        /// Bytes of the name.
        bytes: usize,
        /// What it can have.
        most: usize,
    },
    /// All places for roots are taken.
    RootsFull {
        /// How many there are.
        slots: usize,
    },
    /// There is no such root.
    RootMissing {
        /// Its name.
        name: String,
    },
    /// The root is there already.
    RootTaken {
        /// Its name.
        name: String,
    },
    /// The root was made for something else.
    RootMismatch {
        /// Its name.
        name: String,
        /// Size and type tag, as recorded.
        recorded: (u64, u64),
        /// Size and type tag, as asked for.
        wanted: (u64, u64),
    },
    /// A tracer cannot follow a root, so what is unreachable cannot be told.
    Untraced {
        /// The root.
        root: String,
        /// What it could not follow.
        why: String,
    },
    /// The log of the heap's transactions may still store to what was to be taken away, and cannot be emptied.
    Replayed {
        /// Why not.
        why: String,
    },
    /// A lane or transaction id out of range.
    Transaction {
        /// The lane.
        lane: u32,
        /// The transaction.
        tid: u64,
    },
    /// A store for a group failed halfway: the lane takes no more.
    LanePoisoned {
        /// The lane.
        lane: u32,
    },
}

/// What an allocation or a free comes to, in two registers: the error is large, and copying room for it was
/// half of the time that both take.
pub(crate) type Quick<T> = Result<T, Box<HeapError>>;

impl From<Box<HeapError>> for HeapError {
    fn from(boxed: Box<HeapError>) -> Self {
        *boxed
    }
}

impl From<Refused> for Box<HeapError> {
    #[cold]
    fn from(refused: Refused) -> Self {
        Self::new(HeapError::Space(refused))
    }
}

impl From<Refused> for HeapError {
    fn from(refused: Refused) -> Self {
        Self::Space(refused)
    }
}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space(refused) => refused.fmt(f),
            Self::TooSmall { bytes, least } => {
                write!(f, "a heap needs {least} bytes, the space has {bytes}: make the region larger")
            }
            Self::SpaceTooLarge { bytes, most } => {
                write!(f, "a heap uses {most} bytes at most, the space has {bytes}: use several regions")
            }
            Self::Options(what) => write!(f, "options of the heap: {what}"),
            Self::Exists => f.write_str("the space holds a heap already: open it"),
            Self::InUse => {
                f.write_str("the heap in this space is open already: share that one, or drop it first")
            }
            Self::NoThread { why } => write!(f, "no thread to open the heap with: {why}; see 'ulimit -u'"),
            Self::NoBarrier { why } => write!(
                f,
                "no second thread can come to the heap now: {why}; let a filter of system calls pass membarrier(2)"
            ),
            Self::NotAHeap => f.write_str("the space holds no heap: create one"),
            Self::NewerVersion { found, known } => {
                write!(f, "the heap has version {found}, this program knows {known}: use a newer one")
            }
            Self::Truncated { created, now } => {
                write!(f, "the heap was made in {created} bytes, the space has {now}: open all of the region")
            }
            Self::Damaged { what, at } => write!(
                f,
                "{what} at offset {at:#x} is damaged: restore a copy, then run 'wattkeep check' on it"
            ),
            Self::OutOfSpace { bytes } => {
                write!(f, "no room for {bytes} bytes: free something, or grow the heap")
            }
            Self::TooLarge { bytes, most } => {
                write!(f, "an object of {bytes} bytes is wanted, {most} are the most: split it")
            }
            Self::Alignment { align } => {
                write!(f, "alignment {align} is no power of two up to 1 GiB: choose one")
            }
            Self::DoubleFree { at } => write!(f, "the object at {at:#x} is not allocated: freed twice?"),
            Self::Foreign { at } => write!(f, "offset {at:#x} is not that of an object of this heap"),
            Self::WrongOwner { at, owner } => write!(f, "the object at {at:#x} belongs to {owner}"),
            Self::Overrun { at } => {
                write!(f, "the guard word behind the object at {at:#x} was overwritten: find who did")
            }
            Self::RootName { bytes, most } => {
                write!(f, "a root's name has 1 to {most} bytes, not {bytes}: choose another")
            }
            Self::RootsFull { slots } => write!(f, "all {slots} roots are taken: remove one"),
            Self::RootMissing { name } => write!(f, "there is no root '{name}': create it"),
            Self::RootTaken { name } => write!(f, "the root '{name}' is there already: open it"),
            Self::RootMismatch { name, recorded, wanted } => write!(
                f,
                "the root '{name}' was made with size {} and type {:#x}, and is asked for with {} and {:#x}",
                recorded.0, recorded.1, wanted.0, wanted.1
            ),
            Self::Untraced { root, why } => {
                write!(f, "the root '{root}' cannot be followed: {why}; bring a tracer that knows it")
            }
            Self::Replayed { why } => write!(
                f,
                "the log of the heap's transactions may still store to that memory: {why}; open its manager first"
            ),
            Self::Transaction { lane, tid } => {
                write!(f, "there is no lane {lane}, or no transaction {tid}: both have limits")
            }
            Self::LanePoisoned { lane } => {
                write!(f, "a store for lane {lane} failed: open the heap again")
            }
        }
    }
}

impl std::error::Error for HeapError {}
