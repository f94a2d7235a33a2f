//! The server of the benchmark, and bare clients of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agent_store::postgres::{PostgresOptions, PostgresRecords};
use anyhow::{Context, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../../tests/support/cluster.rs"]
mod cluster;

/// Number of connections of a store, and of the reference.
pub(crate) const CONNECTIONS: usize = 8;

/// A temporary server, stopped on drop.
pub(crate) struct Server(cluster::Cluster);

impl Server {
    pub(crate) fn start() -> Self {
        Self(cluster::Cluster::start_synced())
    }

    /// Creates an empty database and returns its URL.
    pub(crate) async fn create_database(&self, name: &str) -> Result<String> {
        connect(&self.0.url("postgres")).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        Ok(self.0.url(name))
    }
}

/// Opens one connection of the bare client.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Opens a store with this many connections.
pub(crate) async fn open(url: &str, connections: usize, cache_bytes: usize) -> Result<PostgresRecords> {
    let options = PostgresOptions { connections, cache_bytes, ..PostgresOptions::default() };
    Ok(PostgresRecords::open(url, options).await?)
}

/// A pool of bare clients, each with state such as prepared statements.
pub(crate) struct BarePool<C> {
    idle: Mutex<Vec<C>>,
    permits: Semaphore,
}

impl<C> BarePool<C> {
    pub(crate) fn new(clients: Vec<C>) -> Self {
        Self { permits: Semaphore::new(clients.len()), idle: Mutex::new(clients) }
    }

    /// Waits for a client and runs an operation with it.
    pub(crate) async fn with<T>(&self, operation: impl AsyncFnOnce(&C) -> Result<T>) -> Result<T> {
        let _permit = self.permits.acquire().await?;
        let client = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().context("no client")?;
        let done = operation(&client).await;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
        done
    }
}

/// Runs an operation in turns of concurrent callers until the time is over, and returns the number per second. The
/// operation receives the caller's number and the number of its turn.
pub(crate) async fn per_second<O, F>(callers: usize, time: Duration, operation: O) -> Result<f64>
where
    O: Fn(usize, usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let operation = operation.clone();
        tasks.spawn(async move {
            let mut turns = 0;
            while started.elapsed() < time {
                operation(caller, turns).await?;
                turns += 1;
            }
            anyhow::Ok(turns)
        });
    }
    let mut done = 0;
    while let Some(turns) = tasks.join_next().await {
        done += turns??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}
