//! Where a structure lies: its heap, its latch, the offset of its header.

use std::fmt;
use std::mem;
use std::sync::Arc;

use bytemuck::bytes_of;
use wattkeep_heap::Heap;
use wattkeep_persist::{Pod, Ptr};
use wattkeep_tx::Tx;

use crate::error::Error;
use crate::kind::Kind;
use crate::latch::{Committed, Latch};
use crate::view::View;

/// A structure's place. What every handle is made of.
#[derive(Clone)]
pub struct Place {
    latch: Arc<Latch>,
    at: u64,
    kind: Kind,
    /// Which of those that lay there while the latch did. A later one in the same place has another tenure. And
    /// new memory is not logged, so an aborted transaction leaves a header there that looks like one.
    tenure: u64,
}

/// Looks, when a transaction has ended, whether what it made or destroyed is there.
struct Ended(Arc<Latch>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end_if_gone();
    }
}

impl Place {
    /// The place of a structure that `tx` has just made.
    pub(crate) fn made(tx: &mut Tx<'_>, at: u64, kind: Kind) -> Result<Self, Error> {
        let latch = Latch::of(tx.heap(), at);
        // Behind whoever destroyed what was there before.
        latch.change(tx)?;
        tx.hold(Ended(Arc::clone(&latch)));
        Ok(Self { tenure: latch.next_tenure(), latch, at, kind })
    }

    /// The place of a structure of `kind` at `at`, which is called `name` in errors.
    pub(crate) fn open(heap: &Arc<Heap>, at: u64, kind: Kind, name: &str) -> Result<Self, Error> {
        let latch = Latch::of(heap, at);
        let place = Self { tenure: latch.tenure(), latch, at, kind };
        let found = place.latch.read(|view| view.word(at))?;
        if found == kind.tag() {
            return Ok(place);
        }
        Err(Error::WrongKind { place: name.to_owned(), wanted: kind, found })
    }

    /// The same as [`Self::open`], within a transaction that may have made it.
    pub(crate) fn open_in(tx: &mut Tx<'_>, at: u64, kind: Kind) -> Result<Self, Error> {
        let latch = Latch::of(tx.heap(), at);
        latch.own(tx)?;
        let place = Self { tenure: latch.tenure(), latch, at, kind };
        place.header::<u64>(tx)?;
        Ok(place)
    }

    /// Offset of the header.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The header, whose first word is the tag: a structure that is gone is an error.
    #[inline(always)]
    pub(crate) fn header<H: Pod>(&self, view: &impl View) -> Result<H, Error> {
        let header: H = view.value(self.at)?;
        let found = bytes_of(&header).first_chunk().map_or(0, |tag| u64::from_ne_bytes(*tag));
        let is_it = self.latch.tenure() == self.tenure;
        if found == self.kind.tag() && is_it { Ok(header) } else { Err(self.gone(found)) }
    }

    #[cold]
    fn gone(&self, found: u64) -> Error {
        if self.latch.tenure() != self.tenure {
            return Error::Gone { kind: self.kind };
        }
        Error::WrongKind { place: format!("offset {:#x}", self.at), wanted: self.kind, found }
    }

    /// Changes that are over; see [`Latch::changes`].
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.latch.changes()
    }

    /// Reads what was committed last; see [`Latch::read`].
    #[inline]
    pub(crate) fn read<R>(&self, read: impl Fn(&Committed<'_>) -> Result<R, Error>) -> Result<R, Error> {
        self.latch.read(read)
    }

    /// Reads what was committed last, and holds up changes until it is read.
    pub(crate) fn read_at_rest<R>(
        &self,
        read: impl FnOnce(&Committed<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.latch.read_at_rest(read)
    }

    /// `tx` alone reads and changes the structure until it ends.
    #[inline]
    pub(crate) fn own(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.latch.own(tx)
    }

    /// [`Self::own`], and `tx` changes it, as a [`whole`].
    #[inline]
    pub(crate) fn change<'m, R>(
        &self,
        tx: &mut Tx<'m>,
        change: impl FnOnce(&mut Tx<'m>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.latch.change(tx)?;
        whole(tx, change)
    }

    /// Takes the structure's header from the heap; its parts are gone before.
    pub(crate) fn destroy(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        tx.hold(Ended(Arc::clone(&self.latch)));
        tx.write_word(Ptr::at(self.at), 0)?;
        Ok(tx.free(Ptr::<u8>::at(self.at))?)
    }
}

/// A change that has not come to its end: the transaction can only be aborted.
struct HalfMade<'t, 'm>(&'t mut Tx<'m>);

impl Drop for HalfMade<'_, '_> {
    fn drop(&mut self) {
        self.0.doom();
    }
}

/// Makes a change that may fail half way, or panic: what it left must not be committed, so `tx` is doomed then.
/// The one place that knows this, for all structures.
#[inline]
pub(crate) fn whole<'m, R>(
    tx: &mut Tx<'m>,
    change: impl FnOnce(&mut Tx<'m>) -> Result<R, Error>,
) -> Result<R, Error> {
    let half = HalfMade(tx);
    let changed = change(half.0)?;
    mem::forget(half);
    Ok(changed)
}

/// A value of so many bytes is written in place, whatever the log: none is so small that it has no room.
const IN_PLACE_ALWAYS: usize = 128;

/// Whether a value that lies at `at` is not rewritten in place, but replaced by one in new memory, to which stores
/// are not logged: one that would take more than an eighth of what a transaction may log.
#[inline]
pub(crate) fn is_bulk(tx: &Tx<'_>, at: u64, bytes: usize) -> bool {
    bytes > IN_PLACE_ALWAYS && bytes > tx.log_bytes() / 8 && tx.logs(at, bytes)
}

/// Refuses to make a structure of which one change may log so many bytes, if the heap's log has no room for them.
pub(crate) fn fits_log(tx: &Tx<'_>, kind: Kind, needed: usize) -> Result<(), Error> {
    let room = tx.log_bytes();
    if needed <= room { Ok(()) } else { Err(Error::LogTooSmall { kind, needed, room }) }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}", self.kind, self.at)
    }
}
