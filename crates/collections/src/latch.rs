//! One writer and many readers of a structure.
//!
//! A transaction that touches a structure owns its latch until it has ended, committed or rolled back: so
//! transactions on one structure follow each other, and see what the earlier one left. Two that wait for
//! each other are told apart: the one that closed the ring gets [`Error::Deadlock`] and aborts.
//!
//! Readers outside of a transaction take no lock. The latch has a sequence number, which is odd while the
//! structure's bytes may be in between: a reader notes it, reads, and reads again if it was odd or is no
//! longer the same. When is it odd?
//!
//! - With an undo log a transaction stores in place, so its changes lie open before it has committed. The
//!   sequence is odd from the first change to the end: a reader never sees what may yet be rolled back.
//! - With a redo log the bytes change only after the commit, but they still change one after the other. The
//!   sequence is odd while they do; before, readers go on with what was committed.
//!
//! Both are one rule: the sequence is odd from a transaction's first store in place to its end
//! ([`Partner::before_apply`] tells us when a redo log comes to it).
//!
//! Memory that a transaction frees may soon be somebody else's. A reader that still walks there finds
//! nonsense, but the sequence has moved on, so the nonsense is never told.
//!
//! A reader that was disturbed [`ATTEMPTS`] times waits for its turn like a writer, and goes first: a stream
//! of transactions never starves it. Readers that share a turn hold up writers for one read each, and once
//! the sequence is even new readers do not need a turn: so they never starve writers either.
//!
//! Latches live in DRAM, one for each structure that is open, whatever number of handles it has.

use std::collections::HashMap;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use wattkeep_heap::Heap;
use wattkeep_persist::{Space, mutant};
use wattkeep_tx::{Partner, Tx, this_thread};

use crate::error::Error;
use crate::view::View;

/// How often a reader is disturbed before it waits for its turn.
const ATTEMPTS: u32 = 64;

/// So many of them are made in a row; behind them the reader gives up its processor each time.
const SPINS: u32 = 16;

/// No transaction has this id.
const NOBODY: u64 = 0;

/// Which structure: the heap's space, by its address, and the offset in it.
type Key = (usize, u64);

/// All latches, and who waits for which.
#[derive(Default)]
struct Registry {
    latches: HashMap<Key, Weak<Latch>>,
    /// Threads, by number.
    waits: HashMap<u64, Key>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

/// Of [`Latch::turn`]: a transaction has it.
const WRITES: u32 = 1;

/// Of [`Latch::turn`]: others may wait for it, or read at rest. Who sees this looks at [`Turns`].
const CROWDED: u32 = 2;

/// Who has a turn beside a transaction, and who waits for one.
#[derive(Default)]
struct Turns {
    reads: u32,
    /// Readers that wait: they go before writers.
    readers: u32,
    writers: u32,
}

impl Turns {
    /// Nobody is there to be told.
    fn is_quiet(&self) -> bool {
        self.reads + self.readers + self.writers == 0
    }
}

/// The latch of one structure.
pub(crate) struct Latch {
    key: Key,
    /// Keeps the address in `key` from being another space's.
    heap: Arc<Heap>,
    sequence: AtomicU64,
    /// Transaction that owns it.
    owner: AtomicU64,
    /// Transaction that changes it.
    changer: AtomicU64,
    /// Thread of the owner, by number.
    thread: AtomicU64,
    /// Of the structure here: changes when one is made, destroyed, or was never made.
    tenure: AtomicU64,
    /// Changed by one exchange while [`CROWDED`] is not set, under the lock of `turns` otherwise.
    turn: AtomicU32,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// What lies there as long as the sequence is `before`.
pub(crate) struct Committed<'a> {
    latch: &'a Latch,
    before: u64,
}

/// A lock whose data is whole at every instant, so that a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Latch {
    /// The latch of the structure at `at`.
    pub(crate) fn of(heap: &Arc<Heap>, at: u64) -> Arc<Self> {
        let key = (Arc::as_ptr(heap.space()) as usize, at);
        let mut registry = lock(&REGISTRY);
        if let Some(latch) = registry.latches.get(&key).and_then(Weak::upgrade) {
            return latch;
        }
        let latch = Arc::new(Self {
            key,
            heap: Arc::clone(heap),
            sequence: AtomicU64::new(0),
            owner: AtomicU64::new(NOBODY),
            changer: AtomicU64::new(NOBODY),
            thread: AtomicU64::new(0),
            tenure: AtomicU64::new(0),
            turn: AtomicU32::new(0),
            turns: Mutex::default(),
            turned: Condvar::new(),
        });
        registry.latches.insert(key, Arc::downgrade(&latch));
        latch
    }

    /// Tells the structure that is here from those that were here before, for whoever has a handle still.
    #[inline]
    pub(crate) fn tenure(&self) -> u64 {
        self.tenure.load(Ordering::Relaxed)
    }

    /// Another structure is here from now on. For the owner.
    pub(crate) fn next_tenure(&self) -> u64 {
        self.tenure.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What was here is gone, if nothing is allocated here. For the owner: nobody makes a structure here before
    /// its turn is over.
    pub(crate) fn end_if_gone(&self) {
        if !self.heap.is_allocated(self.key.1) {
            self.next_tenure();
        }
    }

    /// Changes that are over, aborted ones too. Whoever owns the latch, and finds as many as before, knows that nobody
    /// else changed bytes or the tenure in between: who does counts up before it gives its turn back.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }

    /// Makes `tx` the owner until it ends: it alone reads and changes the structure.
    #[inline]
    pub(crate) fn own(self: &Arc<Self>, tx: &mut Tx<'_>) -> Result<(), Error> {
        let same = Arc::ptr_eq(tx.heap().space(), self.heap.space());
        assert!(same, "a transaction of one heap, a structure of another");
        if self.owner.load(Ordering::Relaxed) == tx.id() {
            return Ok(());
        }
        self.take_turn()?;
        self.owner.store(tx.id(), Ordering::Relaxed);
        self.thread.store(this_thread(), Ordering::Relaxed);
        tx.tell(Arc::clone(self) as Arc<dyn Partner>);
        Ok(())
    }

    /// [`Self::own`]; what readers see from now on does not count until `tx` has ended.
    #[inline]
    pub(crate) fn change(self: &Arc<Self>, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.own(tx)?;
        if self.changer.load(Ordering::Relaxed) != tx.id() {
            self.changer.store(tx.id(), Ordering::Relaxed);
            if tx.in_place() {
                self.open_up();
            }
        }
        Ok(())
    }

    /// The bytes are about to be changed in place.
    fn open_up(&self) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        if sequence.is_multiple_of(2) {
            self.sequence.store(sequence + 1, Ordering::Relaxed);
            // Whoever sees a store behind this fence also sees the odd sequence before it.
            fence(Ordering::Release);
        }
    }

    /// Reads what the last transaction left. `read` may be called several times, and may find nonsense in
    /// all but the last: it must end, whatever it finds.
    pub(crate) fn read<R>(&self, read: impl Fn(&Committed<'_>) -> Result<R, Error>) -> Result<R, Error> {
        for attempt in 0..ATTEMPTS {
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = read(&Committed { latch: self, before });
                if self.is_still(before) {
                    return found;
                }
            } else if self.thread.load(Ordering::Relaxed) == this_thread() {
                return Err(Error::OwnTransaction);
            }
            if attempt < SPINS { spin_loop() } else { thread::yield_now() }
        }
        self.read_at_rest(read)
    }

    /// As [`Self::read`], but no transaction begins to change the structure meanwhile.
    pub(crate) fn read_at_rest<R>(
        &self,
        read: impl FnOnce(&Committed<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut turns = self.crowd();
        if self.is_written() {
            if self.thread.load(Ordering::Relaxed) == this_thread() {
                return Err(Error::OwnTransaction);
            }
            drop(turns);
            let waiting = self.begin_to_wait()?;
            turns = self.crowd();
            turns.readers += 1;
            while self.is_written() {
                turns = self.turned.wait(turns).unwrap_or_else(PoisonError::into_inner);
            }
            turns.readers -= 1;
            drop(waiting);
        }
        turns.reads += 1;
        drop(turns);
        let _turn = ReadTurn(self);
        read(&Committed { latch: self, before: self.sequence.load(Ordering::Acquire) })
    }

    fn is_still(&self, before: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == before || mutant::planted("reader-looks-once")
    }

    /// From here on a turn is taken and given back under the lock that this returns.
    fn crowd(&self) -> MutexGuard<'_, Turns> {
        let turns = lock(&self.turns);
        self.turn.fetch_or(CROWDED, Ordering::Acquire);
        turns
    }

    /// A transaction has a turn. Under the lock of a crowd.
    fn is_written(&self) -> bool {
        self.turn.load(Ordering::Relaxed) & WRITES != 0
    }

    /// Says who has a turn now. Under the lock of a crowd, which is over if nobody is left of it.
    fn settle(&self, turns: &Turns, writes: u32) {
        let crowded = if turns.is_quiet() { 0 } else { CROWDED };
        self.turn.store(writes | crowded, Ordering::Release);
    }

    #[inline]
    fn take_turn(&self) -> Result<(), Error> {
        match self.turn.compare_exchange(0, WRITES, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => self.wait_for_turn(),
        }
    }

    #[cold]
    fn wait_for_turn(&self) -> Result<(), Error> {
        let mut turns = self.crowd();
        if self.is_written() || turns.reads + turns.readers > 0 {
            drop(turns);
            let waiting = self.begin_to_wait()?;
            turns = self.crowd();
            turns.writers += 1;
            while self.is_written() || turns.reads + turns.readers > 0 {
                turns = self.turned.wait(turns).unwrap_or_else(PoisonError::into_inner);
            }
            turns.writers -= 1;
            drop(waiting);
        }
        self.settle(&turns, WRITES);
        Ok(())
    }

    #[inline]
    fn give_turn_back(&self) {
        if self.turn.compare_exchange(WRITES, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.give_turn_to_others();
        }
    }

    #[cold]
    fn give_turn_to_others(&self) {
        let turns = self.crowd();
        self.settle(&turns, 0);
        if turns.readers + turns.writers > 0 {
            self.turned.notify_all();
        }
    }

    /// Notes that this thread waits for the owner, unless the owner waits for this thread, itself or by
    /// others. A ring is always closed by one that begins to wait, so one look then finds them all.
    fn begin_to_wait(&self) -> Result<Waiting, Error> {
        let this = this_thread();
        let mut registry = lock(&REGISTRY);
        let mut owner = self.thread.load(Ordering::Relaxed);
        for _ in 0..=registry.waits.len() {
            if owner == this {
                return Err(Error::Deadlock);
            }
            let Some(waits_for) = registry.waits.get(&owner) else { break };
            // Whoever waits for a latch keeps it: this is never the last handle, whose drop would need the
            // registry, too.
            let Some(latch) = registry.latches.get(waits_for).and_then(Weak::upgrade) else { break };
            owner = latch.thread.load(Ordering::Relaxed);
        }
        registry.waits.insert(this, self.key);
        Ok(Waiting(this))
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        let mut registry = lock(&REGISTRY);
        if registry.latches.get(&self.key).is_some_and(|latch| latch.strong_count() == 0) {
            registry.latches.remove(&self.key);
        }
    }
}

/// A thread that is noted as waiting, until this is dropped.
struct Waiting(u64);

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&REGISTRY).waits.remove(&self.0);
    }
}

/// One of the reads that share a turn.
struct ReadTurn<'a>(&'a Latch);

impl Drop for ReadTurn<'_> {
    fn drop(&mut self) {
        let mut turns = self.0.crowd();
        turns.reads -= 1;
        self.0.settle(&turns, 0);
        if turns.reads == 0 && turns.writers > 0 {
            self.0.turned.notify_all();
        }
    }
}

impl Partner for Latch {
    fn before_apply(&self) {
        if self.changer.load(Ordering::Relaxed) != NOBODY {
            self.open_up();
        }
    }

    fn ended(&self) {
        if self.changer.load(Ordering::Relaxed) != NOBODY {
            // It was odd if stores came to their place. Those to new memory did all the same.
            let sequence = self.sequence.load(Ordering::Relaxed);
            self.sequence.store((sequence | 1) + 1, Ordering::Release);
        }
        self.owner.store(NOBODY, Ordering::Relaxed);
        self.changer.store(NOBODY, Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
        self.give_turn_back();
    }
}

impl Committed<'_> {
    #[inline]
    fn space(&self) -> &Space {
        self.latch.heap.space()
    }
}

impl View for Committed<'_> {
    #[inline(always)]
    fn bytes(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        View::bytes(self.space(), at, into)
    }

    #[inline]
    fn holds(&self, at: u64, bytes: &[u8]) -> Result<bool, Error> {
        View::holds(self.space(), at, bytes)
    }

    #[inline]
    fn word(&self, at: u64) -> Result<u64, Error> {
        View::word(self.space(), at)
    }

    fn bound(&self) -> u64 {
        self.space().len() as u64
    }

    #[inline]
    fn soon(&self, at: u64, len: usize) {
        View::soon(self.space(), at, len);
    }

    fn still(&self) -> Result<(), Error> {
        if self.latch.is_still(self.before) {
            return Ok(());
        }
        // Never seen by a caller: the read is repeated.
        Err(Error::Damaged { at: self.latch.key.1, what: "it changes while it is read" })
    }
}
