//! Strings without fault tolerance: what a swap costs by itself.

use std::sync::Arc;

use wattkeep_persist::Space;

use super::{STRING_BYTES, SpsError, Strings, Text, original};

/// Strings, one behind the other.
pub struct Plain {
    space: Arc<Space>,
}

impl Plain {
    /// Makes them.
    ///
    /// # Errors
    /// The space refuses.
    pub fn make(space: Arc<Space>, strings: usize) -> Result<Self, SpsError> {
        write_originals(&space, 0, strings)?;
        Ok(Self { space })
    }
}

/// Writes the strings from offset `at`, durably.
pub(super) fn write_originals(space: &Space, at: usize, strings: usize) -> Result<(), SpsError> {
    for string in 0..strings {
        space.write_bytes(at + string * STRING_BYTES, &original(string))?;
    }
    Ok(space.persist(at, strings * STRING_BYTES)?)
}

impl Strings for Plain {
    fn read(&self, string: usize, into: &mut Text) -> Result<(), SpsError> {
        Ok(self.space.read_bytes(string * STRING_BYTES, into)?)
    }

    fn swap(&mut self, one: usize, other: usize) -> Result<(), SpsError> {
        let (mut first, mut second) = ([0; STRING_BYTES], [0; STRING_BYTES]);
        self.read(one, &mut first)?;
        self.read(other, &mut second)?;
        self.space.write_bytes(one * STRING_BYTES, &second)?;
        Ok(self.space.write_bytes(other * STRING_BYTES, &first)?)
    }

    fn settle(&mut self) -> Result<(), SpsError> {
        Ok(())
    }
}
