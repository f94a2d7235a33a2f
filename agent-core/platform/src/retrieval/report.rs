//! Report of a retrieval, for previews and for the events of a run.

use std::fmt;
use std::ops::Range;

use agent_core::event::{Audience, EventObserver};
use agent_core::prompt::LayerReport;
use agent_retrieval::document::DocumentId;
use agent_retrieval::pack::{Fragment, PackOutcome, PackedFragments};
use agent_retrieval::search::{Hit, QueryTerm, TermOrigin};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::citations::CitationObserver;
use super::search_result::SearchResult;

/// Name of the member of a preview with the report.
const PREVIEW_MEMBER: &str = "retrieval";
/// Media type of texts that were not uploaded.
const TEXT_MEDIA_TYPE: &str = "text/markdown";
/// Scale for rounding scores and weights to four decimals.
const SCORE_SCALE: f64 = 10_000.0;

/// The search of a turn and the fragments that were chosen from it.
pub struct RetrievalReport {
    /// The result of the search.
    pub result: SearchResult,
    /// The chosen fragments, and the outcome for each hit.
    pub packed: PackedFragments,
    /// True if visitors are shown the titles and pages of the fragments.
    pub shows_sources: bool,
}

impl RetrievalReport {
    /// Returns the report for previews: the searched and the skipped documents, the terms of the query, and each hit
    /// with its scores and the reason why it was kept or dropped.
    pub fn to_json(&self) -> Value {
        let hits = self.result.ranking.hits.iter().zip(&self.packed.outcomes).zip(1..);
        let fragments: Vec<Value> =
            hits.map(|((hit, outcome), rank)| self.hit(hit, *outcome, rank)).collect();
        let mut value = json!({
            "scope": self.result.scope,
            "skipped": self.result.skipped,
            "terms": self.result.ranking.terms.iter().map(term).collect::<Vec<_>>(),
            "relevance": rounded(self.result.ranking.relevance),
            "fragments": fragments,
            "tokens": self.packed.tokens,
        });
        insert_present(&mut value, self.embedder());
        value
    }

    /// Returns the embedding model, and the reason why the search went without it.
    fn embedder(&self) -> [(&'static str, Option<Value>); 2] {
        let embedder = self.result.embedder.as_ref();
        [
            ("embedder", embedder.map(|used| used.embedder.as_str().into())),
            ("embedderSkipped", embedder.and_then(|used| used.skipped).map(|skip| json!(skip))),
        ]
    }

    fn hit(&self, hit: &Hit, outcome: PackOutcome, rank: usize) -> Value {
        let characters = self.character_range(&hit.document, &hit.range);
        let terms = &self.result.ranking.terms;
        let matched: Vec<&str> =
            hit.matched.iter().filter_map(|&term| Some(terms.get(term)?.term.as_str())).collect();
        let fragment = self.packed.fragments.iter().position(|fragment| fragment.hits.contains(&(rank - 1)));
        let mut value = json!({
            "rank": rank,
            "documentId": hit.document.as_str(),
            "title": &*hit.title,
            "start": characters.start,
            "end": characters.end,
            "lexical": rounded(hit.lexical),
            "fused": rounded(hit.score),
            "relevance": rounded(hit.relevance),
            "matched": matched,
            "kept": outcome == PackOutcome::Kept,
            "why": reason(outcome),
        });
        let members = [
            ("heading", hit.heading.as_deref().map(Value::from)),
            ("page", hit.page.map(Value::from)),
            ("dense", hit.dense.map(rounded)),
            ("fragment", fragment.map(|fragment| (fragment + 1).to_string().into())),
        ];
        insert_present(&mut value, members);
        value
    }

    /// Returns a range of a document's text in characters. An offset is the same number if the text no longer exists.
    fn character_range(&self, document: &DocumentId, range: &Range<usize>) -> Range<usize> {
        let text = self.result.documents.get(document).map(|found| &found.text);
        let characters = |offset| text.and_then(|text| text.characters_before(offset)).unwrap_or(offset);
        characters(range.start)..characters(range.end)
    }

    /// Returns the value of the event `agent.sources`. Visitors are shown titles and pages alone.
    fn sources(&self, audience: Audience) -> Value {
        let fragments = self.packed.fragments.iter().zip(1..);
        if audience == Audience::Visitor {
            let fragments = fragments.map(|(fragment, number)| visible_source(fragment, number));
            return json!({"fragments": fragments.collect::<Vec<_>>()});
        }
        let fragments: Vec<Value> =
            fragments.map(|(fragment, number)| self.source(fragment, number)).collect();
        let terms = self.result.ranking.terms.iter().filter(|term| term.origin != TermOrigin::Feedback);
        let dropped = self.packed.outcomes.iter().filter(|outcome| **outcome != PackOutcome::Kept).count();
        let mut value = json!({
            "query": {"terms": terms.map(|term| term.term.as_str()).collect::<Vec<_>>()},
            "fragments": fragments,
            "dropped": dropped,
            "ms": self.result.duration.as_micros() as f64 / 1_000.0,
        });
        insert_present(&mut value, self.embedder());
        value
    }

    fn source(&self, fragment: &Fragment, number: usize) -> Value {
        let characters = self.character_range(&fragment.document, &fragment.range);
        let mut value = visible_source(fragment, number);
        let found = self.result.documents.get(&fragment.document);
        let media_type = found.and_then(|found| found.media_type.as_deref()).unwrap_or(TEXT_MEDIA_TYPE);
        let members = [
            ("documentId", Some(fragment.document.as_str().into())),
            ("version", found.map(|found| found.version.into())),
            ("mediaType", Some(media_type.into())),
            ("start", Some(characters.start.into())),
            ("end", Some(characters.end.into())),
            ("bytes", Some(json!([fragment.range.start, fragment.range.end]))),
            ("sha256", Some(hex::encode(Sha256::digest(fragment.text.as_bytes())).into())),
            ("score", Some(rounded(fragment.score))),
        ];
        insert_present(&mut value, members);
        value
    }
}

/// Returns the number, title and page of a fragment.
fn visible_source(fragment: &Fragment, number: usize) -> Value {
    let mut value = json!({"id": number.to_string(), "title": &*fragment.title});
    insert_present(&mut value, [("page", fragment.page.map(Value::from))]);
    value
}

fn insert_present<const N: usize>(value: &mut Value, members: [(&str, Option<Value>); N]) {
    let object: &mut Map<String, Value> = value.as_object_mut().expect("the value is an object");
    object.extend(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

fn term(term: &QueryTerm) -> Value {
    let origin = match term.origin {
        TermOrigin::Query => "query",
        TermOrigin::Previous => "previous",
        TermOrigin::Feedback => "feedback",
    };
    json!({"term": term.term, "idf": rounded(term.idf), "weight": rounded(term.weight), "from": origin})
}

fn reason(outcome: PackOutcome) -> &'static str {
    match outcome {
        PackOutcome::Kept => "kept",
        PackOutcome::Irrelevant => "gate",
        PackOutcome::PerDocument => "perDocument",
        PackOutcome::Duplicate => "duplicate",
        PackOutcome::Budget => "budget",
        PackOutcome::Unavailable => "unavailable",
    }
}

fn rounded(score: f32) -> Value {
    ((f64::from(score) * SCORE_SCALE).round() / SCORE_SCALE).into()
}

impl LayerReport for RetrievalReport {
    fn preview(&self) -> (&'static str, Value) {
        (PREVIEW_MEMBER, self.to_json())
    }

    fn observer(&self, audience: Audience) -> Option<Box<dyn EventObserver>> {
        if audience == Audience::Visitor && !self.shows_sources {
            return None;
        }
        Some(Box::new(CitationObserver::new(self.sources(audience), self.packed.fragments.len())))
    }
}

/// Shows numbers instead of texts.
impl fmt::Debug for RetrievalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrievalReport")
            .field("hits", &self.result.ranking.hits.len())
            .field("fragments", &self.packed.fragments.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_retrieval::search::Ranking;

    use super::*;
    use crate::retrieval::search_result::FoundDocument;

    #[test]
    fn ranges_are_counted_in_characters() {
        let found = |text: &str| FoundDocument { version: 1, text: text.into(), media_type: None };
        let [first, second, deleted] = ["a", "b", "c"].map(DocumentId::from);
        let documents = [(first.clone(), found("ä漢b😀c")), (second.clone(), found("xyü"))];
        let result = SearchResult {
            ranking: Ranking::default(),
            scope: Vec::new(),
            skipped: Vec::new(),
            documents: documents.into_iter().collect(),
            embedder: None,
            duration: Duration::ZERO,
        };
        let report = RetrievalReport { result, packed: PackedFragments::default(), shows_sources: false };
        // The last ranges are behind the end of the text, and within a character.
        let ranges = [
            (&first, 5..10, 2..4),
            (&second, 1..4, 1..3),
            (&first, 0..2, 0..1),
            (&deleted, 3..9, 3..9),
            (&first, 2..11, 1..5),
            (&second, 4..40, 3..40),
            (&second, 3..4, 3..3),
        ];
        for (document, bytes, characters) in ranges {
            assert_eq!(report.character_range(document, &bytes), characters);
        }
    }
}
