//! Change feed: invalidates cached reads after writes of this process and of other processes.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_platform::records::Collection;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;

use crate::postgres::error::{OperationError, PostgresError};
use crate::postgres::session::{Session, SessionPool, Values};
use crate::slots::{SlotTable, Stamp, StampSource};

/// Maximum delay after which a write of another process is visible to cached reads.
const MAX_STALENESS: Duration = Duration::from_millis(100);
/// Interval between the beginnings of two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time without cached reads after which polling pauses.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before another poll after a failed one.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Maximum number of changes that a poll processes one by one; beyond it, all cached reads are invalidated.
const MAX_CHANGES_PER_POLL: usize = 10_000;

/// Maximum usual duration of a transaction that writes changes: more than all its timeouts together. A commit that
/// waits for a standby has no timeout.
const MAX_TRANSACTION_TIME: Duration = Duration::from_secs(300);
/// Age after which changes are deleted. A process that has not polled for [`MAX_TRANSACTION_TIME`] invalidates all.
const RETENTION: Duration = Duration::from_secs(600);
/// Time after a commit with an unknown outcome at whose end its transaction is older than [`MAX_TRANSACTION_TIME`] for
/// every poll.
const UNKNOWN_OUTCOME_TIME: Duration = RETENTION;
/// Interval at which transaction ids are sampled, to estimate the age of other transactions.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between deletions of old changes.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of old changes that are deleted between two polls: few enough that the next poll is not late.
const PRUNE_ROWS: i64 = 2_000;

/// Reads the current snapshot and the start time of the server, which distinguishes servers.
const SELECT_SNAPSHOT: &str = "SELECT pg_current_snapshot()::text, pg_postmaster_start_time()::text";

/// Reads the current snapshot, the start time of the server, and the changes that are visible in the snapshot and were
/// not in the previous one, `$1`. Transactions before `$2` that were not running in the previous snapshot are all known:
/// without that bound, a transaction that stays open would make every poll scan all changes since its
/// beginning. The few transactions that were running, also of this process, are looked up one by one. Changes of
/// transactions that have not started were restored from a backup of another server, before this process has cached
/// anything.
const SELECT_CHANGES: &str = "
    SELECT now.snapshot::text, now.server, change.company, change.collections, change.ids
    FROM (SELECT pg_current_snapshot() AS snapshot, pg_postmaster_start_time()::text AS server) AS now
    LEFT JOIN LATERAL (
        SELECT company, collections, ids FROM change
        WHERE xid >= greatest(pg_snapshot_xmin($1::text::pg_snapshot), $2::text::xid8)
          AND xid < pg_snapshot_xmax(now.snapshot)
          AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot) AND origin <> $3
        UNION ALL
        SELECT company, collections, ids FROM change
        WHERE xid = ANY (ARRAY (
            SELECT running FROM pg_snapshot_xip($1::text::pg_snapshot) AS running WHERE running < $2::text::xid8
        ))
        LIMIT $4
    ) AS change ON true";

/// Deletes changes of transactions before `$1` that were visible in an old snapshot, `$2`: changes that were committed
/// later may be unknown to other processes.
const DELETE_OLD: &str = "
    WITH removed AS (
        DELETE FROM change WHERE ctid = ANY (ARRAY (
            SELECT ctid FROM change
            WHERE xid < $1::text::xid8 AND pg_visible_in_snapshot(xid, (SELECT $2::text::pg_snapshot))
            ORDER BY xid LIMIT $3 FOR UPDATE SKIP LOCKED
        )) RETURNING 1
    )
    SELECT count(*) FROM removed";

/// Invalidation state of the cached reads of this process.
pub(in crate::postgres) struct ChangeTracker {
    state: Mutex<TrackerState>,
    /// True if a cached read was attempted since the poller last looked.
    is_used: AtomicBool,
    is_paused: AtomicBool,
    resume: Notify,
}

struct TrackerState {
    slots: SlotTable,
    /// Beginning of the last successful poll.
    last_poll: Option<Instant>,
    /// Until this time, changes of this process are processed like changes of other processes, because the outcome of a commit is
    /// unknown.
    own_uncertain_until: Option<Instant>,
}

impl ChangeTracker {
    pub(in crate::postgres) fn new() -> Self {
        let state = TrackerState { slots: SlotTable::new(), last_poll: None, own_uncertain_until: None };
        Self {
            state: Mutex::new(state),
            is_used: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            resume: Notify::new(),
        }
    }

    /// Marks the beginning of a commit of this process that changes these slots, until the value is dropped.
    pub(super) fn begin_commit(self: &Arc<Self>, slots: Vec<usize>) -> CommitInProgress {
        self.state().slots.begin_commit(&slots);
        CommitInProgress { tracker: self.clone(), slots }
    }

    /// Records that the outcome of a commit of this process is unknown.
    pub(super) fn record_unknown_outcome(&self) {
        let mut state = self.state();
        state.own_uncertain_until = Some(Instant::now() + UNKNOWN_OUTCOME_TIME);
        state.slots.invalidate_all();
    }

    fn is_own_uncertain(&self) -> bool {
        self.state().own_uncertain_until.is_some_and(|until| Instant::now() < until)
    }

    /// Processes the rows of a poll that started at `started_at`.
    fn record_changes(&self, rows: &[Row], started_at: Instant) {
        let mut state = self.state();
        if rows.len() > MAX_CHANGES_PER_POLL {
            state.slots.invalidate_all();
        } else {
            rows.iter().for_each(|row| invalidate_row(&mut state.slots, row));
        }
        state.last_poll = Some(started_at);
    }

    /// Invalidates all cached reads, and records that changes after `started_at` will be polled.
    fn restart(&self, started_at: Instant) {
        let mut state = self.state();
        state.slots.invalidate_all();
        state.last_poll = Some(started_at);
    }

    /// Locks the state. No code panics while it holds the lock.
    fn state(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StampSource for ChangeTracker {
    fn stamp(&self, of: &impl Hash) -> Option<Stamp> {
        self.state().slots.stamp(SlotTable::slot(of))
    }

    fn is_valid(&self, stamp: Stamp) -> bool {
        self.state().slots.is_valid(stamp)
    }

    fn may_serve(&self, stamps: impl IntoIterator<Item = Stamp>) -> bool {
        self.is_used.store(true, Ordering::Relaxed);
        if self.is_paused.load(Ordering::Relaxed) {
            self.resume.notify_one();
        }
        let now = Instant::now();
        let state = self.state();
        let is_recent =
            state.last_poll.is_some_and(|started_at| now.duration_since(started_at) < MAX_STALENESS);
        is_recent && stamps.into_iter().all(|stamp| state.slots.is_valid(stamp))
    }
}

/// A commit of this process in progress.
pub(super) struct CommitInProgress {
    tracker: Arc<ChangeTracker>,
    slots: Vec<usize>,
}

impl Drop for CommitInProgress {
    fn drop(&mut self) {
        self.tracker.state().slots.end_commit(&self.slots);
    }
}

/// Invalidates the records that a row of the feed names. A row without keys stands for all records of its company.
fn invalidate_row(slots: &mut SlotTable, row: &Row) {
    let Some(company) = row.get::<_, Option<&str>>(2) else { return };
    let keys = row.get::<_, Option<Vec<&str>>>(3).zip(row.get::<_, Option<Vec<&str>>>(4));
    let Some((paths, ids)) = keys else { return slots.invalidate_all() };
    for (path, id) in paths.into_iter().zip(ids) {
        match Collection::from_stored(company, path).and_then(|collection| collection.key(id)) {
            Ok(key) => {
                slots.invalidate(SlotTable::slot(&key));
                slots.invalidate(SlotTable::slot(key.collection()));
            }
            Err(_) => slots.invalidate_all(),
        }
    }
}

/// Snapshot of an earlier time.
struct XidSample {
    time: Instant,
    /// Lowest transaction id that was not assigned yet.
    xmax: u64,
    /// Text `xmin:xmax:xip`.
    snapshot: String,
}

/// Snapshots of earlier times, oldest first.
#[derive(Default)]
struct XidSamples(VecDeque<XidSample>);

impl XidSamples {
    /// Remembers a snapshot `xmin:xmax:xip`.
    fn record(&mut self, snapshot: &str, now: Instant) {
        if self.0.back().is_some_and(|sample| now.duration_since(sample.time) < SAMPLE_INTERVAL) {
            return;
        }
        let Some(xmax) = snapshot.split(':').nth(1).and_then(|xmax| xmax.parse().ok()) else { return };
        self.0.push_back(XidSample { time: now, xmax, snapshot: snapshot.to_owned() });
        // The newest sample of that age and all later ones are needed.
        while self.0.get(1).is_some_and(|sample| now.duration_since(sample.time) > RETENTION) {
            self.0.pop_front();
        }
    }

    /// Returns the newest snapshot that was taken at least `age` ago.
    fn before(&self, age: Duration, now: Instant) -> Option<&XidSample> {
        self.0.iter().rev().find(|sample| now.duration_since(sample.time) >= age)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Position in the feed: the server, and the snapshot up to which changes were read.
#[derive(Default)]
struct FeedPosition {
    snapshot: String,
    server: String,
}

impl FeedPosition {
    /// Reads the position from rows that begin with it.
    fn of(rows: &[Row]) -> Self {
        rows.first().map(|row| Self { snapshot: row.get(0), server: row.get(1) }).unwrap_or_default()
    }
}

/// Polls the table of changes for the tracker, on a separate connection.
pub(in crate::postgres) struct Poller {
    tracker: Arc<ChangeTracker>,
    sessions: SessionPool,
    /// Name of this process in the table.
    origin: String,
    samples: XidSamples,
    last_prune: Instant,
    /// True if there are more old changes than were deleted after the last poll.
    is_pruning: bool,
}

impl Poller {
    pub(in crate::postgres) fn new(
        tracker: Arc<ChangeTracker>,
        sessions: SessionPool,
        origin: String,
    ) -> Self {
        let (samples, last_prune) = (XidSamples::default(), Instant::now());
        Self { tracker, sessions, origin, samples, last_prune, is_pruning: false }
    }

    /// Polls until the task is aborted.
    pub(in crate::postgres) async fn run(mut self) {
        loop {
            match self.poll_session().await {
                Ok(never) => match never {},
                Err(error) => {
                    let error = match &error {
                        OperationError::Failed(error) => error.display_with_source(),
                        OperationError::Rejected(error) => error.to_string(),
                    };
                    tracing::warn!(error, "the change feed cannot be read: reads are not cached");
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Polls on one connection until it fails.
    async fn poll_session(&mut self) -> Result<std::convert::Infallible, OperationError> {
        let session = self.sessions.get().await?;
        let poll_started = Instant::now();
        let mut position = FeedPosition::of(&session.query(SELECT_SNAPSHOT, &[]).await?);
        // The connection may be to another server, whose changes since the last poll are not known.
        self.samples.clear();
        self.tracker.restart(poll_started);
        let (mut last_poll, mut last_use) = (poll_started, poll_started);
        loop {
            sleep(POLL_INTERVAL.saturating_sub(last_poll.elapsed())).await;
            if self.tracker.is_used.swap(false, Ordering::Relaxed) {
                last_use = Instant::now();
            } else if last_use.elapsed() > IDLE_TIMEOUT && !self.is_pruning {
                self.pause().await;
            }
            let poll_started = Instant::now();
            let floor = self.samples.before(MAX_TRANSACTION_TIME, poll_started).map(|sample| sample.xmax);
            let (rows, latest) = self.select_changes(&session, &position, floor).await?;
            if latest.server != position.server {
                // Behind a pooler, the connection outlives the server. Transaction ids of one mean nothing to another.
                self.samples.clear();
                self.tracker.restart(poll_started);
            } else if poll_started.duration_since(last_poll) > MAX_TRANSACTION_TIME {
                self.tracker.restart(poll_started);
            } else {
                self.tracker.record_changes(&rows, poll_started);
            }
            (position, last_poll) = (latest, poll_started);
            self.samples.record(&position.snapshot, poll_started);
            self.prune(&session).await?;
        }
    }

    /// Waits for a cached read, for a sampling interval at most.
    async fn pause(&self) {
        self.tracker.is_paused.store(true, Ordering::Relaxed);
        let _ = timeout(SAMPLE_INTERVAL, self.tracker.resume.notified()).await;
        self.tracker.is_paused.store(false, Ordering::Relaxed);
    }

    async fn select_changes(
        &self,
        session: &Session,
        position: &FeedPosition,
        floor: Option<u64>,
    ) -> Result<(Vec<Row>, FeedPosition), PostgresError> {
        let origin = if self.tracker.is_own_uncertain() { "" } else { self.origin.as_str() };
        let limit = i64::try_from(MAX_CHANGES_PER_POLL + 1).unwrap_or(i64::MAX);
        let floor = floor.unwrap_or_default().to_string();
        let values: Values<'_> = &[&position.snapshot, &floor, &origin, &limit];
        let rows = session.query(SELECT_CHANGES, values).await?;
        let latest = FeedPosition::of(&rows);
        Ok((rows, latest))
    }

    /// Deletes old changes from time to time, a part of them after each poll.
    async fn prune(&mut self, session: &Session) -> Result<(), PostgresError> {
        if !self.is_pruning && self.last_prune.elapsed() < PRUNE_INTERVAL {
            return Ok(());
        }
        self.last_prune = Instant::now();
        self.is_pruning = match self.samples.before(RETENTION, self.last_prune) {
            Some(sample) => delete_old(session, sample).await? == PRUNE_ROWS,
            None => false,
        };
        Ok(())
    }
}

/// Deletes changes that were visible at the time of a sample, at most [`PRUNE_ROWS`]. Returns their number.
async fn delete_old(session: &Session, sample: &XidSample) -> Result<i64, PostgresError> {
    let xmax = sample.xmax.to_string();
    let rows = session.query(DELETE_OLD, &[&xmax, &sample.snapshot, &PRUNE_ROWS]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

#[cfg(all(test, unix))]
mod tests;
