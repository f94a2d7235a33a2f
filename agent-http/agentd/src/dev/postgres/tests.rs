//! Servers over separate clusters. Requires PostgreSQL's server programs, and no privileges; a process of root
//! starts them as another user.

use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

use super::socket::{MAX_SOCKET_PATH_BYTES, SOCKET_NAME};
use super::*;
use crate::config::{AppConfig, Flags, SchedulerConfig};
use crate::dev::{DEMO_WORKSPACE, DevOptions, build_env, locate_cluster};
use crate::stores::{Stores, open_jobs};

/// Creates a folder that the server's account may enter.
fn data_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its own folder");
    folder
}

fn locate(data: &Path) -> DevCluster {
    DevCluster::locate(data).expect("PostgreSQL is installed: the package postgresql has it")
}

fn options(data: &Path) -> DevOptions {
    DevOptions { data: data.to_owned(), port: 4000, workspace: None, postgres: true }
}

fn has_ended(server: Pid) -> bool {
    test_kill_process(server).is_err()
}

#[tokio::test]
async fn stored_data_survives_a_restart() {
    let folder = data_folder();
    // The first start creates the cluster, and a blank and a comma are legal in its path.
    let data = folder.path().join("a, \"b\"");
    for is_first in [true, false] {
        let cluster = locate(&data);
        let env = build_env(&options(&data), Some(&cluster)).expect("an environment");
        let app = AppConfig::load(&Flags::default(), &env).expect("settings");
        let scheduler = env.for_scheduler(&options(&data));
        let scheduler = SchedulerConfig::load(&Flags::default(), &scheduler).expect("settings");
        assert_eq!(app.database, scheduler.database);

        let server = cluster.start().await.expect("a server");
        let pid = Pid::from_child(&server.child);
        let stores = Stores::open(&app).await.expect("stores");
        let (_jobs, kind) = open_jobs(&scheduler).await.expect("jobs");
        assert_eq!(kind, "postgres");
        let is_empty = stores.records.companies(None).await.expect("companies").is_empty();
        assert_eq!(is_empty, is_first);
        if is_first {
            stores.import("the demo", DEMO_WORKSPACE).await.expect("imported");
        }
        let mode =
            |name: &str| fs::metadata(data.join(name)).expect("it exists").permissions().mode() & 0o777;
        assert_eq!(mode("postgres"), 0o700);
        assert_eq!(mode("postgres/.s.PGSQL.5432"), 0o700);
        let status = fs::read_to_string(data.join("postgres/postmaster.pid")).expect("a status");
        assert_eq!(status.lines().nth(5), Some(""), "it listens on no address");

        let error = locate(&data).start().await.expect_err("the folder is in use").to_string();
        assert!(error.starts_with("another `agentd dev --postgres` is running over "), "{error}");
        assert!(!has_ended(pid));
        drop(server);
        assert!(has_ended(pid));
        assert!(!data.join("postgres/postmaster.pid").exists());
    }
}

#[tokio::test]
async fn a_server_that_was_left_behind_is_stopped_by_the_next_start() {
    let data = data_folder();
    let mut orphan = ManuallyDrop::new(locate(data.path()).start().await.expect("a server"));
    orphan.lock.unlock().expect("unlocked");
    let server = locate(data.path()).start().await.expect("another server");
    assert!(orphan.child.try_wait().expect("a child").is_some());
    assert_ne!(orphan.child.id(), server.child.id());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_server_ends_with_the_thread_that_started_it() {
    let folder = data_folder();
    let data = folder.path().to_owned();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { ManuallyDrop::new(locate(&data).start().await.expect("a server")) })
    });
    let mut server = thread.join().expect("started");
    let started = Instant::now();
    while server.child.try_wait().expect("a child").is_none() {
        assert!(started.elapsed() < Duration::from_secs(30), "it still runs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_failed_start_reports_the_reason() {
    let data = data_folder();
    drop(locate(data.path()).start().await.expect("a server"));
    let settings = data.path().join("postgres/postgresql.conf");
    fs::write(&settings, "shared_buffers = 'much'\n").expect("written");
    let error = locate(data.path()).start().await.expect_err("a wrong setting").to_string();
    assert!(error.starts_with("PostgreSQL has stopped during its start; "), "{error}");
    assert!(error.contains("postgres.log ends with:\n") && error.contains("shared_buffers"), "{error}");
}

#[test]
fn clusters_that_cannot_be_used_are_refused() {
    let folder = data_folder();
    let cluster = folder.path().join("postgres");
    fs::create_dir(&cluster).expect("created");
    assert!(DevCluster::locate(folder.path()).is_ok(), "an empty folder");

    fs::write(cluster.join("PG_VERSION"), "9.6\n").expect("written");
    let error = DevCluster::locate(folder.path()).expect_err("an old cluster").to_string();
    assert!(error.contains("postgres is a cluster of PostgreSQL 9.6, and version "), "{error}");

    fs::rename(cluster.join("PG_VERSION"), cluster.join("notes.txt")).expect("renamed");
    let error = DevCluster::locate(folder.path()).expect_err("no cluster").to_string();
    assert!(error.contains("postgres is not a PostgreSQL cluster: "), "{error}");
}

/// Writes programs that print their version, without being servers.
fn write_programs(folder: &Path, version: &str) {
    fs::create_dir_all(folder).expect("created");
    for program in ["initdb", "pg_ctl", "postgres"] {
        let path = folder.join(program);
        fs::write(&path, format!("#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
}

#[test]
fn programs_are_found_on_the_path_or_in_packages() {
    let folder = tempfile::tempdir().expect("a folder");
    let packages = folder.path().join("packages");
    let find =
        |path: &Path, preferred: Option<&str>| ServerPrograms::find(path.as_ref(), &packages, preferred);
    let missing = find(OsStr::new("").as_ref(), None).expect_err("not installed").to_string();
    assert_eq!(
        missing,
        format!(
            "PostgreSQL is not installed: its server's programs are neither on PATH nor in {}; the package postgresql \
             has them",
            packages.display()
        )
    );
    for version in ["9.6", "10", "17"] {
        write_programs(&packages.join(version).join("bin"), &format!("{version}.2 (Debian)"));
    }
    fs::create_dir_all(packages.join("18/bin")).expect("created");
    let program_folder = folder.path().join("own");
    write_programs(&program_folder, "19beta1");
    for (path, preferred, version) in [
        (Path::new(""), None, "17"),
        (&program_folder, None, "19"),
        (&program_folder, Some("10"), "10"),
        (&program_folder, Some("16"), "19"),
        (&folder.path().join("other"), Some("18"), "17"),
    ] {
        assert_eq!(find(path, preferred).expect("found").version, version, "{path:?} {preferred:?}");
    }
    write_programs(&program_folder, "");
    assert!(
        find(&program_folder, None)
            .expect_err("no version")
            .to_string()
            .ends_with("it does not print its version")
    );
}

#[test]
fn a_socket_with_a_long_path_is_in_the_temporary_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let select = |cluster: &str, temporary: &str| {
        SocketFolder::select(data, Path::new(cluster), Path::new(temporary))
            .map(|folder| folder.path().display().to_string())
    };
    let longest = MAX_SOCKET_PATH_BYTES - SOCKET_NAME.len() - 1;
    let (fits, long) = ("/".to_owned() + &"a".repeat(longest - 1), "/a".repeat(longest));
    assert_ne!(select(&format!("{fits}a"), "/tmp").expect("a folder"), format!("{fits}a"));
    assert_eq!(select(&fits, "/tmp").expect("a folder"), fits);
    let selected = select(&long, "/tmp").expect("a folder");
    assert!(selected.starts_with("/tmp/agentd-postgres-"), "{selected}");
    assert_eq!(select(&long, "/tmp").expect("a folder"), selected);
    let error = select(&long, &long).expect_err("both are too long").to_string();
    assert!(error.ends_with("use a shorter --data or TMPDIR"), "{error}");
}

#[tokio::test]
async fn a_socket_in_the_temporary_folder_is_private_and_removed() {
    let folder = data_folder();
    let data = folder.path().join("a-long-name".repeat(10));
    let cluster = locate(&data);
    let socket = cluster.socket.path().to_owned();
    assert!(socket.starts_with(std::env::temp_dir()) && !socket.starts_with(&data));

    fs::create_dir(&socket).expect("created");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o755)).expect("its own folder");
    let error = cluster.start().await.expect_err("others may enter the folder").to_string();
    assert!(error.contains(" is not a folder of mode 0700 that belongs to the user "), "{error}");
    fs::remove_dir(&socket).expect("removed");

    let server = locate(&data).start().await.expect("a server");
    assert_eq!(fs::metadata(&socket).expect("it exists").permissions().mode() & 0o777, 0o700);
    drop(server);
    assert!(!socket.exists());
}

#[test]
fn another_database_in_the_environment_is_refused() {
    let folder = data_folder();
    let located = |name, value| {
        let env = std::collections::BTreeMap::from([(name, value)]);
        locate_cluster(&options(folder.path()), &env).map(|cluster| cluster.is_some())
    };
    assert!(located("DATABASE_URL", " ").expect("nothing is set"));
    for name in ["DATABASE_URL", "DATABASE_URL_FILE"] {
        let error = located(name, "sqlite://data/app.db").expect_err("it conflicts").to_string();
        assert!(
            error.ends_with(&format!(" cannot be combined with {name}, which is set in the environment"))
        );
    }
}
