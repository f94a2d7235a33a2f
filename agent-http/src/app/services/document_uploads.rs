//! Uploads that are in progress, and the extraction of their texts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::ids::CompanyId;
use agent_platform::ingestion::Ingestion;

use crate::error::HttpError;

/// Maximum number of uploads whose bodies are read and stored at once. Each has its body in memory.
const MAX_UPLOADS: usize = 8;
/// Maximum number of these of one company.
const MAX_UPLOADS_PER_COMPANY: usize = 2;
/// `Retry-After` of an upload that is refused because of others.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Uploads of documents, and the extraction of their texts.
pub struct DocumentUploads {
    pub(in crate::app) ingestion: Ingestion,
    running: Mutex<RunningUploads>,
}

#[derive(Default)]
struct RunningUploads {
    total: usize,
    by_company: HashMap<CompanyId, usize>,
}

impl DocumentUploads {
    /// Creates the uploads of a process, whose texts `ingestion` extracts.
    pub fn new(ingestion: Ingestion) -> Self {
        Self { ingestion, running: Mutex::default() }
    }

    /// Extracts texts until the future is dropped.
    pub async fn run(&self) {
        self.ingestion.run().await;
    }

    /// Admits an upload, which holds the permit while it is read and stored.
    ///
    /// # Errors
    /// 429 if too many uploads are in progress, of the company or in total.
    pub(in crate::app) fn admit(&self, company_id: &CompanyId) -> Result<UploadPermit<'_>, HttpError> {
        let mut running = self.running();
        let company_count = running.by_company.get(company_id).copied().unwrap_or_default();
        if running.total >= MAX_UPLOADS || company_count >= MAX_UPLOADS_PER_COMPANY {
            let error = HttpError::rate_limited(Some(RETRY_AFTER));
            return Err(error.with_detail("too many uploads are in progress"));
        }
        running.total += 1;
        running.by_company.insert(company_id.clone(), company_count + 1);
        Ok(UploadPermit { uploads: self, company_id: company_id.clone() })
    }

    /// Locks the table. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn running(&self) -> MutexGuard<'_, RunningUploads> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permit of an upload; returned on drop.
pub(in crate::app) struct UploadPermit<'a> {
    uploads: &'a DocumentUploads,
    company_id: CompanyId,
}

impl Drop for UploadPermit<'_> {
    fn drop(&mut self) {
        let mut running = self.uploads.running();
        running.total = running.total.saturating_sub(1);
        if let Some(count) = running.by_company.get_mut(&self.company_id) {
            *count -= 1;
            if *count == 0 {
                running.by_company.remove(&self.company_id);
            }
        }
    }
}
