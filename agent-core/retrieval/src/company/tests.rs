use proptest::prelude::*;

use super::*;
use crate::chunk::StructuralChunker;
use crate::document::Extracted;
use crate::search::search_documents;

fn index(title: &str, text: &str) -> Arc<DocIndex> {
    let document = Extracted { title: title.into(), text: text.into(), ..Extracted::default() };
    DocIndex::build(&document, &StructuralChunker::new(60, 20)).expect("the document is indexed").into()
}

fn put(id: &str, text: &str) -> Change {
    Change::Put(id.into(), index("", text))
}

fn ids(company: &CompanyIndex, scope: Scope<'_>, text: &str) -> Vec<String> {
    let options = SearchOptions { feedback: false, ..SearchOptions::default() };
    let ranking = company.search(scope, &Query { text, previous: None }, &options);
    ranking.hits.iter().map(|hit| hit.document.to_string()).collect()
}

#[test]
fn documents_are_added_replaced_and_removed() {
    let mut company = CompanyIndex::new();
    assert_eq!(ids(&company, Scope::All, "lighthouse"), Vec::<String>::new());
    company.apply([put("a", "The lighthouse keeper."), put("b", "A harbour."), put("c", "Nothing else.")]);
    assert_eq!(ids(&company, Scope::All, "lighthouse"), ["a"]);
    assert_eq!((company.document_count(), company.chunk_count()), (3, 3));
    company.apply([put("a", "A railway."), put("b", "A lighthouse.")]);
    assert_eq!(ids(&company, Scope::All, "lighthouse"), ["b"]);
    company.apply([Change::Remove("b".into()), Change::Remove("unknown".into())]);
    assert_eq!(ids(&company, Scope::All, "lighthouse"), Vec::<String>::new());
    assert!(company.contains("a") && !company.contains("b"));
    company.apply([put("d", "A lighthouse."), Change::Remove("d".into())]);
    assert_eq!(ids(&company, Scope::All, "lighthouse"), Vec::<String>::new());
    company.apply(["a", "c"].map(|id| Change::Remove(id.into())));
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
    assert_eq!(ids(&company, Scope::Documents(&scope), "apple"), ["c"]);
    let query = Query { text: "red apple", previous: None };
    let options = SearchOptions::default();
    let scoped = company.search(Scope::Documents(&scope), &query, &options);
    assert_eq!(scoped.documents, 3);
    let mut other = CompanyIndex::new();
    other.apply([put("b", "red pear"), put("c", "red apple pie"), put("d", "green")]);
    assert_eq!(scoped, other.search(Scope::All, &query, &options), "statistics are those of the scope");
    assert_eq!(ids(&company, Scope::Documents(&BTreeSet::new()), "red"), Vec::<String>::new());
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
    let options = SearchOptions { feedback: false, ..SearchOptions::default() };
    let found = company.search(Scope::All, &query, &options);
    let texts: Vec<_> =
        (0..80).map(|number| index("", &format!("round 5 of the {}", name(number)))).collect();
    let documents = (0..80).map(|number| (DocumentId::from(number.to_string()), texts[number].as_ref()));
    assert_eq!(found, search_documents(documents, &query, &options));
    assert_eq!(found.hits.iter().map(|hit| hit.document.as_str()).collect::<Vec<_>>(), ["4"], "{found:?}");
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
    Put(u8, Vec<usize>),
    Remove(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let words = prop::collection::vec(0..WORDS.len(), 0..40);
    let step = prop_oneof![
        4 => (0..8_u8, words).prop_map(|(id, words)| Step::Put(id, words)),
        1 => (0..8_u8).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..24)
}

fn text_of(words: &[usize]) -> String {
    let words: Vec<&str> = words.iter().map(|&word| WORDS[word]).collect();
    words.chunks(5).map(|line| line.join(" ")).collect::<Vec<_>>().join(". ")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever the history, results are exactly those of the documents that are left, searched without merging.
    #[test]
    fn rankings_depend_on_the_documents_alone(
        steps in steps(), batch in 1_usize..6, text in prop::collection::vec(0..WORDS.len(), 1..5),
        previous in prop::option::of(0..WORDS.len()), in_scope in any::<u8>(), limit in 1_usize..30,
    ) {
        let mut company = CompanyIndex::new();
        let mut left = BTreeMap::new();
        for steps in steps.chunks(batch) {
            company.apply(steps.iter().map(|step| match step {
                Step::Put(id, words) => put(&id.to_string(), &text_of(words)),
                Step::Remove(id) => Change::Remove(id.to_string().into()),
            }));
            for step in steps {
                match step {
                    Step::Put(id, words) => left.insert(*id, index("", &text_of(words))),
                    Step::Remove(id) => left.remove(id),
                };
            }
        }
        let text = text_of(&text);
        let query = Query { text: &text, previous: previous.map(|word| WORDS[word]) };
        let options = SearchOptions { limit, ..SearchOptions::default() };
        let is_in_scope = |id: &u8| in_scope >> id & 1 == 1;
        let plain = |scope: &dyn Fn(&u8) -> bool| {
            let documents = left.iter().rev().filter(|(id, _)| scope(id));
            search_documents(documents.map(|(id, index)| (id.to_string().into(), index.as_ref())), &query, &options)
        };
        prop_assert_eq!(company.search(Scope::All, &query, &options), plain(&|_| true));
        let scope: BTreeSet<DocumentId> = (0..8).filter(is_in_scope).map(|id| id.to_string().into()).collect();
        prop_assert_eq!(company.search(Scope::Documents(&scope), &query, &options), plain(&is_in_scope));
        prop_assert_eq!(company.chunk_count(), left.values().map(|index| index.chunk_count()).sum::<usize>());
    }
}
