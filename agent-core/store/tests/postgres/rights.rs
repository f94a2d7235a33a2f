//! The contracts of the stores with the rights that docs/operating.md grants, and no others, while the server logs every
//! statement.

use std::sync::Arc;

use agent_platform::conformance::{self, BudgetStores};
use agent_store::postgres::{PostgresJobs, PostgresRecords};

use super::grants::documented_grants;
use super::statement_log::{self, Numbers, StatementCounts};
use super::template::DatabaseTemplate;
use super::{Cluster, impatient, other};

/// Role of the stores.
const ROLE: &str = "writer";
/// Names what the role could change beyond rows.
const SELECT_EXCESS_RIGHTS: &str = "
    SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace IN ('app'::regnamespace, 'app_jobs'::regnamespace) AND relkind IN ('r', 'p')
      AND has_table_privilege('writer', oid, 'TRUNCATE, REFERENCES, TRIGGER')
    UNION ALL
    SELECT nspname::text FROM pg_namespace
    WHERE nspname IN ('app', 'app_jobs') AND has_schema_privilege('writer', oid, 'CREATE')";

/// Factory of databases whose tables another role owns.
struct RestrictedFactory(DatabaseTemplate);

impl RestrictedFactory {
    async fn start() -> Self {
        let cluster = Cluster::start();
        let admin = other(&cluster, "postgres").await;
        let logged = [format!("CREATE ROLE {ROLE} LOGIN"), statement_log::log_statements_of(ROLE)];
        for sql in logged.into_iter().chain(statement_log::set_log_format()) {
            admin.batch_execute(&sql).await.expect("set");
        }
        let grants = documented_grants("app", ROLE);
        Self(DatabaseTemplate::create(cluster, &[&grants, statement_log::NOTE_NUMBERS]).await)
    }

    /// Creates a database with empty tables, and returns its URL for the role.
    async fn make(&self) -> String {
        self.0.copy().await.replace("postgres@", &format!("{ROLE}@"))
    }

    async fn open(url: &str) -> Arc<PostgresRecords> {
        Arc::new(PostgresRecords::open(url, impatient()).await.expect("open"))
    }

    /// Counts the statements of all databases.
    async fn count(&self) -> StatementCounts {
        let mut numbers = Numbers::default();
        for name in self.0.names() {
            let rows = other(&self.0.cluster, &name).await.query(statement_log::SELECT_NUMBERS, &[]).await;
            for row in rows.expect("read") {
                numbers.add(&name, row.get(0), row.get(1), row.get(2));
            }
        }
        StatementCounts::of(&self.0.cluster.log_text(), &numbers)
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
    let owner = other(&maker.0.cluster, &maker.0.names()[0]).await;
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
