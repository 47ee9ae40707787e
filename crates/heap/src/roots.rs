//! Named roots: where a program begins to look after a restart.
//!
//! A root is a word that points to an object, under a name, with the size and the type tag it was made for.
//! The word is the transactions' to write. While [`Heap::persist_alloc`] links an object, the word holds its
//! offset with the lowest bit set: until the object's record is durable, that is no object.

use std::sync::MutexGuard;

use wattkeep_persist::{LINE, Ptr, Space, bytemuck};

use crate::cache::Ready;
use crate::core::Core;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{ROOT_BYTES, ROOT_NAME_MAX, ROOT_SLOTS, ROOTS_AT, UntrustedRoot};

/// Marks a word whose object may not be allocated yet.
const PENDING: u64 = 1;

/// A named root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// Bytes of what it points to, as given when it was made.
    pub size: u64,
    /// What it points to, as given when it was made.
    pub tag: u64,
    /// The word that points there. Null until something is linked.
    pub word: Ptr<u64>,
}

/// The word says that a cut may have interrupted a link.
pub(crate) fn is_pending(word: u64) -> bool {
    word & PENDING != 0
}

fn read(space: &Space, slot: u64) -> Result<Option<Root>, HeapError> {
    let at = ROOTS_AT + slot * ROOT_BYTES;
    let root: UntrustedRoot = space.read(at as usize)?;
    if root.check == 0 {
        return Ok(None);
    }
    let name = root.trusted_name().ok_or(HeapError::Damaged { what: "a root", at })?;
    Ok(Some(Root { name: name.to_owned(), size: root.size, tag: root.tag, word: Ptr::at(at) }))
}

fn all(space: &Space) -> Result<Vec<Root>, HeapError> {
    (0..ROOT_SLOTS).map(|slot| read(space, slot)).filter_map(Result::transpose).collect()
}

/// The root of this name, in a space that holds a heap.
pub(crate) fn find(space: &Space, name: &str) -> Result<Option<Root>, HeapError> {
    Ok(all(space)?.into_iter().find(|root| root.name == name))
}

impl Core {
    fn lock_roots(&self) -> MutexGuard<'_, ()> {
        self.roots.lock().expect("no panic while it is held")
    }

    pub(crate) fn roots(&self) -> Result<Vec<Root>, HeapError> {
        all(&self.space)
    }

    fn find_root(&self, name: &str) -> Result<Option<Root>, HeapError> {
        find(&self.space, name)
    }

    /// Makes a root whose word is `word`.
    fn add_root(&self, name: &str, size: u64, tag: u64, word: u64) -> Result<Root, HeapError> {
        if name.is_empty() || name.len() > ROOT_NAME_MAX {
            return Err(HeapError::RootName { bytes: name.len(), most: ROOT_NAME_MAX });
        }
        if self.find_root(name)?.is_some() {
            return Err(HeapError::RootTaken { name: name.to_owned() });
        }
        for slot in 0..ROOT_SLOTS {
            if read(&self.space, slot)?.is_none() {
                return self.write_root(slot, UntrustedRoot { word, ..UntrustedRoot::new(name, size, tag) });
            }
        }
        Err(HeapError::RootsFull { slots: ROOT_SLOTS as usize })
    }

    /// The end of a long name first, and of the first line the check, which makes it a root: of a line any
    /// beginning may be durable.
    fn write_root(&self, slot: u64, root: UntrustedRoot) -> Result<Root, HeapError> {
        let at = (ROOTS_AT + slot * ROOT_BYTES) as usize;
        let bytes = bytemuck::bytes_of(&root);
        let (first, second) = bytes.split_at(LINE);
        if self.space.read::<[u8; LINE]>(at + LINE)? != *second {
            self.space.write_bytes(at + LINE, second)?;
            self.space.persist(at + LINE, LINE)?;
        }
        self.space.store(at, root.word)?;
        self.space.write_bytes(at + 16, &first[16..])?;
        self.space.store(at + 8, root.check)?;
        self.space.persist(at, LINE)?;
        let name = root.trusted_name().expect("just made").to_owned();
        Ok(Root { name, size: root.size, tag: root.tag, word: Ptr::at(at as u64) })
    }

    /// Stores the root's word; durable on return.
    fn link(&self, root: &Root, word: u64) -> Result<(), HeapError> {
        let at = root.word.offset() as usize;
        self.space.store(at, word)?;
        Ok(self.space.persist(at, 8)?)
    }

    fn drop_root(&self, root: &Root) -> Result<(), HeapError> {
        let check = root.word.offset() as usize + 8;
        self.space.store(check, 0)?;
        Ok(self.space.persist(check, 8)?)
    }

    /// Finishes or takes back links that a cut interrupted.
    pub(crate) fn mend_roots(&self) -> Result<(), HeapError> {
        for root in self.roots()? {
            let word = self.space.load(root.word.offset() as usize)?;
            if is_pending(word) {
                let object = word & !PENDING;
                let place = self.chunks.find(object);
                let linked = place.is_some_and(|place| crate::free::is_position(self.settled(place)));
                self.link(&root, if linked { object } else { 0 })?;
            }
        }
        Ok(())
    }
}

impl Heap {
    /// The root of this name.
    ///
    /// # Errors
    /// A damaged root.
    pub fn root(&self, name: &str) -> Result<Option<Root>, HeapError> {
        self.core.find_root(name)
    }

    /// All roots.
    ///
    /// # Errors
    /// A damaged root.
    pub fn roots(&self) -> Result<Vec<Root>, HeapError> {
        self.core.roots()
    }

    /// The root of this name, if it was made with this size and type tag.
    ///
    /// # Errors
    /// There is none, or it was made for something else.
    pub fn open_root(&self, name: &str, size: u64, tag: u64) -> Result<Root, HeapError> {
        let root = self.root(name)?.ok_or_else(|| HeapError::RootMissing { name: name.to_owned() })?;
        if (root.size, root.tag) != (size, tag) {
            let recorded = (root.size, root.tag);
            return Err(HeapError::RootMismatch { name: root.name, recorded, wanted: (size, tag) });
        }
        Ok(root)
    }

    /// Makes a root that points nowhere yet; durable on return.
    ///
    /// # Errors
    /// The name is taken or impossible, or there is no place.
    pub fn create_root(&self, name: &str, size: u64, tag: u64) -> Result<Root, HeapError> {
        let _roots = self.core.lock_roots();
        self.core.add_root(name, size, tag, 0)
    }

    /// [`Self::open_root`], or [`Self::create_root`] where there is none.
    ///
    /// # Errors
    /// As both.
    pub fn open_or_create_root(&self, name: &str, size: u64, tag: u64) -> Result<Root, HeapError> {
        match self.open_root(name, size, tag) {
            Err(HeapError::RootMissing { .. }) => match self.create_root(name, size, tag) {
                // Another thread made it meanwhile.
                Err(HeapError::RootTaken { .. }) => self.open_root(name, size, tag),
                made => made,
            },
            opened => opened,
        }
    }

    /// Removes a root. What it points to stays.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_root(&self, name: &str) -> Result<(), HeapError> {
        self.core.before_taking()?;
        let _roots = self.core.lock_roots();
        let root = self.root(name)?.ok_or_else(|| HeapError::RootMissing { name: name.to_owned() })?;
        self.core.drop_root(&root)
    }

    /// Allocates an object, and links it to a root in the same step: after a cut it is there and linked, or
    /// not there. A root that is not there is made, with the object's size and tag 0.
    ///
    /// # Errors
    /// As [`Self::alloc`]; the root points to something already, or was made for another size.
    pub fn persist_alloc(&self, bytes: u64, root: Option<&str>) -> Result<u64, HeapError> {
        let Some(name) = root else {
            return self.alloc(bytes);
        };
        self.core.before_taking()?;
        let _roots = self.core.lock_roots();
        let known = self.root(name)?;
        if let Some(root) = &known {
            if root.size != bytes {
                let (recorded, wanted) = ((root.size, root.tag), (bytes, root.tag));
                return Err(HeapError::RootMismatch { name: name.to_owned(), recorded, wanted });
            }
            if self.core.space.load(root.word.offset() as usize)? != 0 {
                return Err(HeapError::RootTaken { name: name.to_owned() });
            }
        }
        // Before a root is made: one that has nothing to point to would be of this size for good.
        let reserved = self.reserve(bytes)?;
        let linked = match &known {
            Some(root) => self.core.link(root, reserved | PENDING).map(|()| root.clone()),
            None => self.core.add_root(name, bytes, 0, reserved | PENDING),
        };
        let done = linked.and_then(|root| {
            let committed = self.commit(reserved);
            if committed.is_err() {
                // The first error is the one to report; what stays of this is mended at the next open.
                let _ = if known.is_none() { self.core.drop_root(&root) } else { self.core.link(&root, 0) };
            }
            committed.map(|()| root)
        });
        match done {
            Ok(root) => {
                // Not flushed: the object's record is durable, so an open makes the same of the mark.
                self.core.space.store(root.word.offset() as usize, reserved)?;
                Ok(reserved)
            }
            Err(error) => {
                let _ = self.cancel(reserved);
                Err(error)
            }
        }
    }

    /// A reservation becomes an allocation.
    fn commit(&self, at: u64) -> Result<(), HeapError> {
        Ok(crate::desk::with(&self.core, |cache| {
            self.core.enter(cache, Ready::new(at, self.core.find(at)?))
        })?)
    }
}
