//! The transactions of one heap: opening, which recovers; beginning and ending.
//!
//! Invariants: one manager a heap; TIDs only rise, over all lanes and over restarts; a commit that failed
//! behind its point of no return poisons the manager, for DRAM then knows less than the log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wattkeep_heap::{Heap, LANES};
use wattkeep_persist::{LINE, Space, bytemuck};

use crate::error::TxError;
use crate::layout::{Layout, Most, Part};
use crate::logged::Logged;
use crate::open_log::{OpenLog, set_floor};
use crate::options::{Logging, Options};
use crate::record::{Header, MAGIC, Mark, VERSION};
use crate::recover::{self, Log, Recovered};
use crate::tx::Tx;
use crate::work::{self, Work};

/// The transactions of a heap. Share it by reference, or in an `Arc`.
pub struct Manager {
    pub(crate) heap: Arc<Heap>,
    pub(crate) space: Arc<Space>,
    pub(crate) options: Options,
    pub(crate) log: Arc<OpenLog>,
    /// What one transaction may log.
    pub(crate) most: Most,
    recovered: Recovered,
    claim: Claim,
}

/// Where the log says how it is used: behind the floor, in the same line.
fn logging_at(layout: &Layout) -> usize {
    layout.floor_at() + 8
}

impl Manager {
    /// Finds the log of the heap, or makes it; applies or rolls back what a cut interrupted. Nothing else
    /// may use the heap before.
    ///
    /// # Errors
    /// The log is not ours, is newer, or is damaged; the heap has a manager already; the heap or the space
    /// refuses.
    pub fn open(heap: Arc<Heap>, options: &Options) -> Result<Self, TxError> {
        let space = Arc::clone(heap.space());
        let claim = Claim::of(&space)?;
        let layout = Layout::of(&heap.log_area(), LANES).map_err(|why| TxError::NotALog { why })?;
        find_or_make(&space, &layout)?;
        let floor = Log::read_floor(&space, &layout)?;
        let log = Log { space: &space, heap: &heap, layout: &layout, floor };
        let (recovered, last) = recover_as_it_was(&log, options.logging)?;
        for lane in 0..layout.lanes {
            heap.retire(lane, last)?;
        }
        heap.settle()?;
        let most = layout.lane(0).most(options.logging);
        let log = Arc::new(OpenLog::new(&heap, layout, last));
        let emptied_by: Weak<OpenLog> = Arc::downgrade(&log);
        heap.emptied_by(emptied_by);
        Ok(Self { log, most, options: options.clone(), recovered, heap, space, claim })
    }

    /// Whether a manager ever made its log in this heap, whatever became of it.
    ///
    /// # Errors
    /// The space refuses a load.
    pub fn has_log(heap: &Heap) -> Result<bool, TxError> {
        let area = heap.log_area();
        Ok(!area.is_empty() && heap.space().load(area.start as usize)? != 0)
    }

    /// The heap.
    pub fn heap(&self) -> &Arc<Heap> {
        &self.heap
    }

    /// How it logs.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What opening found.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// What was logged since it was opened, by transactions that have ended.
    pub fn logged(&self) -> Logged {
        self.log.pool.logged()
    }

    /// Runs `body` in a transaction, and commits what it did. If it answers with an error, or panics,
    /// nothing of it remains. Inside of a transaction of the same thread it becomes part of that one, and
    /// its error is the end of both.
    ///
    /// # Errors
    /// That of `body`, or why the transaction cannot be committed.
    #[inline]
    pub fn run<'a, R, E: From<TxError>>(
        &'a self,
        body: impl FnOnce(&mut Tx<'a>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut tx = self.begin()?;
        let answer = body(&mut tx)?;
        tx.commit()?;
        Ok(answer)
    }

    /// Begins a transaction, which belongs to this thread; or joins the thread's open one.
    ///
    /// # Errors
    /// The manager is poisoned.
    #[inline]
    pub fn begin(&self) -> Result<Tx<'_>, TxError> {
        self.log.check_poison()?;
        Ok(Tx::new(self, work::begin(self.claim.id)))
    }

    /// An error if the log has no room for one object more in the transaction's list: it can only be aborted.
    #[inline]
    pub(crate) fn check_list(&self, work: &mut Work) -> Result<(), TxError> {
        if work.listed() < self.most.listed {
            return Ok(());
        }
        work.doomed = true;
        Err(self.too_large(Part::Lists, (work.listed() + 1) * size_of::<u64>()))
    }

    /// A transaction needs so many bytes of a part, and no lane has them.
    #[cold]
    pub(crate) fn too_large(&self, part: Part, needed: usize) -> TxError {
        let logging = self.options.logging;
        TxError::TooLarge {
            part: part.name(),
            needed,
            room: self.log.layout.lane(0).room_of_one(part, logging),
            log_area_bytes: self.log.layout.area_bytes_for(part, needed, logging),
        }
    }
}

impl Drop for Manager {
    /// What it committed is not to be repeated over what is done without it. Should that fail, the heap takes
    /// nothing away before the next manager.
    fn drop(&mut self) {
        if self.options.logging == Logging::Redo {
            let _ = self.log.truncate();
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Manager({:?}, {} lanes, last TID {})",
            self.options.logging,
            self.log.pool.len(),
            self.log.last_tid()
        )
    }
}

/// Checks the header, or writes it into an empty area.
fn find_or_make(space: &Space, layout: &Layout) -> Result<(), TxError> {
    let header: Header = space.read(layout.at)?;
    let expected = Header::new(layout.lanes, layout.lane_bytes as u64);
    match header.magic {
        0 => {
            // Only a header that is there as a whole has its first word.
            let bytes = bytemuck::bytes_of(&expected);
            space.write_bytes(layout.at + 8, &bytes[8..])?;
            space.persist(layout.at, LINE)?;
            space.store(layout.at, MAGIC)?;
            Ok(space.persist(layout.at, LINE)?)
        }
        // Before the check: a later version may lie differently.
        MAGIC if header.version > VERSION => Err(TxError::Newer { version: header.version }),
        MAGIC if !header.is_whole() => {
            Err(TxError::Damaged { at: layout.at, what: "the header of the transaction log".into() })
        }
        MAGIC if header != expected => Err(TxError::NotALog {
            why: format!(
                "the one at {:#x} has {} lanes of {} bytes, where this program and the heap's first page make {} of \
                 {}; open it with the wattkeep that wrote it, or restore a copy of the whole heap",
                layout.at, header.lanes, header.lane_bytes, layout.lanes, layout.lane_bytes
            ),
        }),
        MAGIC => Ok(()),
        other => Err(TxError::NotALog {
            why: format!(
                "what lies at {:#x} begins with {other:#x}, so it was stored over or lost, and what it had \
                 committed with it; restore a copy of the heap, or save what Heap::open finds",
                layout.at
            ),
        }),
    }
}

/// Recovers by the rule that the log was written by, empties it, and gives it to `next`. The answer is what
/// was done, and the highest TID.
fn recover_as_it_was(log: &Log<'_>, next: Logging) -> Result<(Recovered, u64), TxError> {
    let at = logging_at(log.layout);
    let written = recover::mark_at(log.space, at, "the kind of the log")?;
    let (recovered, mut last) = match written {
        0 => (Recovered::default(), log.floor),
        1 => recover::redo::recover(log)?,
        2 => recover::undo::recover(log)?,
        other => {
            let why = format!(
                "it is of kind {other}, which is neither redo nor undo; open it with the wattkeep that wrote it"
            );
            return Err(TxError::NotALog { why });
        }
    };
    let logging = match next {
        Logging::Redo => 1,
        Logging::Undo => 2,
    };
    if written != logging {
        last = last.max(recover::undo::highest_record(log)?);
    }
    last = last.max(log.published_max()?);
    set_floor(log.space, log.layout.floor_at(), last)?;
    log.space.store(at, Mark::of(logging).word())?;
    log.space.persist(at, 8)?;
    Ok((recovered, last))
}

/// The right to be the manager of a space.
#[derive(Debug)]
struct Claim {
    space: usize,
    id: u64,
}

/// The spaces that have a manager.
static CLAIMED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Claim {
    fn of(space: &Arc<Space>) -> Result<Self, TxError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let space = Arc::as_ptr(space).addr();
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed.contains(&space) {
            return Err(TxError::Managed);
        }
        claimed.push(space);
        Ok(Self { space, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).retain(|space| *space != self.space);
    }
}
