//! `agentd import` and `agentd migrate` as child processes that can be killed.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agent_store::postgres::{PostgresOptions, migrate};
use agentd::config::{AppConfig, Flags, ProcessEnv};
use agentd::stores::Stores;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::process::exit_with_parent;
use super::server::SESSION_SECRET;

/// Line that a child prints when its command is done.
const DONE: &str = "child is done";
/// Names of the tests that act as the child processes.
const IMPORT_TEST: &str = "support::command::an_import_until_it_is_killed";
const MIGRATION_TEST: &str = "support::command::a_migration_until_it_is_killed";
/// Environment variable with the path of the file that is imported.
const FILE_ENV: &str = "TEST_IMPORT_FILE";

/// A command in a separate process; killed when dropped.
pub struct CommandProcess(Child);

impl CommandProcess {
    /// Starts the import of a workspace file into a database.
    pub fn import(database: &str, file: &Path) -> Self {
        Self::start(IMPORT_TEST, database, &[(FILE_ENV, file.to_str().expect("text"))])
    }

    /// Starts a migration of the application's tables.
    pub fn migrate(database: &str) -> Self {
        Self::start(MIGRATION_TEST, database, &[])
    }

    fn start(test: &str, database: &str, env: &[(&str, &str)]) -> Self {
        let test_program = std::env::current_exe().expect("this program");
        let mut command = Command::new(test_program);
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        command.env("DATABASE_URL", database).env("SESSION_SECRET", SESSION_SECRET).envs(env.iter().copied());
        // The child exits when this end of its stdin is closed, however this process ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        Self(command.spawn().expect("started"))
    }

    /// Waits until the command is done, and kills its process if it is not within a time. Returns true if it was done.
    pub async fn finish_within(mut self, time: Duration) -> bool {
        let mut output = BufReader::new(self.0.stdout.take().expect("a pipe"));
        let mut printed = Vec::new();
        let is_ended = tokio::time::timeout(time, output.read_to_end(&mut printed)).await.is_ok();
        if !is_ended {
            self.kill().await;
            // Output before the kill counts.
            output.read_to_end(&mut printed).await.expect("bytes");
        }
        String::from_utf8_lossy(&printed).contains(DONE)
    }

    /// Returns true if the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it can be waited for").is_some()
    }

    /// Kills the process with `SIGKILL`.
    pub async fn kill(&mut self) {
        self.0.kill().await.expect("killed");
    }
}

fn report_done() {
    // `println!` would go to the test harness, which may capture it.
    writeln!(std::io::stdout(), "{DONE}").expect("the parent listens");
}

/// Child process: imports a file as `agentd import` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn an_import_until_it_is_killed() {
    exit_with_parent();
    let config = AppConfig::load(&Flags::default(), &ProcessEnv).expect("the settings are right");
    let file = std::env::var_os(FILE_ENV).expect("a file");
    let stores = Stores::open(&config).await.expect("a store");
    stores.import_file(Path::new(&file)).await.expect("the workspace is imported");
    report_done();
}

/// Child process: migrates a database as `agentd migrate` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of other tests"]
async fn a_migration_until_it_is_killed() {
    exit_with_parent();
    let url = std::env::var("DATABASE_URL").expect("a URL");
    migrate(&url, &PostgresOptions::default()).await.expect("migrated");
    report_done();
}
