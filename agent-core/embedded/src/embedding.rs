//! Embedding models within the process: BERT and ModernBERT encoders, run on a separate thread pool.
//!
//! - `files` reads a model's files and checks their sums, `config` reads their dimensions.
//! - `bert` and `modernbert` are the encoders, over the operations of `layers`.
//! - `encoder` makes a vector of a text: tokenizer, encoder, pooling.
//! - `worker` is the thread with its bounded queue, in which questions go before documents.

mod bert;
mod call;
mod config;
mod encoder;
mod error;
mod files;
mod layers;
mod modernbert;
mod worker;

use std::num::NonZeroUsize;
use std::path::Path;

pub use self::call::EmbeddingPriority;
pub use self::error::EmbeddingModelError;
pub use self::files::EmbeddingFiles;

use self::call::MAX_TEXTS_PER_CALL;
use self::encoder::TextEncoder;
use self::worker::Worker;
use crate::catalog::{EmbeddingSpec, KnownModel};
use crate::model::default_threads;

/// An embedding model that runs in this process. The model is loaded at the first call, or by [`warm`](Self::warm).
///
/// Texts are encoded one after the other, so that a vector does not depend on the others of its call.
pub struct LocalEmbedder {
    worker: Worker,
    spec: EmbeddingSpec,
}

impl std::fmt::Debug for LocalEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalEmbedder").finish_non_exhaustive()
    }
}

impl LocalEmbedder {
    /// Maximum number of texts of a call.
    pub const MAX_BATCH: usize = MAX_TEXTS_PER_CALL;
    /// Maximum number of waiting calls of each priority; further ones fail.
    pub const MAX_WAITING: usize = worker::MAX_WAITING;

    /// Opens a model that `agentd model pull` has stored in a folder. The lengths of the files are checked now, their sums when
    /// they are read. `threads` defaults to the number of available processors, at most four.
    ///
    /// # Errors
    /// The model is not an embedding model, or files are missing or have the wrong length.
    pub fn open(
        model: &'static KnownModel,
        folder: &Path,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, EmbeddingModelError> {
        let spec = model.embedding.ok_or(EmbeddingModelError::NotAnEmbedder(model.name))?;
        let folder = model.path_in(folder);
        files::check_lengths(model, &folder)?;
        Self::start(spec, threads, move || EmbeddingFiles::read(model, &folder))
    }

    /// Creates a model from the contents of its files.
    ///
    /// # Errors
    /// The threads cannot be started. Unusable files are an error of the first call.
    pub fn from_files(spec: EmbeddingSpec, files: EmbeddingFiles) -> Result<Self, EmbeddingModelError> {
        Self::start(spec, None, move || Ok(files))
    }

    fn start(
        spec: EmbeddingSpec,
        threads: Option<NonZeroUsize>,
        read: impl FnOnce() -> Result<EmbeddingFiles, EmbeddingModelError> + Send + 'static,
    ) -> Result<Self, EmbeddingModelError> {
        let load = move || TextEncoder::load(&spec, read()?);
        let worker = Worker::start(threads.unwrap_or_else(default_threads), load)?;
        Ok(Self { worker, spec })
    }

    /// Returns the number of components of each vector.
    pub fn dimensions(&self) -> usize {
        self.spec.dimensions
    }

    /// Loads the model, so that the first call does not wait for it.
    ///
    /// # Errors
    /// The model cannot be loaded.
    pub async fn warm(&self) -> Result<(), EmbeddingModelError> {
        self.worker.call(Vec::new(), EmbeddingPriority::Query).await.map(drop)
    }

    /// Returns a vector for each text, in the order of the texts; the vectors are not normalized. Texts that are longer than
    /// the model reads are cut. Dropping the future cancels the call after the current text.
    ///
    /// # Errors
    /// The model cannot be loaded, too many calls are waiting, or there are more texts than [`Self::MAX_BATCH`].
    pub async fn embed(
        &self,
        texts: &[&str],
        priority: EmbeddingPriority,
    ) -> Result<Vec<Vec<f32>>, EmbeddingModelError> {
        if texts.len() > Self::MAX_BATCH {
            return Err(EmbeddingModelError::BatchTooLarge(texts.len()));
        }
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let texts = texts.iter().map(|text| encoder::readable_prefix(text, &self.spec).to_owned()).collect();
        self.worker.call(texts, priority).await
    }
}

#[cfg(test)]
mod tests;
