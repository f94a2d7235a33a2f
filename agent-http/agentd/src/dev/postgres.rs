//! PostgreSQL server of `agentd dev --postgres`: a cluster in the data folder, served by a child process.
//!
//! The server listens on a Unix socket only, in a folder that only its account may enter. Where `setpriv` supports it,
//! the kernel stops the server when this process dies; elsewhere, the next start stops a server that was left behind.

mod programs;
mod server;
mod socket;
#[cfg(all(test, feature = "postgres"))]
mod tests;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::geteuid;

use self::programs::{ServerAccount, ServerPrograms};
use self::server::{DevServer, FAST_STOP_TIMEOUT, last_lines};
use self::socket::SocketFolder;
use crate::StartError;
use crate::stores::create_folder;

/// Name of the database that all services use.
const DATABASE: &str = "agentd";
/// Superuser of the cluster.
const USER: &str = "postgres";

/// Paths, programs and account of the cluster in a data folder.
#[derive(Debug)]
pub(super) struct DevCluster {
    /// Data folder of `agentd dev`, as an absolute path.
    data: PathBuf,
    /// Folder of the cluster.
    folder: PathBuf,
    socket: SocketFolder,
    programs: ServerPrograms,
    /// Account of the server; `None` for the account of this process.
    account: Option<ServerAccount>,
}

impl DevCluster {
    /// Finds the server's programs and determines the paths of the cluster in `data`. Creates `data` if it does not
    /// exist, and starts nothing.
    ///
    /// # Errors
    /// This build has no support for PostgreSQL, PostgreSQL is not installed, or the cluster is of another major version.
    pub(super) fn locate(data: &Path) -> Result<Self, StartError> {
        if !cfg!(feature = "postgres") {
            return Err(StartError::Other(
                "this build does not support PostgreSQL: --postgres requires the feature `postgres`"
                    .to_owned(),
            ));
        }
        create_folder(data)?;
        let data = data.canonicalize().map_err(StartError::unreadable(data))?;
        let folder = data.join("postgres");
        let version = cluster_version(&folder)?;
        let search_path = std::env::var_os("PATH").unwrap_or_default();
        let programs =
            ServerPrograms::find(&search_path, programs::PACKAGES_FOLDER.as_ref(), version.as_deref())?;
        if let Some(version) = version {
            programs.check_version(&folder, &version)?;
        }
        let account = ServerAccount::select(&folder)?;
        let socket = SocketFolder::select(&data, &folder, &std::env::temp_dir())?;
        Ok(Self { data, folder, socket, programs, account })
    }

    /// Returns the URL of the database, for `DATABASE_URL` and for `psql`.
    pub(super) fn url(&self) -> String {
        format!("postgres://{USER}@{}/{DATABASE}", self.socket.url_host())
    }

    /// Returns a description of the server for the welcome message.
    pub(super) fn description(&self) -> String {
        format!(
            "PostgreSQL {} runs over {}; its log is {}. Connect to it:\n\n  psql {}",
            self.programs.version,
            self.folder.display(),
            self.log_file().display(),
            self.url()
        )
    }

    /// Starts the server and waits until it accepts connections; creates the cluster and the database first if they do
    /// not exist. The server is stopped when the thread that calls this function ends.
    ///
    /// # Errors
    /// The folder is in use by another `agentd dev`, or the cluster cannot be created or started.
    pub(super) async fn start(self) -> Result<DevServer, StartError> {
        let lock = self.lock()?;
        if self.socket.has_listener() {
            self.stop_orphan()?;
        }
        if cluster_version(&self.folder)?.is_none() {
            self.create()?;
        }
        if !self.socket.exists(self.user())? {
            self.create_own_folder(self.socket.path())?;
        }
        // The log of the previous start is deleted, which bounds its size.
        let log_file = self.log_file();
        let log = File::create(&log_file).map_err(StartError::unwritable(&log_file))?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.folder).arg("-k").arg(self.socket.list_entry());
        command.args(["-p", "5432", "-c", "listen_addresses=", "-c", "unix_socket_permissions=0700"]);
        command.args(["-c", "log_checkpoints=off"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C in a terminal reaches the whole process group: the server must not stop before the services.
        let child =
            command.process_group(0).spawn().map_err(|error| self.failed("postgres", &error.to_string()))?;
        DevServer::new(child, self.folder, self.socket, lock).wait_until_ready(&log_file).await
    }

    /// Locks the cluster for this process. With the lock, a server that runs over the cluster is an orphan.
    fn lock(&self) -> Result<File, StartError> {
        let path = self.data.join("postgres.lock");
        let lock =
            File::options().create(true).append(true).open(&path).map_err(StartError::unwritable(&path))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(fs::TryLockError::WouldBlock) => Err(StartError::Other(format!(
                "another `agentd dev --postgres` is running over {}",
                self.data.display()
            ))),
            Err(fs::TryLockError::Error(source)) => Err(StartError::unwritable(&path)(source)),
        }
    }

    /// Stops a server whose `agentd` has died.
    fn stop_orphan(&self) -> Result<(), StartError> {
        tracing::warn!(folder = %self.folder.display(), "stopping the PostgreSQL server of an agentd that has died");
        let mut command = self.command("pg_ctl");
        command.args(["stop", "-m", "fast", "-w", "-t", &FAST_STOP_TIMEOUT.as_secs().to_string(), "-D"]);
        match run(command.arg(&self.folder), "") {
            // The server may have ended by itself in the meantime.
            Err(_) if !self.folder.join("postmaster.pid").exists() => Ok(()),
            result => result.map_err(|problem| self.failed("pg_ctl", &problem)),
        }
    }

    /// Creates the cluster with its database, in a separate folder that gets its final name when it is complete.
    fn create(&self) -> Result<(), StartError> {
        let staging = self.data.join("postgres.new");
        match fs::remove_dir_all(&staging) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(StartError::unwritable(&staging)(error));
            }
            _ => self.create_own_folder(&staging)?,
        }
        let mut initdb = self.command("initdb");
        initdb
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "-D"])
            .arg(&staging);
        run(&mut initdb, "").map_err(|problem| self.failed("initdb", &problem))?;
        // Single-user mode needs no client program.
        let mut single = self.command("postgres");
        single.args(["--single", "-D"]).arg(&staging).args(["-c", "exit_on_error=on", "postgres"]);
        run(&mut single, &format!("CREATE DATABASE {DATABASE}\n"))
            .map_err(|problem| self.failed("postgres", &problem))?;
        fs::rename(&staging, &self.folder).map_err(StartError::unwritable(&self.folder))
    }

    /// Creates a folder of mode 0700 that belongs to the server's account.
    fn create_own_folder(&self, folder: &Path) -> Result<(), StartError> {
        DirBuilder::new().mode(0o700).create(folder).map_err(StartError::unwritable(folder))?;
        match self.account {
            Some(ServerAccount { user, group }) => {
                chown(folder, Some(user), Some(group)).map_err(StartError::unwritable(folder))
            }
            None => Ok(()),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.programs.command(program);
        if let Some(account) = self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }

    /// Returns the id of the user that the server runs as.
    fn user(&self) -> u32 {
        self.account.map_or(geteuid().as_raw(), |account| account.user)
    }

    fn log_file(&self) -> PathBuf {
        self.data.join("postgres.log")
    }

    fn failed(&self, program: &str, problem: &str) -> StartError {
        StartError::Other(format!("{program} failed for {}: {problem}", self.folder.display()))
    }
}

/// Returns the major version that the cluster was created with; `None` if the folder is absent or empty.
fn cluster_version(folder: &Path) -> Result<Option<String>, StartError> {
    let file = folder.join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StartError::unreadable(&file)(error)),
        Err(_) if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) => {
            Err(StartError::Other(format!(
                "{} is not a PostgreSQL cluster: move it away, so that one can be created there",
                folder.display()
            )))
        }
        Err(_) => Ok(None),
    }
}

/// Runs a program to its end with `input` on standard input.
///
/// # Errors
/// The last lines of its error output, or the reason why it could not be run.
fn run(command: &mut Command, input: &str) -> Result<(), String> {
    let output = collect_output(command, input).map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(last_lines(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn collect_output(command: &mut Command, input: &str) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading its input fails by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}
