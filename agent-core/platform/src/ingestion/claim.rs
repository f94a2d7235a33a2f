//! Claims of tasks.

use agent_core::ids::CompanyId;

use super::IngestionState;
use crate::company_permits::CompanyPermit;
use crate::records::{
    Collection, Key, ListQuery, MAX_PAGE_RECORDS, Precondition, Record, StoreError, Write, to_json,
};
use crate::time::saturating_after;
use crate::workspace::{
    ContentStatus, Document, DocumentContent, INGESTION_COLLECTION, IngestionTask, TaskLease, collection,
    get_document, unchanged_write,
};

/// Maximum number of pages of a company's tasks that are read in search of one that is due.
const MAX_TASK_PAGES: usize = 50;

/// Task that this process has claimed.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) company_id: CompanyId,
    pub(super) document_id: String,
    pub(super) key: Key,
    pub(super) task: IngestionTask,
    /// Version of the task's record, the fencing token.
    pub(super) version: u64,
    /// The upload, as it was when the task was claimed.
    pub(super) content: DocumentContent,
}

impl Claim {
    /// Returns the write that changes the task. It fails if the claim was lost.
    pub(super) fn task_write(&self, task: &IngestionTask) -> Result<Write, StoreError> {
        let precondition = Precondition::Version(self.version);
        Ok(Write::Put { key: self.key.clone(), value: to_json(task)?, precondition })
    }

    /// Returns the write that ends the task. It fails if the claim was lost.
    pub(super) fn end_write(&self) -> Write {
        Write::Delete { key: self.key.clone(), precondition: Precondition::Version(self.version) }
    }
}

impl IngestionState {
    /// Claims a task that is due, round-robin by company, if there is room for it.
    pub(super) async fn claim_next(&self) -> Result<Option<(Claim, CompanyPermit)>, StoreError> {
        if self.permits.is_exhausted() {
            return Ok(None);
        }
        let last = self.last_claimed().clone();
        let first = INGESTION_COLLECTION.to_owned();
        // After the company of the last claim, and then from the first company.
        for mut after in last.into_iter().chain([first]) {
            loop {
                let collections = self.services.records.collections("", Some(&after)).await?;
                let Some(end) = collections.last().map(|collection| collection.path().to_owned()) else {
                    break;
                };
                for collection in &collections {
                    let Some(company_id) = company_of(collection) else { break };
                    if let Some(claimed) = self.claim_of(collection, &company_id).await? {
                        *self.last_claimed() = Some(collection.path().to_owned());
                        return Ok(Some(claimed));
                    }
                }
                if collections.len() < MAX_PAGE_RECORDS || collections.last().and_then(company_of).is_none() {
                    break;
                }
                after = end;
            }
        }
        Ok(None)
    }

    /// Claims a task of a company.
    async fn claim_of(
        &self,
        tasks: &Collection,
        company_id: &CompanyId,
    ) -> Result<Option<(Claim, CompanyPermit)>, StoreError> {
        let Some(permit) = self.permits.try_acquire(company_id) else { return Ok(None) };
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        for _ in 0..MAX_TASK_PAGES {
            let page = self.services.records.list(tasks, &list).await?;
            for record in page.records {
                let id = record.id.clone();
                let claimed = match record.parse::<IngestionTask>(tasks) {
                    Ok(record) if record.value.is_due(self.now()) => {
                        self.claim(tasks, company_id, record).await
                    }
                    Ok(_) => Ok(None),
                    Err(error) => Err(error),
                };
                match claimed {
                    Ok(Some(claim)) => return Ok(Some((claim, permit))),
                    Ok(None) | Err(StoreError::Conflict { .. }) => {}
                    Err(error @ StoreError::Unavailable(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, document = id, "failed to claim an extraction task; it is skipped")
                    }
                }
            }
            list.cursor = page.next_cursor;
            if list.cursor.is_none() {
                break;
            }
        }
        Ok(None)
    }

    /// Claims a task, unless its document no longer needs it.
    async fn claim(
        &self,
        tasks: &Collection,
        company_id: &CompanyId,
        record: Record<IngestionTask>,
    ) -> Result<Option<Claim>, StoreError> {
        let records = &*self.services.records;
        let (key, document_id) = (tasks.key(record.id.as_str())?, record.id);
        let document = get_document(records, company_id, &document_id).await?;
        let document_version = document.as_ref().map(|document| document.version);
        let content = document.as_ref().and_then(|document| document.value.content.clone());
        let content = content
            .filter(|content| content.generation == record.value.generation && !content.status.is_final());
        let (Some(document), Some(content)) = (document, content) else {
            // The task is read from the database and the document perhaps from a cache, which may lag behind.
            let precondition = Precondition::Version(record.version);
            let check = unchanged_write(company_id, &document_id, document_version)?;
            records.commit(vec![Write::Delete { key, precondition }, check]).await?;
            return Ok(None);
        };
        let (company_id, version) = (company_id.clone(), record.version);
        let mut claim = Claim { company_id, document_id, key, task: record.value, version, content };
        if claim.task.attempts >= self.limits.attempts {
            let fault = format!("the extraction was interrupted {} times", claim.task.attempts);
            self.fail(&claim, &fault).await?;
            return Ok(None);
        }
        claim.task.attempts += 1;
        claim.task.not_before = None;
        claim.task.lease = Some(self.new_lease());
        let mut writes = vec![claim.task_write(&claim.task)?];
        writes.extend(status_write(&document, ContentStatus::Extracting)?);
        claim.version = first_version(records.commit(writes).await?)?;
        Ok(Some(claim))
    }

    fn new_lease(&self) -> TaskLease {
        let until = saturating_after(self.now(), self.limits.lease);
        TaskLease { owner: self.owner.clone(), until }
    }

    /// Extends the lease of a claim.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the claim was lost; errors of the store.
    pub(super) async fn extend(&self, claim: &mut Claim) -> Result<(), StoreError> {
        claim.task.lease = Some(self.new_lease());
        let writes = vec![claim.task_write(&claim.task)?];
        claim.version = first_version(self.services.records.commit(writes).await?)?;
        Ok(())
    }
}

/// Returns the company of a collection of tasks; `None` for another collection of the platform.
fn company_of(collection: &Collection) -> Option<CompanyId> {
    let mut parts = collection.parts();
    let is_of_tasks = parts.next().is_some_and(|name| name == INGESTION_COLLECTION);
    parts.next().filter(|_| is_of_tasks).map(CompanyId::from)
}

/// Returns the write that sets the state of a document's upload, if it differs from the stored one.
pub(super) fn status_write(
    stored_document: &Record<Document>,
    status: ContentStatus,
) -> Result<Option<Write>, StoreError> {
    let mut document = stored_document.value.clone();
    match &mut document.content {
        Some(content) if content.status != status => content.status = status,
        _ => return Ok(None),
    }
    document_write(stored_document, &document).map(Some)
}

/// Returns the write that replaces a document.
pub(super) fn document_write(
    stored_document: &Record<Document>,
    document: &Document,
) -> Result<Write, StoreError> {
    let key = Key::new(&document.company_id, collection::DOCUMENTS, document.id.as_str())?;
    let precondition = Precondition::Version(stored_document.version);
    Ok(Write::Put { key, value: to_json(document)?, precondition })
}

fn first_version(versions: Vec<Option<u64>>) -> Result<u64, StoreError> {
    versions.into_iter().next().flatten().ok_or_else(|| StoreError::unavailable("a version is missing"))
}
