//! Opens the stores of the services.

use std::io;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId};
use agent_jobs::job::{JobStore, MemoryJobStore};
use agent_platform::conversation::{Conversations, MemoryConversations};
use agent_platform::memory::MemoryRecords;
use agent_platform::providers::Providers;
use agent_platform::records::Inventory;
use agent_platform::roles::{RecordRoleStore, RoleFinding, RoleStore as _};
use agent_platform::seal::Sealer;
use agent_platform::usage::{MemoryUsage, UsageStore};
use agent_platform::workspace::{
    CompanyMatch, ImportSummary, ReferenceError, WorkspaceFile, find_agent_company,
};

use crate::config::{AppConfig, Database, SchedulerConfig};
#[cfg(feature = "postgres")]
use agent_store::postgres::{self, PostgresJobs, PostgresOptions, PostgresRecords};
use agent_store::sqlite::{self, SqliteOptions, SqliteStore};

use crate::StartError;
use crate::command_error::CommandError;
use crate::masked_secrets::find_missing_secrets;

/// Stores of the application.
#[derive(Clone)]
pub struct Stores {
    /// Agents and their secrets.
    pub roles: Arc<RecordRoleStore>,
    /// All other records.
    pub records: Arc<dyn Inventory>,
    /// Jobs, for an application without a scheduler.
    pub jobs: Arc<dyn JobStore>,
    /// Conversations.
    pub conversations: Arc<dyn Conversations>,
    /// Usage of models and tools.
    pub usage: Arc<dyn UsageStore>,
}

impl Stores {
    /// Opens the configured database. Creates the file or the tables if they do not exist.
    ///
    /// # Errors
    /// The database cannot be opened, or is of a kind that this build does not support.
    pub async fn open(config: &AppConfig) -> Result<Self, StartError> {
        Ok(match &config.database {
            #[cfg(feature = "postgres")]
            Database::Postgres(url) => {
                let options = PostgresOptions {
                    connections: config.database_connections,
                    statement_timeout: STATEMENT_TIMEOUT,
                    lock_timeout: LOCK_TIMEOUT,
                    ..PostgresOptions::default()
                };
                // An application stores few jobs; a scheduler has a separate store.
                let few = PostgresOptions { connections: 2, ..options.clone() };
                let records = Arc::new(PostgresRecords::open(url.expose(), options).await?);
                let jobs = Arc::new(PostgresJobs::open_for_application(url.expose(), few).await?);
                Self::new(records, jobs, config)
            }
            database => Self::from_records(Arc::new(open_at(sqlite_path(database)?)?), config),
        })
    }

    /// Opens the configured database, which must exist: commands on stored data need some, and an error reveals a
    /// wrong `DATABASE_URL`.
    ///
    /// # Errors
    /// The database does not exist or has no tables, cannot be opened, or is of a kind that this build does not
    /// support.
    pub(crate) async fn open_existing(config: &AppConfig) -> Result<Self, StartError> {
        check_existing(&config.database).await?;
        Self::open(config).await
    }

    /// Creates the stores over one database, with secrets sealed under the configured keys.
    pub fn from_records(
        records: Arc<impl Inventory + JobStore + Conversations + UsageStore + 'static>,
        config: &AppConfig,
    ) -> Self {
        Self::new(records.clone(), records, config)
    }

    fn new(
        records: Arc<impl Inventory + Conversations + UsageStore + 'static>,
        jobs: Arc<dyn JobStore>,
        config: &AppConfig,
    ) -> Self {
        let sealer = match &config.data_secret {
            Some(secret) => Sealer::new(secret, config.data_secret_previous.as_ref()),
            None => Sealer::without_key(),
        };
        let roles = Arc::new(RecordRoleStore::new(records.clone(), sealer));
        Self { roles, jobs, records: records.clone(), conversations: records.clone(), usage: records }
    }

    /// Creates the companies' providers.
    pub fn providers(&self) -> Arc<Providers> {
        Arc::new(Providers::new(self.records.clone(), self.roles.sealer().clone()))
    }

    /// Creates stores in memory and imports the text of a workspace file. `origin` names the file in errors.
    ///
    /// # Errors
    /// Errors in the workspace file, by line and field.
    pub async fn in_memory(origin: &str, workspace: &str) -> Result<Self, StartError> {
        let records = Arc::new(MemoryRecords::default());
        let roles = Arc::new(RecordRoleStore::new(records.clone(), Sealer::ephemeral()));
        let conversations = Arc::new(MemoryConversations::default());
        let usage = Arc::new(MemoryUsage::default());
        let stores = Self { roles, records, jobs: Arc::new(MemoryJobStore::default()), conversations, usage };
        stores.import(origin, workspace).await?;
        Ok(stores)
    }

    /// Imports the text of a workspace file, in full or not at all. `origin` names the file in errors.
    ///
    /// # Errors
    /// Errors in the workspace file, by line and field, or an error of the store.
    pub async fn import(&self, origin: &str, workspace: &str) -> Result<Imported, StartError> {
        self.import_parsed(&ParsedWorkspace::new(origin.to_owned(), workspace.to_owned())?).await
    }

    /// Imports a parsed workspace file, in full or not at all.
    ///
    /// # Errors
    /// The file's references to missing items, by line and field, or an error of the store.
    pub(crate) async fn import_parsed(&self, workspace: &ParsedWorkspace) -> Result<Imported, StartError> {
        let ParsedWorkspace { origin, text, file } = workspace;
        file.check_references(text, &*self.records).await.map_err(|error| match error {
            ReferenceError::Missing(source) => StartError::Workspace { origin: origin.clone(), source },
            ReferenceError::Store(error) => error.into(),
            error => StartError::Other(error.to_string()),
        })?;
        let summary = file.apply(&self.roles).await?;
        let mut warnings = file.warnings();
        warnings.extend(find_missing_secrets(text, file, &self.roles).await?);
        Ok(Imported { summary, warnings })
    }

    /// Returns the company of an agent that an operator names: `company`, or else the only one that has it.
    pub(crate) async fn company_of(
        &self,
        agent: &AgentId,
        company: Option<&CompanyId>,
    ) -> Result<CompanyId, CommandError> {
        let company_match = match company {
            None => find_agent_company(&*self.records, agent, None).await?,
            Some(company) if self.roles.masked_role(company, agent).await?.is_some() => {
                CompanyMatch::One(company.clone())
            }
            Some(_) => CompanyMatch::None,
        };
        match company_match {
            CompanyMatch::One(company) => Ok(company),
            CompanyMatch::None => Err(CommandError::no_agent(agent, company)),
            CompanyMatch::Ambiguous => Err(CommandError::AmbiguousAgent(agent.to_string())),
        }
    }

    /// Imports a workspace file, in full or not at all.
    ///
    /// # Errors
    /// [`StartError::Unreadable`] if the file cannot be read, and all errors of [`import`](Self::import).
    pub async fn import_file(&self, path: &Path) -> Result<Imported, StartError> {
        self.import_parsed(&ParsedWorkspace::read(path)?).await
    }
}

/// A workspace file that was parsed without errors.
pub(crate) struct ParsedWorkspace {
    /// Name of the file in errors.
    origin: String,
    text: String,
    file: WorkspaceFile,
}

impl ParsedWorkspace {
    fn new(origin: String, text: String) -> Result<Self, StartError> {
        match WorkspaceFile::parse(&text) {
            Ok(file) => Ok(Self { origin, text, file }),
            Err(source) => Err(StartError::Workspace { origin, source }),
        }
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`StartError::Unreadable`] if the file cannot be read; errors in it, by line and field.
    pub(crate) fn read(path: &Path) -> Result<Self, StartError> {
        let text = std::fs::read_to_string(path).map_err(StartError::unreadable(path))?;
        Self::new(path.display().to_string(), text)
    }
}

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
    /// Numbers of written items.
    pub summary: ImportSummary,
    /// Settings of agents that are legal and have no effect, and masked secrets that the database does not have, by their
    /// paths in the file.
    pub warnings: Vec<RoleFinding>,
}

/// Opens a SQLite file. Creates it and its folder if they do not exist.
fn open_at(path: &Path) -> Result<SqliteStore, StartError> {
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    Ok(SqliteStore::open(path, SqliteOptions::default())?)
}

/// Opens a SQLite file, which must exist.
///
/// # Errors
/// The file does not exist or cannot be opened.
pub(crate) fn open_existing_file(path: &Path) -> Result<SqliteStore, StartError> {
    check_exists(path)?;
    Ok(SqliteStore::open(path, SqliteOptions::default())?)
}

/// Returns an error if a database does not exist or has no tables of this program.
pub(crate) async fn check_existing(database: &Database) -> Result<(), StartError> {
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres(url) if has_tables(url.expose()).await? => Ok(()),
        #[cfg(feature = "postgres")]
        Database::Postgres(_) => Err(StartError::Other(
            "the database in DATABASE_URL has no tables of this program; `agentd import` and `agentd migrate` create them"
                .to_owned(),
        )),
        database => check_exists(sqlite_path(database)?),
    }
}

/// Returns true if a PostgreSQL database has tables of this program, of any version.
#[cfg(feature = "postgres")]
pub(crate) async fn has_tables(url: &str) -> Result<bool, StartError> {
    let status = postgres::migration_status(url, &PostgresOptions::default()).await?;
    Ok(status.iter().all(|status| status.found > 0))
}

/// Creates a folder and those above it, if they do not exist.
///
/// # Errors
/// It cannot be created, such as where a file has its name.
pub(crate) fn create_folder(folder: &Path) -> Result<(), StartError> {
    std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => StartError::Other(format!("{} is not a directory", folder.display())),
        _ => StartError::unwritable(folder)(error),
    })
}

fn check_exists(path: &Path) -> Result<(), StartError> {
    // A folder that may not be searched does not tell whether it has the file.
    if path.try_exists().map_err(StartError::unreadable(path))? {
        return Ok(());
    }
    Err(StartError::Other(format!(
        "the database {} does not exist; see DATABASE_URL, and `agentd import` to create one",
        path.display()
    )))
}

/// State of the migrations of a database, or of a schema in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigrationStatus {
    /// The file, or the name of the schema.
    pub(crate) name: String,
    /// Version in the database; 0 if there is none.
    pub(crate) found: i64,
    /// Newest version that this program knows.
    pub(crate) newest: i64,
}

/// Returns the state of the configured database's migrations, without changing anything.
///
/// # Errors
/// The database cannot be opened, or is of a kind that this build does not support.
pub(crate) async fn migration_status(config: &AppConfig) -> Result<Vec<MigrationStatus>, StartError> {
    match &config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres(url) => {
            let statuses = postgres::migration_status(url.expose(), &PostgresOptions::default()).await?;
            let status = |status: postgres::MigrationStatus| MigrationStatus {
                name: format!("schema {}", status.schema),
                found: status.found.into(),
                newest: status.newest.into(),
            };
            Ok(statuses.into_iter().map(status).collect())
        }
        database => {
            let path = sqlite_path(database)?;
            check_exists(path)?;
            let (found, newest) = sqlite::schema_versions(path)?;
            Ok(vec![MigrationStatus { name: path.display().to_string(), found, newest }])
        }
    }
}

/// Migrates the configured database to the newest version. Creates it if it does not exist.
///
/// # Errors
/// The database cannot be opened, or is of a kind that this build does not support.
pub(crate) async fn migrate(config: &AppConfig) -> Result<(), StartError> {
    match &config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres(url) => postgres::migrate(url.expose(), &PostgresOptions::default()).await?,
        database => drop(open_at(sqlite_path(database)?)?),
    }
    Ok(())
}

/// Opens the scheduler's job store and creates its database if needed. Returns the store and the name of its
/// kind.
///
/// # Errors
/// The database cannot be opened, or is of a kind that this build does not support.
pub async fn open_jobs(config: &SchedulerConfig) -> Result<(Arc<dyn JobStore>, &'static str), StartError> {
    Ok(match &config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres(url) => {
            let options =
                PostgresOptions { connections: config.database_connections, ..PostgresOptions::default() };
            (Arc::new(PostgresJobs::open(url.expose(), options).await?), "postgres")
        }
        database => (Arc::new(open_at(sqlite_path(database)?)?), "sqlite"),
    })
}

/// Timeouts of the application's statements and locks: shorter than the scheduler's, since a user waits. A process
/// that stops within a transaction holds its locks for no longer.
#[cfg(feature = "postgres")]
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
#[cfg(feature = "postgres")]
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

fn sqlite_path(database: &Database) -> Result<&Path, StartError> {
    match database {
        Database::Sqlite(path) => Ok(path),
        _ => Err(StartError::Other(
            "this build does not support the kind of database in DATABASE_URL".to_owned(),
        )),
    }
}
