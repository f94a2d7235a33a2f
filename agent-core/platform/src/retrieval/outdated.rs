//! Check of the documents after a search, which may have waited for an index or a model while they changed.

use std::collections::HashSet;

use agent_core::ids::CompanyId;
use agent_core::role::RoleBlock;
use agent_retrieval::document::DocumentId;

use super::retriever::Retriever;
use super::search_result::{SearchResult, SkipReason, SkippedDocument};
use crate::records::StoreError;

/// Identifiers of the documents that a role names.
pub(crate) struct RoleDocumentIds<'r>(HashSet<&'r str>);

impl<'r> RoleDocumentIds<'r> {
    /// Returns the documents of a role; none if there is no role.
    pub(crate) fn new(role: Option<&'r RoleBlock>) -> Self {
        let contents = role.map(|role| &role.content).into_iter();
        let ids = contents.flat_map(|content| content.document_ids.iter().chain(&content.rag_document_ids));
        Self(ids.map(String::as_str).collect())
    }

    /// Returns the documents that must not be quoted, of those that were read at these versions: documents whose version has
    /// changed or that no longer exist, and documents that the role does not name. A document that could not be read has no
    /// version.
    pub(crate) fn outdated(
        &self,
        read: &[(&str, Option<u64>)],
        present: &[Option<u64>],
    ) -> Vec<SkippedDocument> {
        let reason = |(id, version): &(&str, Option<u64>), present: Option<u64>| match present {
            _ if !self.0.contains(id) => Some(SkipReason::NotNamed),
            None => Some(SkipReason::NotFound),
            present if present != *version => Some(SkipReason::Changed),
            _ => None,
        };
        let skipped = |id: &str, reason| SkippedDocument { id: id.to_owned(), reason };
        // A document whose present version is not among them counts as deleted.
        let present = present.iter().copied().chain(std::iter::repeat(None));
        let found = read.iter().zip(present);
        found.filter_map(|(read, present)| Some(skipped(read.0, reason(read, present)?))).collect()
    }
}

/// Returns the documents of a search that must not be quoted: documents that were deleted or changed since, and documents that
/// the role does not name.
pub(crate) async fn find_outdated(
    retriever: &dyn Retriever,
    company_id: &CompanyId,
    result: &SearchResult,
    named: &RoleDocumentIds<'_>,
) -> Result<Vec<SkippedDocument>, StoreError> {
    let read = result.found_documents();
    let ids: Vec<&str> = read.iter().map(|(id, _)| *id).collect();
    let present = if ids.is_empty() { Vec::new() } else { retriever.versions(company_id, &ids).await? };
    Ok(named.outdated(&read, &present))
}

impl SearchResult {
    /// Returns the documents of the hits, with the versions that were searched.
    pub(crate) fn found_documents(&self) -> Vec<(&str, Option<u64>)> {
        let mut seen = HashSet::new();
        let ids = self.ranking.hits.iter().map(|hit| &hit.document).filter(|id| seen.insert(*id));
        let version = |id: &DocumentId| self.documents.get(id).map(|found| found.version);
        ids.map(|id| (id.as_str(), version(id))).collect()
    }

    /// Removes documents, their hits, and the terms, which feedback may have taken from them.
    pub(crate) fn leave_out(&mut self, left_out: Vec<SkippedDocument>) {
        if left_out.is_empty() {
            return;
        }
        let ids: HashSet<&str> = left_out.iter().map(|skipped| &*skipped.id).collect();
        self.scope.retain(|id| !ids.contains(&**id));
        self.documents.retain(|id, _| !ids.contains(id.as_str()));
        let ranking = &mut self.ranking;
        ranking.hits.retain(|hit| !ids.contains(hit.document.as_str()));
        ranking.hits.iter_mut().for_each(|hit| hit.matched.clear());
        ranking.terms.clear();
        ranking.relevance = ranking.hits.iter().map(|hit| hit.relevance).fold(0.0, f32::max);
        ranking.documents = self.scope.len();
        self.skipped.extend(left_out);
    }
}
