//! The application over PostgreSQL: outages of the server, and several processes of which one is killed at a time.

mod kill;
mod outage;

use agent_platform::workspace::WorkspaceFile;
use agentd::config::AppConfig;
use agentd::stores::Stores;
use serde_json::Value;

use crate::support::cluster::Cluster;
use crate::support::server;

/// Secret that seals secrets and run tokens (`DATA_SECRET`).
const DATA_SECRET: &str = "data-secret-canary";

/// A PostgreSQL server with the application's database.
struct PostgresFixture {
    cluster: Cluster,
    url: String,
}

impl PostgresFixture {
    /// Starts a server and imports a workspace.
    async fn start(workspace: &Value) -> Self {
        let cluster = Cluster::start();
        let url = cluster.url("postgres");
        let fixture = Self { cluster, url };
        let file = WorkspaceFile::parse_stored(&workspace.to_string()).expect("it is right");
        file.apply(&fixture.open().await.roles).await.expect("it is imported");
        fixture
    }

    fn config(&self) -> AppConfig {
        server::app_config(&[("DATABASE_URL", self.url.as_str()), ("DATA_SECRET", DATA_SECRET)])
    }

    /// Opens stores of their own, as another process does.
    async fn open(&self) -> Stores {
        Stores::open(&self.config()).await.expect("it opens")
    }
}
