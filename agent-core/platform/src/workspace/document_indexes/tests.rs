use agent_retrieval::chunk::StructuralChunker;
use agent_retrieval::document::ExtractedText;
use agent_retrieval::embed::{EmbedderId, Embeddings};

use super::*;
use crate::memory::MemoryRecords;
use crate::workspace::{Document, get_document, save_document};

const DIMENSIONS: usize = 1_024;
const SLICE_CHUNKS: usize = 8;

/// Returns an index whose vectors are large enough for several pieces, and the text.
fn long_index(embedder: &EmbedderId, with_vectors: usize) -> (DocIndex, String) {
    let text: String = (0..420).map(|number| format!("Paragraph number {number} is short.\n\n")).collect();
    let document = ExtractedText { text: text.clone(), ..ExtractedText::default() };
    let index = DocIndex::build(&document, &StructuralChunker::new(40, 1)).expect("it is indexed");
    assert!(index.chunk_count() > with_vectors + 2 * SLICE_CHUNKS);
    let chunks: Vec<usize> = (0..with_vectors).collect();
    let index = index.with_embeddings(embedder, &text, &chunks, &vectors(with_vectors));
    (index.expect("as many as chunks"), text)
}

fn vectors(count: usize) -> Embeddings {
    let vector = |number: usize| (0..DIMENSIONS).map(move |n| ((number * 31 + n * 7) % 13) as f32 - 5.5);
    Embeddings::new(count, (0..count).map(|number| vector(number).collect::<Vec<f32>>())).expect("valid")
}

async fn load(records: &MemoryRecords) -> Option<StoredDocIndex> {
    let found = load_document_indexes(records, &"c".into(), &["d".to_owned()]).await.expect("read").pop();
    found.flatten().map(EncodedDocIndex::decode).and_then(DecodedDocIndex::into_current)
}

async fn head(records: &MemoryRecords) -> StoredIndex {
    let key = index_key(&"c".into(), "d").expect("a key");
    let head = records.get_as::<StoredIndex>(&key).await.expect("read");
    head.expect("it is stored").value
}

/// Saves the document with this text and returns it at its version.
async fn save(records: &MemoryRecords, text: &str) -> IndexedDocument {
    let document =
        Document { id: "d".into(), company_id: "c".into(), text: text.to_owned(), ..Document::default() };
    save_document(records, &document, Precondition::Any, &"ada".into()).await.expect("saved");
    let found = get_document(records, &"c".into(), "d").await.expect("read");
    IndexedDocument { id: "d".into(), version: found.expect("it exists").version, source_digest: None }
}

#[tokio::test]
async fn slices_of_vectors_are_separate_records_until_the_index_is_replaced() {
    let (records, company_id, embedder) =
        (MemoryRecords::default(), CompanyId::from("c"), EmbedderId::new("e:1"));
    let (mut index, text) = long_index(&embedder, 390);
    let document = save(&records, &text).await;
    let encoded = index.encode();
    let status = IndexStatus::of(&index);
    let whole = (&status, &encoded[..]);
    replace_document_index(&records, &company_id, &document, whole, None).await.expect("stored");
    let stored = load(&records).await.expect("an index");
    assert!(stored.slices == StoredSlices::behind_index(&encoded), "the first slice follows the index");
    for number in 0..2 {
        let first = 390 + number * SLICE_CHUNKS;
        let chunks: Vec<usize> = (first..first + SLICE_CHUNKS).collect();
        index = index.with_embeddings(&embedder, &text, &chunks, &vectors(SLICE_CHUNKS)).expect("vectors");
        let stored = load(&records).await.expect("an index");
        let slice = index.encode_slice(stored.slices.index_checksum, &chunks);
        assert!(stored.slices.has_room(slice.len()) && !stored.slices.has_room(MAX_PIECES * PIECE_BYTES));
        let status = IndexStatus::of(&index);
        let new = (&status, &slice[..], &stored.slices);
        let appended =
            append_vector_slice(&records, &company_id, &document, new, stored.record_version).await;
        assert!(matches!(appended, Ok(IndexReplacement::Stored(_))), "{appended:?}");
        let place = stored.slices.behind_slice(&slice);
        let stored = load(&records).await.expect("an index");
        assert!(stored.index == index, "with the vectors of the slice");
        assert!(stored.slices == place, "the next slice follows");
        let head = head(&records).await;
        assert_eq!(head.slice_pieces, 1, "the last piece is filled up");
        assert!(head.data.is_empty(), "a slice writes no piece of the index again");
    }
    let again = (&status, &b""[..], &StoredSlices::default());
    let changed = append_vector_slice(&records, &company_id, &document, again, 1).await;
    assert_eq!(changed.expect("the store answers"), IndexReplacement::Changed);
    let stored = load(&records).await.expect("an index");
    let (status, encoded) = (IndexStatus::of(&index), index.encode());
    let whole = (&status, &encoded[..]);
    let replaced =
        replace_document_index(&records, &company_id, &document, whole, Some(stored.record_version)).await;
    assert!(matches!(replaced, Ok(IndexReplacement::Stored(_))), "{replaced:?}");
    let stored = load(&records).await.expect("an index");
    assert!(stored.index == index);
    assert_eq!(head(&records).await.slice_pieces, 0);
    // Nothing is left of the slices once the index is deleted.
    let deletions = index_deletions(&records, &company_id, "d").await.expect("read");
    records.commit(deletions).await.expect("deleted");
    let pieces = (1..9).map(|number| piece_key(&company_id, "d", number)).collect::<Result<Vec<_>, _>>();
    let left = records.get_many(&pieces.expect("keys")).await.expect("read");
    assert!(left.iter().all(Option::is_none) && load(&records).await.is_none());
}

#[tokio::test]
async fn slices_follow_an_index_whose_first_piece_is_in_its_head() {
    let (records, company_id, embedder) =
        (MemoryRecords::default(), CompanyId::from("c"), EmbedderId::new("e:1"));
    let (index, text) = long_index(&embedder, 390);
    let document = save(&records, &text).await;
    let encoded = index.encode();
    let (first, second) = encoded.split_at(PIECE_BYTES);
    let key = piece_key(&company_id, "d", 1).expect("a key");
    records.put_as(&key, &STANDARD_NO_PAD.encode(second), Precondition::Absent).await.expect("written");
    let head = StoredIndex {
        version: document.version,
        further_pieces: 1,
        slice_pieces: 0,
        status: Some(IndexStatus::of(&index)),
        source_digest: None,
        data: STANDARD_NO_PAD.encode(first),
    };
    let key = index_key(&company_id, "d").expect("a key");
    records.put_as(&key, &head, Precondition::Absent).await.expect("written");
    let stored = load(&records).await.expect("an index");
    assert!(stored.index == index);
    let chunks: Vec<usize> = (390..390 + SLICE_CHUNKS).collect();
    let index = index.with_embeddings(&embedder, &text, &chunks, &vectors(SLICE_CHUNKS)).expect("vectors");
    let slice = index.encode_slice(stored.slices.index_checksum, &chunks);
    let status = IndexStatus::of(&index);
    let new = (&status, &slice[..], &stored.slices);
    let appended = append_vector_slice(&records, &company_id, &document, new, stored.record_version).await;
    assert!(matches!(appended, Ok(IndexReplacement::Stored(_))), "{appended:?}");
    assert!(load(&records).await.expect("an index").index == index, "with the vectors of the slice");
}
