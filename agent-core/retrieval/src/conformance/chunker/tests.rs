//! The suite accepts the default chunker, and finds each violation.

use super::*;
use crate::chunk::{Chunk, StructuralChunker};

#[test]
fn the_default_chunker_conforms() {
    chunker(&StructuralChunker::default());
    chunker(&StructuralChunker::new(40, 10));
}

struct Changed(fn(Vec<Chunk>) -> Vec<Chunk>);

impl Chunker for Changed {
    fn id(&self) -> String {
        "changed".to_owned()
    }

    fn chunk(&self, document: &ExtractedText) -> Vec<Chunk> {
        (self.0)(StructuralChunker::default().chunk(document))
    }
}

struct Named(fn() -> String);

impl Chunker for Named {
    fn id(&self) -> String {
        (self.0)()
    }

    fn chunk(&self, document: &ExtractedText) -> Vec<Chunk> {
        StructuralChunker::default().chunk(document)
    }
}

#[test]
fn an_identifier_without_text_or_without_end_is_found() {
    chunker(&Named(|| "x".repeat(MAX_ID_BYTES)));
    for id in [String::new, || "x".repeat(MAX_ID_BYTES + 1)] {
        let result = std::panic::catch_unwind(|| chunker(&Named(id)));
        assert!(result.is_err(), "{:?} is found", id());
    }
}

#[test]
fn violations_are_found() {
    let violations: [fn(Vec<Chunk>) -> Vec<Chunk>; 5] = [
        |chunks| chunks.into_iter().skip(1).collect(),
        |chunks| chunks.into_iter().rev().collect(),
        |chunks| chunks.into_iter().map(|chunk| Chunk { end: chunk.end + 1, ..chunk }).collect(),
        |chunks| chunks.into_iter().map(|chunk| Chunk { end: chunk.start, ..chunk }).collect(),
        |chunks| chunks.into_iter().map(|chunk| Chunk { page: Some(0), ..chunk }).collect(),
    ];
    for (number, violation) in violations.into_iter().enumerate() {
        let result = std::panic::catch_unwind(|| chunker(&Changed(violation)));
        assert!(result.is_err(), "violation {number} is found");
    }
}
