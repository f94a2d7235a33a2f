//! The suite accepts the index in memory, and finds each violation.

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;

use super::*;
use crate::memory_index::MemoryIndex;

#[tokio::test]
async fn the_index_in_memory_conforms() {
    index(async || Arc::new(MemoryIndex::new()) as Arc<dyn SearchIndex>).await;
}

/// Violation of the contract.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    OneCompany,
    OldVersions,
    NothingMissing,
    MoreThanTheLimit,
    WrongOrder,
    KeepsRemoved,
    WrongRange,
    Fails,
}

struct Faulty(MemoryIndex, Fault);

impl Faulty {
    fn company<'a>(&self, company: &'a str) -> &'a str {
        if self.1 == Fault::OneCompany { "one" } else { company }
    }
}

#[async_trait]
impl SearchIndex for Faulty {
    async fn put(
        &self,
        company: &str,
        document: &DocumentId,
        version: u64,
        content: &ExtractedText,
    ) -> Result<(), IndexError> {
        let version = if self.1 == Fault::OldVersions { 1 } else { version };
        self.0.put(self.company(company), document, version, content).await
    }

    async fn remove(&self, company: &str, document: &DocumentId) -> Result<(), IndexError> {
        match self.1 {
            Fault::KeepsRemoved => Ok(()),
            _ => self.0.remove(self.company(company), document).await,
        }
    }

    async fn search(&self, search: &IndexQuery<'_>) -> Result<IndexResponse, IndexError> {
        if self.1 == Fault::Fails {
            return Err(IndexError::Unavailable("it is down".to_owned()));
        }
        let limit = if self.1 == Fault::MoreThanTheLimit { search.limit * 2 } else { search.limit };
        let search = IndexQuery { company: self.company(search.company), limit, ..*search };
        let mut answer = self.0.search(&search).await?;
        match self.1 {
            Fault::NothingMissing => answer.missing.clear(),
            Fault::WrongOrder => answer.hits.reverse(),
            Fault::WrongRange => answer.hits.iter_mut().for_each(|hit| hit.range.end += 1),
            _ => {}
        }
        Ok(answer)
    }
}

#[tokio::test]
async fn violations_are_found() {
    for fault in [
        Fault::OneCompany,
        Fault::OldVersions,
        Fault::NothingMissing,
        Fault::MoreThanTheLimit,
        Fault::WrongOrder,
        Fault::KeepsRemoved,
        Fault::WrongRange,
        Fault::Fails,
    ] {
        let make = async || Arc::new(Faulty(MemoryIndex::new(), fault)) as Arc<dyn SearchIndex>;
        let result = AssertUnwindSafe(index(make)).catch_unwind().await;
        assert!(result.is_err(), "{fault:?} is found");
    }
}
