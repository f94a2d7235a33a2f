use super::*;
use crate::search::Ranking;

const TEXT: &str = "alpha one.bravo two.charlie three.delta four.echo five.";
const RANGES: [Range<usize>; 5] = [0..10, 10..20, 20..34, 34..45, 45..55];

fn hit(document: &str, chunk: u32, score: f32) -> Hit {
    Hit {
        document: document.into(),
        title: document.into(),
        chunk,
        range: RANGES[chunk as usize].clone(),
        heading: None,
        page: Some(chunk + 1),
        score,
        lexical: score,
        dense: None,
        relevance: 0.5,
        is_relevant: true,
        matched: Vec::new(),
    }
}

fn ranking(hits: Vec<Hit>) -> Ranking {
    Ranking { hits, documents: 9, ..Ranking::default() }
}

/// Packs with one token a word; documents have the same text with their own name before each chunk's.
fn packed(ranking: &Ranking, max_tokens: usize) -> PackedFragments {
    let text_of = |document: &DocumentId, range: Range<usize>| {
        let text = TEXT.get(range)?;
        (document.as_str() != "gone").then(|| {
            if document.as_str().starts_with("copy") { text.into() } else { format!("{document} {text}") }
        })
    };
    pack(ranking, max_tokens, text_of, |text| text.split_whitespace().count())
}

fn outcomes(hits: Vec<Hit>, max_tokens: usize) -> Vec<PackOutcome> {
    packed(&ranking(hits), max_tokens).outcomes
}

#[test]
fn neighbours_become_one_fragment_with_the_rank_of_the_best() {
    let hits = vec![hit("a", 1, 5.0), hit("b", 0, 4.0), hit("a", 3, 3.0), hit("a", 2, 2.0)];
    let packed = packed(&ranking(hits), 100);
    let shown: Vec<_> = packed
        .fragments
        .iter()
        .map(|fragment| {
            (fragment.text.as_str(), fragment.range.clone(), fragment.page, fragment.hits.clone())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("a bravo two.charlie three.delta four.", 10..45, Some(2), vec![0, 2, 3]),
            ("b alpha one.", 0..10, Some(1), vec![1]),
        ]
    );
    assert_eq!(packed.fragments[0].score, 5.0);
    assert_eq!(packed.tokens, (5 + 1) + (3 + 1), "with the titles");
}

#[test]
fn the_budget_is_never_exceeded_and_smaller_hits_still_fit() {
    let mut long = hit("b", 0, 4.0);
    long.range = 0..55;
    let hits = vec![hit("a", 0, 5.0), long, hit("c", 4, 3.0)];
    let packed = packed(&ranking(hits), 8);
    assert_eq!(packed.outcomes, [PackOutcome::Kept, PackOutcome::Budget, PackOutcome::Kept]);
    assert_eq!(packed.tokens, 8);
    assert_eq!(outcomes(vec![hit("a", 0, 5.0)], 0), [PackOutcome::Budget]);
}

#[test]
fn titles_and_headings_count() {
    let mut headed = hit("a", 0, 5.0);
    headed.title = "Handbook of travel".into();
    headed.heading = Some("Costs > Trains".into());
    assert_eq!(packed(&ranking(vec![headed.clone()]), 9).tokens, 3 + 3 + 3);
    assert_eq!(packed(&ranking(vec![headed.clone()]), 8).fragments[0].text, "a alpha");
    assert_eq!(outcomes(vec![headed], 6), [PackOutcome::Budget]);
}

#[test]
fn the_best_of_hits_that_do_not_fit_is_cut() {
    let text = format!("Rows: {} the end.", "名".repeat(300));
    let pack_within = |max_tokens: usize| {
        let mut hits = vec![hit("b", 0, 5.0), hit("a", 1, 4.0)];
        hits[0].heading = Some("Names".into());
        (hits[0].range, hits[1].range) = (7..7 + text.len(), 0..text.len());
        let text_of = |document: &DocumentId, _| (document.as_str() == "b").then(|| text.clone());
        pack(&ranking(hits), max_tokens, text_of, |text| text.chars().count())
    };
    let whole = text.chars().count() + "bNames".len();
    assert_eq!(pack_within(whole).fragments[0].range, 7..7 + text.len());
    for (max_tokens, expected) in [
        (whole - 1, &text[..text.len() - " end.".len()]),
        (60, &text[.."Rows: ".len() + 3 * 48]),
        (12, "Rows:"),
    ] {
        let packed = pack_within(max_tokens);
        assert_eq!(packed.outcomes, [PackOutcome::Kept, PackOutcome::Unavailable]);
        assert_eq!(packed.fragments[0].text, expected, "{max_tokens}");
        assert_eq!(packed.fragments[0].range, 7..7 + expected.len());
        assert!(packed.tokens <= max_tokens, "{}", packed.tokens);
    }
    for max_tokens in [0, 5, 6] {
        let packed = pack_within(max_tokens);
        assert_eq!(packed.outcomes, [PackOutcome::Budget, PackOutcome::Unavailable], "{max_tokens}");
        assert!(packed.fragments.is_empty());
    }
}

#[test]
fn a_document_has_three_fragments_unless_it_is_alone() {
    let mut hits: Vec<Hit> = [0, 2, 4].map(|chunk| hit("a", chunk, 1.0)).into();
    let mut far = hit("a", 0, 0.5);
    (far.chunk, far.range) = (9, 15..25);
    hits.push(far);
    hits.push(hit("a", 1, 0.1));
    use PackOutcome::{Kept, PerDocument};
    assert_eq!(outcomes(hits.clone(), 100), [Kept, Kept, Kept, PerDocument, Kept]);
    let alone = Ranking { documents: 1, ..ranking(hits) };
    assert_eq!(packed(&alone, 100).outcomes, [Kept; 5]);
}

#[test]
fn repeated_irrelevant_and_missing_texts_are_left_out() {
    let mut weak = hit("b", 1, 1.0);
    weak.is_relevant = false;
    let hits =
        vec![hit("copy", 0, 5.0), hit("copy", 0, 4.0), hit("copy of it", 0, 3.0), hit("gone", 1, 2.0), weak];
    use PackOutcome::{Duplicate, Irrelevant, Kept, Unavailable};
    assert_eq!(outcomes(hits, 100), [Kept, Duplicate, Duplicate, Unavailable, Irrelevant]);
}

#[test]
fn a_text_is_found_wherever_another_contains_it() {
    let texts = [
        "a".repeat(200),
        "a".repeat(100) + "b",
        "a".repeat(100),
        // Contained in longer runs at positions that are not a multiple of the probe's length.
        "a".repeat(60) + "b",
        "a".repeat(33) + "b",
        "a".repeat(60) + "b" + &"a".repeat(60) + "b",
        "ab".repeat(70),
        "b".to_owned() + &"ab".repeat(30),
        TEXT.repeat(3),
        TEXT[7..].to_owned(),
        String::new(),
    ];
    for text in &texts {
        for other in &texts {
            let expected = other.contains(text.as_str());
            assert_eq!(SearchedText::new(text).is_part_of(other), expected, "{text:?} in {other:?}");
        }
    }
}
