//! Context layer for the agent's documents, in full.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::records::{Records, StoreError};
use crate::workspace;
use agent_core::context::{ContextLayer, LayerError, TurnInput};
use agent_core::ids::CompanyId;
use agent_core::prompt::PartCache;
use agent_core::prompt::{Fragment, Stability};

/// Maximum number of documents read concurrently.
const MAX_CONCURRENT_READS: usize = 8;

/// Context layer for the full text of the role's `documentIds`, in order.
///
/// Documents that the company does not have are skipped with a log entry: deleting a document must not stop every agent
/// that refers to it.
pub struct DocumentsLayer {
    records: Arc<dyn Records>,
    cache: Arc<PartCache>,
}

impl DocumentsLayer {
    /// Creates a layer that reads from `records` and takes its parts from `cache`.
    pub fn new(records: Arc<dyn Records>, cache: Arc<PartCache>) -> Self {
        Self { records, cache }
    }

    async fn fragment(&self, company_id: &CompanyId, id: &str) -> Result<Option<Fragment>, StoreError> {
        let document = match workspace::get_document(&*self.records, company_id, id).await {
            // An invalid identifier cannot name a stored document.
            Err(StoreError::Invalid(_)) => None,
            found => found?,
        };
        let Some(document) = document else {
            tracing::warn!(document = ?id, "the role references a document that does not exist in the company");
            return Ok(None);
        };
        let text = document.value.text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        let title = match document.value.title.trim() {
            "" => id,
            title => title,
        };
        let part = self.cache.part(format!("## Document: {title}\n\n{text}"));
        Ok(Some(Fragment::new(format!("doc:{id}"), self.name(), Stability::Agent, part)))
    }
}

#[async_trait]
impl ContextLayer for DocumentsLayer {
    fn name(&self) -> &'static str {
        "documents"
    }

    async fn collect(&self, turn: &TurnInput) -> Result<Vec<Fragment>, LayerError> {
        let ids = &turn.role.content.document_ids;
        let reads: Vec<_> = ids.iter().map(|id| self.fragment(&turn.role.company_id, id)).collect();
        let found: Vec<_> = stream::iter(reads).buffered(MAX_CONCURRENT_READS).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::{Key, Precondition, RecordsExt};
    use crate::workspace::{Document, collection};
    use agent_core::testing::{format_fragments, turn_input};

    #[tokio::test]
    async fn the_own_companys_documents_stand_in_the_roles_order() {
        let records = MemoryRecords::default();
        for (company, id, title, text) in [
            ("c1", "b", "Handbook", "Be kind.\n"),
            ("c1", "a", "", "No title."),
            ("c1", "blank", "Blank", " "),
            ("c2", "theirs", "Theirs", "secret"),
        ] {
            let [id, company_id, title, text] = [id, company, title, text].map(str::to_owned);
            let key = Key::new(company, collection::DOCUMENTS, id.as_str()).expect("a key");
            let company_id = company_id.into();
            let document = Document { id, company_id, title, text, ..Document::default() };
            records.put_as(&key, &document, Precondition::Absent).await.expect("puts");
        }
        let layer = DocumentsLayer::new(Arc::new(records), Arc::new(PartCache::default()));
        let ids = json!(["b", "gone", "theirs", "\u{0}", "x".repeat(4_000), "", "blank", "a"]);
        let turn = turn_input(json!({"id": "a1", "companyId": "c1", "content": {"documentIds": ids}}));
        expect![[r#"
            [documents/Agent] doc:b
            ## Document: Handbook

            Be kind.
            [documents/Agent] doc:a
            ## Document: a

            No title.
        "#]]
        .assert_eq(&format_fragments(&layer.collect(&turn).await.expect("collects")));
    }
}
