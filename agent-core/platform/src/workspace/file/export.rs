//! Export of a store into a workspace file.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use super::content::WorkspaceFile;
use super::{MAX_FILE_BYTES, WorkspaceFileError};
use crate::records::{Collection, Inventory, ListQuery, MAX_PAGE_RECORDS, MAX_WRITES, StoreError};
use crate::roles::ROLES;
use crate::workspace::collection;
use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;

/// Error of an export.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The content exceeds the limits of one file, so it could not be imported.
    #[error("the workspace does not fit in one file; export one company at a time: {0}")]
    TooMuch(WorkspaceFileError),
    /// The store failed.
    #[error("the store could not be read")]
    Store(#[from] StoreError),
}

impl WorkspaceFile {
    /// Exports `company`, or all companies: users, agents with masked secrets, documents, todo lists, every agent's
    /// memory in every folder, of every user, plans, epics, metrics and assignments, each list ordered by company and id. Other
    /// records, such as tokens, are left out, and so are the ids of documents that agents name and that do not exist, which an
    /// import would refuse. Not a snapshot: concurrent writes may or may not be included.
    ///
    /// # Errors
    /// [`ExportError::TooMuch`] as soon as more has been read than one file can hold; errors of the store. Other
    /// reasons why an import would fail are reported by [`to_text`](Self::to_text).
    pub async fn export(inventory: &dyn Inventory, company: Option<&CompanyId>) -> Result<Self, ExportError> {
        let mut export = Exporter { inventory, file: Self::default(), bytes: 0 };
        match company {
            Some(company) => export.company(company).await?,
            None => export.companies().await?,
        }
        export.drop_dangling_documents();
        Ok(export.file)
    }
}

struct Exporter<'a> {
    inventory: &'a dyn Inventory,
    file: WorkspaceFile,
    bytes: usize,
}

impl Exporter<'_> {
    /// Removes the ids of documents that do not exist from the agents that name them.
    fn drop_dangling_documents(&mut self) {
        let WorkspaceFile { agents, documents, .. } = &mut self.file;
        let known: HashSet<(&CompanyId, &str)> =
            documents.iter().map(|document| (&document.company_id, document.id.as_str())).collect();
        for role in agents {
            let RoleBlock { company_id, content, .. } = role;
            for ids in [&mut content.document_ids, &mut content.rag_document_ids] {
                ids.retain(|id| known.contains(&(&*company_id, id.as_str())));
            }
        }
    }

    async fn companies(&mut self) -> Result<(), ExportError> {
        let mut after: Option<String> = None;
        loop {
            let companies = self.inventory.companies(after.as_deref()).await?;
            let Some(last) = companies.last() else { return Ok(()) };
            after = Some(last.clone());
            for company in companies {
                self.company(&company.into()).await?;
            }
        }
    }

    async fn company(&mut self, company: &CompanyId) -> Result<(), ExportError> {
        let mut after: Option<String> = None;
        loop {
            let collections = self.inventory.collections(company, after.as_deref()).await?;
            let Some(last) = collections.last() else { return Ok(()) };
            after = Some(last.path().to_owned());
            for collection in &collections {
                self.collection(collection).await?;
            }
        }
    }

    async fn collection(&mut self, from: &Collection) -> Result<(), ExportError> {
        let parts: Vec<String> = from.parts().collect();
        match &parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [ROLES] => self.read(from, |file| &mut file.agents).await,
            [collection::USERS] => self.read(from, |file| &mut file.users).await,
            [collection::DOCUMENTS] => self.read(from, |file| &mut file.documents).await,
            [collection::TODO_LISTS] => self.read(from, |file| &mut file.todo_lists).await,
            [collection::MEMORIES, _, _] | [collection::MEMORIES, _, _, _] => {
                self.read(from, |file| &mut file.memories).await
            }
            [collection::PLANS] => self.read(from, |file| &mut file.plans).await,
            [collection::EPICS] => self.read(from, |file| &mut file.epics).await,
            [collection::METRICS] => self.read(from, |file| &mut file.metrics).await,
            [collection::ASSIGNMENTS] => self.read(from, |file| &mut file.assignments).await,
            _ => Ok(()),
        }
    }

    async fn read<T: DeserializeOwned>(
        &mut self,
        from: &Collection,
        into: impl Fn(&mut WorkspaceFile) -> &mut Vec<T>,
    ) -> Result<(), ExportError> {
        let mut list = ListQuery { limit: Some(MAX_PAGE_RECORDS), ..ListQuery::default() };
        loop {
            let page = self.inventory.list(from, &list).await?;
            for record in page.records {
                self.bytes += record.value.get().len();
                into(&mut self.file).push(record.parse(from)?.value);
            }
            self.check()?;
            if page.next_cursor.is_none() {
                return Ok(());
            }
            list.cursor = page.next_cursor;
        }
    }

    /// Returns [`ExportError::TooMuch`] if the content read so far exceeds the limits of one file.
    fn check(&self) -> Result<(), ExportError> {
        let writes = super::import::max_writes(&self.file);
        let fault = if self.bytes > MAX_FILE_BYTES {
            format!("it has more than {} bytes; the limit is {MAX_FILE_BYTES}", self.bytes)
        } else if writes > MAX_WRITES {
            format!("an import would need more than {writes} writes; the limit is {MAX_WRITES}")
        } else {
            return Ok(());
        };
        Err(ExportError::TooMuch(WorkspaceFileError::for_whole_file(fault)))
    }
}
