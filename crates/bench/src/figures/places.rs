//! Where a heap can stand: each persistence domain, with what belongs to it.
//!
//! | place | domain | bytes |
//! |---|---|---|
//! | region | battery | an explicit region: stores are announced, a keeper bounds and saves them |
//! | transparent | battery | a region whose stores are noticed by page faults: what announcing costs |
//! | memory | battery | plain memory, to show what the region costs |
//! | eadr | eADR | plain memory; stores are fenced |
//! | adr | ADR | plain memory; lines are flushed and fenced |
//! | file | file | a mapped file on the SSD; `msync` |
//!
//! Does not measure.

use std::path::PathBuf;
use std::sync::Arc;

use wattkeep::{Store, Tracking};
use wattkeep_heap::{Heap, HeapError, Options};
use wattkeep_persist::{Anonymous, Domain, DomainKind, MappedFile, Space};

use super::kept::Kept;
use super::{Bench, BenchError, UNLIMITED};

/// A place for a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Region,
    Transparent,
    Memory,
    Eadr,
    Adr,
    File,
}

impl Place {
    /// All of them; the first is the one that figures are for.
    pub(super) const ALL: [Self; 6] =
        [Self::Region, Self::Transparent, Self::Memory, Self::Eadr, Self::Adr, Self::File];

    /// What a figure's id ends with.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Region => "",
            Self::Transparent => ".transparent",
            Self::Memory => ".memory",
            Self::Eadr => ".eadr",
            Self::Adr => ".adr",
            Self::File => ".file",
        }
    }

    fn domain(self) -> Domain {
        match self {
            Self::Region | Self::Transparent | Self::Memory => Domain::Battery,
            Self::Eadr => Domain::Eadr,
            Self::Adr => Domain::adr(),
            Self::File => DomainKind::File.domain(),
        }
    }

    /// Makes empty bytes there, as many as the region of the benchmark has. `name` keeps the files of two
    /// benchmarks apart.
    pub(super) fn make(self, bench: &Bench, name: &str) -> Result<Stand, BenchError> {
        self.make_with(bench, name, |space| space)
    }

    /// The same, with a space that counts flushes.
    pub(super) fn make_counting(self, bench: &Bench, name: &str) -> Result<Stand, BenchError> {
        self.make_with(bench, name, Space::counting)
    }

    fn make_with(
        self,
        bench: &Bench,
        name: &str,
        set_up: impl FnOnce(Space) -> Space,
    ) -> Result<Stand, BenchError> {
        let bytes = bench.region_bytes;
        let name = format!("{name}{}", self.suffix());
        let files = bench.scratch.path().join(&name);
        let kept = |tracking| {
            let kept = Kept::open(bench, &name, UNLIMITED, tracking, bytes)?;
            Ok::<_, BenchError>((kept.region.into_space(self.domain()), Some(kept.store)))
        };
        let (space, store) = match self {
            Self::Region => kept(Tracking::Explicit)?,
            Self::Transparent => kept(Tracking::Transparent)?,
            Self::File => {
                let file = MappedFile::open(&files, bytes as usize)
                    .map_err(BenchError::while_("mapping a file for the heap"))?;
                (Space::new(Arc::new(file), self.domain()), None)
            }
            _ => (Space::new(Arc::new(Anonymous::new(bytes as usize)), self.domain()), None),
        };
        Ok(Stand { space: Arc::new(set_up(space)), store, files })
    }
}

/// Bytes in a place.
pub(super) struct Stand {
    // Before the store: the region in it is closed first.
    pub(super) space: Arc<Space>,
    store: Option<Store>,
    /// What lies on the SSD: gone when the place is closed, for a region takes twice its bytes there.
    files: PathBuf,
}

/// Transaction logs of a quick run: its regions are small.
const QUICK_LOG_AREA_BYTES: u64 = 1 << 20;

impl Stand {
    /// The keeper, where there is one.
    pub(super) fn keeper_pid(&self) -> Option<u32> {
        self.store.as_ref().map(Store::keeper_pid)
    }

    /// Ends the place, after whatever stood on it, and keeps the highest dirty count for the bound.
    pub(super) fn close(self, bench: &mut Bench) -> Result<(), BenchError> {
        let Some(store) = self.store else {
            drop(self.space);
            let _ = std::fs::remove_file(self.files);
            return Ok(());
        };
        let status = store.status()?;
        bench.bounds.push(f64::from(status.max_dirty_pages), f64::from(status.budget_pages));
        drop(self.space);
        store.close()?;
        let _ = std::fs::remove_dir_all(self.files);
        Ok(())
    }
}

/// A new heap on bytes that are empty.
pub(super) fn new_heap(space: &Arc<Space>, bench: &Bench) -> Result<Heap, BenchError> {
    let whole = Options::default();
    let log_area_bytes = if bench.quick { QUICK_LOG_AREA_BYTES } else { whole.log_area_bytes };
    Heap::create(Arc::clone(space), &Options { log_area_bytes, ..whole }).heap_failed()
}

/// Says that our own heap failed.
pub(super) trait HeapFailed<T> {
    fn heap_failed(self) -> Result<T, BenchError>;
}

impl<T> HeapFailed<T> for Result<T, HeapError> {
    fn heap_failed(self) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::Side { who: "the heap", why: error.to_string() })
    }
}
