//! Insertion of jobs.

use std::collections::{HashMap, HashSet};

use agent_core::ids::JobId;
use agent_jobs::job::{InsertOutcome, Job, JobFilter};
use agent_platform::records::StoreError;
use tokio_postgres::Row;

use super::{NOTIFY_IF_EARLIEST, Sender, parse_row};
use crate::job_row::JobRow;
use crate::postgres::error::{OperationError, PostgresError, PostgresErrorKind};
use crate::postgres::param::Param;
use crate::postgres::session::{Query, Session, contains_nul};

const INSERT: &str = "
    INSERT INTO jobs
        (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body,
         progress, agent)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $8::int8[], $9::int8[], $10::bool[], $11::text[], $12::text[],
                         $13::text[])
    ON CONFLICT (company, idempotency) WHERE idempotency IS NOT NULL DO NOTHING
    RETURNING id";

/// Reads the jobs with given idempotency keys. `LIMIT` makes the planner look up each key instead of scanning
/// all.
const SELECT_BY_IDEMPOTENCY_KEYS: &str = "
    SELECT job.id, job.body, job.progress, job.company, job.idempotency
    FROM unnest($1::text[], $2::text[]) AS wanted (company, idempotency)
    CROSS JOIN LATERAL (
        SELECT id, body, progress, company, idempotency FROM jobs
        WHERE company = wanted.company AND idempotency = wanted.idempotency LIMIT 1
    ) AS job";

/// Waits for the end of other transactions that insert jobs of the user within a limit, so that each transaction counts the
/// jobs of the earlier ones.
const LOCK_USER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text || chr(31) || $2::text, 13))";

/// Sets the timeout of each lock of the transaction.
const SET_LOCK_TIMEOUT: &str = "SELECT set_config('lock_timeout', $1, true)";

/// Maximum number of insertion attempts for jobs whose key conflicted with a job that was removed before it
/// could be read.
const MAX_INSERT_ATTEMPTS: usize = 5;

/// Returns the rows of new jobs.
///
/// # Errors
/// A job cannot be stored.
pub(in crate::postgres) fn new_rows(jobs: Vec<Job>) -> Result<Vec<JobRow>, StoreError> {
    let rows = jobs.into_iter().map(JobRow::new).collect::<Result<Vec<_>, _>>()?;
    rows.iter().try_for_each(check_identifiers)?;
    Ok(rows)
}

/// Inserts jobs, and waits for each lock for at most `lock_timeout`. The flag is true if one of them has become the earliest.
pub(in crate::postgres) async fn insert(
    session: &Session,
    rows: &[JobRow],
    sender: &Sender,
    lock_timeout: &str,
) -> Result<(Vec<InsertOutcome>, bool), OperationError> {
    insert_rows(session, rows, sender, TransactionState::None(lock_timeout)).await
}

/// Inserts a job if its user has fewer than `max_open` jobs that are not final, or if its idempotency key is in use. The
/// flag is true if it has become the earliest.
pub(in crate::postgres) async fn insert_within_limit(
    session: &Session,
    row: &JobRow,
    max_open: u64,
    sender: &Sender,
    lock_timeout: &str,
) -> Result<(InsertOutcome, bool), OperationError> {
    let (company, user) = (row.job.payload.company_id.as_str(), row.job.payload.user_id.as_str());
    let lock_user: Query<'_> = (LOCK_USER, &[&company, &user]);
    session.begin(&[(SET_LOCK_TIMEOUT, &[&lock_timeout]), lock_user]).await?;
    let mut others = HashMap::new();
    if row.idempotency_key().is_some() {
        find_conflicting(session, &[row], &mut others).await?;
    }
    if let Some(existing) = others.remove(&row.job.id) {
        session.commit(&[]).await?;
        return Ok((existing, false));
    }
    let open_jobs = JobFilter::open_jobs_of_user(&row.job.payload);
    if super::count_up_to(session, &open_jobs, max_open).await? >= max_open {
        session.commit(&[]).await?;
        return Ok((InsertOutcome::LimitReached, false));
    }
    let (mut inserted, is_earliest) =
        insert_rows(session, std::slice::from_ref(row), sender, TransactionState::Open).await?;
    Ok((inserted.pop().unwrap_or(InsertOutcome::New), is_earliest))
}

/// State of the session's transaction before an insertion, which ends it.
#[derive(Clone, Copy)]
enum TransactionState<'t> {
    /// No transaction is open: the insertion begins one, which waits for each lock with this timeout.
    None(&'t str),
    /// A transaction is open.
    Open,
}

/// Inserts rows and commits.
async fn insert_rows(
    session: &Session,
    rows: &[JobRow],
    sender: &Sender,
    transaction: TransactionState<'_>,
) -> Result<(Vec<InsertOutcome>, bool), OperationError> {
    let mut pending: Vec<&JobRow> = rows.iter().collect();
    // An insert waits for a concurrent transaction with the same key. Inserting in the order of keys prevents
    // deadlocks. The sort is stable, so the first of several jobs with one key stays the first.
    pending.sort_by_key(|row| idempotency_key(row));
    let wake_ms = rows.iter().filter_map(|row| row.mutable.wake_ms).min();
    let notification_values: [&(dyn Param + Sync); 3] = [&wake_ms, &sender.name, &sender.channel];
    let notification: &[Query<'_>] =
        if wake_ms.is_some() { &[(NOTIFY_IF_EARLIEST, &notification_values)] } else { &[] };
    let columns = InsertColumns::from_rows(&pending);
    let values = columns.values();
    let queries = [notification, &[(INSERT, &values)]].concat();

    if rows.iter().all(|row| row.idempotency_key().is_none()) {
        let results = match transaction {
            // Rows without a key conflict with none, and so wait for none.
            TransactionState::None(_) => session.transact(&queries).await?,
            TransactionState::Open => session.commit(&queries).await?,
        };
        return Ok((vec![InsertOutcome::New; rows.len()], was_notified(&results, notification)));
    }
    let first_results = match transaction {
        TransactionState::None(lock_timeout) => {
            let set_timeout: [Query<'_>; 1] = [(SET_LOCK_TIMEOUT, &[&lock_timeout])];
            let statements = [set_timeout.as_slice(), queries.as_slice()].concat();
            let mut results = session.begin(&statements).await?;
            results.remove(0);
            results
        }
        TransactionState::Open => session.query_all(&queries).await?,
    };
    let mut stored = ids(first_results.last());
    let mut conflicting: HashMap<JobId, InsertOutcome> = HashMap::new();
    for _ in 0..MAX_INSERT_ATTEMPTS {
        pending.retain(|row| !stored.contains(row.job.id.as_str()));
        if pending.is_empty() {
            break;
        }
        find_conflicting(session, &pending, &mut conflicting).await?;
        pending.retain(|row| !conflicting.contains_key(&row.job.id));
        if !pending.is_empty() {
            stored.extend(ids(Some(
                &session.query(INSERT, &InsertColumns::from_rows(&pending).values()).await?,
            )));
        }
    }
    if !pending.is_empty() {
        return Err(PostgresError::from_kind(PostgresErrorKind::Locked).into());
    }
    session.commit(&[]).await?;
    let inserted =
        rows.iter().map(|row| conflicting.remove(&row.job.id).unwrap_or(InsertOutcome::New)).collect();
    Ok((inserted, was_notified(&first_results, notification)))
}

/// Returns true if the first query sent a notification.
fn was_notified(results: &[Vec<Row>], notification: &[Query<'_>]) -> bool {
    !notification.is_empty() && results.first().is_some_and(|rows| !rows.is_empty())
}

fn ids(rows: Option<&Vec<Row>>) -> HashSet<String> {
    rows.into_iter().flatten().map(|row| row.get(0)).collect()
}

fn idempotency_key(row: &JobRow) -> Option<(&str, &str)> {
    Some((row.job.payload.company_id.as_str(), row.idempotency_key()?))
}

/// Reads the stored jobs whose keys conflicted with the jobs in `pending`, and adds the outcomes to `others`.
async fn find_conflicting(
    session: &Session,
    pending: &[&JobRow],
    others: &mut HashMap<JobId, InsertOutcome>,
) -> Result<(), OperationError> {
    let (companies, keys): (Vec<&str>, Vec<&str>) =
        pending.iter().filter_map(|row| idempotency_key(row)).unzip();
    let rows = session.query(SELECT_BY_IDEMPOTENCY_KEYS, &[&companies, &keys]).await?;
    let mut jobs = HashMap::with_capacity(rows.len());
    for row in &rows {
        jobs.insert((row.get(3), row.get(4)), parse_row(row)?);
    }
    for row in pending {
        if let Some(job) = idempotency_key(row).and_then(|key| jobs.get(&key)) {
            others.insert(row.job.id.clone(), InsertOutcome::from_existing(Job::clone(job), &row.job));
        }
    }
    Ok(())
}

/// Returns an error if an identifier contains NUL, which no column can store.
fn check_identifiers(row: &JobRow) -> Result<(), StoreError> {
    let JobRow { job, .. } = row;
    let payload = &job.payload;
    let texts = [
        Some(&*job.id),
        Some(&*payload.company_id),
        Some(&*payload.user_id),
        Some(&*payload.agent_id),
        payload.tool_id.as_deref(),
        payload.assignment_id.as_deref(),
        row.idempotency_key(),
    ];
    if texts.into_iter().flatten().any(contains_nul) {
        return Err(StoreError::Invalid("an identifier of the job has a NUL character".to_owned()));
    }
    Ok(())
}

/// Column arrays of rows to insert.
#[derive(Default)]
struct InsertColumns<'r> {
    ids: Vec<&'r str>,
    companies: Vec<&'r str>,
    users: Vec<&'r str>,
    tools: Vec<Option<&'r str>>,
    assignments: Vec<Option<&'r str>>,
    keys: Vec<Option<&'r str>>,
    states: Vec<&'static str>,
    wakes: Vec<Option<i64>>,
    ended: Vec<Option<i64>>,
    dead: Vec<bool>,
    bodies: Vec<&'r str>,
    progress: Vec<&'r str>,
    agents: Vec<&'r str>,
}

impl<'r> InsertColumns<'r> {
    fn from_rows(rows: &[&'r JobRow]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            let JobRow { job, body, mutable: changing } = row;
            columns.ids.push(&job.id);
            columns.companies.push(&job.payload.company_id);
            columns.users.push(&job.payload.user_id);
            columns.tools.push(job.payload.tool_id.as_deref());
            columns.assignments.push(job.payload.assignment_id.as_deref());
            columns.keys.push(row.idempotency_key());
            columns.states.push(changing.state);
            columns.wakes.push(changing.wake_ms);
            columns.ended.push(changing.ended_ms);
            columns.dead.push(changing.dead);
            columns.bodies.push(body);
            columns.progress.push(&changing.progress);
            columns.agents.push(&job.payload.agent_id);
        }
        columns
    }

    fn values(&self) -> [&(dyn Param + Sync); 13] {
        [
            &self.ids,
            &self.companies,
            &self.users,
            &self.tools,
            &self.assignments,
            &self.keys,
            &self.states,
            &self.wakes,
            &self.ended,
            &self.dead,
            &self.bodies,
            &self.progress,
            &self.agents,
        ]
    }
}
