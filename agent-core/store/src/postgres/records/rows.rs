//! Statements that read records.

use std::time::{Duration, UNIX_EPOCH};

use agent_platform::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Order, Page, Record, StoreError,
};
use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::postgres::error::OperationError;
use crate::postgres::session::{Session, contains_nul};

const SELECT_ONE: &str = "
    SELECT id, version, updated_ms, value FROM records WHERE company = $1 AND collection = $2 AND id = $3";

/// Reads several records in one snapshot. `LIMIT` makes the planner look up each key instead of scanning all.
const SELECT_MANY: &str = "
    SELECT found.id, found.version, found.updated_ms, found.value, wanted.position
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS wanted (company, collection, id, position)
    CROSS JOIN LATERAL (
        SELECT id, version, updated_ms, value FROM records
        WHERE company = wanted.company AND collection = wanted.collection AND id = wanted.id LIMIT 1
    ) AS found";

/// Reads the versions of several records, as [`SELECT_MANY`] reads the records.
const SELECT_VERSIONS: &str = "
    SELECT found.version, wanted.position
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS wanted (company, collection, id, position)
    CROSS JOIN LATERAL (
        SELECT version FROM records
        WHERE company = wanted.company AND collection = wanted.collection AND id = wanted.id LIMIT 1
    ) AS found";

/// Pages. No id is empty, so the last condition excludes no record if there is no cursor.
const SELECT_ASCENDING: &str = "
    SELECT id, version, updated_ms, value FROM records
    WHERE company = $1 AND collection = $2 AND id >= $3 AND id <= $4 AND id <> $5
    ORDER BY id LIMIT $6";
const SELECT_DESCENDING: &str = "
    SELECT id, version, updated_ms, value FROM records
    WHERE company = $1 AND collection = $2 AND id >= $3 AND id <= $4 AND id <> $5
    ORDER BY id DESC LIMIT $6";

const COUNT: &str = "SELECT count(*) FROM records WHERE company = $1 AND collection = $2";

/// Lists companies after a name, using one index seek per company.
const SELECT_COMPANIES: &str = "
    WITH RECURSIVE found (company) AS (
        SELECT min(company) FROM records WHERE company > $1
        UNION ALL
        SELECT (SELECT min(company) FROM records WHERE company > found.company)
        FROM found WHERE found.company IS NOT NULL
    )
    SELECT company FROM found WHERE company IS NOT NULL LIMIT $2";

/// Lists a company's collections after a path, using one index seek per collection.
const SELECT_COLLECTIONS: &str = "
    WITH RECURSIVE found (collection) AS (
        SELECT min(collection) FROM records WHERE company = $1 AND collection > $2
        UNION ALL
        SELECT (SELECT min(collection) FROM records WHERE company = $1 AND collection > found.collection)
        FROM found WHERE found.collection IS NOT NULL
    )
    SELECT collection FROM found WHERE collection IS NOT NULL LIMIT $3";

pub(in crate::postgres) async fn get_many(
    session: &Session,
    keys: &[Key],
) -> Result<Vec<Option<Record>>, OperationError> {
    if let [key] = keys {
        let (company, path, id) = (key.company(), key.collection().path(), key.id());
        let rows = session.query(SELECT_ONE, &[&company, &path, &id]).await?;
        let found = rows.first().map(|row| parse_record(row, key.collection())).transpose()?;
        return Ok(vec![found]);
    }
    let mut records = vec![None; keys.len()];
    for row in &select_by_keys(session, SELECT_MANY, keys).await? {
        let position = position(row, 4);
        records[position] = Some(parse_record(row, keys[position].collection())?);
    }
    Ok(records)
}

pub(in crate::postgres) async fn versions(
    session: &Session,
    keys: &[Key],
) -> Result<Vec<Option<u64>>, OperationError> {
    let mut versions = vec![None; keys.len()];
    for row in &select_by_keys(session, SELECT_VERSIONS, keys).await? {
        versions[position(row, 1)] = Some(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default());
    }
    Ok(versions)
}

async fn select_by_keys(session: &Session, sql: &str, keys: &[Key]) -> Result<Vec<Row>, OperationError> {
    let companies: Vec<&str> = keys.iter().map(Key::company).collect();
    let paths: Vec<&str> = keys.iter().map(|key| key.collection().path()).collect();
    let ids: Vec<&str> = keys.iter().map(Key::id).collect();
    Ok(session.query(sql, &[&companies, &paths, &ids]).await?)
}

/// Returns the index of the key of a row, whose ordinality is in a column.
fn position(row: &Row, column: usize) -> usize {
    usize::try_from(row.get::<_, i64>(column)).unwrap_or_default().saturating_sub(1)
}

/// Reads a page. `after` is the id in the list's cursor.
pub(in crate::postgres) async fn list(
    session: &Session,
    collection: &Collection,
    list: &ListQuery,
    after: Option<&str>,
) -> Result<Page, OperationError> {
    let after = after.unwrap_or_default();
    if contains_nul(&list.prefix) || contains_nul(after) {
        return Ok(Page::from_overfetch(Vec::new(), list));
    }
    let last = list.upper_bound();
    let (sql, first, last) = match list.order {
        Order::Ascending => (SELECT_ASCENDING, list.prefix.as_str().max(after), last.as_str()),
        Order::Descending => {
            let last = if after.is_empty() { last.as_str() } else { last.as_str().min(after) };
            (SELECT_DESCENDING, list.prefix.as_str(), last)
        }
    };
    let (company, path) = (collection.company(), collection.path());
    let count = i64::try_from(list.page_size() + 1).unwrap_or(i64::MAX);
    let rows = session.query(sql, &[&company, &path, &first, &last, &after, &count]).await?;
    let records = rows.iter().map(|row| parse_record(row, collection)).collect::<Result<_, _>>()?;
    Ok(Page::from_overfetch(records, list))
}

/// Counts a collection's records.
pub(in crate::postgres) async fn count(
    session: &Session,
    collection: &Collection,
) -> Result<u64, OperationError> {
    let rows = session.query(COUNT, &[&collection.company(), &collection.path()]).await?;
    let count: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(u64::try_from(count).unwrap_or_default())
}

pub(in crate::postgres) async fn companies(
    session: &Session,
    after: &str,
) -> Result<Vec<String>, OperationError> {
    let limit = i64::try_from(MAX_PAGE_RECORDS).unwrap_or(i64::MAX);
    let rows = session.query(SELECT_COMPANIES, &[&after, &limit]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

pub(in crate::postgres) async fn collections(
    session: &Session,
    company: &str,
    after: &str,
) -> Result<Vec<Collection>, OperationError> {
    let limit = i64::try_from(MAX_PAGE_RECORDS).unwrap_or(i64::MAX);
    let rows = session.query(SELECT_COLLECTIONS, &[&company, &after, &limit]).await?;
    let collection = |row: &Row| Collection::from_stored(company, row.get::<_, String>(0));
    Ok(rows.iter().map(collection).collect::<Result<_, StoreError>>()?)
}

/// Parses a record from a row that begins with `id, version, updated_ms, value`.
fn parse_record(row: &Row, collection: &Collection) -> Result<Record, OperationError> {
    let id: String = row.get(0);
    let updated = UNIX_EPOCH + Duration::from_millis(unsigned(row.get(2)));
    match RawValue::from_string(row.get(3)) {
        Ok(value) => Ok(Record { id, version: unsigned(row.get(1)), updated, value: value.into() }),
        Err(source) => {
            let collection = collection.path().to_owned();
            Err(StoreError::Malformed { collection, id, source }.into())
        }
    }
}

/// Converts a number that the schema keeps from being negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
