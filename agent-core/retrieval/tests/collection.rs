//! Quality of rankings on the small collection in `tests/collection`: product documentation, policies and source code in
//! five languages, with questions. Each question names the document that answers it, and words of the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::company::{CompanyIndex, DocumentChange, SearchScope};
use agent_retrieval::doc_index::DocIndex;
use agent_retrieval::document::{DocumentId, ExtractedText, TextFormat};
use agent_retrieval::pack::{PackOutcome, pack};
use agent_retrieval::search::{Query, Ranking, SearchOptions, search_documents};

/// Mean nDCG@10 of the chunks with the answer, which the rankings must reach.
const MIN_NDCG: f64 = 0.90;
/// Share of the questions whose answer is in the prompt within the default budget.
const MIN_ANSWERED: f64 = 0.92;
/// Tokens of the default budget, at four bytes a token.
const MAX_TOKENS: usize = 1500;

struct Question {
    text: String,
    previous: Option<String>,
    document: String,
    answer: String,
}

impl Question {
    fn query(&self) -> Query<'_> {
        Query { text: &self.text, previous: self.previous.as_deref() }
    }
}

struct Collection {
    texts: BTreeMap<DocumentId, String>,
    indexes: BTreeMap<DocumentId, Arc<DocIndex>>,
    questions: Vec<Question>,
}

impl Collection {
    fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/collection");
        let (mut texts, mut indexes) = (BTreeMap::new(), BTreeMap::new());
        for entry in fs::read_dir(folder.join("documents")).expect("the folder is there") {
            let path = entry.expect("the folder is readable").path();
            let text = fs::read_to_string(&path).expect("documents are UTF-8");
            let name = path.file_stem().and_then(|name| name.to_str()).expect("names are UTF-8").to_owned();
            let is_markdown = path.extension().is_some_and(|extension| extension == "md");
            let format = if is_markdown { TextFormat::Markdown } else { TextFormat::Plain };
            let document =
                ExtractedText { title: name.clone(), text: text.clone(), format, ..ExtractedText::default() };
            let index = DocIndex::build(&document, &StructuralChunker::default()).expect("it is indexed");
            indexes.insert(DocumentId::from(name.as_str()), Arc::new(index));
            texts.insert(DocumentId::from(name), text);
        }
        let lines = fs::read_to_string(folder.join("questions.tsv")).expect("the questions are there");
        let questions = lines.lines().skip(1).map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [text, previous, document, answer] = fields[..] else { panic!("not four fields: {line}") };
            let previous = Some(previous.to_owned()).filter(|previous| !previous.is_empty());
            Question { text: text.into(), previous, document: document.into(), answer: answer.into() }
        });
        Self { questions: questions.collect(), texts, indexes }
    }

    fn company(&self, is_included: impl Fn(&DocumentId) -> bool) -> CompanyIndex {
        let mut company = CompanyIndex::new();
        let included = self.indexes.iter().filter(|(id, _)| is_included(id));
        company.apply(included.map(|(id, index)| DocumentChange::Put(id.clone(), index.clone())));
        company
    }

    /// Returns, for each hit, whether it contains the answer, and how many chunks do.
    fn judge(&self, question: &Question, ranking: &Ranking) -> (Vec<bool>, usize) {
        let has_answer = |document: &DocumentId, range: std::ops::Range<usize>| {
            document.as_str() == question.document && self.texts[document][range].contains(&question.answer)
        };
        let judged = ranking.hits.iter().map(|hit| has_answer(&hit.document, hit.range.clone())).collect();
        let document = DocumentId::from(question.document.as_str());
        let ranges = self.indexes[&document].chunk_ranges();
        (judged, ranges.filter(|range| has_answer(&document, range.clone())).count())
    }
}

fn ndcg(judged: &[bool], relevant: usize) -> f64 {
    let discount = |rank: usize| 1.0 / ((rank + 2) as f64).log2();
    let gained: f64 = judged
        .iter()
        .take(10)
        .enumerate()
        .filter(|(_, relevant)| **relevant)
        .map(|(rank, _)| discount(rank))
        .sum();
    gained / (0..relevant.min(10)).map(discount).sum::<f64>()
}

#[test]
fn answers_are_ranked_first_and_reach_the_prompt() {
    let collection = Collection::read();
    let company = collection.company(|_| true);
    let (mut total, mut answered, mut poor) = (0.0, 0, Vec::new());
    for question in &collection.questions {
        let ranking = company.search(SearchScope::All, &question.query(), &SearchOptions::default());
        let (judged, relevant) = collection.judge(question, &ranking);
        assert!(relevant > 0, "no chunk has the answer of {:?}", question.text);
        let score = ndcg(&judged, relevant);
        total += score;
        let text_of = |document: &DocumentId, range| collection.texts[document].get(range).map(str::to_owned);
        let packed = pack(&ranking, MAX_TOKENS, text_of, |text| text.len().div_ceil(4));
        assert!(packed.tokens <= MAX_TOKENS);
        let is_answered = packed.fragments.iter().any(|fragment| fragment.text.contains(&question.answer));
        answered += usize::from(is_answered);
        if score < 0.99 || !is_answered {
            let best = ranking.hits.first().map(|hit| hit.document.as_str());
            poor.push(format!("{score:.2} {is_answered} {} ({best:?})", question.text));
        }
    }
    let count = collection.questions.len() as f64;
    let poor = poor.join("\n");
    assert!(total / count >= MIN_NDCG, "nDCG@10 {:.3}:\n{poor}", total / count);
    assert!(answered as f64 / count >= MIN_ANSWERED, "{answered} of {count} answered:\n{poor}");
}

#[test]
fn documents_outside_the_scope_are_not_visible() {
    let collection = Collection::read();
    let company = collection.company(|_| true);
    for question in &collection.questions {
        let scope: BTreeSet<DocumentId> =
            collection.indexes.keys().filter(|id| id.as_str() != question.document).cloned().collect();
        let options = SearchOptions::default();
        let ranking = company.search(SearchScope::Documents(&scope), &question.query(), &options);
        assert!(ranking.hits.iter().all(|hit| hit.document.as_str() != question.document));
        let without = collection.company(|id| scope.contains(id));
        assert_eq!(
            ranking,
            without.search(SearchScope::All, &question.query(), &options),
            "the hidden document changes terms or scores for {:?}",
            question.text
        );
    }
}

#[test]
fn merged_stored_and_unmerged_indexes_rank_equally() {
    let collection = Collection::read();
    let mut company = CompanyIndex::new();
    for (id, index) in collection.indexes.iter().rev() {
        let stored = DocIndex::decode(&index.encode()).expect("an index is decoded");
        company.apply([DocumentChange::Put(id.clone(), Arc::new(stored))]);
    }
    for question in &collection.questions {
        let documents = collection.indexes.iter().map(|(id, index)| (id.clone(), index.as_ref()));
        let options = SearchOptions::default();
        assert_eq!(
            company.search(SearchScope::All, &question.query(), &options),
            search_documents(documents, &question.query(), &options)
        );
    }
}

#[test]
fn unrelated_questions_find_nothing() {
    let collection = Collection::read();
    let company = collection.company(|_| true);
    let questions = [
        "Which composer dedicated a violin sonata to the archduke of Bohemia?",
        "Who painted the ceiling fresco of the baroque monastery library?",
        "Which enzyme unwinds the double helix during replication of chromosomes?",
        "Welcher Vulkan zerstörte die minoische Siedlung auf Santorin?",
    ];
    for text in questions {
        let ranking =
            company.search(SearchScope::All, &Query { text, previous: None }, &SearchOptions::default());
        let packed = pack(&ranking, MAX_TOKENS, |_, _| Some(String::new()), |_| 1);
        assert!(packed.fragments.is_empty(), "{text} is answered: {:?}", ranking.hits.first());
        assert!(packed.outcomes.iter().all(|&outcome| outcome == PackOutcome::Irrelevant));
    }
}
