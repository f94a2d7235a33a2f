//! A store with uploads, and processes that extract their texts, under clocks of the suite.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_core::ids::{CompanyId, UserId};
use agent_core::testing::ManualClock;
use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, select};

use crate::ingestion::{Ingestion, IngestionLimits, IngestionServices};
use crate::records::{Inventory, ListQuery, Precondition, Record, StoreError};
use crate::testing::ScriptedExtractor;
use crate::workspace::{ContentStatus, Document, NewUpload, StagedUpload, get_document, read_document_text};

pub(super) const TEXT: &str = "text/plain";

/// A store with uploads.
pub(super) struct UploadFixture {
    pub(super) records: Arc<dyn Inventory>,
    pub(super) clock: ManualClock,
}

pub(super) fn company() -> CompanyId {
    "acme".into()
}

pub(super) fn user() -> UserId {
    "ada".into()
}

pub(super) fn upload(id: &str, bytes: impl Into<Bytes>) -> NewUpload {
    NewUpload::new(id.to_owned(), Some("Title".to_owned()), TEXT.to_owned(), bytes.into())
}

impl UploadFixture {
    pub(super) fn new(records: Arc<dyn Inventory>) -> Self {
        Self { records, clock: ManualClock::new() }
    }

    pub(super) fn now(&self) -> jiff::Timestamp {
        use agent_core::clock::Clock as _;
        self.clock.now().try_into().expect("a time")
    }

    pub(super) async fn stage(&self, upload: NewUpload) -> StagedUpload {
        upload.stage(&*self.records, &company(), self.now()).await.expect("staged")
    }

    pub(super) async fn attach(
        &self,
        staged: &StagedUpload,
        precondition: Precondition,
    ) -> Result<(Document, u64), StoreError> {
        staged.attach(&*self.records, precondition, &user()).await
    }

    /// Uploads a document of the company.
    pub(super) async fn put(&self, id: &str, bytes: impl Into<Bytes>) -> (Document, u64) {
        self.put_in(&company(), id, bytes).await
    }

    pub(super) async fn put_in(
        &self,
        company_id: &CompanyId,
        id: &str,
        bytes: impl Into<Bytes>,
    ) -> (Document, u64) {
        let staged = upload(id, bytes).stage(&*self.records, company_id, self.now()).await.expect("staged");
        self.attach(&staged, Precondition::Any).await.expect("attached")
    }

    pub(super) async fn get(&self, id: &str) -> Record<Document> {
        self.find(id).await.expect("the document is there")
    }

    pub(super) async fn find(&self, id: &str) -> Option<Record<Document>> {
        get_document(&*self.records, &company(), id).await.expect("read")
    }

    pub(super) async fn status(&self, id: &str) -> ContentStatus {
        self.get(id).await.value.content.expect("an upload").status
    }

    /// Returns the whole text of a document.
    pub(super) async fn text(&self, document: &Document) -> String {
        let range = 0..usize::MAX;
        read_document_text(&*self.records, &company(), document, range).await.expect("read").text
    }

    /// Returns the number of records in each collection of a company, and of the tasks of all companies.
    pub(super) async fn counts(&self, company: &str) -> Vec<(String, usize)> {
        let mut counts = Vec::new();
        for company in [company, ""] {
            for collection in self.records.collections(company, None).await.expect("listed") {
                let (mut list, mut count) = (ListQuery::default(), 0);
                loop {
                    let page = self.records.list(&collection, &list).await.expect("listed");
                    count += page.records.len();
                    list.cursor = page.next_cursor;
                    if list.cursor.is_none() {
                        break;
                    }
                }
                counts.push((collection.path().to_owned(), count));
            }
        }
        counts
    }

    /// Starts a process with an extractor and a separate clock.
    pub(super) fn process(&self, extractor: &Arc<ScriptedExtractor>) -> Ingestion {
        self.process_with(extractor, &self.clock)
    }

    pub(super) fn process_with(&self, extractor: &Arc<ScriptedExtractor>, clock: &ManualClock) -> Ingestion {
        let services = IngestionServices {
            records: self.records.clone(),
            extractor: extractor.clone(),
            clock: Arc::new(clock.clone()),
            spawner: Arc::new(|_: BoxFuture<'static, ()>| unreachable!("the suite runs each task itself")),
            on_end: Arc::new(|_, _| {}),
        };
        Ingestion::new(services, limits())
    }
}

pub(super) fn limits() -> IngestionLimits {
    IngestionLimits { attempts: 3, ..IngestionLimits::default() }
}

/// Time after which a lease that is not extended has expired.
pub(super) fn lease_end() -> Duration {
    limits().lease + Duration::from_secs(1)
}

pub(super) fn extractor() -> Arc<ScriptedExtractor> {
    Arc::new(ScriptedExtractor::new("scripted/1"))
}

/// Works on a task, which must be there.
pub(super) async fn work(process: &Ingestion) {
    assert!(process.run_one().await.expect("the store works"), "a task can be claimed");
}

pub(super) async fn expect_no_task(process: &Ingestion) {
    assert!(!process.run_one().await.expect("the store works"), "no task can be claimed");
}

/// Work on a task that has reached the extractor.
pub(super) type BegunWork = Pin<Box<dyn Future<Output = Result<bool, StoreError>> + Send>>;

/// Begins to work on a task, until the extractor is called. Dropping the work kills its process.
pub(super) async fn begin(process: &Ingestion, extractor: &ScriptedExtractor) -> BegunWork {
    let process = process.clone();
    let work: BegunWork = Box::pin(async move { process.run_one().await });
    let called = std::pin::pin!(extractor.wait_for_calls(extractor.calls() + 1));
    match select(work, called).await {
        Either::Left((ended, _)) => panic!("the work has ended before the extractor is called: {ended:?}"),
        Either::Right(((), work)) => work,
    }
}
