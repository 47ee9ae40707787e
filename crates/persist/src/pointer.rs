//! Persistent pointers: offsets that know what they point to.
//!
//! A [`Ptr`] may lie in persistent memory; a reference, a box or a raw pointer may not, for they are not
//! [`bytemuck::Pod`]: the compiler refuses a type that holds one. A [`Ptr`] is of no use without the space
//! it belongs to, so it cannot be followed by mistake either.
//!
//! # Safety
//!
//! 1. A [`Ptr`] is one `u64`, whatever it points to: any bits are a value, and there is no padding.
#![allow(unsafe_code)]

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

/// Where a `T` lies in its space, in bytes from the beginning; or nowhere.
#[repr(transparent)]
pub struct Ptr<T> {
    offset: u64,
    points_to: PhantomData<fn() -> T>,
}

// SAFETY: 1.
unsafe impl<T> Zeroable for Ptr<T> {}
// SAFETY: 1.
unsafe impl<T: 'static> Pod for Ptr<T> {}

impl<T> Ptr<T> {
    /// Points nowhere. All zero.
    pub const NULL: Self = Self { offset: 0, points_to: PhantomData };

    /// Points to offset `offset`, 0 being nowhere. What is read through it is bytes: a wrong offset gives
    /// a wrong value or a refusal, never undefined behaviour.
    pub const fn at(offset: u64) -> Self {
        Self { offset, points_to: PhantomData }
    }

    /// The offset; 0 is nowhere.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Points nowhere.
    pub const fn is_null(self) -> bool {
        self.offset == 0
    }

    /// The same place, taken for something else.
    pub const fn cast<U>(self) -> Ptr<U> {
        Ptr::at(self.offset)
    }

    /// The place `bytes` behind it. Behind the last offset there is that one, where nothing can lie.
    pub const fn byte_add<U>(self, bytes: u64) -> Ptr<U> {
        Ptr::at(self.offset.saturating_add(bytes))
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Hash for Ptr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset.hash(state);
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:#x})", self.offset)
    }
}
