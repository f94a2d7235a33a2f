//! Where the services' data is.

use std::path::Path;
use std::sync::Arc;

use agent_core::job::JobStore;
#[cfg(feature = "postgres")]
use agent_core::secret::Secret;
use agent_http::config::{AppConfig, Database, SchedulerConfig};
use agent_platform::memory::MemoryRecords;
use agent_platform::records::Inventory;
use agent_platform::roles::RecordRoles;
use agent_platform::seal::Sealer;
use agent_platform::workspace::{Imported, WorkspaceFile};
#[cfg(feature = "postgres")]
use agent_store::postgres::{PostgresJobs, PostgresOptions};
use agent_store::sqlite::{SqliteOptions, SqliteStore};

use crate::StartError;

/// The application's data.
#[derive(Clone)]
pub struct Stores {
    /// The agents.
    pub roles: Arc<RecordRoles>,
    /// Everything else.
    pub records: Arc<dyn Inventory>,
}

impl Stores {
    /// Data in `records`, with secrets under the configuration's keys.
    pub fn over(records: Arc<dyn Inventory>, config: &AppConfig) -> Self {
        let sealer = match &config.data_secret {
            Some(secret) => Sealer::new(secret, config.data_secret_previous.as_ref()),
            None => Sealer::without_key(),
        };
        Self { roles: Arc::new(RecordRoles::new(records.clone(), sealer)), records }
    }

    /// Data in memory, filled from a workspace file's text. `origin` names the file in errors.
    ///
    /// # Errors
    /// What is wrong with the workspace, by line and field.
    pub async fn in_memory(origin: &str, workspace: &str) -> Result<Self, StartError> {
        let records = Arc::new(MemoryRecords::default());
        let roles = Arc::new(RecordRoles::new(records.clone(), Sealer::ephemeral()));
        let stores = Self { roles, records };
        stores.import(origin, workspace).await?;
        Ok(stores)
    }

    /// Takes in a workspace file's text, all of it or nothing. `origin` names the file in errors.
    ///
    /// # Errors
    /// What is wrong with the workspace, by line and field, or why it is not saved.
    pub async fn import(&self, origin: &str, workspace: &str) -> Result<Imported, StartError> {
        let file = WorkspaceFile::parse(workspace)
            .map_err(|source| StartError::Workspace { origin: origin.to_owned(), source })?;
        Ok(file.apply(&self.roles).await?)
    }

    /// Takes in a workspace file, all of it or nothing.
    ///
    /// # Errors
    /// The file cannot be read, or as [`import`](Self::import).
    pub async fn import_file(&self, path: &Path) -> Result<Imported, StartError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| StartError::Unreadable { path: origin.clone(), source })?;
        self.import(&origin, &text).await
    }
}

/// Opens the configured database, and makes it and its folder where there is none.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(config: &AppConfig) -> Result<SqliteStore, StartError> {
    open_at(path_of(&config.database)?)
}

fn open_at(path: &Path) -> Result<SqliteStore, StartError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|source| StartError::Unwritable { path: folder.display().to_string(), source })?;
    }
    Ok(SqliteStore::open(path, SqliteOptions::default())?)
}

/// Opens the configured database, which must be there: a command about what is stored has nothing to say
/// where nothing is, and whoever named the wrong file learns of it.
///
/// # Errors
/// Why it cannot be opened.
pub fn open_existing(config: &AppConfig) -> Result<SqliteStore, StartError> {
    let path = path_of(&config.database)?;
    if !path.exists() {
        return Err(StartError::Other(format!(
            "there is no database {}; see DATABASE_URL, and `agentd import` for a first one",
            path.display()
        )));
    }
    Ok(SqliteStore::open(path, SqliteOptions::default())?)
}

/// Opens the scheduler's jobs, makes their database where there is none, and says what kind of store they are in.
///
/// # Errors
/// Why they cannot be opened.
pub async fn jobs(config: &SchedulerConfig) -> Result<(Arc<dyn JobStore>, &'static str), StartError> {
    Ok(match &config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres(url) => (Arc::new(open_postgres(url).await?), "postgres"),
        database => (Arc::new(open_at(path_of(database)?)?), "sqlite"),
    })
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &Secret) -> Result<PostgresJobs, StartError> {
    Ok(PostgresJobs::open(url.expose(), PostgresOptions::default()).await?)
}

fn path_of(database: &Database) -> Result<&Path, StartError> {
    match database {
        Database::Sqlite(path) => Ok(path),
        _ => Err(StartError::Other("this build has no store for the database in DATABASE_URL".to_owned())),
    }
}
