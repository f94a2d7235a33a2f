//! Ingestion: extracts the texts of uploaded documents in the background.
//!
//! An upload puts a task into the store, in the same commit that puts the original's name into the document. Any process of the
//! platform claims the task under a lease, which it extends while it works; the version of the task's record is the fencing
//! token. If a process is killed, its lease expires and another process takes the task over. The commit that stores the text
//! checks the token and the upload's generation. If the document was deleted or replaced during the extraction, the result is
//! dropped.
//!
//! A process works on a few tasks at once, of each company on fewer, and takes the tasks round-robin by company.

mod attempt;
mod claim;
mod finish;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::ids::CompanyId;
use agent_retrieval::extract::Extractor;
use futures_channel::mpsc;
use futures_util::StreamExt as _;
use futures_util::future;
use futures_util::lock::Mutex as AsyncMutex;
use jiff::Timestamp;

use crate::company_permits::CompanyPermits;
use crate::records::{Inventory, Key, Precondition, Records, RecordsExt as _, StoreError, UpdateAttempts};
use crate::spawner::Spawner;
use crate::workspace::{ContentStatus, Document, collection, reindex_document};

/// Function that is called with the company and the document whenever an extraction has ended.
pub type ExtractionListener = Arc<dyn Fn(&CompanyId, &str) + Send + Sync>;

/// Services of the ingestion.
#[derive(Clone)]
pub struct IngestionServices {
    /// Store of the documents and the tasks.
    pub records: Arc<dyn Inventory>,
    /// Extracts the texts.
    pub extractor: Arc<dyn Extractor>,
    /// Source of time and timers.
    pub clock: Arc<dyn Clock>,
    /// Runs the extractions.
    pub spawner: Arc<dyn Spawner>,
    /// Called with the company and the id of a document whose extraction has ended in this process.
    pub on_end: ExtractionListener,
}

impl std::fmt::Debug for IngestionServices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IngestionServices").finish_non_exhaustive()
    }
}

/// Limits of the ingestion in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestionLimits {
    /// Maximum number of tasks at once; 2.
    pub concurrency: usize,
    /// Maximum number of tasks of one company at once; 1.
    pub per_company: usize,
    /// Validity of a claim after its last extension; 6 s. It is extended three times in this time.
    pub lease: Duration,
    /// Interval at which the process looks for tasks that another process has added or lost; 2 s.
    pub poll_interval: Duration,
    /// Maximum duration of an extraction; 5 min.
    pub timeout: Duration,
    /// Maximum number of attempts, including attempts that end with their process; 8.
    pub attempts: u32,
}

impl Default for IngestionLimits {
    fn default() -> Self {
        Self {
            concurrency: 2,
            per_company: 1,
            lease: Duration::from_secs(6),
            poll_interval: Duration::from_secs(2),
            timeout: Duration::from_secs(5 * 60),
            attempts: 8,
        }
    }
}

/// Extracts the texts of uploads. Clones share their state.
#[derive(Clone)]
pub struct Ingestion(Arc<IngestionState>);

impl std::fmt::Debug for Ingestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingestion").finish_non_exhaustive()
    }
}

struct IngestionState {
    services: IngestionServices,
    limits: IngestionLimits,
    /// Identity of this process in claims.
    owner: String,
    /// Permits of the tasks that this process works on.
    permits: Arc<CompanyPermits>,
    /// Path of the collection of the company whose task was claimed last; the next claim begins after it.
    last_claimed: Mutex<Option<String>>,
    wake: Mutex<mpsc::Sender<()>>,
    woken: AsyncMutex<mpsc::Receiver<()>>,
}

impl Ingestion {
    /// Creates the ingestion of a process.
    pub fn new(services: IngestionServices, limits: IngestionLimits) -> Self {
        // One waiting wake-up is as good as many.
        let (wake, woken) = mpsc::channel(0);
        Self(Arc::new(IngestionState {
            services,
            permits: CompanyPermits::new(limits.concurrency, limits.per_company),
            limits,
            owner: agent_core::new_id(),
            last_claimed: Mutex::default(),
            wake: Mutex::new(wake),
            woken: AsyncMutex::new(woken),
        }))
    }

    /// Returns the identifier of the extractor.
    pub fn extractor_id(&self) -> &str {
        self.0.services.extractor.id()
    }

    /// Returns true if the extractor reads a media type.
    pub fn supports(&self, media_type: &str) -> bool {
        self.0.services.extractor.supports(media_type)
    }

    /// Returns the media type of a document by its content; `None` if the extractor does not read it.
    pub fn detect(&self, declared_media_type: &str, bytes: &[u8]) -> Option<String> {
        self.0.services.extractor.detect(declared_media_type, bytes)
    }

    /// Queues the text of a document's upload for another extraction if another extractor, or another version of it, has extracted
    /// it. Returns false for any other document. The current text is used until the new one is extracted.
    ///
    /// # Errors
    /// Errors of the store; [`StoreError::Conflict`] if other writers change the document again and again.
    pub async fn extract_outdated(&self, company_id: &CompanyId, id: &str) -> Result<bool, StoreError> {
        let records: &dyn Records = &*self.0.services.records;
        let key = Key::new(company_id, collection::DOCUMENTS, id)?;
        let mut attempts = UpdateAttempts::new(records, &key);
        loop {
            let found = records.get_as::<Document>(&key).await?;
            let Some(found) = found.filter(|found| self.is_outdated(&found.value)) else { return Ok(false) };
            match reindex_document(records, found, Precondition::Any).await {
                Ok(_) => break,
                Err(error) => attempts.retry(error).await?,
            }
        }
        self.wake();
        Ok(true)
    }

    /// Returns true for a document with a text by another extractor that this one can extract, too. It also has such a text
    /// after a failed attempt to extract it again.
    fn is_outdated(&self, document: &Document) -> bool {
        document.content.as_ref().is_some_and(|content| {
            let has_text = match content.status {
                ContentStatus::Ready => true,
                ContentStatus::Failed => content.extractor.is_some(),
                ContentStatus::Pending | ContentStatus::Extracting => false,
            };
            has_text
                && content.extractor.as_deref() != Some(self.extractor_id())
                && self.supports(&content.media_type)
        })
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// Wakes [`run`](Self::run), which looks for tasks at once.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Extracts texts until the future is dropped. The extractions that it has started continue then.
    pub async fn run(&self) {
        let mut woken = self.0.woken.lock().await;
        loop {
            if let Err(error) = self.0.start_due().await {
                tracing::warn!(%error, "failed to read the extraction tasks; trying again later");
            }
            future::select(woken.next(), self.0.services.clock.sleep(self.0.limits.poll_interval)).await;
        }
    }

    /// Claims one task that is due and works on it. Returns false if none can be claimed.
    ///
    /// # Errors
    /// Errors of the store before a task is claimed.
    pub async fn run_one(&self) -> Result<bool, StoreError> {
        let Some((claim, permit)) = self.0.claim_next().await? else { return Ok(false) };
        self.0.work(claim).await;
        drop(permit);
        Ok(true)
    }
}

impl IngestionState {
    fn now(&self) -> Timestamp {
        Timestamp::try_from(self.services.clock.now()).unwrap_or_default()
    }

    fn wake(&self) {
        // A full channel has a wake-up that is still to be seen.
        let _ = self.wake.lock().unwrap_or_else(PoisonError::into_inner).try_send(());
    }

    /// Locks the path. No code panics while holding the lock, so the data behind a poisoned one is intact.
    fn last_claimed(&self) -> MutexGuard<'_, Option<String>> {
        self.last_claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
