//! LMDB on tmpfs, as fast as its documentation allows: a writable map, and no sync of any kind.
//!
//! # Safety
//!
//! 1. The directory is this process's own, made for the measurement and removed after it: nobody else maps
//!    the files, and losing them in a crash loses nothing.
#![allow(unsafe_code)]

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use super::{Absent, Field, Table, while_};

/// Room for everything a run inserts, old versions included; tmpfs keeps only what is written.
const MAP_BYTES: usize = 8 << 30;

/// One LMDB environment with its unnamed database.
pub(crate) struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

impl Lmdb {
    /// A new environment in the empty directory `directory`.
    ///
    /// # Errors
    /// What LMDB refuses.
    pub(crate) fn create(directory: &Path) -> Result<Self, Absent> {
        let flags = EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::WRITE_MAP | EnvFlags::NO_MEM_INIT;
        // SAFETY: 1.
        let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).flags(flags).open(directory) }
            .map_err(while_("opening LMDB"))?;
        let mut transaction = env.write_txn().map_err(while_("beginning an LMDB transaction"))?;
        let database =
            env.create_database(&mut transaction, None).map_err(while_("making an LMDB database"))?;
        transaction.commit().map_err(while_("committing to LMDB"))?;
        Ok(Self { env, database })
    }
}

impl Table for Lmdb {
    fn put(&mut self, pairs: &[(Field, Field)]) -> Result<(), Absent> {
        let mut transaction = self.env.write_txn().map_err(while_("beginning an LMDB transaction"))?;
        for (key, value) in pairs {
            self.database.put(&mut transaction, key, value).map_err(while_("putting into LMDB"))?;
        }
        transaction.commit().map_err(while_("committing to LMDB"))
    }

    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent> {
        let transaction = self.env.read_txn().map_err(while_("reading LMDB"))?;
        let found = self.database.get(&transaction, key).map_err(while_("reading LMDB"))?;
        Ok(found.and_then(|value| value.try_into().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lmdb_holds_what_was_put_last() {
        let directory = tempfile::tempdir_in(crate::rival::TMPFS).expect("tmpfs");
        let mut table = Lmdb::create(directory.path()).expect("LMDB");
        crate::rival::tests::a_table_holds_what_was_put_last(&mut table);
    }
}
