//! Hub downloads, resumed from the bytes that have arrived.

use std::path::Path;

use futures_util::StreamExt;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;

use super::{FetchError, FetchedBytes, SourceError, WeightsDownloader};
use crate::catalog::{KnownModel, ModelFile};

/// Maximum number of resumptions of one download, each of which must follow progress.
const MAX_RESUMES: usize = 5;

impl WeightsDownloader {
    /// Downloads the file into `part`, appending to the bytes that are already there.
    pub(super) async fn fetch_from_hub(
        &self,
        model: &KnownModel,
        file: &ModelFile,
        part: &Path,
        report: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), SourceError> {
        let address = format!("{}/{}/{}", self.hub.trim_end_matches('/'), model.hub_folder, file.name);
        let name = match model.files {
            [_] => model.name.to_owned(),
            _ => format!("{} of {}", file.name, model.name),
        };
        let mut had = length(part).await;
        if had > file.bytes {
            tokio::fs::remove_file(part).await?;
            had = 0;
        }
        match had {
            0 => report(&format!("Downloading {name} ({} MB) from {}.", megabytes(file.bytes), self.hub)),
            _ => report(&format!(
                "Resuming the download of {name} from {} at {} MB.",
                self.hub,
                megabytes(had)
            )),
        }
        self.bar.set_length(file.bytes);
        let mut resumes = 0;
        while had < file.bytes {
            let result = self.fetch_once(&address, file.bytes, part, had).await;
            let has = length(part).await;
            match result {
                Ok(()) if has == file.bytes => break,
                Err(SourceError::Unreachable { .. }) | Ok(()) if has > had && resumes < MAX_RESUMES => {
                    resumes += 1;
                    had = has;
                }
                Ok(()) => {
                    let answer = format!("{has} bytes of {}", file.bytes);
                    return Err(SourceError::UnexpectedResponse { address, answer });
                }
                Err(error) => return Err(error),
            }
        }
        self.bar.finish();
        Ok(())
    }

    /// Sends one request for the bytes from `from` on and appends the response body.
    async fn fetch_once(
        &self,
        address: &str,
        length: u64,
        part: &Path,
        from: u64,
    ) -> Result<(), SourceError> {
        let unreachable = |source| SourceError::Unreachable { address: address.to_owned(), source };
        let unexpected = |answer| SourceError::UnexpectedResponse { address: address.to_owned(), answer };
        let FetchedBytes { start, mut bytes } =
            self.source.fetch(address, from).await.map_err(|error| match error {
                FetchError::Unreachable(source) => unreachable(source),
                FetchError::UnexpectedResponse(answer) => unexpected(answer),
            })?;
        let mut file = match start {
            // A server without range support sends the whole file.
            0 => File::create(part).await?,
            _ if start == from => OpenOptions::new().append(true).create(true).open(part).await?,
            _ => {
                return Err(unexpected(format!(
                    "bytes from {start} on; bytes from {from} on were requested"
                )));
            }
        };
        let mut has = start;
        while let Some(chunk) = bytes.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(source) => {
                    file.flush().await?;
                    return Err(unreachable(source));
                }
            };
            has += chunk.len() as u64;
            if has > length {
                drop(file);
                tokio::fs::remove_file(part).await?;
                return Err(unexpected(format!("more than the file's {length} bytes")));
            }
            file.write_all(&chunk).await?;
            self.bar.set_position(has);
        }
        file.flush().await?;
        Ok(file.sync_all().await?)
    }
}

async fn length(path: &Path) -> u64 {
    tokio::fs::metadata(path).await.map_or(0, |metadata| metadata.len())
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}
