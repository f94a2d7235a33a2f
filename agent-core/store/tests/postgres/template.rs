use std::sync::atomic::{AtomicUsize, Ordering};

use agent_store::postgres::migrate;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::{Cluster, database, impatient, other};

/// Name of the database that is copied.
const TEMPLATE: &str = "template_of_stores";

/// A migrated database of a server. A copy of it takes less time than the migration of an empty database.
pub(super) struct DatabaseTemplate {
    pub(super) cluster: Cluster,
    copies: AtomicUsize,
}

impl DatabaseTemplate {
    /// Migrates a database of a server, and runs statements in it.
    pub(super) async fn create(cluster: Cluster, statements: &[&str]) -> Self {
        let url = database(&cluster, TEMPLATE).await;
        migrate(&url, &impatient()).await.expect("migrated");
        let (owner, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        for sql in statements {
            owner.batch_execute(sql).await.expect("run");
        }
        // A template must have no connection.
        drop(owner);
        connection.await.expect("it ends").expect("it is closed");
        Self { cluster, copies: AtomicUsize::new(0) }
    }

    /// Creates a copy, and returns its URL.
    pub(super) async fn copy(&self) -> String {
        self.cluster.url(&self.copy_name().await)
    }

    /// Creates a copy, and returns its name.
    pub(super) async fn copy_name(&self) -> String {
        let name = Self::name(self.copies.fetch_add(1, Ordering::Relaxed));
        let admin = other(&self.cluster, "postgres").await;
        let sql = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}");
        // The server may still end the connections that have made the template.
        while let Err(error) = admin.batch_execute(&sql).await {
            assert_eq!(error.code(), Some(&SqlState::OBJECT_IN_USE), "{error}");
            tokio::task::yield_now().await;
        }
        name
    }

    /// Returns the names of the copies.
    pub(super) fn names(&self) -> Vec<String> {
        (0..self.copies.load(Ordering::Relaxed)).map(Self::name).collect()
    }

    fn name(number: usize) -> String {
        format!("store_{number}")
    }
}
