//! The commands that docs/operating.md gives for a backup of PostgreSQL, its restore, and the move of a scheduler's file, run as
//! they are written there.

use std::path::Path;
use std::process::Stdio;

use agent_store::postgres::{PostgresJobs, PostgresOptions};
use serde_json::json;
use tokio::process::Command;
use tokio_postgres::Client;

use super::cluster::Cluster;
use super::copy::{contents, start_source};
use super::grants::documented_grants;
use super::{AGENTD, DATA_SECRET, connect, run, sqlite_url};

const PAGE: &str = include_str!("../../../../docs/operating.md");
/// Role of the processes in the documented statements.
const ROLE: &str = "agentd";

/// Returns the documented commands that contain a text.
fn documented_commands(text: &str) -> &'static str {
    let mut blocks = PAGE.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    blocks.find(|block| block.contains(text)).unwrap_or_else(|| panic!("no commands with {text}"))
}

/// Runs documented commands in a folder.
async fn run_commands(cluster: &Cluster, commands: &str, folder: &Path, env: &[(&str, &str)]) {
    let programs = [Path::new(AGENTD).parent().expect("a folder"), cluster.programs()];
    let path = std::env::join_paths(
        programs
            .map(Path::to_owned)
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", commands]).current_dir(folder).env_clear().envs(env.iter().copied());
    command.env("PATH", path.expect("a path")).stdin(Stdio::null());
    let output = command.output().await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{commands}: {} {}", text(&output.stdout), text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_restored_by_the_documented_commands() {
    let (cluster, source) = start_source().await;
    let folder = tempfile::tempdir().expect("a folder");
    let workspace = json!({
        "users": [{"id": "ada", "companyId": "acme"}],
        "agents": [{"id": "guide", "companyId": "acme", "ownerId": "ada", "content": {"messengerToken": "token-canary"}}],
    });
    let file = folder.path().join("workspace.json");
    std::fs::write(&file, workspace.to_string()).expect("written");
    let secret = ("DATA_SECRET", DATA_SECRET);
    run(&["import", file.to_str().expect("text")], &[("DATABASE_URL", &source), secret]).await.success();
    let expected = contents(&connect(&cluster, "source").await).await;
    let backup = documented_commands("pg_dump --format=custom");
    run_commands(&cluster, backup, folder.path(), &[("OWNER_URL", &source)]).await;

    let admin = connect(&cluster, "postgres").await;
    admin.batch_execute(&format!("CREATE ROLE {ROLE} LOGIN")).await.expect("created");
    let grants = documented_grants("app", ROLE);
    std::fs::write(folder.path().join("grants.sql"), grants).expect("written");
    let (admin_url, owner) = (cluster.url("postgres"), cluster.url("agentd"));
    let env = [("ADMIN_URL", admin_url.as_str()), ("OWNER_URL", &owner), secret];
    run_commands(&cluster, documented_commands("pg_restore"), folder.path(), &env).await;
    let restored = connect(&cluster, "agentd").await;
    assert_eq!(contents(&restored).await, expected);
    let changes = restored.query_one("SELECT count(*) FROM app.change", &[]).await.expect("read");
    assert_eq!(changes.get::<_, i64>(0), 0, "changes of another server's transactions are left out");

    // The role of the processes uses the restored database, and the same key opens its secrets.
    let url = owner.replace("postgres@", &format!("{ROLE}@"));
    let output = run(&["secrets", "rotate"], &[("DATABASE_URL", &url), secret]).await.success();
    assert!(output.contains("0 secrets re-encrypted, 1 already encrypted with DATA_SECRET"), "{output}");
    let wrong = ("DATA_SECRET", "data-secret-canary-9");
    run(&["secrets", "rotate"], &[("DATABASE_URL", &url), wrong]).await.failure();
    let output =
        run(&["import", file.to_str().expect("text")], &[("DATABASE_URL", &url), secret]).await.success();
    assert!(output.ends_with(": 0 created, 0 changed, 2 unchanged.\n"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jobs_of_a_file_move_by_the_documented_commands() {
    let (cluster, source) = start_source().await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("data")).expect("created");
    let file = sqlite_url(&folder.path().join("data/scheduler.db"));
    run(&["copy", &source, &file], &[]).await.success();
    let from = connect(&cluster, "source").await;
    from.batch_execute("CREATE DATABASE moved").await.expect("created");
    let to = cluster.url("moved");
    let commands = documented_commands("data/scheduler.db");
    run_commands(&cluster, commands, folder.path(), &[("JOBS_URL", &to)]).await;
    drop(PostgresJobs::open(&to, PostgresOptions::default()).await.expect("a scheduler opens it"));
    let moved = connect(&cluster, "moved").await;
    assert_eq!(count_rows(&moved, "scheduler.jobs").await, count_rows(&from, "app_jobs.jobs").await);
}

async fn count_rows(client: &Client, table: &str) -> i64 {
    client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.expect("read").get(0)
}
