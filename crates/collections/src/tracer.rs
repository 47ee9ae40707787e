//! Which objects of a heap the structures in it reach: the tracer of `wattkeep check`.
//!
//! A root whose tag is a structure's leads to that structure, which is walked by its sizes: this file knows no
//! program's types. Of keys, values, elements and other objects it knows the bytes alone, so it is careful:
//! every word in them that is the offset of an object counts as a pointer to it. So what it calls a leak is
//! one, unless the program keeps offsets in another form than [`wattkeep_persist::Ptr`]; a number that looks
//! like an offset may hide one.
//!
//! Roots with other tags lead to what the program made itself. It may keep pointers there in any form, so
//! nobody can tell what is a leak, and the tracer says so.

use wattkeep_heap::{Heap, HeapError, Reach, Root, Tracer};
use wattkeep_persist::{PAGE, Space};
use wattkeep_tx::versions::ROOT_TAG;

use crate::check::{Met, Pointers};
use crate::error::Error;
use crate::kind::{Kind, OtherFormat, Shape};
use crate::map::Sizes;
use crate::view::{View, WORD};
use crate::{btree, bytes_map, string, table, vector};

/// The tracer of heaps whose roots lead to structures of this crate, or to versioned objects.
///
/// A program with objects of its own brings a tracer that follows those, and leaves the other roots to this
/// one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Structures;

impl Tracer for Structures {
    fn trace(&self, heap: &Heap, root: &Root, reach: &mut Reach<'_>) -> Result<(), HeapError> {
        let at = heap.space().load(root.word.offset() as usize)?;
        if at == 0 {
            return Ok(());
        }
        let kind = Kind::of_tag(root.tag);
        if root.tag == ROOT_TAG {
            // Versioned objects: one object, whose words are looked through as those of any other.
        } else if let Some(other) = OtherFormat::of_tag(root.tag) {
            reach.undecided(format!("it leads to {other}"));
        } else if kind.is_none() {
            reach.undecided(format!(
                "what it leads to is of a type of the program's own (tag {:#x}): let the program call \
                 'Heap::check' with a tracer that knows it",
                root.tag
            ));
        } else if Kind::of_header(&**heap.space(), at).ok().flatten() != kind {
            reach
                .fault(at, format!("the root '{}' leads to no such structure as it was made for", root.name));
            reach.undecided("the structure that it led to cannot be found");
        }
        let mut following = Following { heap, reach, pending: Vec::new() };
        if following.reach.object(at) {
            following.pending.push(at);
        }
        following.follow();
        Ok(())
    }
}

/// Goes from object to object.
struct Following<'a, 'r> {
    heap: &'a Heap,
    reach: &'a mut Reach<'r>,
    /// Reached, and not looked into.
    pending: Vec<u64>,
}

impl Following<'_, '_> {
    fn follow(&mut self) {
        let space = self.heap.space();
        while let Some(at) = self.pending.pop() {
            match Kind::of_header(&**space, at) {
                Ok(Some(kind)) => self.structure(at, kind),
                Ok(None) | Err(_) => {
                    let bytes = self.reach.bytes_of(at);
                    self.scan(at, bytes, Pointers::InWords);
                }
            }
        }
    }

    fn structure(&mut self, at: u64, kind: Kind) {
        let space = self.heap.space().clone();
        let mut part_of = PartOf { following: self, at, kind };
        if let Err(why) = walk(&*space, at, kind, &mut part_of) {
            let found: Option<()> = part_of.found(at, Err(why));
            debug_assert!(found.is_none(), "an error is a fault");
            part_of.following.reach.part(at, 0, at);
        }
    }

    /// Takes every word in these bytes that is the offset of an object for a pointer to it.
    fn scan(&mut self, at: u64, bytes: u64, pointers: Pointers) {
        let space: &Space = self.heap.space();
        let end = at.saturating_add(bytes).min(space.len() as u64);
        let step = match pointers {
            Pointers::InWords => WORD as usize,
            Pointers::AtAnyByte => 1,
        };
        let mut piece = [0; PAGE + WORD as usize];
        let mut from = at;
        while from < end && end - from >= WORD {
            // The last word of a piece may begin in it and end in the next one.
            let piece = &mut piece[..(end - from).min((PAGE + WORD as usize - step) as u64) as usize];
            if space.read_bytes(from as usize, piece).is_err() {
                return;
            }
            for word in piece.windows(WORD as usize).step_by(step) {
                let word = u64::from_le_bytes(word.try_into().expect("windows of a word"));
                if self.reach.guess(word) {
                    self.pending.push(word);
                }
            }
            from += PAGE as u64;
        }
    }
}

/// What a walk over the structure at `at` meets.
struct PartOf<'f, 'a, 'r> {
    following: &'f mut Following<'a, 'r>,
    at: u64,
    kind: Kind,
}

impl Met for PartOf<'_, '_, '_> {
    fn part(&mut self, at: u64, bytes: u64) {
        self.following.reach.part(at, bytes, self.at);
    }

    fn content(&mut self, at: u64, bytes: u64, pointers: Pointers) {
        self.following.scan(at, bytes, pointers);
    }

    fn items(&mut self, _count: u64) {}

    fn fault(&mut self, at: u64, what: &'static str) {
        self.following.reach.fault(at, format!("{} at {:#x}: {what}", self.kind, self.at));
    }

    fn hide(&mut self) {
        let why = format!("{} at {:#x} is damaged, and parts of it cannot be found", self.kind, self.at);
        self.following.reach.undecided(why);
    }

    fn note(&mut self, at: u64, what: &'static str) {
        self.following.reach.note(at, what);
    }
}

/// Walks over the structure at `at`.
fn walk(view: &impl View, at: u64, kind: Kind, met: &mut impl Met) -> Result<(), Error> {
    let (key, value) = (usize::from(kind.key), kind.value as usize);
    match kind.shape {
        Shape::HashMap => table::walk(view, at, &Sizes { key, value }, met),
        Shape::BytesMap => table::walk(view, at, &bytes_map::Loose, met),
        Shape::BTree => btree::walk(view, at, (key, value), None, met),
        Shape::Vector => vector::walk(view, at, value, met),
        Shape::PString => string::walk(view, at, met),
    }
}
