//! Documents that are searched by an index of the application's own, such as a vector database.
//!
//! `cargo run -p examples --example external_index`

use agent_core::clock::SystemClock;
use agent_core::prelude::*;
use agent_platform::retrieval::{DocumentSearch, IndexRetriever, Retriever as _};
use agent_platform::{memory::MemoryRecords, records::Precondition, workspace};
use agent_retrieval::document::{DocumentId, ExtractedText};
use agent_retrieval::index::{IndexError, IndexHit, IndexQuery, IndexResponse, SearchIndex};
use futures_util::lock::Mutex;

/// Finds documents that contain the words of a query. A real one calls a service.
#[derive(Default)]
pub(crate) struct WordIndex(Mutex<Vec<(String, DocumentId, u64, String)>>);

#[async_trait]
impl SearchIndex for WordIndex {
    async fn put(
        &self,
        company: &str,
        id: &DocumentId,
        at: u64,
        new: &ExtractedText,
    ) -> Result<(), IndexError> {
        self.remove(company, id).await?;
        self.0.lock().await.push((company.to_owned(), id.clone(), at, new.text.to_lowercase()));
        Ok(())
    }
    async fn remove(&self, company: &str, id: &DocumentId) -> Result<(), IndexError> {
        self.0.lock().await.retain(|entry| (&*entry.0, &entry.1) != (company, id));
        Ok(())
    }
    async fn search(&self, search: &IndexQuery<'_>) -> Result<IndexResponse, IndexError> {
        let (entries, mut answer) = (self.0.lock().await, IndexResponse::default());
        for (id, version) in search.documents {
            let key = (search.company, id, version);
            let Some((.., text)) = entries.iter().find(|entry| (&*entry.0, &entry.1, &entry.2) == key) else {
                answer.missing.push(id.clone());
                continue;
            };
            let words = search.query.text.split_whitespace().map(str::to_lowercase);
            let score = words.filter(|word| text.contains(word)).count() as f32;
            let hit = IndexHit::new(id.clone(), *version, 0..text.len(), score);
            answer.hits.extend((score > 0.0).then_some(hit));
        }
        answer.hits.sort_by(|left, right| right.score.total_cmp(&left.score));
        answer.hits.truncate(search.limit);
        Ok(answer)
    }
}

#[expect(clippy::print_stdout, reason = "it is what an example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    futures_executor::block_on(async {
        let (records, company, ids) = (Arc::<MemoryRecords>::default(), &"acme".into(), ["rules".into()]);
        let rules = r#"{"id": "rules", "companyId": "acme", "text": "Bicycles are lent for a week."}"#;
        let rules = serde_json::from_str::<workspace::Document>(rules)?;
        workspace::save_document(&*records, &rules, Precondition::Any, &"ada".into()).await?;
        let retriever = IndexRetriever::new(Arc::<WordIndex>::default(), records, Arc::new(SystemClock));
        retriever.index(company, "rules").await?;
        let hits = retriever.search(DocumentSearch::new(company, &ids, "lent bicycles")).await?.ranking.hits;
        hits.iter().for_each(|hit| println!("{} has {} of the words.", hit.document, hit.score));
        Ok(())
    })
}
