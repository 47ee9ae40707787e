//! redb on tmpfs, without durability: a commit leaves its pages in redb's cache.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{Absent, FIELD, Field, Table, while_};

const TABLE: TableDefinition<&[u8; FIELD], &[u8; FIELD]> = TableDefinition::new("table");

/// Larger than what a run inserts: nothing is evicted.
const CACHE_BYTES: usize = 2 << 30;

/// One redb database with one table.
pub(crate) struct Redb {
    database: Database,
}

impl Redb {
    /// A new database in the file `path`.
    ///
    /// # Errors
    /// What redb refuses.
    pub(crate) fn create(path: &Path) -> Result<Self, Absent> {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(path)
            .map_err(while_("making a redb database"))?;
        Ok(Self { database })
    }
}

impl Table for Redb {
    fn put(&mut self, pairs: &[(Field, Field)]) -> Result<(), Absent> {
        let mut transaction = self.database.begin_write().map_err(while_("beginning a redb transaction"))?;
        transaction.set_durability(Durability::None).map_err(while_("asking redb for no durability"))?;
        {
            let mut table = transaction.open_table(TABLE).map_err(while_("opening a redb table"))?;
            for (key, value) in pairs {
                table.insert(key, value).map_err(while_("inserting into redb"))?;
            }
        }
        transaction.commit().map_err(while_("committing to redb"))
    }

    fn get(&mut self, key: &Field) -> Result<Option<Field>, Absent> {
        let transaction = self.database.begin_read().map_err(while_("reading redb"))?;
        let table = transaction.open_table(TABLE).map_err(while_("opening a redb table"))?;
        let found = table.get(key).map_err(while_("reading redb"))?;
        Ok(found.map(|value| *value.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redb_holds_what_was_put_last() {
        let directory = tempfile::tempdir_in(crate::rival::TMPFS).expect("tmpfs");
        let mut table = Redb::create(&directory.path().join("table")).expect("redb");
        crate::rival::tests::a_table_holds_what_was_put_last(&mut table);
    }
}
