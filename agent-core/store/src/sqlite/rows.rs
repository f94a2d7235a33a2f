//! Statements that read and write records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_platform::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Order, Page, Record, RecordCounter, StoreError, Write,
};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use serde_json::value::RawValue;

use super::error::WriteError;

/// Access to the records table within one transaction.
pub(super) struct RecordTable<'c>(pub(super) &'c Connection);

impl RecordTable<'_> {
    pub(super) fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, WriteError> {
        let mut statement = self.0.prepare_cached(
            "SELECT id, version, updated_ms, value FROM records
             WHERE company = ?1 AND collection = ?2 AND id = ?3",
        )?;
        let mut records = Vec::with_capacity(keys.len());
        for key in keys {
            let mut found = statement.query(params![key.company(), key.collection().path(), key.id()])?;
            let record = found.next()?.map(|row| record(row, key.collection())).transpose()?;
            records.push(record);
        }
        Ok(records)
    }

    /// Reads the versions of records.
    pub(super) fn versions(&self, keys: &[Key]) -> Result<Vec<Option<u64>>, WriteError> {
        let mut statement = self.0.prepare_cached(
            "SELECT version FROM records WHERE company = ?1 AND collection = ?2 AND id = ?3",
        )?;
        let mut versions = Vec::with_capacity(keys.len());
        for key in keys {
            let found = params![key.company(), key.collection().path(), key.id()];
            versions.push(statement.query_row(found, |row| row.get(0)).optional()?);
        }
        Ok(versions)
    }

    /// Reads a page. `after` is the id in the list's cursor.
    pub(super) fn list(
        &self,
        collection: &Collection,
        list: &ListQuery,
        after: Option<&str>,
    ) -> Result<Page, WriteError> {
        let after = after.unwrap_or_default();
        let last = list.upper_bound();
        // No id is empty, so the condition excludes no record if there is no cursor.
        let (sql, first, last) = match list.order {
            Order::Ascending => (
                "SELECT id, version, updated_ms, value FROM records
                 WHERE company = :company AND collection = :collection
                   AND id BETWEEN :first AND :last AND id <> :after
                 ORDER BY id LIMIT :count",
                list.prefix.as_str().max(after),
                last.as_str(),
            ),
            Order::Descending => (
                "SELECT id, version, updated_ms, value FROM records
                 WHERE company = :company AND collection = :collection
                   AND id BETWEEN :first AND :last AND id <> :after
                 ORDER BY id DESC LIMIT :count",
                list.prefix.as_str(),
                if after.is_empty() { last.as_str() } else { last.as_str().min(after) },
            ),
        };
        let mut statement = self.0.prepare_cached(sql)?;
        let mut found = statement.query(named_params! {
            ":company": collection.company(),
            ":collection": collection.path(),
            ":first": first,
            ":last": last,
            ":after": after,
            ":count": list.page_size() + 1,
        })?;
        let mut records = Vec::new();
        while let Some(row) = found.next()? {
            records.push(record(row, collection)?);
        }
        Ok(Page::from_overfetch(records, list))
    }

    /// Counts a collection's records, by the index alone.
    pub(super) fn count(&self, collection: &Collection) -> Result<u64, WriteError> {
        let mut statement =
            self.0.prepare_cached("SELECT count(*) FROM records WHERE company = ?1 AND collection = ?2")?;
        Ok(statement.query_row(params![collection.company(), collection.path()], |row| row.get(0))?)
    }

    /// Lists companies after a name, using one index seek per company.
    pub(super) fn companies(&self, after: &str) -> Result<Vec<String>, WriteError> {
        let mut statement = self.0.prepare_cached(
            "WITH RECURSIVE found (company) AS (
                 SELECT min(company) FROM records WHERE company > ?1
                 UNION ALL
                 SELECT (SELECT min(company) FROM records WHERE company > found.company)
                 FROM found WHERE found.company IS NOT NULL
             )
             SELECT company FROM found WHERE company IS NOT NULL LIMIT ?2",
        )?;
        let found = statement.query_map(params![after, MAX_PAGE_RECORDS], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Lists a company's collections after a path, using one index seek per collection.
    pub(super) fn collections(&self, company: &str, after: &str) -> Result<Vec<Collection>, WriteError> {
        let mut statement = self.0.prepare_cached(
            "WITH RECURSIVE found (collection) AS (
                 SELECT min(collection) FROM records WHERE company = ?1 AND collection > ?2
                 UNION ALL
                 SELECT (
                     SELECT min(collection) FROM records
                     WHERE company = ?1 AND collection > found.collection
                 )
                 FROM found WHERE found.collection IS NOT NULL
             )
             SELECT collection FROM found WHERE collection IS NOT NULL LIMIT ?3",
        )?;
        let mut found = statement.query(params![company, after, MAX_PAGE_RECORDS])?;
        let mut collections = Vec::new();
        while let Some(row) = found.next()? {
            collections.push(Collection::from_stored(company, row.get::<_, String>(0)?)?);
        }
        Ok(collections)
    }

    /// Applies one write and returns the version that was put or removed. `last_version` is the last assigned
    /// version and is incremented by a put.
    pub(super) fn apply(
        &self,
        write: &Write,
        last_version: &mut u64,
        now_ms: u64,
    ) -> Result<Option<u64>, WriteError> {
        if let Write::Increment { key, limit } = write {
            let found = self.get_many(std::slice::from_ref(key))?.pop().flatten();
            let value = RecordCounter::incremented(key, *limit, found.as_ref())?;
            *last_version += 1;
            self.put(key, &value, *last_version, now_ms)?;
            return Ok(Some(*last_version));
        }
        let key = write.key();
        let found = self.version(key)?;
        write.precondition().check(found)?;
        match write {
            Write::Put { value, .. } => {
                *last_version += 1;
                self.put(key, value, *last_version, now_ms)?;
                Ok(Some(*last_version))
            }
            Write::Delete { .. } => {
                if found.is_some() {
                    self.delete(key)?;
                }
                Ok(found)
            }
            Write::Check { .. } | Write::Increment { .. } => Ok(found),
        }
    }

    fn version(&self, key: &Key) -> rusqlite::Result<Option<u64>> {
        self.0
            .prepare_cached("SELECT version FROM records WHERE company = ?1 AND collection = ?2 AND id = ?3")?
            .query_row(params![key.company(), key.collection().path(), key.id()], |row| row.get(0))
            .optional()
    }

    fn put(&self, key: &Key, value: &RawValue, version: u64, now_ms: u64) -> rusqlite::Result<()> {
        let mut statement = self.0.prepare_cached(
            "INSERT INTO records (company, collection, id, version, updated_ms, value)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (company, collection, id) DO UPDATE
             SET version = excluded.version, updated_ms = excluded.updated_ms, value = excluded.value",
        )?;
        let key = (key.company(), key.collection().path(), key.id());
        statement.execute(params![key.0, key.1, key.2, version, now_ms, value.get()])?;
        Ok(())
    }

    fn delete(&self, key: &Key) -> rusqlite::Result<()> {
        let mut statement = self
            .0
            .prepare_cached("DELETE FROM records WHERE company = ?1 AND collection = ?2 AND id = ?3")?;
        statement.execute(params![key.company(), key.collection().path(), key.id()])?;
        Ok(())
    }
}

fn record(row: &Row<'_>, collection: &Collection) -> Result<Record, WriteError> {
    let id: String = row.get(0)?;
    let updated = UNIX_EPOCH + Duration::from_millis(row.get(2)?);
    match RawValue::from_string(row.get(3)?) {
        Ok(value) => Ok(Record { id, version: row.get(1)?, updated, value: value.into() }),
        Err(source) => {
            let collection = collection.path().to_owned();
            Err(StoreError::Malformed { collection, id, source }.into())
        }
    }
}

/// Converts a time to milliseconds since 1970. Times before 1970 and those beyond 64 bits, which come from
/// unset clocks, become 0.
pub(super) fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).ok().filter(|millis| i64::try_from(*millis).is_ok()).unwrap_or_default()
}
