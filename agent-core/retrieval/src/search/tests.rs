use super::*;
use crate::chunk::StructuralChunker;
use crate::document::{ExtractedText, TextFormat};

fn index(title: &str, text: &str) -> DocIndex {
    let document = ExtractedText { title: title.into(), text: text.into(), ..ExtractedText::default() };
    DocIndex::build(&document, &StructuralChunker::default()).expect("the document is indexed")
}

/// Searches documents that are named `0`, `1`, and so on.
fn search(texts: &[&str], query: Query<'_>, options: &SearchOptions<'_>) -> Ranking {
    let indexes: Vec<DocIndex> = texts.iter().map(|text| index("", text)).collect();
    let documents = (0..).zip(&indexes).map(|(number, index): (usize, _)| (number.to_string().into(), index));
    search_documents(documents, &query, options)
}

fn ids(ranking: &Ranking) -> Vec<&str> {
    ranking.hits.iter().map(|hit| hit.document.as_str()).collect()
}

fn query(text: &str) -> Query<'_> {
    Query { text, previous: None }
}

fn plain() -> SearchOptions<'static> {
    SearchOptions { uses_feedback: false, ..SearchOptions::default() }
}

const BIRDS: [&str; 4] = [
    "The puffin nests in burrows on cliffs.",
    "The heron nests in trees near the river.",
    "Ferries leave the river port at noon.",
    "Tickets are sold at the port.",
];

#[test]
fn scores_equal_bm25() {
    let ranking = search(&["red fish", "blue fish fish bird"], query("fish"), &plain());
    // Two of two chunks have the term; lengths 2 and 4, mean 3; k1 1.2, b 0.75.
    let idf = (1.0 + 0.5 / 2.5_f32).ln();
    let score = |count: f32, length: f32| idf * 2.2 * count / (count + 1.2 * (0.25 + 0.75 * length / 3.0));
    let found: Vec<(&str, f32)> = ranking.hits.iter().map(|hit| (hit.document.as_str(), hit.score)).collect();
    assert_eq!(found.len(), 2);
    for ((id, found), (expected_id, expected)) in
        found.into_iter().zip([("1", score(2.0, 4.0)), ("0", score(1.0, 2.0))])
    {
        assert_eq!(id, expected_id);
        assert!((found - expected * 1.0).abs() < 1e-5, "{found} in place of {expected}");
    }
}

#[test]
fn rare_terms_outweigh_frequent_ones() {
    let ranking = search(&BIRDS, query("Where does the puffin nest near the river?"), &plain());
    assert_eq!(ids(&ranking)[0], "1", "three terms before two");
    assert_eq!(
        ids(&search(&BIRDS, query("puffin or river"), &plain()))[0],
        "0",
        "a rare term before a frequent one"
    );
}

#[test]
fn function_words_count_only_in_a_query_of_function_words() {
    assert_eq!(ids(&search(&BIRDS, query("at the elephants"), &plain())), Vec::<&str>::new());
    assert_eq!(ids(&search(&BIRDS, query("at"), &plain())), ["3", "2"]);
}

#[test]
fn abbreviations_are_found_as_words() {
    let texts = [
        "The office in the U.K. is closed for the winter.",
        "The market of the UK has grown in the winter.",
        "The people of the U.S. are at the office.",
        "Visit us in the office at the port.",
        "Ferries, e.g. those of the port, are late at noon.",
    ];
    let found = |text: &str| {
        let ranking = search(&texts, query(text), &plain());
        ids(&ranking).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for text in ["the U.K.", "the UK", "in the uk"] {
        assert_eq!(found(text), ["0", "1"], "{text}");
    }
    assert_eq!(found("K."), Vec::<String>::new(), "a letter does not find it");
    assert_eq!(found("the office of the U.S."), ["2", "3", "0"]);
    assert_eq!(found("elephants of the US"), ["2", "3"], "a name, not the function word");
    assert_eq!(found("tell us of the port"), found("tell of the port"), "a function word");
    assert_eq!(found("e.g. elephants"), Vec::<String>::new(), "a function word");
    assert_eq!(found("e.g."), ["4"], "the only word of the query");
}

#[test]
fn equal_scores_are_ordered_by_document_and_place() {
    let ranking = search(&["same text", "same text", "same text"], query("same"), &plain());
    assert_eq!(ids(&ranking), ["0", "1", "2"]);
    let paragraph = format!("{} same", "other ".repeat(140));
    let long = [&paragraph, &paragraph[..]].join("\n\n");
    let ranking = search(&[&long], query("same"), &plain());
    assert_eq!(ranking.hits.iter().map(|hit| hit.chunk).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(ranking.hits[0].score, ranking.hits[1].score);
}

#[test]
fn the_query_before_gives_the_subject_of_an_elliptic_one() {
    let elliptic = Query { text: "And where are its nests?", previous: Some("What is a heron?") };
    let ranking = search(&BIRDS, elliptic, &plain());
    assert_eq!(ids(&ranking), ["1", "0"]);
    let origins: Vec<_> = ranking.terms.iter().map(|term| (term.term.as_str(), term.origin)).collect();
    assert_eq!(origins, [("nest", TermOrigin::Query), ("heron", TermOrigin::Previous)]);
    assert!((ranking.terms[0].weight / ranking.terms[1].weight - 5.0).abs() < 1e-3);
}

#[test]
fn rows_of_a_long_table_are_found_by_the_names_of_columns() {
    let rows: String = (0..60).map(|row| format!("| Town {row} | {} | open |\n", 7 * row)).collect();
    let text = format!("| Place | Inhabitants | Library |\n| --- | --- | --- |\n{rows}");
    let document =
        ExtractedText { text: text.clone(), format: TextFormat::Markdown, ..ExtractedText::default() };
    let index = DocIndex::build(&document, &StructuralChunker::default()).expect("the document is indexed");
    assert!(index.chunk_count() > 1, "the table is divided");
    let ranking = search_documents([("0".into(), &index)], &query("library in town 57"), &plain());
    let best = &ranking.hits[0];
    assert!(text[best.range.clone()].contains("| Town 57 |"), "the row is in the best hit");
    assert_eq!(best.heading.as_deref(), Some("| Place | Inhabitants | Library |"));
    assert_eq!(best.matched.len(), 3, "the name of the column is one of the terms: {best:?}");
}

#[test]
fn feedback_finds_what_the_words_of_the_query_do_not() {
    let texts = [
        "The marten is a small predator of the forest, called pine marten.",
        "Pine forest covers the hills.",
        "The harbour is deep.",
        "The market is open.",
    ];
    assert_eq!(ids(&search(&texts, query("marten"), &plain())), ["0"]);
    let ranking = search(&texts, query("marten"), &SearchOptions::default());
    assert_eq!(ids(&ranking), ["0", "1"]);
    assert!(!ranking.hits[1].is_relevant, "it has no word of the query");
    let added = ranking.terms.iter().filter(|term| term.origin == TermOrigin::Feedback);
    assert!(added.clone().any(|term| term.term == "pine"), "{ranking:?}");
    let share: f32 = added.map(|term| term.weight).sum();
    assert!((share - 0.2).abs() < 1e-3, "feedback has {share} of the weights");
    let total: f32 = ranking.terms.iter().map(|term| term.weight).sum();
    assert!((total - 1.0).abs() < 1e-3, "the weights add up to {total}");
}

#[test]
fn hits_are_explained_by_their_terms() {
    let ranking = search(&BIRDS, query("heron nests in the port"), &plain());
    let explained: Vec<(&str, Vec<&str>)> = ranking
        .hits
        .iter()
        .map(|hit| {
            let matched = hit.matched.iter().map(|&term| ranking.terms[term].term.as_str()).collect();
            (hit.document.as_str(), matched)
        })
        .collect();
    let expected =
        [("1", vec!["heron", "nest"]), ("3", vec!["port"]), ("0", vec!["nest"]), ("2", vec!["port"])];
    assert_eq!(explained, expected);
    let heron = &ranking.terms[0];
    assert!((heron.idf - (1.0 + 3.5 / 1.5_f32).ln()).abs() < 1e-5);
}

#[test]
fn hits_with_few_of_the_words_are_not_relevant() {
    let ranking = search(&BIRDS, query("heron"), &SearchOptions::default());
    assert!(ranking.is_relevant() && ranking.relevance > 0.3, "{ranking:?}");
    let foreign =
        "Which glacier feeds the hydroelectric reservoir of the northernmost aluminium smelter port?";
    let ranking = search(&BIRDS, query(foreign), &SearchOptions { min_relevance: 0.08, ..plain() });
    assert!(!ranking.is_relevant(), "one frequent word of nine: {ranking:?}");
    assert!(!ranking.hits.is_empty(), "hits below the minimum are shown");
}

#[test]
fn a_query_in_a_script_without_spaces_needs_half_of_the_relevance() {
    let texts = ["搜索引擎的结果", "天气很好", "河流和山"];
    let ranking = search(&texts, query("搜索方法和工具的历史发展"), &plain());
    let relevance = ranking.hits[0].relevance;
    let with_minimum = |min_relevance: f32| {
        search(&texts, query("搜索方法和工具的历史发展"), &SearchOptions { min_relevance, ..plain() })
            .is_relevant()
    };
    assert!(with_minimum(relevance * 1.9) && !with_minimum(relevance * 2.1), "{relevance}");
}

#[test]
fn a_long_chunk_among_many_short_ones_is_relevant() {
    // Each chunk of one long word has one term.
    let long_word = "w".repeat(300 * 900);
    let manual = format!("The boiler in the cellar is serviced in autumn. {}", BIRDS.join(" ").repeat(2));
    let ranking = search(&[&long_word, &manual], query("boiler in the cellar"), &plain());
    assert_eq!(ids(&ranking), ["1"]);
    assert!(ranking.is_relevant(), "{}", ranking.relevance);
    // A text without spaces has a term for each character.
    let chinese: String = ('\u{4e00}'..'\u{5120}').chain("搜索引擎".chars()).collect();
    let texts: Vec<&str> = std::iter::repeat_n(BIRDS, 12).flatten().chain([&*chinese]).collect();
    let ranking = search(&texts, query("搜索引擎"), &plain());
    assert_eq!(ids(&ranking), ["48"]);
    assert!(ranking.is_relevant(), "{}", ranking.relevance);
}

#[test]
fn a_query_is_analyzed_in_the_languages_of_the_scope() {
    let texts = [
        "Die Häuser der Altstadt wurden im letzten Jahrhundert von Handwerkern gebaut und später erneuert.",
        "The runners were training for the marathon in the mountains during the whole summer of that year.",
    ];
    assert_eq!(ids(&search(&texts, query("Haus"), &plain())), ["0"]);
    assert_eq!(ids(&search(&texts, query("mountain train"), &plain())), ["1"]);
}

#[test]
fn hostile_queries_are_bounded() {
    for text in
        ["x".repeat(1_000_000), "word ".repeat(200_000), "\u{200b}".repeat(300_000), "漢字".repeat(150_000)]
    {
        let ranking = search(&BIRDS, Query { text: &text, previous: Some(&text) }, &SearchOptions::default());
        assert!(ranking.terms.len() <= 140, "{} terms", ranking.terms.len());
    }
    let distinct: String = (0..200_000).map(|number| format!("w{number} ")).collect();
    let at_the_end = format!("{distinct} puffin");
    let ranking = search(&BIRDS, query(&at_the_end), &SearchOptions::default());
    assert_eq!(ids(&ranking).first(), Some(&"0"), "the end of a long text is read");
    assert_eq!(search(&BIRDS, query(""), &SearchOptions::default()).hits, []);
    assert_eq!(search(&[], query("puffin"), &SearchOptions::default()).hits, []);
    let none = SearchOptions { limit: 0, ..SearchOptions::default() };
    assert_eq!(search(&BIRDS, query("puffin"), &none).hits, []);
}

#[test]
fn similar_chunks_are_combined_with_those_that_share_words() {
    let dense_hits = |list: &[(&str, u32, f32)]| -> Vec<DenseHit> {
        let hit =
            |&(id, chunk, similarity): &(&str, u32, f32)| DenseHit { document: id.into(), chunk, similarity };
        list.iter().map(hit).collect()
    };
    let fused = |hits: &[DenseHit], weight: f32| {
        let dense = DenseRanking { hits, weight, min_similarity: 0.7 };
        search(&BIRDS, query("puffin nests"), &SearchOptions { dense: Some(dense), ..plain() })
    };
    // By words: 0, then 1.
    let hits = dense_hits(&[("2", 0, 0.9), ("1", 0, 0.8), ("0", 0, 0.1)]);
    assert_eq!(ids(&fused(&hits, 0.5)), ["0", "2", "1"]);
    assert_eq!(ids(&fused(&hits, 0.9)), ["2", "1", "0"]);
    let ranking = fused(&hits, 0.9);
    assert_eq!((ranking.hits[0].dense, ranking.hits[0].lexical), (Some(0.9), 0.0));
    assert!(ranking.hits[0].is_relevant, "similar enough without a common word");
    // Without weight, and with hits that mean nothing, the order is the lexical one.
    let nonsense = dense_hits(&[("9", 0, 0.9), ("2", 7, 0.9), ("1", u32::MAX, 0.9), ("1", 0, f32::NAN)]);
    assert_eq!(ids(&fused(&nonsense, 0.5)), ["0", "1"]);
    assert_eq!(ids(&fused(&hits, 0.0))[..2], ["0", "1"]);
}

#[test]
fn a_language_is_searched_by_its_own_stems() {
    // "mares" is "mar" in Spanish, which is "sea"; in English it is an animal.
    let texts = [
        "The mare was in the stable, and the horses were all in the field with the other animals of the farm.",
        "It will mar the surface of the table if you put the hot pan on it without a mat, as we all know.",
        "Los mares del sur son los que tienen las aguas que más se han calentado en los años de este siglo.",
    ];
    let ranking = search(&texts, query("mares"), &plain());
    assert_eq!(ids(&ranking), ["0", "2"], "{ranking:?}");
}
