//! PostgreSQL databases as source and target of a copy.

use tokio_postgres::Row;

use super::PostgresOptions;
use super::schema::{APP, APP_JOBS};
use super::session::{Session, SessionPool, Values};
use crate::copy_rows::{CopyError, CopyRows, CopySink, CopyTarget, JobTableRow, ROWS_PER_PAGE, RecordRow};

/// Makes the tables of both schemas visible, and allows a long transaction.
const SET_UP: &str = "
    SET LOCAL search_path = app, app_jobs;
    SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0";

const SELECT_RECORDS: &str = "
    SELECT company, collection, id, version, updated_ms, value FROM records
    WHERE (company, collection, id) > ($1, $2, $3) ORDER BY company, collection, id LIMIT $4";

const SELECT_JOBS: &str = "
    SELECT id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent
    FROM jobs WHERE id > $1 ORDER BY id LIMIT $2";

const INSERT_RECORDS: &str = "
    INSERT INTO records (company, collection, id, version, updated_ms, value)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::text[])";

const INSERT_JOBS: &str = "
    INSERT INTO jobs
        (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $8::int8[], $9::int8[], $10::bool[], $11::text[], $12::text[], $13::text[])";

const HAS_ROWS: &str = "SELECT EXISTS (SELECT FROM records) OR EXISTS (SELECT FROM jobs)";

/// A PostgreSQL database, read in one transaction.
pub(crate) struct PostgresCopySource(Session);

/// An empty PostgreSQL database in a transaction.
pub(crate) struct PostgresCopyTarget(PostgresCopySource);

impl PostgresCopySource {
    /// Opens the database, migrating it from an older version if needed, and begins a snapshot.
    pub(crate) async fn open(url: &str) -> Result<Self, CopyError> {
        let session = connect(url).await?;
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {SET_UP}");
        session.begin_as(&begin).await.map_err(CopyError::failed)?;
        Ok(Self(session))
    }
}

async fn connect(url: &str) -> Result<Session, CopyError> {
    let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
    SessionPool::open(&APP_JOBS, url, &options).await.map_err(CopyError::open)?;
    let sessions = SessionPool::open(&APP, url, &options).await.map_err(CopyError::open)?;
    sessions.get().await.map_err(CopyError::failed)
}

impl PostgresCopyTarget {
    /// Opens the database, creating its tables if needed, and begins a transaction. Other writers wait for its end.
    pub(crate) async fn open(url: &str) -> Result<Self, CopyError> {
        let session = connect(url).await?;
        let begin = format!("BEGIN; {SET_UP}; LOCK TABLE records, jobs IN EXCLUSIVE MODE");
        session.begin_as(&begin).await.map_err(CopyError::failed)?;
        let rows = session.query(HAS_ROWS, &[]).await.map_err(CopyError::failed)?;
        match rows.first().is_none_or(|row| row.get(0)) {
            true => Err(CopyError::NotEmpty),
            false => Ok(Self(PostgresCopySource(session))),
        }
    }
}

impl CopyRows for PostgresCopySource {
    async fn records(&mut self, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError> {
        select_records(&self.0, after).await
    }

    async fn jobs(&mut self, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError> {
        select_jobs(&self.0, after).await
    }

    async fn last_version(&mut self) -> Result<i64, CopyError> {
        last_version(&self.0).await
    }
}

impl CopySink for PostgresCopyTarget {
    async fn insert_records(&mut self, rows: &[RecordRow]) -> Result<(), CopyError> {
        let text = |column: fn(&RecordRow) -> &String| -> Vec<&str> {
            rows.iter().map(|row| column(row).as_str()).collect()
        };
        let number = |column: fn(&RecordRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
        let (companies, collections, ids) =
            (text(|row| &row.company), text(|row| &row.collection), text(|row| &row.id));
        let (versions, updated, values) =
            (number(|row| row.version), number(|row| row.updated_ms), text(|row| &row.value));
        let values: Values<'_> = &[&companies, &collections, &ids, &versions, &updated, &values];
        self.0.0.query(INSERT_RECORDS, values).await.map(drop).map_err(CopyError::failed)
    }

    async fn insert_jobs(&mut self, rows: &[JobTableRow]) -> Result<(), CopyError> {
        let text = |column: fn(&JobTableRow) -> Option<&str>| -> Vec<Option<&str>> {
            rows.iter().map(column).collect()
        };
        let number = |column: fn(&JobTableRow) -> Option<i64>| -> Vec<Option<i64>> {
            rows.iter().map(column).collect()
        };
        let dead: Vec<bool> = rows.iter().map(|row| row.dead).collect();
        let values: Values<'_> = &[
            &text(|row| Some(&row.id)),
            &text(|row| Some(&row.company)),
            &text(|row| Some(&row.user_id)),
            &text(|row| row.tool.as_deref()),
            &text(|row| row.assignment.as_deref()),
            &text(|row| row.idempotency.as_deref()),
            &text(|row| Some(&row.state)),
            &number(|row| row.wake_ms),
            &number(|row| row.ended_ms),
            &dead,
            &text(|row| Some(&row.body)),
            &text(|row| row.progress.as_deref()),
            &text(|row| row.agent.as_deref()),
        ];
        self.0.0.query(INSERT_JOBS, values).await.map(drop).map_err(CopyError::failed)
    }
}

impl CopyTarget for PostgresCopyTarget {
    fn rows(&mut self) -> &mut impl CopyRows {
        &mut self.0
    }

    async fn set_last_version(&mut self, version: i64) -> Result<(), CopyError> {
        let sql = "SELECT setval('record_version', greatest($1::int8, 1))";
        self.0.0.query(sql, &[&version]).await.map(drop).map_err(CopyError::failed)
    }

    async fn finish(self) -> Result<(), CopyError> {
        self.0.0.commit(&[]).await.map(drop).map_err(CopyError::failed)
    }
}

async fn select_records(session: &Session, after: Option<&RecordRow>) -> Result<Vec<RecordRow>, CopyError> {
    let (company, collection, id) =
        after.map_or(("", "", ""), |row| (row.company.as_str(), row.collection.as_str(), row.id.as_str()));
    let rows = session.query(SELECT_RECORDS, &[&company, &collection, &id, &page_size()]).await;
    let record = |row: &Row| RecordRow {
        company: row.get(0),
        collection: row.get(1),
        id: row.get(2),
        version: row.get(3),
        updated_ms: row.get(4),
        value: row.get(5),
    };
    Ok(rows.map_err(CopyError::failed)?.iter().map(record).collect())
}

async fn select_jobs(session: &Session, after: Option<&JobTableRow>) -> Result<Vec<JobTableRow>, CopyError> {
    let after = after.map_or("", |row| row.id.as_str());
    let rows = session.query(SELECT_JOBS, &[&after, &page_size()]).await;
    let job = |row: &Row| JobTableRow {
        id: row.get(0),
        company: row.get(1),
        user_id: row.get(2),
        tool: row.get(3),
        assignment: row.get(4),
        idempotency: row.get(5),
        state: row.get(6),
        wake_ms: row.get(7),
        ended_ms: row.get(8),
        dead: row.get(9),
        body: row.get(10),
        progress: row.get(11),
        agent: row.get(12),
    };
    Ok(rows.map_err(CopyError::failed)?.iter().map(job).collect())
}

fn page_size() -> i64 {
    i64::try_from(ROWS_PER_PAGE).unwrap_or(i64::MAX)
}

async fn last_version(session: &Session) -> Result<i64, CopyError> {
    let rows = session.query("SELECT last_value FROM record_version", &[]).await;
    Ok(rows.map_err(CopyError::failed)?.first().map_or(0, |row| row.get(0)))
}
