use proptest::prelude::*;

use super::*;
use crate::chunk::StructuralChunker;
use crate::doc_index::{DotProducts, Vectors};
use crate::document::ExtractedText;
use crate::embed::EmbedderId;
use crate::search::{DenseRanking, nearest_in_documents, search_documents};

fn index(title: &str, text: &str) -> Arc<DocIndex> {
    let document = ExtractedText { title: title.into(), text: text.into(), ..ExtractedText::default() };
    DocIndex::build(&document, &StructuralChunker::new(60, 20)).expect("the document is indexed").into()
}

/// Adds vectors of three components that are made from the places of the chunks and a seed. Some chunks are without one.
fn with_vectors(index: &DocIndex, embedder: &str, seed: u32) -> Arc<DocIndex> {
    let vector = |range: std::ops::Range<usize>| {
        let number = (range.start as u32).wrapping_mul(31).wrapping_add(seed).wrapping_mul(0x9e37_79b1);
        let component = |shift: u32| (number >> shift & 7) as f32 - 3.5;
        (number >> 28 != 0).then(|| vec![component(0), component(9), component(18)])
    };
    let vectors: Vec<_> = index.chunk_ranges().map(vector).collect();
    let vectors = Vectors::quantize(embedder, 3, &vectors).expect("vectors are stored");
    index.clone().with_vectors(Some(vectors)).expect("as many vectors as chunks").into()
}

fn put(id: &str, text: &str) -> DocumentChange {
    DocumentChange::Put(id.into(), index("", text))
}

fn ids(company: &CompanyIndex, scope: SearchScope<'_>, text: &str) -> Vec<String> {
    let options = SearchOptions { uses_feedback: false, ..SearchOptions::default() };
    let ranking = company.search(scope, &Query { text, previous: None }, &options);
    ranking.hits.iter().map(|hit| hit.document.to_string()).collect()
}

#[test]
fn documents_are_added_replaced_and_removed() {
    let mut company = CompanyIndex::new();
    assert_eq!(ids(&company, SearchScope::All, "lighthouse"), Vec::<String>::new());
    company.apply([put("a", "The lighthouse keeper."), put("b", "A harbour."), put("c", "Nothing else.")]);
    assert_eq!(ids(&company, SearchScope::All, "lighthouse"), ["a"]);
    assert_eq!((company.document_count(), company.chunk_count()), (3, 3));
    company.apply([put("a", "A railway."), put("b", "A lighthouse.")]);
    assert_eq!(ids(&company, SearchScope::All, "lighthouse"), ["b"]);
    company.apply([DocumentChange::Remove("b".into()), DocumentChange::Remove("unknown".into())]);
    assert_eq!(ids(&company, SearchScope::All, "lighthouse"), Vec::<String>::new());
    assert!(company.contains("a") && !company.contains("b"));
    company.apply([put("d", "A lighthouse."), DocumentChange::Remove("d".into())]);
    assert_eq!(ids(&company, SearchScope::All, "lighthouse"), Vec::<String>::new());
    company.apply(["a", "c"].map(|id| DocumentChange::Remove(id.into())));
    assert_eq!((company.document_count(), company.chunk_count(), company.memory_bytes()), (0, 0, 0));
}

#[test]
fn only_documents_of_the_scope_are_found_and_counted() {
    let mut company = CompanyIndex::new();
    company.apply([
        put("a", "red apple"),
        put("b", "red pear"),
        put("c", "red apple pie"),
        put("d", "green"),
    ]);
    let scope: BTreeSet<DocumentId> = ["b", "c", "d", "elsewhere"].map(DocumentId::from).into();
    assert_eq!(ids(&company, SearchScope::Documents(&scope), "apple"), ["c"]);
    let query = Query { text: "red apple", previous: None };
    let options = SearchOptions::default();
    let scoped = company.search(SearchScope::Documents(&scope), &query, &options);
    assert_eq!(scoped.documents, 3);
    let mut other = CompanyIndex::new();
    other.apply([put("b", "red pear"), put("c", "red apple pie"), put("d", "green")]);
    assert_eq!(scoped, other.search(SearchScope::All, &query, &options), "statistics are those of the scope");
    assert_eq!(ids(&company, SearchScope::Documents(&BTreeSet::new()), "red"), Vec::<String>::new());
}

#[test]
fn many_single_changes_leave_few_segments_and_no_dead_documents() {
    let mut company = CompanyIndex::new();
    let name = |number: usize| ["harbour", "ship", "crane", "quay"][number % 4].repeat(number / 4 + 1);
    for round in 0..6 {
        for number in 0..80 {
            company.apply([put(&format!("{number}"), &format!("round {round} of the {}", name(number)))]);
        }
    }
    assert_eq!(company.document_count(), 80);
    assert!(company.segments.len() <= 8, "{} segments", company.segments.len());
    let stored: usize = company.segments.iter().map(|segment| segment.documents.len()).sum();
    assert!(stored <= 2 * 80, "{stored} documents for 80");
    let query = Query { text: &name(4), previous: None };
    let options = SearchOptions { uses_feedback: false, ..SearchOptions::default() };
    let found = company.search(SearchScope::All, &query, &options);
    let texts: Vec<_> =
        (0..80).map(|number| index("", &format!("round 5 of the {}", name(number)))).collect();
    let documents = (0..80).map(|number| (DocumentId::from(number.to_string()), texts[number].as_ref()));
    assert_eq!(found, search_documents(documents, &query, &options));
    assert_eq!(found.hits.iter().map(|hit| hit.document.as_str()).collect::<Vec<_>>(), ["4"], "{found:?}");
}

#[test]
fn a_document_gets_vectors_without_a_merge() {
    let mut company = CompanyIndex::new();
    company.apply([put("a", "The first document."), put("b", "The second document.")]);
    let id = EmbedderId::new("e");
    let query = VectorQuery::new(&id, &[1.0, 0.0]);
    let vectors = |count: usize| {
        Arc::new(Vectors::quantize("e", 2, &vec![Some([1.0, 0.1]); count]).expect("vectors are stored"))
    };
    assert!(!company.set_vectors(&"none".into(), Some(vectors(1))), "there is no such document");
    assert!(!company.set_vectors(&"a".into(), Some(vectors(2))), "it has one chunk");
    assert_eq!(company.nearest(SearchScope::All, &query).expect("a vector").len(), 0);
    assert!(company.set_vectors(&"a".into(), Some(vectors(1))));
    // They stay with the document when segments are merged.
    company.apply([put("c", "The third document.")]);
    let hits = company.nearest(SearchScope::All, &query).expect("a vector");
    assert_eq!(hits.iter().map(|hit| hit.document.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(company.set_vectors(&"a".into(), None));
    assert_eq!(company.nearest(SearchScope::All, &query).expect("a vector").len(), 0);
}

#[test]
fn vectors_find_only_chunks_of_the_scope_and_of_their_embedder() {
    let embedded = |id: &str, embedder: &str, vector: [f32; 2]| {
        let vectors = Vectors::quantize(embedder, 2, &[Some(vector)]).expect("vectors are stored");
        let index = index("", id).as_ref().clone().with_vectors(Some(vectors)).expect("one chunk");
        DocumentChange::Put(id.into(), index.into())
    };
    let mut company = CompanyIndex::new();
    company.apply([put("none", "A document without vectors.")]);
    let without = company.memory_bytes();
    company.apply([
        embedded("near", "e", [0.9, 0.1]),
        embedded("far", "e", [-1.0, 0.1]),
        embedded("same", "e", [2.0, 0.0]),
        embedded("also same", "e", [1.0, 0.0]),
        embedded("other", "another model", [1.0, 0.0]),
    ]);
    assert!(company.memory_bytes() > without);
    let id = EmbedderId::new("e");
    let found = |company: &CompanyIndex, scope: SearchScope<'_>, vector: &[f32]| {
        let hits = company.nearest(scope, &VectorQuery::new(&id, vector)).expect("a query");
        hits.iter().map(|hit| hit.document.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&company, SearchScope::All, &[3.0, 0.0]), ["also same", "same", "near", "far"]);
    let scope: BTreeSet<DocumentId> =
        ["far", "near", "other", "none", "elsewhere"].map(DocumentId::from).into();
    assert_eq!(found(&company, SearchScope::Documents(&scope), &[3.0, 0.0]), ["near", "far"]);
    assert_eq!(
        found(&company, SearchScope::All, &[1.0, 0.0, 0.0]),
        Vec::<String>::new(),
        "of other dimensions"
    );
    assert!(company.nearest(SearchScope::All, &VectorQuery::new(&id, &[f32::NAN, 1.0])).is_err());
    company.apply([DocumentChange::Remove("same".into()), put("also same", "Vectors are made later.")]);
    assert_eq!(found(&company, SearchScope::All, &[3.0, 0.0]), ["near", "far"]);
}

/// The words of the property tests, so that documents share terms.
const WORDS: [&str; 12] = [
    "harbour",
    "ship",
    "DiffExecutor",
    "executor",
    "die",
    "Häuser",
    "houses",
    "搜索",
    "running",
    "runs",
    "the",
    "42",
];

#[derive(Debug, Clone)]
enum Step {
    /// A document with vectors of one of two embedders, or without.
    Put(u8, Vec<usize>, u8),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let words = prop::collection::vec(0..WORDS.len(), 0..40);
    let step = prop_oneof![
        4 => (0..8_u8, words, 0..4_u8).prop_map(|(id, words, vectors)| Step::Put(id, words, vectors)),
        1 => (0..8_u8).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..24)
}

/// Returns the index of a step. The second embedder has vectors for one of four documents, the first for two.
fn index_of(id: u8, words: &[usize], vectors: u8) -> Arc<DocIndex> {
    let index = index("", &text_of(words));
    match vectors {
        0 => index,
        1 => with_vectors(&index, "second", u32::from(id)),
        _ => with_vectors(&index, "first", u32::from(id)),
    }
}

fn text_of(words: &[usize]) -> String {
    let words: Vec<&str> = words.iter().map(|&word| WORDS[word]).collect();
    words.chunks(5).map(|line| line.join(" ")).collect::<Vec<_>>().join(". ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Independently of the history, results are exactly those of the remaining documents, searched without merging.
    #[test]
    fn rankings_depend_only_on_the_documents(
        steps in steps(), batch in 1_usize..6, text in prop::collection::vec(0..WORDS.len(), 1..5),
        previous in prop::option::of(0..WORDS.len()), in_scope in any::<u8>(), limit in 1_usize..30,
        vector in prop::array::uniform3(-1.0_f32..1.0), weight in 0.0_f32..1.0,
    ) {
        let mut company = CompanyIndex::new();
        let mut left = BTreeMap::new();
        for steps in steps.chunks(batch) {
            company.apply(steps.iter().map(|step| match step {
                Step::Put(id, words, vectors) => {
                    DocumentChange::Put(id.to_string().into(), index_of(*id, words, *vectors))
                }
                Step::Remove(id) => DocumentChange::Remove(id.to_string().into()),
            }));
            for step in steps {
                match step {
                    Step::Put(id, words, vectors) => left.insert(*id, index_of(*id, words, *vectors)),
                    Step::Remove(id) => left.remove(id),
                };
            }
        }
        let text = text_of(&text);
        let query = Query { text: &text, previous: previous.map(|word| WORDS[word]) };
        let options = SearchOptions { limit, ..SearchOptions::default() };
        let embedder = EmbedderId::new("first");
        let vector = VectorQuery::new(&embedder, &vector);
        let is_in_scope = |id: &u8| in_scope >> id & 1 == 1;
        let ids: BTreeSet<DocumentId> = (0..8).filter(is_in_scope).map(|id| id.to_string().into()).collect();
        for (scope, all) in [(SearchScope::All, true), (SearchScope::Documents(&ids), false)] {
            let documents = || {
                let documents = left.iter().rev().filter(|(id, _)| all || is_in_scope(id));
                documents.map(|(id, index)| (id.to_string().into(), index.as_ref()))
            };
            prop_assert_eq!(
                company.search(scope, &query, &options),
                search_documents(documents(), &query, &options)
            );
            let hits = company.nearest(scope, &vector);
            prop_assert_eq!(&hits, &nearest_in_documents(documents(), &vector));
            let plain = VectorQuery { method: DotProducts::Plain, ..vector };
            prop_assert_eq!(&hits, &company.nearest(scope, &plain));
            if let Ok(hits) = hits {
                let dense = Some(DenseRanking { hits: &hits, weight, min_similarity: 0.5 });
                let options = SearchOptions { dense, ..options.clone() };
                prop_assert_eq!(
                    company.search(scope, &query, &options),
                    search_documents(documents(), &query, &options)
                );
            }
        }
        prop_assert_eq!(company.chunk_count(), left.values().map(|index| index.chunk_count()).sum::<usize>());
    }
}
