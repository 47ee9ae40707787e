//! A heap whose metadata is still being rebuilt: what lies in it can be read meanwhile.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use wattkeep_persist::{Ptr, Space};

use crate::error::HeapError;
use crate::heap::Heap;
use crate::roots;
use crate::{open, supply};

/// A heap that is being opened by another thread. Dropped, it waits for that thread.
#[must_use = "the heap is closed again when this is dropped"]
pub struct Opening {
    space: Arc<Space>,
    /// None: it was waited for.
    rebuilding: Option<JoinHandle<Result<Heap, HeapError>>>,
}

impl Heap {
    /// Begins to open the heap in a space, and does not wait for its log to be read: that takes 10 ms for each
    /// million objects, and only allocating needs it. Roots and objects can be read at once.
    ///
    /// What a transaction committed and had not stored in place yet is stored when its manager is opened: what
    /// is read before may be older.
    ///
    /// # Errors
    /// As [`Self::open_with`], but for what is found in the log: [`Opening::heap`] tells that.
    pub fn begin_open(space: Arc<Space>, supply: Option<supply::Options>) -> Result<Opening, HeapError> {
        let begun = open::begin(space.clone(), supply)?;
        let rebuild = move || {
            let core = begun.finish(open::Lost::Refused)?;
            core.assume_log()?;
            Ok(Heap { core: Arc::new(core) })
        };
        let rebuilding = Builder::new().name("wattkeep-heap".into()).spawn(rebuild);
        let rebuilding = rebuilding.map_err(|why| HeapError::NoThread { why: why.to_string() })?;
        Ok(Opening { space, rebuilding: Some(rebuilding) })
    }
}

impl Opening {
    /// The space it is in.
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    /// Where the object is that the root of this name points to. None: there is no such root, it points nowhere,
    /// or a cut interrupted its link, and the heap has to tell.
    ///
    /// # Errors
    /// A damaged root.
    pub fn object<T>(&self, root: &str) -> Result<Option<Ptr<T>>, HeapError> {
        let Some(root) = roots::find(&self.space, root)? else { return Ok(None) };
        let word = self.space.load(root.word.offset() as usize)?;
        Ok((word != 0 && !roots::is_pending(word)).then(|| Ptr::at(word)))
    }

    /// Nobody would wait for [`Self::heap`].
    pub fn is_done(&self) -> bool {
        self.rebuilding.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the heap.
    ///
    /// # Errors
    /// What it wrote is damaged. Nothing is changed then.
    pub fn heap(mut self) -> Result<Heap, HeapError> {
        let rebuilding = self.rebuilding.take().expect("waited for once");
        rebuilding.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(rebuilding) = self.rebuilding.take() {
            // Nobody asks any more what it came to.
            let _ = rebuilding.join();
        }
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opening({:?}, {})", self.space, if self.is_done() { "done" } else { "going on" })
    }
}
