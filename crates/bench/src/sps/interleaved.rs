//! Strings in versions: interleaved persistent updates, with or without a persistence thread.

use std::sync::Arc;

use wattkeep_persist::Space;
use wattkeep_tx::versions::{Persistence, Shape, VersionedObjects, Versions};

use super::{Mechanism, STRING_BYTES, SpsError, Strings, Text, original};

/// Strings, each a versioned object.
pub struct Interleaved {
    objects: VersionedObjects,
}

fn shape(strings: usize) -> Shape {
    Shape { objects: strings as u64, object_bytes: STRING_BYTES as u64, versions: Versions::Three }
}

/// Bytes that so many strings take.
///
/// # Errors
/// They do not fit the address space.
pub fn bytes(strings: usize) -> Result<usize, SpsError> {
    Ok(VersionedObjects::bytes(&shape(strings))?)
}

impl Interleaved {
    /// Makes them. Each is written several times, so that no version is fresh memory when it is measured.
    ///
    /// # Errors
    /// The space refuses.
    pub fn make(space: Arc<Space>, strings: usize, mechanism: Mechanism) -> Result<Self, SpsError> {
        let persistence = match mechanism {
            Mechanism::Threaded(pace) => Persistence::Decoupled(pace),
            Mechanism::ThreadedByHand(pace) => Persistence::ByHand(pace),
            _ => Persistence::Each,
        };
        let mut objects = VersionedObjects::create(space, 0, &shape(strings), persistence)?;
        for _ in 0..Versions::Three as usize {
            for first in (0..strings).step_by(LOADED_AT_ONCE) {
                let mut operation = objects.operation()?;
                for string in first..strings.min(first + LOADED_AT_ONCE) {
                    operation.write(string as u64, &original(string))?;
                }
                operation.commit()?;
            }
            objects.sync()?;
        }
        Ok(Self { objects })
    }
}

/// Strings written by one operation while they are made: commits would cost most of the time.
const LOADED_AT_ONCE: usize = 1000;

impl Strings for Interleaved {
    fn read(&self, string: usize, into: &mut Text) -> Result<(), SpsError> {
        Ok(self.objects.read(string as u64, into)?)
    }

    fn swap(&mut self, one: usize, other: usize) -> Result<(), SpsError> {
        let (mut first, mut second) = ([0; STRING_BYTES], [0; STRING_BYTES]);
        let mut operation = self.objects.operation()?;
        operation.expect(other as u64);
        operation.read(one as u64, &mut first)?;
        operation.read(other as u64, &mut second)?;
        operation.write(one as u64, &second)?;
        operation.write(other as u64, &first)?;
        Ok(operation.commit()?)
    }

    fn settle(&mut self) -> Result<(), SpsError> {
        Ok(self.objects.sync()?)
    }

    fn persist_some(&mut self, versions_max: usize) -> Result<(), SpsError> {
        self.objects.persist_some(versions_max)?;
        Ok(())
    }
}
