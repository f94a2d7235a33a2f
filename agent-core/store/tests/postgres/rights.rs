//! The contracts of the stores with the rights that docs/operating.md grants, and no others, while the server logs every
//! statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_platform::conformance::{self, BudgetStores};
use agent_store::postgres::{PostgresJobs, PostgresRecords, migrate};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::grants::documented_grants;
use super::statement_log::{self, Numbers, StatementCounts};
use super::{Cluster, database, impatient, other};

/// Role of the stores.
const ROLE: &str = "writer";
/// Database with empty tables, of which the others are copies.
const TEMPLATE: &str = "prepared";
/// Names what the role could change beyond rows.
const SELECT_EXCESS_RIGHTS: &str = "
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace IN ('app'::regnamespace, 'app_jobs'::regnamespace) AND relkind IN ('r', 'p')
      AND has_table_privilege('writer', oid, 'TRUNCATE, REFERENCES, TRIGGER')
    UNION ALL
    SELECT nspname::text FROM pg_namespace
    WHERE nspname IN ('app', 'app_jobs') AND has_schema_privilege('writer', oid, 'CREATE')";

/// Factory of databases whose tables another role owns.
struct RestrictedFactory {
    cluster: Cluster,
    made: AtomicUsize,
}

impl RestrictedFactory {
    async fn start() -> Self {
        let cluster = Cluster::start();
        let admin = other(&cluster, "postgres").await;
        let logged = [format!("CREATE ROLE {ROLE} LOGIN"), statement_log::log_statements_of(ROLE)];
        for sql in logged.into_iter().chain(statement_log::set_log_format()) {
            admin.batch_execute(&sql).await.expect("set");
        }
        let url = database(&cluster, TEMPLATE).await;
        migrate(&url, &impatient()).await.expect("migrated");
        let (owner, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        for sql in [documented_grants("app", ROLE).as_str(), statement_log::NOTE_NUMBERS] {
            owner.batch_execute(sql).await.expect("granted");
        }
        // A template must have no connection.
        drop(owner);
        connection.await.expect("it ends").expect("it is closed");
        Self { cluster, made: AtomicUsize::new(0) }
    }

    fn name(number: usize) -> String {
        format!("store_{number}")
    }

    /// Creates a database with empty tables, and returns its URL for the role.
    async fn make(&self) -> String {
        let name = Self::name(self.made.fetch_add(1, Ordering::Relaxed));
        let admin = other(&self.cluster, "postgres").await;
        let sql = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}");
        // The server may still end the connections that have made the template.
        while let Err(error) = admin.batch_execute(&sql).await {
            assert_eq!(error.code(), Some(&SqlState::OBJECT_IN_USE), "{error}");
            tokio::task::yield_now().await;
        }
        self.cluster.url(&name).replace("postgres@", &format!("{ROLE}@"))
    }

    async fn open(url: &str) -> Arc<PostgresRecords> {
        Arc::new(PostgresRecords::open(url, impatient()).await.expect("open"))
    }

    /// Counts the statements of all databases.
    async fn count(&self) -> StatementCounts {
        let mut numbers = Numbers::default();
        for number in 0..self.made.load(Ordering::Relaxed) {
            let name = Self::name(number);
            let rows = other(&self.cluster, &name).await.query(statement_log::SELECT_NUMBERS, &[]).await;
            for row in rows.expect("read") {
                numbers.add(&name, row.get(0), row.get(1), row.get(2));
            }
        }
        StatementCounts::of(&self.cluster.log_text(), &numbers)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn documented_rights_are_enough_and_every_statement_binds_the_company() {
    let maker = RestrictedFactory::start().await;
    let make = async || RestrictedFactory::open(&maker.make().await).await;
    conformance::records(async || make().await as _).await;
    conformance::inventory(async || make().await as _).await;
    conformance::conversations(async || make().await as _).await;
    conformance::usage(async || make().await as _).await;
    let make_many = async |processes: usize| {
        let url = maker.make().await;
        let mut stores: Vec<BudgetStores> = Vec::new();
        for _ in 0..processes {
            let store = RestrictedFactory::open(&url).await;
            stores.push((store.clone(), store));
        }
        stores
    };
    conformance::budgets(make_many, Arc::new(|task| drop(tokio::spawn(task)))).await;
    let make_jobs = async || {
        let opened = PostgresJobs::open_for_application(&maker.make().await, impatient()).await;
        Arc::new(opened.expect("open")) as _
    };
    agent_jobs::conformance::jobs(make_jobs).await;

    let counts = maker.count().await;
    counts.check();
    let owner = other(&maker.cluster, &RestrictedFactory::name(0)).await;
    let tables = owner.query(statement_log::SELECT_TABLES, &[]).await.expect("read");
    let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
    statement_log::check_tables(&tables);
    let unused: Vec<_> =
        tables.iter().filter(|table| *table != "schema_version" && !counts.tables.contains(*table)).collect();
    assert!(unused.is_empty(), "no statement names {unused:?}");
    let excess = owner.query(SELECT_EXCESS_RIGHTS, &[]).await.expect("read");
    let excess: Vec<String> = excess.iter().map(|row| row.get(0)).collect();
    assert!(excess.is_empty(), "the role may change more than rows: {excess:?}");
}
