//! Connection pool and transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Client, Connect, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode,
    RecyclingMethod, Runtime,
};
use futures_util::future::{BoxFuture, try_join_all, try_join3};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Config, Row, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{Address, PoolMode};
use super::error::{OperationError, PostgresError, PostgresErrorKind};
use super::param::Param;
use super::{PostgresOpenError, PostgresOptions};

/// Time that the client waits beyond the server's statement timeout.
const RESPONSE_GRACE: Duration = Duration::from_secs(5);

/// Parameter values of a statement.
pub(super) type Values<'v> = &'v [&'v (dyn Param + Sync)];

/// A statement with its parameter values.
pub(super) type Query<'q> = (&'q str, Values<'q>);

/// Returns true if a text contains NUL. PostgreSQL cannot store NUL and rejects a query with one, so no row can match.
pub(super) fn contains_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Opens connections on the runtime of the store, because the runtime of the request that needs one may end before it.
struct Connector {
    tls: MakeRustlsConnect,
    runtime: Handle,
}

impl Connect for Connector {
    fn connect(&self, config: &Config) -> BoxFuture<'_, ConnectResult> {
        let (config, tls) = (config.clone(), self.tls.clone());
        let connecting = self.runtime.spawn(async move {
            let (client, connection) = config.connect(tls).await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the database server was lost");
                }
            });
            Ok((client, driver))
        });
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected,
                // The runtime has ended, and the process with it.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

type ConnectResult = Result<(tokio_postgres::Client, JoinHandle<()>), tokio_postgres::Error>;

/// Connection pool of a store.
#[derive(Clone)]
pub(super) struct SessionPool {
    pool: Pool,
    mode: PoolMode,
    /// Statements that begin a transaction.
    begin: Arc<str>,
    failures: Arc<FailureCount>,
    response_timeout: Duration,
}

/// Count of failed statements and connections.
#[derive(Default)]
struct FailureCount {
    failed: AtomicU64,
    /// Count before the last check that found the server writable.
    checked: AtomicU64,
}

impl FailureCount {
    /// Counts a failure, and returns the outcome.
    fn record<T>(&self, outcome: Result<T, PostgresError>) -> Result<T, PostgresError> {
        if outcome.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

impl SessionPool {
    /// Creates a pool of connections that find tables in the schema `schema`. Connects when a session is taken.
    pub(super) fn connect(
        schema: &str,
        url: &str,
        options: &PostgresOptions,
    ) -> Result<Self, PostgresOpenError> {
        let address = Address::parse(url, options.connect_timeout)?;
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let connector = Connector { tls: address.tls, runtime: Handle::current() };
        let manager = Manager::from_connect(address.config, connector, config);
        let mode = address.pool_mode;
        let (settings, begin) = match mode {
            PoolMode::Session => (settings(options, schema, "SET"), "BEGIN".to_owned()),
            PoolMode::Transaction => (String::new(), begin_with_settings(options, schema)),
        };
        let limit = options.connect_timeout;
        let set_up = Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let executed = timeout(limit, client.batch_execute(&settings)).await;
                executed.map_err(|_| HookError::message("time-out"))?.map_err(HookError::Backend)
            })
        });
        let pool = Pool::builder(manager)
            .max_size(options.connections.max(1))
            // The server's processes of the connections that were used last have their caches and statements at hand.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(options.wait_timeout))
            // A host name can resolve to several addresses, and the connect timeout applies to each.
            .create_timeout(Some(options.connect_timeout * 4))
            .recycle_timeout(Some(options.connect_timeout))
            .runtime(Runtime::Tokio1)
            .post_create(set_up)
            .build()
            .map_err(|_| PostgresError::from(PoolError::NoRuntimeSpecified))?;
        let response_timeout = options.statement_timeout + RESPONSE_GRACE;
        Ok(Self { pool, mode, begin: begin.into(), failures: Arc::default(), response_timeout })
    }

    /// Counts failures together with another pool of the same server, so that [`check_writable`](Self::check_writable) of that
    /// pool tries the server after a failure of either.
    pub(super) fn count_failures_with(self, other: &Self) -> Self {
        Self { failures: other.failures.clone(), ..self }
    }

    /// Returns an error if a pooler is seen to share the server's connections, and the URL does not say so: settings
    /// and prepared statements of one connection would reach others. Connections of a busy pooler may not show it.
    pub(super) async fn check_not_shared(&self, session: &Session) -> Result<(), PostgresOpenError> {
        if self.mode != PoolMode::Session || self.max_size() < 2 {
            return Ok(());
        }
        // Without another connection, nothing can be seen.
        let Ok(other) = self.get().await else { return Ok(()) };
        let mut pids = Vec::new();
        for session in [session, &other, session] {
            pids.push(session.backend_pid().await?);
        }
        let is_shared = pids[0] == pids[1] || pids[0] != pids[2];
        other.release(Ok(())).await.map_err(OperationError::into_error)?;
        if is_shared { Err(PostgresOpenError::SharedConnections) } else { Ok(()) }
    }

    /// Returns the maximum number of connections.
    pub(super) fn max_size(&self) -> usize {
        self.pool.status().max_size
    }

    /// Checks that the server accepts writes, if anything has failed since the last check. A standby, as a primary becomes
    /// by a failover, answers reads.
    ///
    /// # Errors
    /// The reason, [`PostgresErrorKind::ReadOnly`] among them.
    pub(super) async fn check_writable(&self) -> Result<(), PostgresError> {
        let failed = self.failures.failed.load(Ordering::Relaxed);
        if self.failures.checked.load(Ordering::Relaxed) == failed {
            return Ok(());
        }
        if self.check_session_writable().await.is_err() {
            // Idle connections may have been lost, or be read-only from before the server was writable again.
            self.pool.retain(|_, _| false);
            self.check_session_writable().await?;
        }
        self.failures.checked.fetch_max(failed, Ordering::Relaxed);
        Ok(())
    }

    async fn check_session_writable(&self) -> Result<(), PostgresError> {
        let session = self.get().await?;
        let sql = "SELECT current_setting('transaction_read_only') = 'on'";
        let checked = match session.query(sql, &[]).await {
            Ok(rows) if rows.iter().any(|row| row.get(0)) => {
                Err(PostgresError::from_kind(PostgresErrorKind::ReadOnly))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let released = session.release(checked.map_err(OperationError::from)).await;
        released.map_err(OperationError::into_error)
    }

    pub(super) async fn get(&self) -> Result<Session, PostgresError> {
        let client = self.failures.record(self.pool.get().await.map_err(PostgresError::from))?;
        Ok(Session {
            client: Some(client),
            mode: self.mode,
            begin: self.begin.clone(),
            failures: self.failures.clone(),
            is_in_transaction: AtomicBool::new(false),
            response_timeout: self.response_timeout,
        })
    }
}

/// Returns the statements that begin a transaction with the settings, on a connection without them.
fn begin_with_settings(options: &PostgresOptions, schema: &str) -> String {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}", settings(options, schema, "SET LOCAL"))
}

/// Returns the settings of every connection, or of every transaction if `set` is `SET LOCAL`.
///
/// The planner's statistics of a job queue are always out of date. Each statement is written for a particular
/// index, so sequential and bitmap scans are disabled. Statements name tables without their schema; `pg_catalog` is
/// searched before it.
fn settings(options: &PostgresOptions, schema: &str, set: &str) -> String {
    let is_local = set != "SET";
    let statement = options.statement_timeout.as_millis().max(1);
    let lock = options.lock_timeout.as_millis().max(1);
    format!(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', {is_local})
             WHERE pg_catalog.current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
         {set} default_transaction_isolation = 'read committed';
         {set} search_path = {schema};
         {set} statement_timeout = {statement};
         {set} lock_timeout = {lock};
         {set} idle_in_transaction_session_timeout = {statement};
         {set} enable_seqscan = off;
         {set} enable_bitmapscan = off;
         {set} plan_cache_mode = force_generic_plan;
         {set} jit = off"
    )
}

/// A pooled connection in use by one operation. Only [`release`](Self::release) returns it to the pool. A session
/// that is dropped before, as by cancellation, closes its connection, and the server rolls back.
pub(super) struct Session {
    client: Option<Client>,
    mode: PoolMode,
    begin: Arc<str>,
    is_in_transaction: AtomicBool,
    failures: Arc<FailureCount>,
    response_timeout: Duration,
}

impl Session {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is taken at the end alone")
    }

    /// Sets the timeout of a response, in place of the one for statements.
    pub(super) fn set_response_timeout(&mut self, limit: Duration) {
        self.response_timeout = limit;
    }

    /// Returns the process id of the server's process.
    async fn backend_pid(&self) -> Result<i32, PostgresError> {
        let rows = self.with_timeout(self.client().simple_query("SELECT pg_backend_pid()")).await?;
        let pid = rows.iter().find_map(|row| match row {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        Ok(pid.unwrap_or_default())
    }

    /// Prepares the statements of queries, each once per connection; none for a pooler of transactions.
    async fn prepare(&self, queries: &[Query<'_>]) -> Result<Vec<Statement>, PostgresError> {
        let mut prepared = Vec::new();
        if self.mode == PoolMode::Session {
            for (sql, _) in queries {
                prepared.push(self.with_timeout(self.client().prepare_cached(sql)).await?);
            }
        }
        Ok(prepared)
    }

    /// Runs a query, whose statement is sent with it if it is not prepared.
    async fn execute(
        &self,
        prepared: Option<&Statement>,
        (sql, values): Query<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match prepared {
            Some(statement) => {
                let values: Vec<_> = values.iter().map(|value| value.to_sql_param()).collect();
                self.client().query(statement, &values).await
            }
            None => {
                let values: Vec<_> =
                    values.iter().map(|value| (value.to_sql_param(), value.sql_type())).collect();
                self.client().query_typed(sql, &values).await
            }
        }
    }

    /// Runs one query.
    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, PostgresError> {
        Ok(self.query_all(&[(sql, values)]).await?.pop().unwrap_or_default())
    }

    /// Runs queries in one pipeline and returns the rows of each.
    pub(super) async fn query_all(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, PostgresError> {
        self.send(false, queries, false).await
    }

    /// Runs statements without parameters, one after another.
    pub(super) async fn run(&self, sql: &str) -> Result<(), PostgresError> {
        self.with_timeout(self.client().batch_execute(sql)).await
    }

    /// Runs statements without parameters that begin a transaction.
    #[cfg(feature = "sqlite")]
    pub(super) async fn begin_as(&self, sql: &str) -> Result<(), PostgresError> {
        self.is_in_transaction.store(true, Ordering::Relaxed);
        self.run(sql).await
    }

    /// Begins a transaction, runs queries in it and returns the rows of each.
    pub(super) async fn begin(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, PostgresError> {
        self.send(true, queries, false).await
    }

    /// Runs queries and commits the transaction.
    pub(super) async fn commit(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, PostgresError> {
        self.send(false, queries, true).await
    }

    /// Runs queries as one transaction.
    pub(super) async fn transact(&self, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, PostgresError> {
        self.send(true, queries, true).await
    }

    /// Sends all statements in one pipeline, which takes one network round trip. If one fails, those after it
    /// fail too, and the server treats `COMMIT` in a failed transaction as a rollback.
    async fn send(
        &self,
        begin: bool,
        queries: &[Query<'_>],
        commit: bool,
    ) -> Result<Vec<Vec<Row>>, PostgresError> {
        // Behind a pooler of transactions, the settings are those of a transaction.
        let is_single =
            self.mode == PoolMode::Transaction && !begin && !self.is_in_transaction.load(Ordering::Relaxed);
        let (begin, commit) = (begin || is_single, commit || is_single);
        let prepared = self.prepare(queries).await?;
        let client = self.client();
        let run_if = async |wanted, sql: &str| if wanted { client.batch_execute(sql).await } else { Ok(()) };
        // Each query is sent when it is first polled, so statements are sent in the order of polls.
        let queries = queries.iter().enumerate();
        let rows =
            try_join_all(queries.map(|(position, query)| self.execute(prepared.get(position), *query)));
        if begin || commit {
            self.is_in_transaction.store(!commit, Ordering::Relaxed);
        }
        Ok(self.with_timeout(try_join3(run_if(begin, &self.begin), rows, run_if(commit, "COMMIT"))).await?.1)
    }

    async fn with_timeout<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PostgresError> {
        let answered = match timeout(self.response_timeout, answer).await {
            Ok(answered) => answered.map_err(PostgresError::from),
            Err(_) => Err(PostgresError::from_kind(PostgresErrorKind::TimedOut)),
        };
        self.failures.record(answered)
    }

    /// Rolls back the open transaction and returns the connection to the pool.
    pub(super) async fn rollback(mut self) -> Result<(), PostgresError> {
        self.run("ROLLBACK").await?;
        self.client = None;
        Ok(())
    }

    /// Ends the session. Returns the connection to the pool if it is still usable after this outcome, rolling
    /// back an open transaction first.
    pub(super) async fn release<T>(
        mut self,
        outcome: Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        let is_clean = match &outcome {
            Ok(_) => true,
            Err(OperationError::Failed(error)) if !error.leaves_session_usable() => false,
            Err(_) => self.run("ROLLBACK").await.is_ok(),
        };
        if is_clean {
            self.client = None;
        }
        outcome
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}
