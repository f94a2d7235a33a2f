//! Bounds on the readers of responses that last as long as their clients read them: logs of runs, downloads, and large lists
//! and documents.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};

use super::connection_shares::{ALL_READERS, COMPANY_READERS};
use crate::error::{Code, HttpError};
use crate::exchange_permit::{ExchangePermit, hold_bytes};

/// Maximum number of logs that are collected to a single object in memory, of all companies and of one.
const MAX_COLLECTED_LOGS: usize = 256;
const MAX_COMPANY_COLLECTED_LOGS: usize = MAX_COLLECTED_LOGS / 4;

/// `Retry-After` of a download that is refused because of other downloads.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Counts the clients that read logs of runs, downloads and large responses, of all companies and of each.
///
/// A reader of a live run holds its connection as long as the run lasts, and a run may have many of them. One that gets a
/// single object has the run's output in memory as well. A download holds its connection, and a piece of it in memory, as
/// long as its client likes.
#[derive(Debug)]
pub(in crate::app) struct ResponseReaders {
    readers: Arc<CompanyPermits>,
    collected: Arc<CompanyPermits>,
}

/// Permit of a log's reader, released on drop.
#[derive(Debug)]
pub(in crate::app) struct LogReaderPermit {
    _reader: CompanyPermit,
    _collected: Option<CompanyPermit>,
}

impl ResponseReaders {
    /// Creates the bounds of a server with at most `connections` connections.
    pub(super) fn new(connections: u32) -> Self {
        Self {
            readers: CompanyPermits::new(ALL_READERS.of(connections), COMPANY_READERS.of(connections)),
            collected: CompanyPermits::new(MAX_COLLECTED_LOGS, MAX_COMPANY_COLLECTED_LOGS),
        }
    }

    /// Returns the permit to hold while a log is read. `is_collected` is true for a single object.
    ///
    /// # Errors
    /// 429 if the company, or all companies together, have as many readers as they may have.
    pub(in crate::app) fn admit_log(
        &self,
        company_id: &CompanyId,
        is_collected: bool,
    ) -> Result<LogReaderPermit, HttpError> {
        let acquire =
            |permits: &Arc<CompanyPermits>| permits.try_acquire(company_id).ok_or_else(too_many_readers);
        Ok(LogReaderPermit {
            _reader: acquire(&self.readers)?,
            _collected: is_collected.then(|| acquire(&self.collected)).transpose()?,
        })
    }

    /// Returns the permit of a download; see [`hold_while_read`].
    ///
    /// # Errors
    /// 429 if the company, or all companies together, have as many readers as they may have.
    pub(in crate::app) fn admit_download(&self, company_id: &CompanyId) -> Result<CompanyPermit, HttpError> {
        self.readers.try_acquire(company_id).ok_or_else(too_many_downloads)
    }

    /// Returns the permit of a response to a request without an effect. It is refused as a download is.
    pub(super) fn permit_of_query(&self, company_id: &CompanyId) -> ExchangePermit {
        let (permits, company_id) = (self.readers.clone(), company_id.clone());
        ExchangePermit::ForResponse { permits, company_id, refusal: too_many_downloads }
    }
}

/// Returns the pieces of a download, each of which holds its permit until it is sent: the server drops a body before the last of
/// its pieces are.
pub(in crate::app) fn hold_while_read<E>(
    permit: CompanyPermit,
    pieces: impl Stream<Item = Result<Bytes, E>>,
) -> impl Stream<Item = Result<Bytes, E>> {
    let permit = Arc::new(permit);
    pieces.map_ok(move |piece| hold_bytes(piece, &permit))
}

fn too_many_downloads() -> HttpError {
    let error = HttpError::rate_limited(Some(RETRY_AFTER));
    error.with_detail(
        "too many downloads, large responses and run logs are being read, by the company or in total",
    )
}

fn too_many_readers() -> HttpError {
    HttpError::new(Code::RateLimited, "too many run logs are being read, by the company or in total")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_company_has_half_of_the_connections_and_all_together_leave_a_quarter() {
        let readers = ResponseReaders::new(16);
        let admit = |company: &str| readers.admit_log(&company.into(), false);
        let mut permits: Vec<_> = std::iter::from_fn(|| admit("one").ok()).collect();
        assert_eq!(permits.len(), 8);
        permits.extend(std::iter::from_fn(|| admit("two").ok()));
        assert_eq!(permits.len(), 12);
        assert_eq!(admit("three").expect_err("all are taken").code(), Code::RateLimited);
        permits.truncate(7);
        assert!(admit("one").is_ok() && admit("three").is_ok());
        assert!(ResponseReaders::new(1).admit_log(&"one".into(), true).is_ok());
    }

    #[test]
    fn a_company_collects_few_logs_and_reads_others_meanwhile() {
        let readers = ResponseReaders::new(10_000);
        let admit = |company: &str, is_collected| readers.admit_log(&company.into(), is_collected).ok();
        let permits: Vec<_> = std::iter::from_fn(|| admit("one", true)).collect();
        assert_eq!(permits.len(), MAX_COMPANY_COLLECTED_LOGS);
        assert!(admit("one", false).is_some() && admit("two", true).is_some());
        drop(permits);
        assert!(admit("one", true).is_some());
    }

    #[tokio::test]
    async fn downloads_and_logs_share_the_connections_of_a_company() {
        let readers = ResponseReaders::new(16);
        let logs: Vec<_> =
            (0..7).map(|_| readers.admit_log(&"one".into(), false).expect("a permit")).collect();
        let permit = readers.admit_download(&"one".into()).expect("a permit");
        let pieces = ["1", "2"].map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
        let mut pieces = Box::pin(hold_while_read(permit, futures_util::stream::iter(pieces)));
        let Ok(piece) = pieces.try_next().await;
        assert_eq!(piece.as_deref(), Some(&b"1"[..]));
        let refused = readers.admit_download(&"one".into()).expect_err("it is being read");
        assert_eq!(refused.code(), Code::RateLimited);
        assert!(readers.admit_download(&"two".into()).is_ok());
        drop(pieces);
        assert!(readers.admit_download(&"one".into()).is_err(), "a piece is not sent yet");
        drop(piece);
        assert!(readers.admit_download(&"one".into()).is_ok());
        drop(logs);
    }
}
