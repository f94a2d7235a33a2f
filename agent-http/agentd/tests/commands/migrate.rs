//! `agentd migrate` and `agentd migrate --check`.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use super::{TestDatabases, connect, over_both, run};

const CHECK: [&str; 2] = ["migrate", "--check"];
/// Offset of `user_version` in a SQLite file, which has the version of the schema.
const USER_VERSION_OFFSET: u64 = 60;

/// Sets the schema version of a SQLite file that no process has open.
fn set_user_version(path: &Path, version: u32) {
    let mut file = OpenOptions::new().write(true).open(path).expect("opened");
    file.seek(SeekFrom::Start(USER_VERSION_OFFSET)).expect("found");
    file.write_all(&version.to_be_bytes()).expect("written");
}

#[tokio::test]
async fn a_check_reports_pending_migrations_and_changes_nothing() {
    over_both(async |databases: TestDatabases| {
        let url = databases.database("checked").await;
        let env = [("DATABASE_URL", url.as_str())];
        for _ in 0..2 {
            let checked = run(&CHECK, &env).await;
            if databases.cluster.is_some() {
                assert!(checked.stdout.starts_with("schema app: version 0 of "), "{}", checked.stdout);
                assert!(checked.failure().contains("migrations are pending; `agentd migrate` runs them"));
            } else {
                assert!(checked.failure().contains("checked.db does not exist"));
            }
        }
        let migrated = run(&["migrate"], &env).await.success();
        assert!(
            !migrated.is_empty() && migrated.lines().all(|line| line.ends_with(", up to date")),
            "{migrated}"
        );
        assert_eq!(run(&CHECK, &env).await.success(), migrated);

        let file = databases.path("checked.db");
        if let Some(cluster) = &databases.cluster {
            let newer = "UPDATE app.schema_version SET version = 99, compatible_from = 99";
            connect(cluster, "checked").await.batch_execute(newer).await.expect("set");
        } else {
            set_user_version(&file, 1);
            let checked = run(&CHECK, &env).await;
            assert!(checked.stdout.contains("checked.db: version 1 of "), "{}", checked.stdout);
            assert!(checked.failure().contains("migrations are pending"));
            set_user_version(&file, 99);
        }
        for arguments in [&CHECK[..], &["migrate"], &["export"]] {
            let refused = run(arguments, &env).await.failure();
            let has_reason = refused.contains("version 99, and this program knows versions up to ");
            assert!(has_reason && refused.contains(": update this program"), "{arguments:?}: {refused}");
        }
    })
    .await;
}
