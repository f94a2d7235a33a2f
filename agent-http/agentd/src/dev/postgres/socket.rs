//! Folder of the server's Unix socket.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::StartError;

/// Name of the socket in its folder, for the default port.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// Maximum length of a Unix socket's path in bytes (`sun_path` without its final zero).
pub(super) const MAX_SOCKET_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Characters that are percent-encoded in the host of a URL: all but the unreserved characters (RFC 3986, section 2.3).
const HOST_ESCAPES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Folder of the server's Unix socket, of mode 0700.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    /// False for the folder of the cluster, true for a temporary folder.
    is_temporary: bool,
}

impl SocketFolder {
    /// Selects the folder of the cluster if the path of a socket in it is short enough, or else a folder in `temporary`
    /// that is named after the identity of the folder `data`.
    ///
    /// # Errors
    /// Both paths are too long, or `data` does not exist.
    pub(super) fn select(data: &Path, cluster: &Path, temporary: &Path) -> Result<Self, StartError> {
        let fits = |folder: &Path| folder.join(SOCKET_NAME).as_os_str().len() <= MAX_SOCKET_PATH_BYTES;
        if fits(cluster) {
            return Ok(Self { path: cluster.to_owned(), is_temporary: false });
        }
        let identity = fs::metadata(data).map_err(StartError::unreadable(data))?;
        let path = temporary.join(format!("agentd-postgres-{:x}-{:x}", identity.dev(), identity.ino()));
        if fits(&path) {
            return Ok(Self { path, is_temporary: true });
        }
        Err(StartError::Other(format!(
            "the paths of sockets in {} and {} are longer than {MAX_SOCKET_PATH_BYTES} bytes: use a shorter --data or \
             TMPDIR",
            cluster.display(),
            temporary.display()
        )))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the folder exists.
    ///
    /// # Errors
    /// It is not a folder that only `user` may enter.
    pub(super) fn exists(&self, user: u32) -> Result<bool, StartError> {
        let Ok(metadata) = fs::symlink_metadata(&self.path) else { return Ok(false) };
        if metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o077 == 0 {
            return Ok(true);
        }
        Err(StartError::Other(format!(
            "{} is not a folder of mode 0700 that belongs to the user with the id {user}",
            self.path.display()
        )))
    }

    /// Returns true if a server listens on the socket.
    pub(super) fn has_listener(&self) -> bool {
        UnixStream::connect(self.path.join(SOCKET_NAME)).is_ok()
    }

    /// Returns the folder as the host of a PostgreSQL URL: percent-encoded.
    pub(super) fn url_host(&self) -> String {
        percent_encode(self.path.as_os_str().as_bytes(), HOST_ESCAPES).to_string()
    }

    /// Returns the folder as an entry of the server's list of socket folders: in quotes, since a path may contain a
    /// comma.
    pub(super) fn list_entry(&self) -> OsString {
        let mut quoted = vec![b'"'];
        for byte in self.path.as_os_str().as_bytes() {
            quoted.extend(if *byte == b'"' { b"\"\"".as_slice() } else { std::slice::from_ref(byte) });
        }
        quoted.push(b'"');
        OsString::from_vec(quoted)
    }

    /// Removes the folder, if it is temporary and empty.
    pub(super) fn remove(&self) {
        if self.is_temporary {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
