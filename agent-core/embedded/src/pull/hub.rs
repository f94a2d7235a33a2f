//! Hub downloads over HTTP, with range requests to resume a broken download.

use std::path::Path;

use futures_util::StreamExt;
use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Response, StatusCode};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;

use super::{Pull, SourceError};
use crate::catalog::KnownModel;

/// Maximum number of resumptions of one download, each of which must follow progress.
const MAX_RESUMES: usize = 5;

impl Pull {
    /// Downloads the file into `part`, appending to the bytes that are already there.
    pub(super) async fn fetch_from_hub(
        &self,
        model: &KnownModel,
        part: &Path,
        say: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), SourceError> {
        let address = format!("{}/{}", self.hub.trim_end_matches('/'), model.hub_path);
        let mut had = length(part).await;
        if had > model.bytes {
            tokio::fs::remove_file(part).await?;
            had = 0;
        }
        match had {
            0 => say(&format!("Fetching {} ({} MB) from {}.", model.name, megabytes(model.bytes), self.hub)),
            _ => say(&format!("Going on with {} from {}, at {} MB.", model.name, self.hub, megabytes(had))),
        }
        self.bar.set_length(model.bytes);
        let mut resumes = 0;
        while had < model.bytes {
            let result = self.fetch_once(&address, model, part, had).await;
            let has = length(part).await;
            match result {
                Ok(()) if has == model.bytes => break,
                Err(SourceError::Unreachable { .. }) | Ok(()) if has > had && resumes < MAX_RESUMES => {
                    resumes += 1;
                    had = has;
                }
                Ok(()) => {
                    let answer = format!("{has} bytes of {}", model.bytes);
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
        model: &KnownModel,
        part: &Path,
        from: u64,
    ) -> Result<(), SourceError> {
        let unreachable = |source: reqwest::Error| SourceError::Unreachable {
            address: address.to_owned(),
            source: source.without_url(),
        };
        let mut request = self.client.get(address);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let response = request.send().await.map_err(unreachable)?;
        let (mut file, mut has) = match response.status() {
            StatusCode::PARTIAL_CONTENT if begins_at(&response, from) => {
                (OpenOptions::new().append(true).create(true).open(part).await?, from)
            }
            // A server without range support sends the whole file.
            StatusCode::OK => (File::create(part).await?, 0),
            status => {
                let answer = format!("{status} where bytes from {from} were asked for");
                return Err(SourceError::UnexpectedResponse { address: address.to_owned(), answer });
            }
        };
        let mut body = response.bytes_stream();
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(unreachable);
            let Ok(bytes) = bytes else {
                file.flush().await?;
                return bytes.map(|_| ());
            };
            has += bytes.len() as u64;
            if has > model.bytes {
                drop(file);
                tokio::fs::remove_file(part).await?;
                let answer = format!("more than the {} bytes that the file has", model.bytes);
                return Err(SourceError::UnexpectedResponse { address: address.to_owned(), answer });
            }
            file.write_all(&bytes).await?;
            self.bar.set_position(has);
        }
        file.flush().await?;
        Ok(file.sync_all().await?)
    }
}

async fn length(path: &Path) -> u64 {
    tokio::fs::metadata(path).await.map_or(0, |metadata| metadata.len())
}

fn begins_at(response: &Response, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}
