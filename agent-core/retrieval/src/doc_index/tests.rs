use std::hash::Hasher;

use proptest::prelude::*;

use super::*;
use crate::chunk::{Chunk, Chunker, StructuralChunker};
use crate::document::{DocumentId, ExtractedText, TextFormat};
use crate::search::{Query, SearchOptions, search_documents};

const GOLDEN: &[u8] = include_bytes!("../../tests/golden/doc_index_v7.bin");

fn document() -> ExtractedText {
    ExtractedText {
        title: "Handbook".into(),
        text: "# Travel\n\nTrains are booked by the office.\n\n# Costs\n\nReceipts are kept for ten years. 領収書\n".into(),
        format: TextFormat::Markdown,
        page_starts: vec![0, 44],
    }
}

fn index() -> DocIndex {
    let chunker = StructuralChunker::new(45, 10);
    let index = DocIndex::build(&document(), &chunker).expect("the document is indexed");
    let vectors =
        Vectors::quantize("test:1", 3, &[Some(vec![1.0, 0.5, -2.0]), None]).expect("vectors are stored");
    index.with_vectors(Some(vectors)).expect("as many vectors as chunks")
}

/// Returns the body of encoded bytes with a head that has the right checksum.
fn with_checksum(body: &[u8]) -> Vec<u8> {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(body);
    [b"ADIX", &FORMAT_VERSION.to_le_bytes()[..], &hasher.finish().to_le_bytes(), body].concat()
}

#[test]
fn an_index_has_the_chunks_with_their_places() {
    let index = index();
    let text = document().text;
    let chunks: Vec<&str> = index.chunk_ranges().map(|range| &text[range]).collect();
    assert_eq!(
        chunks,
        [
            "# Travel\n\nTrains are booked by the office.",
            "# Costs\n\nReceipts are kept for ten years. 領収書"
        ]
    );
    assert_eq!(index.language(), Language::English);
    assert_eq!(index.locations[1].page, 2);
    assert_eq!(index.labels.headings.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["Travel", "Costs"]);
    let query = Query { text: "handbook costs", previous: None };
    let hits = search_documents([(DocumentId::from("h"), &index)], &query, &SearchOptions::default()).hits;
    assert_eq!(hits[0].heading.as_deref(), Some("Costs"), "titles and headings are indexed: {hits:?}");
}

#[test]
fn format_version_7_is_read_and_written() {
    let index = index();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/doc_index_v7.bin");
        std::fs::write(path, index.encode()).expect("the golden file is written");
        return;
    }
    assert_eq!(DocIndex::decode(GOLDEN).expect("the golden file is an index"), index);
    assert!(index.encode() == GOLDEN, "the format changed without a new version");
}

#[test]
fn an_index_of_nothing_is_an_index() {
    let index = DocIndex::build(&ExtractedText::default(), &StructuralChunker::default())
        .expect("nothing is indexed");
    assert_eq!(index.chunk_count(), 0);
    assert_eq!(DocIndex::decode(&index.encode()), Ok(index));
}

#[test]
fn errors_name_the_fault() {
    assert_eq!(DocIndex::decode(b""), Err(DecodeError::NotAnIndex));
    assert_eq!(DocIndex::decode(b"%PDF-1.7"), Err(DecodeError::NotAnIndex));
    let mut other = GOLDEN.to_vec();
    // The headings of chunks were others in version 6.
    for version in [6, 8] {
        other[4] = version;
        assert_eq!(DocIndex::decode(&other), Err(DecodeError::Version(version.into())));
    }
    let mut damaged = GOLDEN.to_vec();
    *damaged.last_mut().expect("not empty") ^= 1;
    assert_eq!(DocIndex::decode(&damaged), Err(DecodeError::Checksum));
    assert_eq!(DocIndex::decode(&GOLDEN[..GOLDEN.len() - 1]), Err(DecodeError::Checksum));
    let body = &GOLDEN[14..];
    assert_eq!(
        DocIndex::decode(&with_checksum(&[body, &[0]].concat())),
        Err(DecodeError::Invalid("bytes after the end"))
    );
    assert_eq!(DocIndex::decode(&with_checksum(&[200])), Err(DecodeError::Invalid("unknown language")));
}

#[test]
fn counts_larger_than_the_input_allocate_nothing() {
    // English, no title, 2^32 - 1 headings.
    let bytes = with_checksum(&[4, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(DocIndex::decode(&bytes), Err(DecodeError::Invalid("more items than bytes")));
    // The same number of chunks, and of terms.
    let bytes = with_checksum(&[4, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(DocIndex::decode(&bytes), Err(DecodeError::Invalid("more items than bytes")));
    let bytes = with_checksum(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(DocIndex::decode(&bytes), Err(DecodeError::Invalid("more items than bytes")));
    // A title of 2^35 bytes.
    let bytes = with_checksum(&[4, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert_eq!(DocIndex::decode(&bytes), Err(DecodeError::Invalid("number too long")));
}

#[test]
fn chunkers_that_break_their_contract_are_refused() {
    struct Broken(Vec<(usize, usize)>);
    impl Chunker for Broken {
        fn id(&self) -> String {
            "broken".to_owned()
        }

        fn chunk(&self, _: &ExtractedText) -> Vec<Chunk> {
            self.0.iter().map(|&(start, end)| Chunk { start, end, heading: None, page: None }).collect()
        }
    }
    let document = ExtractedText { text: "äbc".into(), ..ExtractedText::default() };
    for ranges in [vec![(0, 9)], vec![(1, 3)], vec![(2, 2)], vec![(3, 2)], vec![(2, 3), (0, 2)]] {
        let (start, end) = *ranges.last().expect("not empty");
        assert_eq!(DocIndex::build(&document, &Broken(ranges)), Err(BuildError::InvalidChunk(start, end)));
    }
}

#[test]
fn vectors_are_checked_before_they_are_stored() {
    let quantize = |vector: Vec<f32>| Vectors::quantize("e", 2, &[Some(vector)]).map(|_| ());
    assert_eq!(quantize(vec![1.0, 2.0]), Ok(()));
    assert_eq!(quantize(vec![1.0]), Err(VectorsError::Dimensions { expected: 2, found: 1 }));
    for vector in [[f32::NAN, 1.0], [f32::INFINITY, 1.0], [0.0, 0.0]] {
        assert_eq!(quantize(vector.to_vec()), Err(VectorsError::NotFinite));
    }
    let none: [Option<Vec<f32>>; 0] = [];
    assert_eq!(Vectors::quantize("e", 0, &none), Err(VectorsError::Embedder));
    assert_eq!(Vectors::quantize(&"e".repeat(1000), 2, &none), Err(VectorsError::Embedder));
    let vectors = Vectors::quantize("e", 2, &none).expect("no vectors are stored");
    assert_eq!(index().with_vectors(Some(vectors)), Err(VectorsError::Count { expected: 2, found: 0 }));
}

#[test]
fn vectors_take_only_the_memory_that_they_need() {
    let vectors = vec![Some(vec![1.0; 384]); 20];
    let stored = Vectors::quantize("e", 384, &vectors).expect("vectors are stored");
    let rows = 20 * (384 + size_of::<f32>() + size_of::<u64>());
    assert_eq!(stored.memory_bytes(), 1 + rows + size_of::<Vectors>() + 2 * size_of::<usize>());
    assert!(stored.memory_bytes() <= 20 * 400, "{} bytes", stored.memory_bytes());
}

#[test]
fn vectors_are_found_by_their_chunks() {
    let vector = |number: usize| (number % 3 != 1).then(|| vec![1.0, number as f32]);
    for vectors in [(0..9).map(vector).collect::<Vec<_>>(), (0..9).map(|at| vector(3 * at)).collect()] {
        let stored = Vectors::quantize("e", 2, &vectors).expect("vectors are stored");
        for (chunk, row) in stored.rows().enumerate() {
            let found = stored.row(chunk).map(|row| (row.scale, row.components));
            assert_eq!(found, row.map(|row| (row.scale, row.components)), "{chunk}");
        }
        assert!(stored.row(9).is_none());
        let row = |chunk: usize| stored.row(chunk).expect("it has a vector");
        let cosines = cosines(&[row(0), row(2)], &[row(0), row(3)]);
        let expected = [1.0, cosine(&vectors, 0, 3), cosine(&vectors, 2, 0), cosine(&vectors, 2, 3)];
        let is_near = |(found, expected): (&f32, f32)| (found - expected).abs() < 0.01;
        assert!(cosines.len() == 4 && cosines.iter().zip(expected).all(is_near), "{cosines:?} {expected:?}");
    }
}

fn cosine(vectors: &[Option<Vec<f32>>], left: usize, right: usize) -> f32 {
    let [left, right] = [left, right].map(|chunk| vectors[chunk].as_ref().expect("it has a vector"));
    let product = |left: &[f32], right: &[f32]| left.iter().zip(right).map(|(l, r)| l * r).sum::<f32>();
    product(left, right) / (product(left, left) * product(right, right)).sqrt()
}

#[test]
fn similarities_are_cosines() {
    let vectors =
        Vectors::quantize("e", 2, &[Some(vec![3.0, 4.0]), None, Some(vec![-4.0, 3.0])]).expect("stored");
    let similarities = |embedder: &str, query: &[f32], method| {
        let query = QuantizedQuery::new(embedder, query, method).expect("a query");
        let mut found = Vec::new();
        vectors.for_each_similarity(&query, &mut Vec::new(), |chunk, similarity| {
            found.push((chunk, similarity))
        });
        found
    };
    let found = similarities("e", &[6.0, 8.0], DotProducts::Wide);
    assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), [0, 2], "a chunk has no vector");
    assert!((found[0].1 - 1.0).abs() < 0.01 && found[1].1.abs() < 0.01, "{found:?}");
    assert_eq!(similarities("e", &[6.0, 8.0], DotProducts::Plain), found);
    assert_eq!(similarities("f", &[6.0, 8.0], DotProducts::Wide), [], "of another embedder");
    assert_eq!(similarities("e", &[6.0, 8.0, 1.0], DotProducts::Wide), [], "of other dimensions");
    for query in [&[f32::NAN, 1.0][..], &[0.0, 0.0], &[]] {
        assert!(QuantizedQuery::new("e", query, DotProducts::Wide).is_err());
    }
}

/// Decodes bytes, and if they are an index, uses it: a search must not meet an impossible value either.
fn decode_and_search(bytes: &[u8]) {
    if let Ok(decoded) = DocIndex::decode(bytes) {
        let query = Query { text: "trains office receipts 領収書", previous: None };
        search_documents([(DocumentId::from("d"), &decoded)], &query, &SearchOptions::default());
        let mut company = crate::company::CompanyIndex::new();
        company.apply([crate::company::DocumentChange::Put("d".into(), decoded.clone().into())]);
        company.search(crate::company::SearchScope::All, &query, &SearchOptions::default());
        assert_eq!(DocIndex::decode(&decoded.encode()), Ok(decoded));
    }
}

#[test]
fn every_byte_of_an_index_can_be_changed() {
    let body = &GOLDEN[14..];
    for position in 0..body.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, body[position] ^ 1, body[position].wrapping_add(1)] {
            let mut mutated = body.to_vec();
            mutated[position] = value;
            decode_and_search(&with_checksum(&mutated));
        }
        decode_and_search(&with_checksum(&body[..position]));
    }
}

proptest! {
    #[test]
    fn mutated_indexes_are_errors_or_indexes(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut body = GOLDEN[14..].to_vec();
        for (position, other, value) in cuts {
            let (position, other) = (position.index(body.len()), other.index(body.len()));
            match value % 4 {
                0 => body[position] = value,
                1 => body.insert(position, value),
                2 if body.len() > 1 => { body.remove(position); }
                _ => body.swap(position, other),
            }
        }
        decode_and_search(&with_checksum(&body));
    }

    #[test]
    fn arbitrary_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(DocIndex::decode(&bytes).is_err());
        decode_and_search(&with_checksum(&bytes));
    }

    #[test]
    fn every_index_is_read_as_it_was_written(text in "([a-zA-Zé漢]{1,8}[ .\n]{1,2}){0,60}", title in ".{0,20}") {
        let document = ExtractedText { title, text, format: TextFormat::Markdown, page_starts: vec![0] };
        let index = DocIndex::build(&document, &StructuralChunker::new(60, 20)).expect("the document is indexed");
        prop_assert_eq!(DocIndex::decode(&index.encode()), Ok(index));
    }
}

#[test]
fn a_chunk_is_embedded_below_its_title_and_heading() {
    let input = index().embedding_input(&document().text, 1);
    assert_eq!(input.as_deref(), Some("Handbook\nCosts\n# Costs\n\nReceipts are kept for ten years. 領収書"));
    assert_eq!(index().embedding_input(&document().text, 2), None);
    assert_eq!(index().embedding_input("another text", 1), None);
}

fn embeddings(vectors: &[[f32; 2]]) -> crate::embed::Embeddings {
    crate::embed::Embeddings::new(vectors.len(), vectors).expect("the vectors are valid")
}

#[test]
fn vectors_are_added_chunk_by_chunk() {
    let text = document().text;
    let index = index();
    let (old, new) = (crate::embed::EmbedderId::new("test:1"), crate::embed::EmbedderId::new("test:2"));
    assert_eq!(index.unembedded_chunks(&old), [1]);
    assert_eq!(index.unembedded_chunks(&new), [0, 1]);
    // Vectors of another embedder are dropped.
    let index = index.with_embeddings(&new, &text, &[1], &embeddings(&[[0.0, 2.0]])).expect("a chunk");
    assert_eq!(index.unembedded_chunks(&new), [0]);
    assert_eq!(index.unembedded_chunks(&old), [0, 1]);
    let index = index.with_embeddings(&new, &text, &[0], &embeddings(&[[1.0, 0.0]])).expect("a chunk");
    assert_eq!(index.unembedded_chunks(&new), [0_usize; 0]);
    assert_eq!(index.vectors().map(Vectors::present), Some(2));
    let decoded = DocIndex::decode(&index.encode()).expect("an index");
    assert_eq!(decoded, index);
    // The components are those of the chunks: the nearest to each is itself.
    for (chunk, vector) in [[1.0, 0.0], [0.0, 1.0]].iter().enumerate() {
        let query = crate::search::VectorQuery::new(&new, vector);
        let hits = crate::search::nearest_in_documents([(DocumentId::from("h"), &index)], &query);
        assert_eq!(hits.expect("a vector")[0].chunk as usize, chunk);
    }
    // A model that was replaced under its name has other components.
    let other = crate::embed::Embeddings::new(1, [[1.0, 0.0, 0.0]]).expect("valid");
    let index = index.with_embeddings(&new, &text, &[1], &other).expect("a chunk");
    assert_eq!(index.unembedded_chunks(&new), [0]);
}

#[test]
fn vectors_of_no_chunk_are_rejected() {
    let id = crate::embed::EmbedderId::new("test:2");
    let text = document().text;
    let two = embeddings(&[[1.0, 0.0], [0.0, 1.0]]);
    for chunks in [&[0_usize][..], &[1, 0], &[1, 1], &[1, 2], &[0, 1, 2]] {
        assert!(index().with_embeddings(&id, &text, chunks, &two).is_err(), "{chunks:?}");
    }
    assert!(index().with_embeddings(&id, "another text", &[0, 1], &two).is_err());
}

#[test]
fn a_change_keeps_the_vectors_of_equal_chunks() {
    let id = crate::embed::EmbedderId::new("test:2");
    let text = document().text;
    let both = embeddings(&[[1.0, 0.0], [0.0, 1.0]]);
    let earlier = index().with_embeddings(&id, &text, &[0, 1], &both).expect("both chunks");
    let earlier = earlier.vectors().expect("vectors");
    let changed = ExtractedText {
        text: text.replace("Trains are booked by the office.", "Trains are booked by you."),
        ..document()
    };
    let later = DocIndex::build(&changed, &StructuralChunker::new(45, 10)).expect("indexed");
    let later = later.with_vectors_of(&changed.text, earlier);
    assert_eq!(later.unembedded_chunks(&id), [0], "the changed chunk alone");
    let renamed = ExtractedText { title: "Rules".to_owned(), ..document() };
    let later = DocIndex::build(&renamed, &StructuralChunker::new(45, 10)).expect("indexed");
    let later = later.with_vectors_of(&renamed.text, earlier);
    assert_eq!(later.vectors(), None, "the title is part of the input");
}

#[test]
fn slices_are_added_to_the_index_that_they_belong_to() {
    let id = crate::embed::EmbedderId::new("test:2");
    let text = document().text;
    let bytes = index().encode();
    let sum = DocIndex::checksum_of(&bytes).expect("an index");
    let first = index().with_embeddings(&id, &text, &[1], &embeddings(&[[0.0, 2.0]])).expect("a chunk");
    let mut slices = first.encode_slice(sum, &[1]);
    assert_eq!(DocIndex::decode_with_slices(&bytes, &slices), Ok(first.clone()), "of another embedder");
    let second = first.with_embeddings(&id, &text, &[0], &embeddings(&[[1.0, 0.0]])).expect("a chunk");
    slices.extend(second.encode_slice(sum, &[0]));
    assert_eq!(DocIndex::decode_with_slices(&bytes, &slices), Ok(second.clone()));
    assert_eq!(DocIndex::decode_with_slices(&bytes, &[]), Ok(index()));
    let other = second.encode();
    assert_eq!(DocIndex::decode_with_slices(&other, &slices), Err(DecodeError::Checksum), "of another index");
    for position in 0..slices.len() {
        let mut damaged = slices.clone();
        damaged[position] ^= 1;
        assert!(DocIndex::decode_with_slices(&bytes, &damaged).is_err(), "{position}");
        assert_ne!(DocIndex::decode_with_slices(&bytes, &slices[..position]), Ok(second.clone()));
    }
}

#[test]
fn vectors_of_the_version_before_are_taken_over() {
    let mut old = GOLDEN.to_vec();
    let vectors = index().shared_vectors();
    for (version, expected) in [
        (1, None),
        (2, vectors.clone()),
        (3, vectors.clone()),
        (4, vectors.clone()),
        (5, vectors.clone()),
        (6, vectors.clone()),
        (7, vectors),
        (8, None),
    ] {
        old[4] = version;
        assert_eq!(DocIndex::decode_vectors(&old), expected, "{version}");
    }
    assert_eq!(DocIndex::decode_vectors(b"%PDF-1.7"), None);
}
