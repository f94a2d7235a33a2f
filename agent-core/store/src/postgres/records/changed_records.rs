//! Records that a transaction changes, and their rows of the change feed.

use std::collections::{BTreeSet, HashMap};

use agent_platform::records::Key;

use super::batch::{Batch, RecordState};
use super::key_columns::KeyColumns;
use crate::postgres::error::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Query, Session};
use crate::read_cache::is_cacheable;
use crate::slots::SlotTable;

/// Maximum number of keys that the change feed names. More are stored as a change of all records.
const MAX_FEED_KEYS: usize = 1_000;

const PUT: &str = "
    INSERT INTO records (company, collection, id, version, value, updated_ms)
    SELECT company, collection, id, version, value, (extract(epoch FROM clock_timestamp()) * 1000)::int8
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::text[])
        AS new (company, collection, id, version, value)
    ON CONFLICT (company, collection, id) DO UPDATE
    SET version = excluded.version, updated_ms = excluded.updated_ms, value = excluded.value";

/// Deletes records. Their `ctid` is stable, because their keys are locked.
const DELETE: &str = "
    DELETE FROM records WHERE ctid = ANY (ARRAY (
        SELECT found.ctid FROM unnest($1::text[], $2::text[], $3::text[]) AS old (company, collection, id)
        CROSS JOIN LATERAL (
            SELECT ctid FROM records
            WHERE company = old.company AND collection = old.collection AND id = old.id LIMIT 1
        ) AS found
    ))";

const INSERT_CHANGE: &str = "
    INSERT INTO change (origin, company, collections, ids) VALUES ($1, $2, $3::text[], $4::text[])";

/// Columns of records that are put.
#[derive(Default)]
struct PutColumns<'k> {
    key: KeyColumns<'k>,
    versions: Vec<i64>,
    values: Vec<&'k str>,
}

/// Changed records of a transaction.
pub(super) struct ChangedRecords<'b>(Vec<(&'b Key, &'b RecordState)>);

impl<'b> ChangedRecords<'b> {
    pub(super) fn of(batch: &'b Batch) -> Self {
        Self(batch.changes().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the cache slots of the changed records and collections.
    pub(super) fn slots(&self) -> Vec<usize> {
        let slots = |key: &Key| [SlotTable::slot(key), SlotTable::slot(key.collection())];
        self.0.iter().flat_map(|(key, _)| slots(key)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Writes the records and the rows of the change feed, and commits.
    pub(super) async fn write(
        &self,
        session: &Session,
        origin: &(dyn Param + Sync),
    ) -> Result<(), PostgresError> {
        let put = self.put_columns();
        let deleted = self.deleted_columns();
        let feed = self.feed_rows();
        let mut queries: Vec<Query<'_>> = Vec::new();
        let put_values: [&(dyn Param + Sync); 5] =
            [&put.key.companies, &put.key.paths, &put.key.ids, &put.versions, &put.values];
        if !put.versions.is_empty() {
            queries.push((PUT, &put_values));
        }
        let deleted_values = deleted.values();
        if !deleted.ids.is_empty() {
            queries.push((DELETE, &deleted_values));
        }
        let feed_values: Vec<[&(dyn Param + Sync); 4]> = feed.iter().map(|row| row.values(origin)).collect();
        queries.extend(feed_values.iter().map(|values| (INSERT_CHANGE, &values[..])));
        session.commit(&queries).await.map(drop)
    }

    fn put_columns(&self) -> PutColumns<'b> {
        let mut columns = PutColumns::default();
        for (key, state) in &self.0 {
            if let (Some(version), Some(value)) = (state.version, &state.value) {
                columns.key.push(key);
                columns.versions.push(i64::try_from(version).unwrap_or(i64::MAX));
                columns.values.push(value.get());
            }
        }
        columns
    }

    fn deleted_columns(&self) -> KeyColumns<'b> {
        let deleted = self.0.iter().filter(|(_, state)| state.version.is_none());
        KeyColumns::of(deleted.map(|(key, _)| *key))
    }

    /// Returns a row of the change feed for each company with records that may be cached.
    fn feed_rows(&self) -> Vec<FeedRow<'b>> {
        let mut rows: HashMap<&str, FeedRow<'b>> = HashMap::new();
        for (key, _) in &self.0 {
            if is_cacheable(key.collection()) {
                let row = rows.entry(key.company()).or_insert_with(|| FeedRow::new(key.company()));
                row.push(key);
            }
        }
        rows.into_values().collect()
    }
}

/// A row of the change feed.
struct FeedRow<'k> {
    company: &'k str,
    /// `None` stands for all records.
    paths: Option<Vec<&'k str>>,
    ids: Option<Vec<&'k str>>,
}

impl<'k> FeedRow<'k> {
    fn new(company: &'k str) -> Self {
        Self { company, paths: Some(Vec::new()), ids: Some(Vec::new()) }
    }

    fn push(&mut self, key: &'k Key) {
        if let (Some(paths), Some(ids)) = (&mut self.paths, &mut self.ids) {
            paths.push(key.collection().path());
            ids.push(key.id());
            if ids.len() > MAX_FEED_KEYS {
                (self.paths, self.ids) = (None, None);
            }
        }
    }

    fn values<'v>(&'v self, origin: &'v (dyn Param + Sync)) -> [&'v (dyn Param + Sync); 4] {
        [origin, &self.company, &self.paths, &self.ids]
    }
}

#[cfg(test)]
mod tests {
    use agent_platform::records::Collection;

    use super::*;

    #[test]
    fn the_feed_names_the_records_that_may_be_cached() {
        let collection =
            |company: &str, path: &str| Collection::from_stored(company, path).expect("a collection");
        let keys = [
            collection("a", "things").key("1"),
            collection("a", "runIds/002950/ada").key("r"),
            collection("a", "runIdsOfOthers").key("2"),
            collection("b", "runIds/002950/ada").key("r"),
            Collection::of_platform("tokens").expect("a collection").key("t"),
        ];
        let state = RecordState { version: Some(1), value: None, is_changed: true };
        let records = keys.map(|key| (key.expect("a key"), state.clone())).into();
        let batch = Batch { records, ..Batch::default() };
        let rows = ChangedRecords::of(&batch).feed_rows();
        let mut named: Vec<_> = rows.iter().map(|row| (row.company, row.ids.clone().expect("ids"))).collect();
        named.iter_mut().for_each(|(_, ids)| ids.sort_unstable());
        assert_eq!(named, [("a", vec!["1", "2"])]);
    }
}
