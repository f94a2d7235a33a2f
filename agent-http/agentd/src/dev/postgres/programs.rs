//! PostgreSQL's server programs on this machine, and the account that runs them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::StartError;

/// Folder of Debian's packages, with a folder for each version.
pub(super) const PACKAGES_FOLDER: &str = "/usr/lib/postgresql";
/// Programs that a folder must contain.
const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];
/// Accounts that the server may run as, by preference, if this process runs as root.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];

/// PostgreSQL's server programs.
#[derive(Debug)]
pub(super) struct ServerPrograms {
    folder: PathBuf,
    /// Major version, such as `17`.
    pub(super) version: String,
    /// True if `setpriv` can make the kernel signal a program at the death of the thread that started it.
    has_death_signal: bool,
}

impl ServerPrograms {
    /// Finds the programs in the folder of version `preferred` in `packages`, otherwise in a folder of `search_path`, otherwise
    /// in the folder of the newest version in `packages`.
    ///
    /// # Errors
    /// There are none, or they cannot be run.
    pub(super) fn find(
        search_path: &OsStr,
        packages: &Path,
        preferred: Option<&str>,
    ) -> Result<Self, StartError> {
        let mut installed: Vec<PathBuf> = fs::read_dir(packages)
            .map(|versions| versions.flatten().map(|version| version.path()).collect())
            .unwrap_or_default();
        installed.sort_by_key(|folder| folder.file_name()?.to_str()?.parse::<u32>().ok());
        let preferred = preferred.map(|version| packages.join(version));
        let mut folders = preferred
            .map(|folder| folder.join("bin"))
            .into_iter()
            .chain(std::env::split_paths(search_path).filter_map(|folder| std::path::absolute(folder).ok()))
            .chain(installed.into_iter().rev().map(|folder| folder.join("bin")));
        let folder = folders
            .find(|folder| PROGRAMS.iter().all(|program| folder.join(program).is_file()))
            .ok_or_else(|| {
                StartError::Other(format!(
                    "PostgreSQL is not installed: its server's programs are neither on PATH nor in {}; the package \
                     postgresql has them",
                    packages.display()
                ))
            })?;
        let version = read_version(&folder)?;
        Ok(Self { folder, version, has_death_signal: has_death_signal() })
    }

    /// Checks that the programs can run the cluster in `folder`, which was created with `version`.
    ///
    /// # Errors
    /// They are of another version.
    pub(super) fn check_version(&self, folder: &Path, version: &str) -> Result<(), StartError> {
        if version == self.version {
            return Ok(());
        }
        Err(StartError::Other(format!(
            "{} is a cluster of PostgreSQL {version}, and version {} is installed: install version {version} too, or \
             move the folder away to begin with an empty database",
            folder.display(),
            self.version
        )))
    }

    /// Builds a command that runs a program. Where supported, the program gets SIGINT when the thread that started it ends; it
    /// is a request for a fast shutdown.
    pub(super) fn command(&self, program: &str) -> Command {
        let path = self.folder.join(program);
        let mut command = if self.has_death_signal {
            let mut command = death_signal_command();
            command.arg(path);
            command
        } else {
            Command::new(path)
        };
        // The server's account may not be able to enter the current folder.
        command.current_dir("/").env("LC_ALL", "C");
        command
    }
}

fn read_version(folder: &Path) -> Result<String, StartError> {
    let path = folder.join("postgres");
    let failed = |problem: &str| StartError::Other(format!("{} cannot be run: {problem}", path.display()));
    let output = Command::new(&path).arg("--version").output().map_err(|error| failed(&error.to_string()))?;
    // `postgres (PostgreSQL) 17.2 (Debian 17.2-1)`, or `18beta1` in place of a number.
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(2).unwrap_or_default();
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    match &version[..end] {
        "" => Err(failed("it does not print its version")),
        major => Ok(major.to_owned()),
    }
}

fn death_signal_command() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig=INT", "--"]);
    command
}

fn has_death_signal() -> bool {
    let mut command = death_signal_command();
    command.arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// User and group that the server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerAccount {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl ServerAccount {
    /// Returns the account of the server over `cluster`; `None` for the account of this process. PostgreSQL refuses to run as
    /// root: in a process of root, the account is the owner of the cluster, else one that exists on this machine.
    ///
    /// # Errors
    /// This process runs as root, and the machine has no account for the server.
    pub(super) fn select(cluster: &Path) -> Result<Option<Self>, StartError> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let owner = fs::metadata(cluster).ok().filter(|metadata| metadata.uid() != 0);
        let owner = owner.map(|metadata| Self { user: metadata.uid(), group: metadata.gid() });
        match owner.or_else(|| ACCOUNTS.into_iter().find_map(Self::named)) {
            Some(account) => Ok(Some(account)),
            None => Err(StartError::Other(
                "PostgreSQL does not run as root, and there is no user `postgres`: create it, or run agentd as another \
                 user"
                    .to_owned(),
            )),
        }
    }

    fn named(name: &str) -> Option<Self> {
        let number = |option: &str| -> Option<u32> {
            let output = Command::new("id").args([option, name]).output().ok()?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok()
        };
        Some(Self { user: number("-u")?, group: number("-g")? })
    }
}
