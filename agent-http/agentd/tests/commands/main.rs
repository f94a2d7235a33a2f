//! The operator's commands of `agentd`, as processes, over SQLite and PostgreSQL.
#![cfg(all(unix, feature = "postgres"))]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/cluster.rs"]
mod cluster;
mod copy;
mod data;
mod dev;
#[path = "../../../../tests/support/grants.rs"]
mod grants;
mod migrate;
mod output;
mod refusals;
mod restore;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

use self::cluster::Cluster;

/// The program under test.
const AGENTD: &str = env!("CARGO_BIN_EXE_agentd");
const DATA_SECRET: &str = "data-secret-canary-0";

/// Output of a command that has ended.
struct Output {
    is_success: bool,
    stdout: String,
    stderr: String,
}

impl Output {
    /// Returns the standard output of a command that has succeeded.
    fn success(self) -> String {
        assert!(self.is_success, "{} {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Returns the error of a command that has failed. It names no secret.
    fn failure(self) -> String {
        assert!(!self.is_success, "{}", self.stdout);
        assert!(!self.stderr.contains("canary"), "{}", self.stderr);
        self.stderr
    }
}

/// Builds a command line of the program, whose environment has nothing but `env`.
fn command(arguments: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(AGENTD);
    command.args(arguments).env_clear().envs(env.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn run(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let output = command(arguments, env).output().await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Output { is_success: output.status.success(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn start(arguments: &[&str], env: &[(&str, &str)]) -> Child {
    command(arguments, env).spawn().expect("it starts")
}

/// Databases of one kind for the tests of commands.
struct TestDatabases {
    folder: TempDir,
    /// `None` for SQLite files.
    cluster: Option<Cluster>,
}

impl TestDatabases {
    fn sqlite() -> Self {
        Self { folder: TempDir::new().expect("a folder"), cluster: None }
    }

    fn postgres() -> Self {
        Self { cluster: Some(Cluster::start()), ..Self::sqlite() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the URL of a database, which is empty or a file that does not exist.
    async fn database(&self, name: &str) -> String {
        let Some(cluster) = &self.cluster else {
            return sqlite_url(&self.path(&format!("{name}.db")));
        };
        let client = connect(cluster, "postgres").await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("created");
        cluster.url(name)
    }
}

fn sqlite_url(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

/// Runs a test over SQLite files and over a PostgreSQL server.
async fn over_both(test: impl AsyncFn(TestDatabases)) {
    test(TestDatabases::sqlite()).await;
    test(TestDatabases::postgres()).await;
}

async fn connect(cluster: &Cluster, database: &str) -> tokio_postgres::Client {
    let url = cluster.url(database);
    let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    client
}
