//! The files of an embedding model, read with their sums checked.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::EmbeddingModelError;
use crate::catalog::{ChecksumError, KnownModel, ModelFile};

/// Names of a model's files.
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";

/// The contents of an embedding model's files.
pub struct EmbeddingFiles {
    /// `config.json`: the architecture and its dimensions.
    pub config: Vec<u8>,
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `model.safetensors`.
    pub weights: Vec<u8>,
}

impl std::fmt::Debug for EmbeddingFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingFiles").finish_non_exhaustive()
    }
}

impl EmbeddingFiles {
    /// Reads the files of a model from its folder, and checks the sums of the bytes that were read.
    pub(super) fn read(model: &'static KnownModel, folder: &Path) -> Result<Self, EmbeddingModelError> {
        let read = |name: &str| {
            let file = file(model, name)?;
            let path = folder.join(file.name);
            let bytes = std::fs::read(&path).map_err(|source| {
                EmbeddingModelError::Checksum(ChecksumError::Unreadable { path: path.clone(), source }.into())
            })?;
            let actual = hex::encode(Sha256::digest(&bytes));
            if actual != file.sha256 {
                let expected = file.sha256.to_owned();
                return Err(EmbeddingModelError::Checksum(
                    ChecksumError::Mismatch { path, expected, actual }.into(),
                ));
            }
            Ok(bytes)
        };
        Ok(Self { config: read(CONFIG)?, tokenizer: read(TOKENIZER)?, weights: read(WEIGHTS)? })
    }
}

/// Checks that the files of a model are in a folder, by their lengths.
pub(super) fn check_lengths(model: &'static KnownModel, folder: &Path) -> Result<(), EmbeddingModelError> {
    for name in [CONFIG, TOKENIZER, WEIGHTS] {
        let file = file(model, name)?;
        let path: PathBuf = folder.join(file.name);
        let Ok(metadata) = std::fs::metadata(&path) else {
            return Err(EmbeddingModelError::Missing { path, model: model.name });
        };
        let (expected, found) = (file.bytes, metadata.len());
        if found != expected {
            return Err(EmbeddingModelError::Length { path, model: model.name, expected, found });
        }
    }
    Ok(())
}

fn file(model: &'static KnownModel, name: &str) -> Result<&'static ModelFile, EmbeddingModelError> {
    let found = model.files.iter().find(|file| file.name == name);
    found.ok_or_else(|| {
        EmbeddingModelError::unusable(format!("the catalogue has no {name} of {}", model.name))
    })
}
