//! Who watches every store, flush and fence: a simulated processor cache, an auditor.

/// Sees what a space is asked for, in the order of the program.
///
/// Called by the thread that stores, after the store. With several threads the order between them is the
/// witness's own to make.
pub trait Witness: Send + Sync {
    /// `bytes` were stored at offset `at`. A call of up to eight aligned bytes is one store instruction;
    /// a longer one is a store a word, in rising order.
    fn stored(&self, at: usize, bytes: &[u8]);

    /// The line at offset `line` (a multiple of 64) was asked to be written back.
    fn flushed(&self, line: usize);

    /// A fence.
    fn fenced(&self);
}
