//! Who watches every store, flush, fence and load: a simulated processor cache, an auditor.

/// Sees what a space is asked for, in the order of the program.
///
/// Called by the thread that stores, after the store. With several threads the order between them is the
/// witness's own to make.
pub trait Witness: Send + Sync {
    /// `bytes` were stored at offset `at`, in rising order: each aligned word of them with one store, the
    /// other bytes one by one. So four aligned bytes may be torn.
    fn stored(&self, at: usize, bytes: &[u8]);

    /// The line at offset `line` (a multiple of 64) was asked to be written back.
    fn flushed(&self, line: usize);

    /// A fence.
    fn fenced(&self);

    /// `len` bytes at offset `at` were loaded. A simulated cache wants to know; most witnesses do not.
    fn loaded(&self, at: usize, len: usize) {
        let _ = (at, len);
    }
}
