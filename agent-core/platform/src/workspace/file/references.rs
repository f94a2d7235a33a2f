//! Check of the documents that the agents of a workspace file name, against the file and the store.

use std::collections::{BTreeSet, HashSet};

use super::check::MAX_FAULTS;
use super::locate::JsonPath;
use super::{WorkspaceFile, WorkspaceFileError};
use crate::records::{Records, StoreError};
use crate::workspace::get_document_summaries;
use agent_core::ids::CompanyId;

impl WorkspaceFile {
    /// Checks that each document that an agent names is in the file or in the store; `text` is the file's text.
    ///
    /// # Errors
    /// [`ReferenceError::Missing`] names the absent documents by their paths; errors of the store.
    pub async fn check_references(&self, text: &str, records: &dyn Records) -> Result<(), ReferenceError> {
        let in_file: HashSet<(&CompanyId, &str)> =
            self.documents.iter().map(|document| (&document.company_id, document.id.as_str())).collect();
        let mut faults = Vec::new();
        for (i, role) in self.agents.iter().enumerate() {
            let named = [
                ("documentIds", &role.content.document_ids),
                ("ragDocumentIds", &role.content.rag_document_ids),
            ];
            let company = &role.company_id;
            let wanted: BTreeSet<&String> = named
                .iter()
                .flat_map(|(_, ids)| *ids)
                .filter(|id| !in_file.contains(&(company, id.as_str())))
                .collect();
            let wanted: Vec<String> = wanted.into_iter().cloned().collect();
            let stored = get_document_summaries(records, company, &wanted).await?;
            let stored: HashSet<&str> = stored.iter().map(|document| document.id.as_str()).collect();
            let is_missing = |id: &str| !in_file.contains(&(company, id)) && !stored.contains(id);
            for (name, ids) in named {
                let at = JsonPath::default().field("agents").index(i).field("content").field(name);
                let missing = ids.iter().enumerate().filter(|(_, id)| is_missing(id));
                faults.extend(missing.map(|(j, _)| {
                    (at.clone().index(j), "is not the id of a document of the company".to_owned())
                }));
            }
        }
        faults.truncate(MAX_FAULTS);
        if faults.is_empty() { Ok(()) } else { Err(WorkspaceFileError::locate(text, faults).into()) }
    }
}

/// Error of the check of references.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Agents name documents that do not exist.
    #[error(transparent)]
    Missing(#[from] WorkspaceFileError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
