//! Stands for the rivals that this build was made without: they cannot be made, only named.

use super::{Absent, Allocator, Field, Table};

/// What cannot be.
pub(crate) enum Missing {}

/// Says how to build one, whatever it would be made `from`.
pub(crate) fn without<T>(_from: impl Sized) -> Result<T, Absent> {
    Err("this build has no rivals: cargo build --release --workspace --features wattkeep-bench/rivals".into())
}

impl Allocator for Missing {
    fn replace(&mut self, _slot: usize, _bytes: usize) -> Result<(), Absent> {
        match *self {}
    }
}

impl Table for Missing {
    fn put(&mut self, _pairs: &[(Field, Field)]) -> Result<(), Absent> {
        match *self {}
    }

    fn get(&mut self, _key: &Field) -> Result<Option<Field>, Absent> {
        match *self {}
    }
}
