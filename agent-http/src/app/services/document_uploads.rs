//! Uploads that are in progress, and the extraction of their texts.

use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};
use agent_platform::ingestion::Ingestion;

use crate::error::HttpError;

/// Maximum number of uploads whose bodies are read and stored at once. Each has its body in memory.
const MAX_UPLOADS: usize = 8;
/// Maximum number of these of one company.
const MAX_UPLOADS_PER_COMPANY: usize = 2;
/// Maximum number of responses that wait for the end of an extraction. Each reads its document ten times per second.
const MAX_WAITS: usize = 128;
/// Maximum number of these of one company.
const MAX_WAITS_PER_COMPANY: usize = 32;
/// `Retry-After` of an upload that is refused because of other uploads.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Uploads of documents, and the extraction of their texts.
pub struct DocumentUploads {
    pub(in crate::app) ingestion: Ingestion,
    permits: Arc<CompanyPermits>,
    waits: Arc<CompanyPermits>,
}

impl DocumentUploads {
    /// Creates the uploads of a process, whose texts `ingestion` extracts.
    pub fn new(ingestion: Ingestion) -> Self {
        Self {
            ingestion,
            permits: CompanyPermits::new(MAX_UPLOADS, MAX_UPLOADS_PER_COMPANY),
            waits: CompanyPermits::new(MAX_WAITS, MAX_WAITS_PER_COMPANY),
        }
    }

    /// Extracts texts until the future is dropped.
    pub async fn run(&self) {
        self.ingestion.run().await;
    }

    /// Admits an upload, which holds the permit while it is read and stored.
    ///
    /// # Errors
    /// 429 if too many uploads are in progress, of the company or in total.
    pub(in crate::app) fn admit(&self, company_id: &CompanyId) -> Result<CompanyPermit, HttpError> {
        self.permits.try_acquire(company_id).ok_or_else(|| {
            let error = HttpError::rate_limited(Some(RETRY_AFTER));
            error.with_detail("too many uploads are in progress")
        })
    }

    /// Admits a response that waits for the end of an extraction, and holds the permit meanwhile. `None` if too many wait, of the
    /// company or in total.
    pub(in crate::app) fn admit_wait(&self, company_id: &CompanyId) -> Option<CompanyPermit> {
        self.waits.try_acquire(company_id)
    }
}
