//! Reading of files with settings.

use std::io::Read;
use std::path::Path;

/// Maximum size in bytes of a configuration file, and of a file that contains a secret.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads a text file of at most [`MAX_FILE_BYTES`].
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}
