//! Check of the documents and providers that the agents of a workspace file name, against the file and the store.

use std::collections::{BTreeSet, HashSet};

use super::check::MAX_FAULTS;
use super::content::WorkspaceFile;
use super::locate::JsonPath;
use super::{WorkspaceFileError, at_agent};
use crate::providers::{named_providers, provider_key};
use crate::records::{Records, StoreError};
use crate::roles::company_provider_faults;
use crate::workspace::get_document_summaries;
use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;

impl WorkspaceFile {
    /// Checks that each document that an agent names is in the file or in the store, and each provider of its company in the
    /// store; `text` is the file's text.
    ///
    /// # Errors
    /// [`ReferenceError::Missing`] names the absent items by their paths; errors of the store.
    pub async fn check_references(&self, text: &str, records: &dyn Records) -> Result<(), ReferenceError> {
        let in_file: HashSet<(&CompanyId, &str)> =
            self.documents.iter().map(|document| (&document.company_id, document.id.as_str())).collect();
        let mut faults = Vec::new();
        for (i, role) in self.agents.iter().enumerate() {
            faults.extend(provider_faults(i, role, records).await?);
            let named = [
                ("documentIds", &role.content.document_ids),
                ("ragDocumentIds", &role.content.rag_document_ids),
            ];
            let company = &role.company_id;
            let stored_ids: BTreeSet<&String> = named
                .iter()
                .flat_map(|(_, ids)| *ids)
                .filter(|id| !in_file.contains(&(company, id.as_str())))
                .collect();
            let stored_ids: Vec<String> = stored_ids.into_iter().cloned().collect();
            let stored = get_document_summaries(records, company, &stored_ids).await?;
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

/// Returns the faults of the agent at this index in naming providers of its company.
async fn provider_faults(
    index: usize,
    role: &RoleBlock,
    records: &dyn Records,
) -> Result<Vec<(JsonPath, String)>, StoreError> {
    let ids = named_providers(role);
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let keys = ids.iter().map(|id| provider_key(&role.company_id, id)).collect::<Result<Vec<_>, _>>()?;
    let found = records.get_many(&keys).await?;
    let exists = |id: &str| ids.iter().zip(&found).any(|(known, found)| known == id && found.is_some());
    Ok(at_agent(index, company_provider_faults(role, exists)).collect())
}

/// Error of the check of references.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// Agents name documents or providers that do not exist.
    #[error(transparent)]
    Missing(#[from] WorkspaceFileError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
