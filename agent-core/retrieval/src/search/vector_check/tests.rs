//! Tests of the check with made-up texts on topics, and with embedders that do and do not know them.

use std::collections::BTreeSet;

use super::*;
use crate::analysis::term_hash;
use crate::chunk::StructuralChunker;
use crate::company::{CompanyIndex, DocumentChange, SearchScope};
use crate::doc_index::{DocIndex, Vectors};
use crate::document::{DocumentId, ExtractedText};

const DIMENSIONS: usize = 128;
const EMBEDDER: &str = "e";
const TOPICS: usize = 40;

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// Returns a vector of about the length 1 in a random direction.
    fn vector(&mut self) -> Vec<f32> {
        let mut uniform = || (self.number() >> 40) as f32 / (1 << 24) as f32 - 0.5;
        let vector: Vec<f32> = (0..DIMENSIONS).map(|_| uniform() + uniform() + uniform()).collect();
        scaled(&vector, 1.0)
    }
}

fn scaled(vector: &[f32], length: f32) -> Vec<f32> {
    let norm = vector.iter().map(|component| component * component).sum::<f32>().sqrt();
    vector.iter().map(|component| component / norm * length).collect()
}

fn sum(left: &[f32], right: &[f32]) -> Vec<f32> {
    left.iter().zip(right).map(|(left, right)| left + right).collect()
}

/// Returns the made-up word of a number below 10,000; in German it has an umlaut before it.
fn word(number: usize, is_german: bool) -> String {
    const SYLLABLES: [&str; 10] = ["bak", "dof", "kig", "lup", "mek", "nod", "pag", "rib", "sov", "tuk"];
    let digits = [number / 1000 % 10, number / 100 % 10, number / 10 % 10, number % 10];
    let word = digits.map(|digit| SYLLABLES[digit]).concat();
    if is_german { format!("ü{word}") } else { word }
}

/// Returns a text with words of a topic, words that all texts may have, and words that it has alone.
fn text(number: usize, is_german: bool) -> String {
    let mut random = Random(number as u64);
    let mut words: Vec<usize> = (0..10).map(|_| number % TOPICS * 20 + random.below(20)).collect();
    words.extend((0..12).map(|_| 9_000 + random.below(60)));
    words.extend((0..4).map(|only| 1_000 + number * 4 + only));
    let words: Vec<String> = words.into_iter().map(|number| word(number, is_german)).collect();
    let before = match is_german {
        true => "Das ist der Text, der von denen ist, die hier in dem Haus sind und nicht",
        false => "This is the text that was by those who are here in the house and not",
    };
    format!("{before} {}.", words.join(" "))
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| text(number, false)).collect()
}

/// Returns the sum of random vectors of the made-up words, with noise of the text's own. A word has the vector of its translation.
fn meaning(text: &str, noise: f32) -> Vec<f32> {
    let words = text.split_whitespace().map(|word| word.trim_end_matches('.').trim_start_matches('ü'));
    let made_up = words.filter(|word| word.len() == 12);
    let vectors = made_up.map(|word| Random(term_hash(word)).vector());
    let total = vectors.fold(vec![0.0; DIMENSIONS], |total, vector| sum(&total, &vector));
    sum(&scaled(&total, 1.0), &scaled(&Random(term_hash(text)).vector(), noise))
}

fn meanings(texts: &[String], noise: f32) -> Vec<Vec<f32>> {
    texts.iter().map(|text| meaning(text, noise)).collect()
}

/// Returns a vector of each text's own; equal texts have equal vectors.
fn unrelated(texts: &[String], seed: u64) -> Vec<Vec<f32>> {
    texts
        .iter()
        .map(|text| Random(term_hash(text) ^ seed.wrapping_mul(0x5851_f42d_4c95_7f2d)).vector())
        .collect()
}

fn put(number: usize, text: &str, vector: Option<&Vec<f32>>, embedder: &str) -> DocumentChange {
    let document = ExtractedText { text: text.to_owned(), ..ExtractedText::default() };
    let index = DocIndex::build(&document, &StructuralChunker::default()).expect("the document is indexed");
    assert_eq!(index.chunk_count(), 1);
    let dimensions = vector.map_or(DIMENSIONS, Vec::len);
    let vectors = Vectors::quantize(embedder, dimensions, &[vector]).expect("the vector is stored");
    DocumentChange::Put(id(number), index.with_vectors(Some(vectors)).expect("a chunk").into())
}

fn id(number: usize) -> DocumentId {
    format!("document {number}").into()
}

fn company(texts: &[String], vectors: &[Vec<f32>]) -> CompanyIndex {
    let mut company = CompanyIndex::new();
    let documents = texts.iter().zip(vectors).enumerate();
    company.apply(documents.map(|(number, (text, vector))| put(number, text, Some(vector), EMBEDDER)));
    company
}

fn check(company: &CompanyIndex) -> VectorCheck {
    company.check_vectors(SearchScope::All, &EmbedderId::new(EMBEDDER))
}

fn check_of(texts: &[String], vectors: &[Vec<f32>]) -> VectorCheck {
    check(&company(texts, vectors))
}

#[test]
fn meaningful_vectors_are_distinguished_from_meaningless_ones() {
    let texts = texts(240);
    let meanings = meanings(&texts, 0.0);
    let found = check_of(&texts, &meanings);
    assert_eq!((found.quality, found.pairs), (VectorQuality::Informative, MAX_PAIRS), "{found:?}");
    for seed in 0..8 {
        let found = check_of(&texts, &unrelated(&texts, seed));
        assert_eq!((found.quality, found.pairs), (VectorQuality::Uninformative, MAX_PAIRS), "{found:?}");
        // The vectors of other texts.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&number| Random(number as u64 ^ seed << 32).number());
        let shuffled: Vec<Vec<f32>> = order.iter().map(|&number| meanings[number].clone()).collect();
        let found = check_of(&texts, &shuffled);
        assert_eq!((found.quality, found.pairs), (VectorQuality::Uninformative, MAX_PAIRS), "{found:?}");
    }
}

#[test]
fn nearly_parallel_vectors_are_judged_by_their_differences() {
    let texts = texts(240);
    let common = scaled(&Random(7).vector(), 3.0);
    let shifted = |vectors: Vec<Vec<f32>>| -> Vec<Vec<f32>> {
        vectors.iter().map(|vector| sum(vector, &common)).collect()
    };
    let found = check_of(&texts, &shifted(meanings(&texts, 0.0)));
    assert_eq!(found.quality, VectorQuality::Informative, "{found:?}");
    let found = check_of(&texts, &shifted(unrelated(&texts, 1)));
    assert_eq!(found.quality, VectorQuality::Uninformative, "{found:?}");
}

#[test]
fn equal_vectors_have_no_meaning() {
    let texts = texts(240);
    let equal = VectorCheck { quality: VectorQuality::Uninformative, pairs: 0, standard_score: 0.0 };
    for count in [MIN_EQUAL_VECTORS, 240] {
        let vector = Random(1).vector();
        assert_eq!(check_of(&texts[..count], &vec![vector; count]), equal);
    }
    let few = check_of(&texts[..MIN_EQUAL_VECTORS - 1], &vec![Random(1).vector(); MIN_EQUAL_VECTORS - 1]);
    assert_eq!(few.quality, VectorQuality::Undecided, "a few texts may be alike");
    // Equal texts have equal vectors whatever the model.
    let same = vec![texts[0].clone(); 40];
    assert_eq!(check_of(&same, &meanings(&same, 0.0)).quality, VectorQuality::Undecided);
    // One text with another vector does not give the others a meaning.
    let mut vectors = vec![Random(1).vector(); 240];
    vectors[3] = Random(2).vector();
    assert_eq!(check_of(&texts, &vectors).quality, VectorQuality::Uninformative);
}

#[test]
fn a_model_is_kept_until_noise_drowns_its_meaning() {
    let texts = texts(240);
    let checks = [0.0, 0.5, 1.0, 30.0].map(|noise| check_of(&texts, &meanings(&texts, noise)));
    let qualities = checks.map(|check| check.quality);
    let informative = VectorQuality::Informative;
    assert_eq!(
        qualities,
        [informative, informative, informative, VectorQuality::Uninformative],
        "{checks:?}"
    );
    assert!(checks[0].standard_score > checks[2].standard_score + 1.0, "{checks:?}");
    assert!(checks[2].standard_score > checks[3].standard_score + 1.0, "{checks:?}");
}

#[test]
fn a_model_of_several_languages_is_kept() {
    let texts: Vec<String> = (0..240).map(|number| text(number / 2, number % 2 == 1)).collect();
    let found = check_of(&texts, &meanings(&texts, 0.0));
    assert_eq!(found.quality, VectorQuality::Informative, "{found:?}");
    let found = check_of(&texts, &unrelated(&texts, 1));
    assert_eq!(found.quality, VectorQuality::Uninformative, "{found:?}");
}

#[test]
fn equal_texts_do_not_prove_a_meaning() {
    // Vectors of each text's own are equal for equal texts.
    let texts: Vec<String> = (0..480).map(|number| text(number % 120, false)).collect();
    let found = check_of(&texts, &unrelated(&texts, 3));
    assert_eq!(found.quality, VectorQuality::Uninformative, "{found:?}");
}

#[test]
fn too_few_related_texts_give_no_result() {
    let undecided = |texts: &[String]| {
        let found = check_of(texts, &unrelated(texts, 1));
        assert_eq!((found.quality, found.standard_score), (VectorQuality::Undecided, 0.0), "{found:?}");
        assert!(found.pairs < MIN_PAIRS, "{found:?}");
    };
    undecided(&[]);
    undecided(&texts(2 * MIN_PAIRS - 1));
    // Texts that have nothing but frequent words in common.
    let unlike = |number: usize| {
        format!("This is the text that was here: {} {}.", word(number, false), word(9_999, false))
    };
    undecided(&(0..240).map(unlike).collect::<Vec<_>>());
}

#[test]
fn only_vectors_of_the_embedder_count() {
    let texts = texts(240);
    let vectors = meanings(&texts, 0.0);
    let mut mixed = company(&texts, &vectors);
    let alone = check(&mixed);
    let other =
        |number: usize| put(1_000 + number, &text(number + 240, false), Some(&vectors[number]), "other");
    mixed.apply((0..200).map(other));
    let without = |number: usize| put(2_000 + number, &text(number + 480, false), None, EMBEDDER);
    mixed.apply((0..200).map(without));
    assert_eq!(check(&mixed), alone);
    assert_eq!(
        company(&texts, &vectors).check_vectors(SearchScope::All, &EmbedderId::new("none")).quality,
        VectorQuality::Undecided
    );
    // Vectors with other numbers of components cannot be compared.
    let short = |number: usize| {
        put(number, &texts[number], Some(&vectors[number][..number % 8 + 8].to_vec()), EMBEDDER)
    };
    let mut dimensions = CompanyIndex::new();
    dimensions.apply((0..240).map(short));
    assert_eq!(check(&dimensions).quality, VectorQuality::Undecided);
}

#[test]
fn the_result_depends_only_on_the_documents_of_the_scope() {
    let texts = texts(300);
    for (vectors, quality) in [
        (meanings(&texts, 1.0), VectorQuality::Informative),
        (unrelated(&texts, 1), VectorQuality::Uninformative),
    ] {
        let all = company(&texts, &vectors);
        let expected = check(&company(&texts[..200], &vectors[..200]));
        assert_eq!(expected.quality, quality, "{expected:?}");
        let scope: BTreeSet<DocumentId> = (0..200).map(id).collect();
        assert_eq!(all.check_vectors(SearchScope::Documents(&scope), &EmbedderId::new(EMBEDDER)), expected);
        // One after another, backwards, after other versions and other documents.
        let mut history = CompanyIndex::new();
        history.apply(
            (0..300).map(|number| put(number, &texts[299 - number], Some(&vectors[number]), EMBEDDER)),
        );
        for number in (0..200).rev() {
            history.apply([put(number, &texts[number], Some(&vectors[number]), EMBEDDER)]);
        }
        history.apply((200..300).map(|number| DocumentChange::Remove(id(number))));
        assert_eq!(check(&history), expected);
        assert_ne!(check(&all), expected, "further documents count");
    }
}

#[test]
fn adjacent_chunks_of_a_document_are_related() {
    // Each paragraph has words of its own, and the chunks overlap.
    let paragraph = |number: usize| {
        let words: Vec<String> = (0..24).map(|at| word(number * 12 + at, false)).collect();
        format!("This is the text that was here: {}.", words.join(" "))
    };
    let content = (0..400).map(paragraph).collect::<Vec<_>>().join("\n\n");
    let document = ExtractedText { text: content.clone(), ..ExtractedText::default() };
    let index = DocIndex::build(&document, &StructuralChunker::default()).expect("the document is indexed");
    let chunks: Vec<String> = index.chunk_ranges().map(|range| content[range].to_owned()).collect();
    assert!(chunks.len() > 2 * MAX_PAIRS, "{} chunks", chunks.len());
    for (vectors, quality) in [
        (meanings(&chunks, 0.0), VectorQuality::Informative),
        (unrelated(&chunks, 1), VectorQuality::Uninformative),
    ] {
        let vectors: Vec<Option<Vec<f32>>> = vectors.into_iter().map(Some).collect();
        let vectors = Vectors::quantize(EMBEDDER, DIMENSIONS, &vectors).expect("the vectors are stored");
        let index = index.clone().with_vectors(Some(vectors)).expect("as many as chunks");
        let mut company = CompanyIndex::new();
        company.apply([DocumentChange::Put(id(0), index.into())]);
        assert_eq!(check(&company).quality, quality);
    }
}
