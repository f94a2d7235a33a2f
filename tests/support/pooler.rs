//! PgBouncer in front of a temporary PostgreSQL server, pooling transactions.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cluster::Cluster;

/// Time limit for the pooler's start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to the server per database: fewer than one process of the application opens.
pub(crate) const SERVER_CONNECTIONS: usize = 4;
/// Port, which is only a part of the socket's name.
const PORT: u16 = 6432;

/// A PgBouncer process that listens on a Unix socket in the folder of its server. Its connections to the server are
/// given out in turn, so that successive transactions of a client run on different ones.
pub(crate) struct Pooler {
    folder: PathBuf,
    process: Child,
}

impl Pooler {
    /// Starts a pooler.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let folder = cluster.folder().to_owned();
        let config = folder.join("pooler.ini");
        fs::write(&config, settings(cluster)).expect("written");
        let log = fs::File::create(folder.join("pooler.out")).expect("a log");
        // Debian installs it where only the administrator's search path leads.
        let installed = PathBuf::from("/usr/sbin/pgbouncer");
        let program = if installed.is_file() { installed } else { PathBuf::from("pgbouncer") };
        let mut command = cluster.command(program.to_str().expect("text"));
        command.arg(&config).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("PgBouncer is started: the package pgbouncer has it");
        let mut pooler = Self { folder, process };
        let start = Instant::now();
        while UnixStream::connect(pooler.folder.join(format!(".s.PGSQL.{PORT}"))).is_err() {
            let exit_status = pooler.process.try_wait().expect("asked");
            assert!(
                exit_status.is_none() && start.elapsed() < STARTUP_TIMEOUT,
                "no pooler: {}",
                pooler.log_text()
            );
            sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// Returns the connection URL of a database.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("{}?pool_mode=transaction", self.url_without_mode(database))
    }

    /// Returns the connection URL of a database that does not name the pooler.
    pub(crate) fn url_without_mode(&self, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{PORT}/{database}")
    }

    fn log_text(&self) -> String {
        fs::read_to_string(self.folder.join("pooler.out")).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if std::thread::panicking() {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "the pooler's log:\n{}", self.log_text());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn settings(cluster: &Cluster) -> String {
    let folder = cluster.folder().display();
    format!(
        "[databases]
* = host={folder} port={server_port} user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {PORT}
auth_type = any
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 200
server_round_robin = 1
server_idle_timeout = 0.3
server_login_retry = 0.1
",
        server_port = cluster.port(),
    )
}
