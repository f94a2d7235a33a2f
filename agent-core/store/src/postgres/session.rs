//! Connections, and what is done with one of them.

use std::time::Duration;

use deadpool_postgres::{
    Client, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use futures_util::future::{try_join_all, try_join3};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use super::PostgresOptions;
use super::address::Address;
use super::fault::{Fault, FaultKind, Halt};

/// How much longer than the server's own time-out its answer is waited for.
const GRACE: Duration = Duration::from_secs(5);

/// The values of a statement's parameters.
pub(super) type Values<'v> = &'v [&'v (dyn ToSql + Sync)];

/// A statement with its values.
pub(super) type Query<'q> = (&'q str, Values<'q>);

/// The connections that a store keeps.
pub(super) struct Sessions {
    pool: Pool,
    limit: Duration,
}

impl Sessions {
    pub(super) fn new(address: &Address, options: &PostgresOptions) -> Result<Self, Fault> {
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config.clone(), address.tls.clone(), config);
        let settings = settings(options);
        let limit = options.connect_timeout;
        let set_up = Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let set = timeout(limit, client.batch_execute(&settings)).await;
                set.map_err(|_| HookError::message("time-out"))?.map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            .wait_timeout(Some(options.wait_timeout))
            // A server's name can have several addresses, each of which has the time-out of a connection.
            .create_timeout(Some(options.connect_timeout * 4))
            .recycle_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1)
            .post_create(set_up)
            .build()
            .map_err(|_| PoolError::NoRuntimeSpecified)?;
        Ok(Self { pool, limit: options.statement_timeout + GRACE })
    }

    pub(super) async fn get(&self) -> Result<Session, Fault> {
        Ok(Session { client: Some(self.pool.get().await?), limit: self.limit })
    }
}

/// What holds for every statement.
///
/// Plans are chosen by statistics, and those of a table through which jobs pass are out of date at every moment;
/// each statement has an index that it is written for, so nothing else is offered.
fn settings(options: &PostgresOptions) -> String {
    let statement = options.statement_timeout.as_millis().max(1);
    let lock = options.lock_timeout.as_millis().max(1);
    format!(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)
             WHERE pg_catalog.current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
         SET default_transaction_isolation = 'read committed';
         SET search_path = pg_catalog;
         SET statement_timeout = {statement};
         SET lock_timeout = {lock};
         SET idle_in_transaction_session_timeout = {statement};
         SET enable_seqscan = off;
         SET enable_bitmapscan = off;
         SET plan_cache_mode = force_generic_plan;
         SET jit = off"
    )
}

/// A connection in one caller's hands. It goes back to the others by [`end`](Self::end) alone: where its holder
/// goes away before, it is closed, and the server undoes what was not committed.
pub(super) struct Session {
    client: Option<Client>,
    limit: Duration,
}

impl Session {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is taken at the end alone")
    }

    /// Waits more or less long than for a statement.
    pub(super) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// The statement, which the server reads once in a connection's life.
    async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        self.answer(self.client().prepare_cached(sql)).await
    }

    /// Runs one query.
    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Fault> {
        Ok(self.send(false, &[(sql, values)], false).await?.pop().unwrap_or_default())
    }

    /// Statements without values, one after another.
    pub(super) async fn run(&self, sql: &str) -> Result<(), Fault> {
        self.answer(self.client().batch_execute(sql)).await
    }

    /// Begins a transaction with some queries, and gives the rows of each.
    pub(super) async fn begin(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        self.send(true, queries, false).await
    }

    /// Ends a transaction with some queries.
    pub(super) async fn commit(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        self.send(false, queries, true).await
    }

    /// Runs some queries as one transaction.
    pub(super) async fn transact(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Fault> {
        self.send(true, queries, true).await
    }

    /// Sends all together, and so waits for the network once. Where one fails, those after it fail too, and the
    /// server takes a commit for the end of a transaction that has failed.
    async fn send(&self, begin: bool, queries: &[Query<'_>], commit: bool) -> Result<Vec<Vec<Row>>, Fault> {
        let client = self.client();
        let mut prepared = Vec::with_capacity(queries.len());
        for (sql, values) in queries {
            prepared.push((self.prepare(sql).await?, *values));
        }
        let word = async |word: &str, wanted| if wanted { client.batch_execute(word).await } else { Ok(()) };
        // Each is sent when it is polled for the first time, so the order is that of the polls.
        let rows = try_join_all(prepared.iter().map(|(statement, values)| client.query(statement, values)));
        Ok(self.answer(try_join3(word("BEGIN", begin), rows, word("COMMIT", commit))).await?.1)
    }

    async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        timeout(self.limit, answer).await.map_err(|_| Fault::of(FaultKind::TimedOut))?.map_err(Fault::from)
    }

    /// Gives the connection back, if it is of any use after what came of the work.
    pub(super) async fn end<T>(mut self, done: Result<T, Halt>) -> Result<T, Halt> {
        let is_clean = match &done {
            Ok(_) => true,
            Err(Halt::Failed(fault)) if !fault.was_answered() => false,
            Err(_) => self.run("ROLLBACK").await.is_ok(),
        };
        if is_clean {
            self.client = None;
        }
        done
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}
