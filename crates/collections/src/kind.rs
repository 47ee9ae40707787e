//! What a structure is, in one word: the first one of every header, and the type tag of a root.
//!
//! | bits | |
//! |---|---|
//! | 0..8 | which structure |
//! | 8..16 | version of its format |
//! | 16..32 | bytes of a key; 0: none, or any length |
//! | 32..64 | bytes of a value or element; 0: any length |
//!
//! The last word of a header's first line is its [mark](Kind::mark): a check that meets an object by its offset
//! alone takes it for a structure only if both words fit.
//!
//! Sizes, not names: a compiler promises nothing of the names of types. Two types of the same size are told
//! apart by [`wattkeep_persist::Ptr`], at compile time.

use std::fmt;

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::view::{View, WORD};

/// Where in a header the mark lies: the last word of its first line.
const AT_MARK: u64 = 7 * WORD;

/// Version of the formats in this crate. Structures of another one are refused, and left alone: 1 had no marks, so
/// that a check could tell none of them.
const VERSION: u8 = 2;

/// Which structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Shape {
    HashMap = 1,
    BytesMap = 2,
    BTree = 3,
    Vector = 4,
    PString = 5,
}

const SHAPES: [Shape; 5] = [Shape::HashMap, Shape::BytesMap, Shape::BTree, Shape::Vector, Shape::PString];

/// A structure and the sizes of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) shape: Shape,
    pub(crate) key: u16,
    pub(crate) value: u32,
}

impl Kind {
    /// The kind of `shape` with keys of type `K` and values of type `V`. Fails to compile for types that are
    /// too large for a header.
    pub(crate) const fn new<K, V>(shape: Shape) -> Self {
        const {
            assert!(size_of::<K>() <= u16::MAX as usize, "keys have at most 65,535 bytes");
            assert!(size_of::<V>() <= 1 << 20, "values have at most 1 MiB: keep larger ones in a Vector");
        }
        Self { shape, key: size_of::<K>() as u16, value: size_of::<V>() as u32 }
    }

    /// The word that stands for it.
    #[inline]
    pub const fn tag(self) -> u64 {
        self.shape as u64 | (VERSION as u64) << 8 | (self.key as u64) << 16 | (self.value as u64) << 32
    }

    /// What the header of such a structure at `at` holds besides, and hardly anything else there.
    pub(crate) fn mark(self, at: u64) -> u64 {
        XxHash3_64::oneshot_with_seed(at, &self.tag().to_le_bytes()).max(1)
    }

    /// Where the mark of the header at `at` lies.
    pub(crate) fn mark_at(at: u64) -> u64 {
        at + AT_MARK
    }

    /// The structure whose header lies at `at`, if one does.
    pub(crate) fn of_header(view: &impl View, at: u64) -> Result<Option<Self>, Error> {
        let Some(kind) = Self::of_tag(view.word(at)?) else { return Ok(None) };
        let is_marked = at.checked_add(AT_MARK).is_some_and(|at| at < view.bound())
            && view.word(Self::mark_at(at))? == kind.mark(at);
        Ok(is_marked.then_some(kind))
    }

    /// The kind behind a word, if this version knows it.
    pub fn of_tag(tag: u64) -> Option<Self> {
        Self::of_any_format(tag).and_then(|(kind, version)| (version == VERSION).then_some(kind))
    }

    /// The same of any version, and which.
    fn of_any_format(tag: u64) -> Option<(Self, u8)> {
        let [shape, version, key @ ..] = tag.to_le_bytes();
        let shape = SHAPES.into_iter().find(|known| *known as u8 == shape)?;
        let key = u16::from_le_bytes([key[0], key[1]]);
        (version != 0).then_some((Self { shape, key, value: (tag >> 32) as u32 }, version))
    }
}

/// A structure whose format is of another version.
pub(crate) struct OtherFormat(Kind, u8);

impl OtherFormat {
    /// The one behind a word, if there is one.
    pub(crate) fn of_tag(tag: u64) -> Option<Self> {
        let (kind, version) = Kind::of_any_format(tag)?;
        (version != VERSION).then_some(Self(kind, version))
    }
}

/// What it is, and what to do about it.
impl fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, version) = self;
        write!(f, "{kind} in format {version}, where this version knows format {VERSION}: ")?;
        f.write_str(if *version > VERSION {
            "open it with a newer version"
        } else {
            "read it with the version that made it, and make it anew with this one"
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, key, value } = self;
        match shape {
            Shape::HashMap => write!(f, "a hash map of {key}-byte keys and {value}-byte values"),
            Shape::BytesMap => f.write_str("a hash map of keys and values of any length"),
            Shape::BTree => write!(f, "a B+tree of {key}-byte keys and {value}-byte values"),
            Shape::Vector => write!(f, "a vector of {value}-byte elements"),
            Shape::PString => f.write_str("a string"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_what_it_stands_for() {
        for shape in SHAPES {
            let kind = Kind::new::<[u8; 24], [u64; 5]>(shape);
            assert_eq!(Kind::of_tag(kind.tag()), Some(kind));
            assert_eq!(Kind::of_tag(kind.tag() + 0x100), None, "a newer version is not known");
            assert_eq!(Kind::of_tag(kind.tag() - 0x100), None, "nor is an older one");
            assert!(OtherFormat::of_tag(kind.tag()).is_none());
        }
        assert!(OtherFormat::of_tag(0).is_none());
        assert_eq!(Kind::of_tag(0), None);
        assert_eq!(
            Kind::new::<u64, [u8; 64]>(Shape::HashMap).to_string(),
            "a hash map of 8-byte keys and 64-byte values"
        );
    }
}
