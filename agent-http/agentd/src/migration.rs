//! `agentd migrate` and `copy`: the operator's commands on databases as a whole.

use std::io::Write;

#[cfg(feature = "postgres")]
use agent_store::copy::{CopyDatabase, copy};

#[cfg(not(feature = "postgres"))]
use crate::StartError;
use crate::command_error::CommandError;
use crate::config::{AppConfig, Database, parse_database};
use crate::stores;

/// Brings the tables of the configured database to this program's version. With `check_only`, changes nothing and
/// fails if a migration is pending.
pub(crate) async fn migrate(
    config: &AppConfig,
    check_only: bool,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    if !check_only {
        stores::migrate(config).await?;
    }
    let mut pending = 0;
    for status in stores::migration_status(config).await? {
        let stores::MigrationStatus { name, found, newest } = status;
        let state = if found < newest { "pending" } else { "up to date" };
        pending += usize::from(found < newest);
        writeln!(out, "{name}: version {found} of {newest}, {state}")?;
    }
    match pending {
        0 => Ok(()),
        _ => Err(CommandError::PendingMigrations),
    }
}

/// Copies everything from the database `from` into the empty database `to`. Each is a URL, or `env:NAME` for the
/// environment variable that contains it.
pub(crate) async fn copy_between(from: &str, to: &str, out: &mut dyn Write) -> Result<(), CommandError> {
    let (from, to) = (database("FROM", from)?, database("TO", to)?);
    #[cfg(feature = "postgres")]
    if let Database::Postgres(url) = &from
        && !stores::has_tables(url.expose()).await?
    {
        let problem = "is a database without tables of this program".to_owned();
        return Err(CommandError::Argument { argument: "FROM", problem });
    }
    let (records, threads, jobs) = copy_databases(&from, &to).await?;
    writeln!(
        out,
        "{records} records, {threads} threads and {jobs} jobs copied; the target has been read again and is the same."
    )?;
    Ok(())
}

fn database(argument: &'static str, text: &str) -> Result<Database, CommandError> {
    let invalid = |problem: String| CommandError::Argument { argument, problem };
    let value = match text.strip_prefix("env:") {
        Some(name) => std::env::var(name).map_err(|_| invalid(format!("names {name}, which is not set")))?,
        None => text.to_owned(),
    };
    parse_database(value.trim()).map_err(invalid)
}

/// Copies everything from one database into another, empty one. Returns the numbers of records, threads and jobs.
#[cfg(feature = "postgres")]
pub(crate) async fn copy_databases(from: &Database, to: &Database) -> Result<(u64, u64, u64), CommandError> {
    let convert = |database: &Database| match database {
        Database::Sqlite(path) => CopyDatabase::Sqlite(path.clone()),
        Database::Postgres(url) => CopyDatabase::Postgres(url.expose().to_owned()),
    };
    let summary = copy(&convert(from), &convert(to)).await?;
    Ok((summary.records, summary.threads, summary.jobs))
}

#[cfg(not(feature = "postgres"))]
pub(crate) async fn copy_databases(_: &Database, _: &Database) -> Result<(u64, u64, u64), CommandError> {
    Err(StartError::Other("this build does not support PostgreSQL".to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(from: &str, to: &str) -> Result<String, String> {
        let mut out = Vec::new();
        copy_between(from, to, &mut out).await.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[tokio::test]
    async fn a_file_is_copied_and_errors_contain_no_password() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
        let refused = run("postgres:/canary@h", &url("b.db")).await.expect_err("no URL");
        assert!(refused.starts_with("FROM must be sqlite:// and a path"), "{refused}");
        let refused = run(&url("a.db"), "env:NO_SUCH_VARIABLE_HERE").await.expect_err("not set");
        assert_eq!(refused, "TO names NO_SUCH_VARIABLE_HERE, which is not set");
        let refused = run(&url("a.db"), &url("b.db")).await.expect_err("there is no such file");
        assert!(refused.starts_with("nothing was copied: "), "{refused}");
        drop(agent_store::sqlite::SqliteStore::open(
            folder.path().join("a.db"),
            agent_store::sqlite::SqliteOptions::default(),
        ));
        let output = run(&url("a.db"), &url("b.db")).await.expect("copied");
        assert_eq!(
            output,
            "0 records, 0 threads and 0 jobs copied; the target has been read again and is the same.\n"
        );
        let refused = run(&url("a.db"), &url("b.db")).await.expect_err("the target exists");
        assert_eq!(refused, "nothing was copied: the target is not empty");
    }
}
