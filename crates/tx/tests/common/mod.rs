//! A small heap with a row of words that transactions change.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use wattkeep_heap::Heap;
use wattkeep_persist::{Anonymous, DomainKind, MappedFile, Ptr, Space};
use wattkeep_tx::{Logging, Manager, Options, TxError};

pub(crate) const BOTH: [Logging; 2] = [Logging::Redo, Logging::Undo];

/// Bytes of a small space.
pub(crate) const SPACE_BYTES: usize = 1 << 20;

/// Bytes of its log area: four lanes.
pub(crate) const LOG_BYTES: u64 = 4096 + 4 * 16384;

pub(crate) fn heap_options() -> wattkeep_heap::Options {
    wattkeep_heap::Options { log_area_bytes: LOG_BYTES, ..Default::default() }
}

pub(crate) fn logging(logging: Logging) -> Options {
    Options { logging, ..Options::default() }
}

/// The heap in a space, its manager, and the row of words that its root names.
pub(crate) struct Ground {
    pub(crate) manager: Manager,
    pub(crate) row: u64,
}

/// Words of the row.
pub(crate) const ROW: u64 = 256;

impl Ground {
    pub(crate) fn make(space: &Arc<Space>, options: &Options) -> Result<Self, TxError> {
        Self::on(Heap::create(space.clone(), &heap_options())?, options)
    }

    /// A heap that was just made.
    pub(crate) fn on(heap: Heap, options: &Options) -> Result<Self, TxError> {
        let root = heap.create_root("row", ROW * 8, 0)?.word;
        let manager = Manager::open(Arc::new(heap), options)?;
        let row = manager.run(|tx| {
            let row = tx.alloc_bytes(ROW as usize * 8)?;
            tx.write_bytes(row.offset(), &[0; ROW as usize * 8])?;
            tx.write_word(root, row.offset())?;
            Ok::<_, TxError>(row.offset())
        })?;
        Ok(Self { manager, row })
    }

    pub(crate) fn open(space: &Arc<Space>, options: &Options) -> Result<Self, TxError> {
        let heap = Heap::open(space.clone())?;
        let root = heap.open_root("row", ROW * 8, 0)?.word;
        let manager = Manager::open(Arc::new(heap), options)?;
        let row = space.load(root.offset() as usize)?;
        Ok(Self { manager, row })
    }

    pub(crate) fn in_memory(options: &Options) -> Self {
        Self::make(&memory(DomainKind::Battery), options).expect("a heap in memory")
    }

    pub(crate) fn word(&self, index: u64) -> Ptr<u64> {
        assert!(index < ROW);
        Ptr::at(self.row + index * 8)
    }

    pub(crate) fn read(&self, index: u64) -> u64 {
        self.space().load(self.word(index).offset() as usize).expect("inside")
    }

    pub(crate) fn space(&self) -> &Space {
        self.manager.heap().space()
    }
}

pub(crate) fn memory(kind: DomainKind) -> Arc<Space> {
    Arc::new(Space::new(Arc::new(Anonymous::new(SPACE_BYTES)), kind.domain()).counting())
}

/// A space of each domain. The directory holds the file of one.
pub(crate) fn every_domain(directory: &std::path::Path) -> Vec<Arc<Space>> {
    let file = MappedFile::open(&directory.join("space"), SPACE_BYTES).expect("a mapped file");
    let file = Arc::new(Space::new(Arc::new(file), DomainKind::File.domain()).counting());
    let memories = [DomainKind::Battery, DomainKind::Eadr, DomainKind::Adr].map(memory);
    memories.into_iter().chain([file]).collect()
}
