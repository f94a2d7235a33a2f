use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent_core::clock::SystemClock;
use agent_core::testing::ManualClock;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::*;
use crate::memory::MemoryRecords;
use crate::records::{InventoryWrapper, Key, Precondition, Record, Records, RecordsWrapper, Write};
use crate::testing::ScriptedExtractor;
use crate::workspace::{ContentStatus, NewUpload, collection, get_document, sweep_stored_contents};

/// Time after which a test fails rather than waits on.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct IngestionFixture {
    records: Arc<MemoryRecords>,
    extractor: Arc<ScriptedExtractor>,
    ingestion: Ingestion,
    ended: Arc<AtomicUsize>,
}

fn fixture() -> IngestionFixture {
    fixture_with(|records| records)
}

/// Creates the ingestion over what `view` makes of the records.
fn fixture_with<R: Inventory>(view: impl FnOnce(Arc<MemoryRecords>) -> Arc<R>) -> IngestionFixture {
    let records = Arc::new(MemoryRecords::default());
    let extractor = Arc::new(ScriptedExtractor::new("scripted/1"));
    let ended = Arc::new(AtomicUsize::new(0));
    let services = IngestionServices {
        records: view(records.clone()),
        extractor: extractor.clone(),
        clock: Arc::new(SystemClock),
        spawner: Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task))),
        on_end: Arc::new({
            let ended = ended.clone();
            move |_, _| {
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }),
    };
    // Longer than the test: what happens without a poll was woken.
    let limits = IngestionLimits { poll_interval: 10 * TEST_TIMEOUT, ..IngestionLimits::default() };
    IngestionFixture { records, extractor, ingestion: Ingestion::new(services, limits), ended }
}

impl IngestionFixture {
    async fn put(&self, company: &str, id: &str, text: &str) {
        let text = text.to_owned();
        let upload = NewUpload::new(id.to_owned(), None, "text/plain".to_owned(), text.into());
        let staged =
            upload.stage(&*self.records, &company.into(), self.ingestion.now()).await.expect("staged");
        staged.attach(&*self.records, Precondition::Any, &"ada".into()).await.expect("attached");
        self.ingestion.wake();
    }

    async fn wait_for_end(&self, count: usize) {
        let waiting = async {
            while self.ended.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the extractions end");
    }
}

#[tokio::test]
async fn a_process_works_on_few_tasks_of_a_company_at_once() {
    let fixture = fixture();
    for (company, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        fixture.put(company, id, "BLOCK").await;
    }
    let ingestion = fixture.ingestion.clone();
    let running = tokio::spawn(async move { ingestion.run().await });
    fixture.extractor.wait_for_calls(2).await;
    let mut extracting = Vec::new();
    for (company, id) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        let stored_document =
            get_document(&*fixture.records, &company.into(), id).await.expect("read").expect("there");
        let status = stored_document.value.content.expect("an upload").status;
        extracting.extend((status == ContentStatus::Extracting).then_some((company, id)));
    }
    assert_eq!(extracting, [("a", "1"), ("b", "1")]);
    fixture.extractor.release();
    // The end of one wakes the next.
    fixture.wait_for_end(4).await;
    assert_eq!(fixture.extractor.calls(), 4);
    running.abort();
}

#[tokio::test]
async fn an_upload_wakes_the_ingestion_and_a_panic_frees_its_room() {
    let fixture = fixture();
    let ingestion = fixture.ingestion.clone();
    let running = tokio::spawn(async move { ingestion.run().await });
    fixture.put("a", "1", "PANIC").await;
    fixture.extractor.wait_for_calls(1).await;
    fixture.put("a", "2", "PANIC").await;
    fixture.extractor.wait_for_calls(2).await;
    fixture.put("a", "3", "one").await;
    fixture.wait_for_end(1).await;
    let stored_document =
        get_document(&*fixture.records, &"a".into(), "3").await.expect("read").expect("there");
    assert_eq!(stored_document.value.text, "one");
    running.abort();
}

/// Records whose documents are read as they were when the first of them was read, as from a cache that lags behind.
struct LaggingRecords {
    records: Arc<MemoryRecords>,
    seen: Mutex<HashMap<Key, Option<Record>>>,
    is_lagging: AtomicBool,
}

#[async_trait]
impl RecordsWrapper for LaggingRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        let found = self.records.get_many(keys).await?;
        let mut seen = self.seen.lock().expect("unpoisoned");
        let lag = |(key, found): (&Key, Option<Record>)| {
            if self.is_lagging.load(Ordering::SeqCst) && key.collection().path() == collection::DOCUMENTS {
                return seen.get(key).cloned().flatten();
            }
            seen.insert(key.clone(), found.clone());
            found
        };
        Ok(keys.iter().zip(found).map(lag).collect())
    }
}

impl InventoryWrapper for LaggingRecords {
    fn inventory(&self) -> &dyn Inventory {
        &*self.records
    }
}

#[tokio::test]
async fn a_document_that_is_read_late_loses_nothing() {
    let mut lagging = None;
    let fixture = fixture_with(|records| {
        let (read_ids, is_lagging) = (Mutex::default(), AtomicBool::new(false));
        let records = Arc::new(LaggingRecords { records, seen: read_ids, is_lagging });
        lagging = Some(records.clone());
        records
    });
    let lagging = lagging.expect("it was made");
    fixture.put("a", "1", "one").await;
    assert!(fixture.ingestion.run_one().await.expect("the store works"));
    lagging.is_lagging.store(true, Ordering::SeqCst);
    fixture.put("a", "1", "two").await;
    assert!(
        !fixture.ingestion.run_one().await.expect("the store works"),
        "the document seems to be extracted"
    );
    sweep_stored_contents(&*lagging, &"a".into(), None).await.expect("swept");
    lagging.is_lagging.store(false, Ordering::SeqCst);
    assert!(fixture.ingestion.run_one().await.expect("the store works"), "the task is still there");
    let stored_document =
        get_document(&*fixture.records, &"a".into(), "1").await.expect("read").expect("there");
    assert_eq!(stored_document.value.text, "two");
}

/// Records in which pieces of contents are written once there are permits.
struct SlowContentRecords {
    records: Arc<MemoryRecords>,
    permits: Semaphore,
    is_writing: AtomicBool,
}

#[async_trait]
impl RecordsWrapper for SlowContentRecords {
    fn inner(&self) -> &dyn Records {
        &*self.records
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Option<u64>>, StoreError> {
        let is_piece = |write: &Write| write.key().collection().path().starts_with("documentContents");
        if writes.iter().any(is_piece) {
            self.is_writing.store(true, Ordering::SeqCst);
            self.permits.acquire().await.expect("it is open").forget();
        }
        self.records.commit(writes).await
    }
}

impl InventoryWrapper for SlowContentRecords {
    fn inventory(&self) -> &dyn Inventory {
        &*self.records
    }
}

#[tokio::test]
async fn the_lease_is_extended_while_a_long_text_is_stored() {
    let (records, clock) = (Arc::new(MemoryRecords::default()), ManualClock::new());
    let (permits, is_writing) = (Semaphore::new(0), AtomicBool::new(false));
    let slow = Arc::new(SlowContentRecords { records: records.clone(), permits, is_writing });
    let extractor = Arc::new(ScriptedExtractor::new("scripted/1"));
    let process = |records: Arc<dyn Inventory>| {
        let services = IngestionServices {
            records,
            extractor: extractor.clone(),
            clock: Arc::new(clock.clone()),
            spawner: Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task))),
            on_end: Arc::new(|_, _| {}),
        };
        Ingestion::new(services, IngestionLimits::default())
    };
    let (first, second) = (process(slow.clone()), process(records.clone()));
    let (extractor, ended) = (extractor.clone(), Arc::default());
    let fixture = IngestionFixture { records, extractor, ingestion: second, ended };
    fixture.put("a", "1", &"long ".repeat(100_000)).await;
    let working = tokio::spawn(async move { first.run_one().await });
    while !slow.is_writing.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    for _ in 0..4 {
        clock.wait_for_sleepers(1).await;
        clock.advance(IngestionLimits::default().lease / 3);
    }
    clock.wait_for_sleepers(1).await;
    assert!(!fixture.ingestion.run_one().await.expect("the store works"), "the task is claimed");
    slow.permits.add_permits(10);
    assert!(working.await.expect("no panic").expect("the store works"));
    let stored_document =
        get_document(&*fixture.records, &"a".into(), "1").await.expect("read").expect("there");
    assert_eq!(stored_document.value.content.expect("an upload").status, ContentStatus::Ready);
    assert_eq!(fixture.extractor.calls(), 1);
}
