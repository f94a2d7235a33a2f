//! A temporary PostgreSQL server for a test, deleted when the value is dropped.
//!
//! Requires the server's programs, on `PATH` or in Debian's package directories, and no privileges. A test that runs
//! as root starts the server as another user, because PostgreSQL refuses to run as root.
//!
//! `initdb` takes most of the time to a server's start. The first test packs the folder that it creates into a file of
//! the folder of temporary files, and later tests unpack that.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time limit for the server's start, generous enough for a busy machine.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(120);

/// Settings of `initdb`, without the folder.
const INITDB_ARGUMENTS: [&str; 5] =
    ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];

/// A PostgreSQL server that listens on a Unix socket in its own folder.
pub(crate) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    /// User and group id that the server runs as; `None` for the ids of this process.
    user: Option<(u32, u32)>,
    /// Maximum file size in bytes (`RLIMIT_FSIZE`), which simulates a full disk.
    file_bytes: Option<u64>,
    port: u16,
    /// True if the server also listens on loopback TCP, with a certificate for `localhost`.
    has_certificate: bool,
    /// True if the server waits until its writes are on the disk. Tests stop servers, not machines, and do not need it.
    is_synced: bool,
    server: Option<Child>,
}

impl Cluster {
    /// Starts a server.
    pub(crate) fn start() -> Self {
        Self::start_with(None, false)
    }

    /// Starts a server that waits until its writes are on the disk, for measurements.
    #[allow(dead_code, reason = "the benchmarks use it")]
    pub(crate) fn start_synced() -> Self {
        let mut cluster = Self::start_with(None, false);
        cluster.crash();
        cluster.is_synced = true;
        cluster.restart();
        cluster
    }

    /// Starts a server whose files cannot grow beyond `bytes`.
    pub(crate) fn start_with_small_files(bytes: u64) -> Self {
        Self::start_with(Some(bytes), false)
    }

    /// Starts a server that is also reachable over TCP, with or without TLS; see [`tcp_url`](Self::tcp_url).
    pub(crate) fn start_with_certificate() -> Self {
        Self::start_with(None, true)
    }

    /// Starts a hot standby that replicates `primary`, for [`promote`](Self::promote).
    #[allow(dead_code, reason = "the tests of the store use it")]
    pub(crate) fn start_standby(primary: &Self) -> Self {
        let mut standby = Self::create(None, false);
        let (data, host) = (standby.data(), primary.folder().display());
        let connection = format!("host={host} port={} user=postgres", primary.port);
        standby.run("pg_basebackup", |command| {
            command
                .args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-d", &connection, "-D"])
                .arg(data);
        });
        standby.restart();
        standby
    }

    /// Makes a standby the primary.
    #[allow(dead_code, reason = "the tests of the store use it")]
    pub(crate) fn promote(&self) {
        self.run("pg_ctl", |command| {
            command.args(["promote", "-D"]).arg(self.data());
        });
    }

    fn start_with(file_bytes: Option<u64>, has_certificate: bool) -> Self {
        let mut cluster = Self::create(file_bytes, has_certificate);
        cluster.create_data();
        if has_certificate {
            cluster.make_certificate();
        }
        cluster.restart();
        cluster
    }

    /// Creates the data of an empty server: by `initdb`, or from the archive of an earlier call of it.
    fn create_data(&self) {
        let owner = fs::metadata(self.folder.path()).expect("metadata").uid();
        let archive = self.archive(owner);
        if fs::metadata(&archive).is_ok_and(|metadata| metadata.uid() == owner) {
            return self.run("tar", |command| {
                command.arg("-xf").arg(archive);
            });
        }
        self.run("initdb", |command| {
            command.args(INITDB_ARGUMENTS).arg("-D").arg(self.data());
        });
        // Renamed when it is complete. Of tests that begin together, the last one's stays.
        let unfinished = self.folder.path().join("data.tar");
        self.run("tar", |command| {
            command.arg("-cf").arg(&unfinished).arg("data");
        });
        // Else it could be empty after a power failure.
        fs::File::open(&unfinished).and_then(|file| file.sync_all()).expect("written to the disk");
        fs::rename(unfinished, archive)
            .expect("the folder of temporary files holds no such file of another user");
    }

    /// Returns the path of the archive, which differs by version, settings and owner.
    fn archive(&self, owner: u32) -> PathBuf {
        let version = self.command("initdb").arg("--version").output().expect("initdb").stdout;
        let mut hasher = DefaultHasher::new();
        (version, INITDB_ARGUMENTS, owner).hash(&mut hasher);
        // Beside the server's folder, whose path is absolute, also if `TMPDIR` is not.
        self.folder.path().with_file_name(format!("agentd-tests-postgres-{:016x}.tar", hasher.finish()))
    }

    /// Creates the folder of a server without data.
    fn create(file_bytes: Option<u64>, has_certificate: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("pg").tempdir().expect("a folder");
        let is_root = fs::metadata(folder.path()).expect("metadata").uid() == 0;
        let user = is_root.then(|| user_ids("postgres").or_else(|| user_ids("nobody")).expect("a user"));
        if let Some((user, group)) = user {
            chown(folder.path(), Some(user), Some(group)).expect("given away");
        }
        let port = if has_certificate { free_port() } else { 5432 };
        let programs = find_programs_dir();
        let is_synced = false;
        Self { folder, programs, user, file_bytes, port, has_certificate, is_synced, server: None }
    }

    /// Returns the folder of the server's socket, which the server's user owns.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the port, which is a part of the socket's name.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of the server's and the client's programs.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns the connection URL of a database over the Unix socket.
    pub(crate) fn url(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}:{}/{database}", self.port)
    }

    /// Returns the connection URL of a database over TCP, with `host` as a name of the loopback address.
    pub(crate) fn tcp_url(&self, host: &str, database: &str) -> String {
        format!("postgres://postgres@{host}:{}/{database}", self.port)
    }

    /// Returns the path of the server's self-signed certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    fn make_certificate(&self) {
        let (certificate, key) = (self.certificate(), self.folder.path().join("key.pem"));
        self.run("openssl", |command| {
            command.args([
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ]);
            command.args(["-addext", "subjectAltName=DNS:localhost"]);
            command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
            command.arg("-keyout").arg(key).arg("-out").arg(certificate);
        });
    }

    /// Lets a role connect over TCP with its password alone. Restarts the server.
    pub(crate) fn require_password(&mut self, role: &str) {
        self.crash();
        let path = self.data().join("pg_hba.conf");
        let rules = fs::read_to_string(&path).expect("rules");
        fs::write(&path, format!("host all {role} all scram-sha-256\n{rules}")).expect("written");
        self.restart();
    }

    /// Starts the server after a [`crash`](Self::crash).
    pub(crate) fn restart(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-c", "max_connections=120", "-p", &self.port.to_string()]);
        command.args(["-c", if self.is_synced { "fsync=on" } else { "fsync=off" }]);
        if self.has_certificate {
            let folder = self.folder.path().display();
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "ssl=on"]);
            command.arg("-c").arg(format!("ssl_cert_file={folder}/certificate.pem"));
            command.arg("-c").arg(format!("ssl_key_file={folder}/key.pem"));
        } else {
            command.args(["-c", "listen_addresses="]);
        }
        command.stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().expect("the server is started"));
        let start = Instant::now();
        while !self.is_ready() {
            let exit_status = self.server.as_mut().and_then(|server| server.try_wait().expect("asked"));
            assert!(
                exit_status.is_none() && start.elapsed() < STARTUP_TIMEOUT,
                "no server: {}",
                self.log_text()
            );
            sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if the server's `postmaster.pid` reports that it accepts connections.
    fn is_ready(&self) -> bool {
        let pid_file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let server_id = self.server.as_ref().map(|server| server.id().to_string());
        let mut lines = pid_file.lines();
        lines.next().map(str::to_owned) == server_id
            && lines.next_back().is_some_and(|line| line.trim() == "ready")
    }

    /// Stops the server immediately (`pg_ctl stop -m immediate`), as a power failure would.
    pub(crate) fn crash(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let data = self.data();
        self.run("pg_ctl", |command| {
            command.args(["stop", "-m", "immediate", "-D"]).arg(data);
        });
        server.wait().expect("ended");
    }

    /// Keeps the current data as the data of a standby, for [`fail_over`](Self::fail_over). Restarts the server.
    pub(crate) fn fork_standby(&mut self) {
        self.crash();
        self.run("cp", |command| {
            command.arg("-a").arg(self.data()).arg(self.standby());
        });
        self.restart();
    }

    /// Replaces the server by its standby, without the writes since [`fork_standby`](Self::fork_standby).
    pub(crate) fn fail_over(&mut self) {
        self.crash();
        fs::remove_dir_all(self.data()).expect("removed");
        fs::rename(self.standby(), self.data()).expect("moved");
        self.restart();
    }

    fn standby(&self) -> PathBuf {
        self.folder.path().join("standby")
    }

    /// Returns the server's log.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn run(&self, program: &str, arguments: impl FnOnce(&mut Command)) {
        let mut command = self.command(program);
        arguments(&mut command);
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Builds a command that runs one of the server's programs as the server's user. The parent-death signal ends the
    /// process when the thread that starts it ends.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some((user, group)) = self.user {
            words.extend(["setpriv", "--clear-groups"].map(str::to_owned));
            words.extend([format!("--reuid={user}"), format!("--regid={group}")]);
        } else if cfg!(target_os = "linux") {
            words.push("setpriv".to_owned());
        }
        if !words.is_empty() {
            words.extend(["--pdeathsig=QUIT", "--"].map(str::to_owned));
        }
        if let Some(bytes) = self.file_bytes.filter(|_| program == "postgres") {
            words.extend(["prlimit".to_owned(), format!("--fsize={bytes}"), "--".to_owned()]);
        }
        let program_path = self.programs.join(program);
        words.push(if program_path.is_file() {
            program_path.display().to_string()
        } else {
            program.to_owned()
        });
        let mut command = Command::new(&words[0]);
        // The current directory may be inaccessible to the server's user; its own folder is not.
        command.args(&words[1..]).current_dir(self.folder.path()).env("LC_ALL", "C");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic message is about the test; the cause may be in the server's log.
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "the server's log:\n{}", self.log_text());
        }
        if let Some(mut server) = self.server.take() {
            let data = self.data();
            let _ = self.command("pg_ctl").args(["stop", "-m", "immediate", "-D"]).arg(data).output();
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Returns the user id and group id of an account.
fn user_ids(name: &str) -> Option<(u32, u32)> {
    let number = |which: &str| -> Option<u32> {
        let output = Command::new("id").args([which, name]).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    Some((number("-u")?, number("-g")?))
}

/// Returns the folder of the PostgreSQL server programs: one on `PATH`, else the newest installed version.
fn find_programs_dir() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).collect::<Vec<_>>();
    let mut installed: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    installed.sort_by_key(|folder| folder.parent().and_then(Path::file_name).and_then(number));
    let all = on_path.into_iter().chain(installed.into_iter().rev());
    all.into_iter()
        .find(|folder| ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).is_file()))
        .expect("PostgreSQL's server is installed: the package postgresql has it")
}

fn number(name: &OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// Returns a port of the loopback address without a listener, for a process that is started later, or again.
///
/// It is none of those that systems assign by themselves, from 32,768 on, so that no other connection takes it while the
/// process does not listen, not even a client's to this very port.
pub(crate) fn free_port() -> u16 {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut returned = RETURNED.lock().expect("unpoisoned");
    let mut candidates = std::iter::repeat_with(|| {
        // Each state has random keys.
        let random = RandomState::new().build_hasher().finish();
        20_000 + (random % 10_000) as u16
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    candidates.find(|port| is_free(port) && returned.insert(*port)).expect("a free port")
}
