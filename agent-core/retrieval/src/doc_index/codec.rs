//! The binary format of a document's index.
//!
//! All numbers but those of the head are LEB128 (seven bits a byte, the lowest first).
//!
//! | part | content |
//! |---|---|
//! | head | `ADIX`, the version (u16, little endian), the checksum of the rest (SipHash-1-3, u64, little endian) |
//! | labels | code of the language (byte), title, number of headings, headings |
//! | chunks | number; for each: start minus the start before, length in bytes, heading, page, number of terms |
//! | terms | number; for each, by ascending hash: the term, number of chunks, and for each chunk its number minus the one before, and its count |
//! | vectors | 0, or 1 with the embedder, the dimensions, and for each chunk 0, or 1 with the hash of its input (u64, little endian), the scale (f32, little endian) and the components |
//!
//! Strings have their length in bytes before them. The checksum finds damage, not malice: every number is checked too.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use thiserror::Error;

use super::vectors::{MAX_EMBEDDER_BYTES, VectorRow, VectorsBuilder};
use super::{ChunkLocation, DocIndex, Labels, Vectors};
use crate::analysis::{Language, MAX_TERM_BYTES};
use crate::postings::Postings;

/// The version that [`DocIndex::encode`] writes. It rises with each change of the layout, and of the chunks or terms that equal
/// texts give, since an index stays stored while the text of its document does.
pub const FORMAT_VERSION: u16 = 7;
/// The oldest version with the same layout, whose vectors can be taken over. Later versions changed the terms of abbreviations
/// (3), the headings of chunks beside indented code (4), the headings of chunks within tables (5), underlined headings (6), and
/// the headings of chunks in and below front matter (7).
const FIRST_VERSION_WITH_VECTORS: u16 = 2;

const MAGIC: &[u8; 4] = b"ADIX";
const HEAD_BYTES: usize = MAGIC.len() + 2 + 8;

/// Error of decoding an index.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not begin as an index does.
    #[error("not an index of a document")]
    NotAnIndex,
    /// The index was written in another version of the format; the document must be indexed again.
    #[error("the index has version {0} of the format, not {FORMAT_VERSION}")]
    Version(u16),
    /// The bytes were changed after they were written.
    #[error("the index is damaged: its checksum differs")]
    Checksum,
    /// The content contradicts itself.
    #[error("the index is invalid: {0}")]
    Invalid(&'static str),
}

impl DocIndex {
    /// Encodes the index in the current version of the format.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.push(self.language as u8);
        put_string(&mut body, &self.labels.title);
        put_number(&mut body, self.labels.headings.len());
        for heading in self.labels.headings.iter() {
            put_string(&mut body, heading);
        }
        put_chunks(&mut body, self);
        put_terms(&mut body, &self.postings);
        put_vectors(&mut body, self.vectors());

        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&checksum(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Decodes an index. Any bytes give an index or an error; allocations are bounded by the number of bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match version_and_rest(bytes)? {
            (FORMAT_VERSION, rest) => Self::decode_rest(rest),
            (version, _) => Err(DecodeError::Version(version)),
        }
    }

    /// Decodes the vectors of an index, including indexes in older versions of the same layout, so that a rebuilt index can reuse
    /// them. Returns `None` if there are none.
    pub fn decode_vectors(bytes: &[u8]) -> Option<Arc<Vectors>> {
        let (version, rest) = version_and_rest(bytes).ok()?;
        let is_known = (FIRST_VERSION_WITH_VECTORS..=FORMAT_VERSION).contains(&version);
        is_known.then(|| Self::decode_rest(rest).ok())??.vectors
    }

    /// Returns the checksum of an encoded index, which identifies it.
    pub fn checksum_of(bytes: &[u8]) -> Option<u64> {
        let (_, rest) = version_and_rest(bytes).ok()?;
        rest.first_chunk().map(|sum| u64::from_le_bytes(*sum))
    }

    /// Decodes what follows the version.
    fn decode_rest(rest: &[u8]) -> Result<Self, DecodeError> {
        let (sum, body) = rest.split_first_chunk().ok_or(DecodeError::NotAnIndex)?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return Err(DecodeError::Checksum);
        }
        let mut reader = Reader { rest: body };
        let language = Language::from_code(reader.byte()?).ok_or(DecodeError::Invalid("unknown language"))?;
        let title = reader.string(usize::MAX)?.into();
        let heading_count = reader.count(1)?;
        let headings: Result<Vec<Arc<str>>, _> =
            (0..heading_count).map(|_| reader.string(usize::MAX).map(Into::into)).collect();
        let (locations, lengths) = reader.chunks(heading_count)?;
        let postings = reader.terms(locations.len())?;
        let vectors = reader.vectors(locations.len())?.map(Arc::new);
        if !reader.rest.is_empty() {
            return Err(DecodeError::Invalid("bytes after the end"));
        }
        let labels = Labels { title, headings: headings?.into() };
        Ok(Self { labels, language, locations, lengths, postings, vectors })
    }
}

fn version_and_rest(bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::NotAnIndex)?;
    let (version, rest) = rest.split_first_chunk().ok_or(DecodeError::NotAnIndex)?;
    Ok((u16::from_le_bytes(*version), rest))
}

fn put_chunks(body: &mut Vec<u8>, index: &DocIndex) {
    put_number(body, index.locations.len());
    let mut last_start = 0;
    for (location, &length) in index.locations.iter().zip(&index.lengths) {
        put_number(body, (location.start - last_start) as usize);
        put_number(body, (location.end - location.start) as usize);
        put_number(body, location.heading as usize);
        put_number(body, location.page as usize);
        put_number(body, usize::from(length));
        last_start = location.start;
    }
}

fn put_terms(body: &mut Vec<u8>, postings: &Postings) {
    put_number(body, postings.len());
    for term in 0..postings.len() {
        put_string(body, postings.name(term));
        let entries = postings.entries(term);
        put_number(body, entries.chunks.len());
        let mut last = 0;
        for (&chunk, &count) in entries.chunks.iter().zip(entries.counts) {
            put_number(body, (chunk - last) as usize);
            body.push(count);
            last = chunk;
        }
    }
}

fn put_vectors(body: &mut Vec<u8>, vectors: Option<&Vectors>) {
    let Some(vectors) = vectors else {
        body.push(0);
        return;
    };
    body.push(1);
    put_string(body, vectors.embedder());
    put_number(body, vectors.dimensions());
    for row in vectors.rows() {
        put_row(body, row);
    }
}

/// Appends 0, or 1 with the vector of a chunk.
pub(super) fn put_row(body: &mut Vec<u8>, row: Option<VectorRow<'_>>) {
    let Some(row) = row else {
        body.push(0);
        return;
    };
    body.push(1);
    body.extend_from_slice(&row.input.to_le_bytes());
    body.extend_from_slice(&row.scale.to_le_bytes());
    body.extend(row.components.iter().map(|&component| component as u8));
}

pub(super) fn put_number(body: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        body.push(number as u8 | 0x80);
        number >>= 7;
    }
    body.push(number as u8);
}

pub(super) fn put_string(body: &mut Vec<u8>, text: &str) {
    put_number(body, text.len());
    body.extend_from_slice(text.as_bytes());
}

pub(super) fn checksum(body: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(body);
    hasher.finish()
}

/// A stored vector of a chunk.
#[derive(Clone, Copy)]
pub(super) struct StoredRow<'a> {
    /// Hash of the input.
    pub(super) input: u64,
    pub(super) scale: f32,
    pub(super) components: &'a [u8],
}

pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Invalid("too short"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Invalid("too short"))?;
        self.rest = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn number(&mut self) -> Result<u32, DecodeError> {
        let mut number = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).map_err(|_| DecodeError::Invalid("number too large"));
            }
        }
        Err(DecodeError::Invalid("number too long"))
    }

    /// Reads the number of items that have at least `item_bytes` each, so that a vector of them is bounded by the input.
    pub(super) fn count(&mut self, item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.number()? as usize;
        if count > self.rest.len() / item_bytes {
            return Err(DecodeError::Invalid("more items than bytes"));
        }
        Ok(count)
    }

    pub(super) fn string(&mut self, limit: usize) -> Result<&'a str, DecodeError> {
        let length = self.number()? as usize;
        if length > limit {
            return Err(DecodeError::Invalid("string too long"));
        }
        std::str::from_utf8(self.take(length)?).map_err(|_| DecodeError::Invalid("string is not UTF-8"))
    }

    fn chunks(&mut self, heading_count: usize) -> Result<(Vec<ChunkLocation>, Vec<u16>), DecodeError> {
        let count = self.count(5)?;
        let mut locations = Vec::with_capacity(count);
        let mut lengths = Vec::with_capacity(count);
        let mut last_start = 0_u32;
        for _ in 0..count {
            let start = self.number()?.checked_add(last_start);
            let length = self.number()?;
            let end = start.and_then(|start| start.checked_add(length)).filter(|_| length > 0);
            let (Some(start), Some(end)) = (start, end) else {
                return Err(DecodeError::Invalid("range of a chunk"));
            };
            let heading = self.number()?;
            if heading as usize > heading_count {
                return Err(DecodeError::Invalid("unknown heading"));
            }
            locations.push(ChunkLocation { start, end, heading, page: self.number()? });
            let terms = self.number()?;
            lengths.push(u16::try_from(terms).map_err(|_| DecodeError::Invalid("number of terms"))?);
            last_start = start;
        }
        Ok((locations, lengths))
    }

    fn terms(&mut self, chunk_count: usize) -> Result<Postings, DecodeError> {
        let count = self.count(5)?;
        let mut names = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(count);
        let (mut chunks, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..count {
            names.push(self.string(MAX_TERM_BYTES)?.into());
            let entries = self.count(2)?;
            let mut chunk = 0_u32;
            for entry in 0..entries {
                let distance = self.number()?;
                if entry > 0 && distance == 0 {
                    return Err(DecodeError::Invalid("chunks of a term do not ascend"));
                }
                chunk = chunk.saturating_add(distance);
                if chunk as usize >= chunk_count {
                    return Err(DecodeError::Invalid("unknown chunk"));
                }
                chunks.push(chunk);
                counts.push(self.byte()?);
            }
            if entries == 0 || counts[counts.len() - entries..].contains(&0) {
                return Err(DecodeError::Invalid("a term that does not occur"));
            }
            let end = u32::try_from(chunks.len()).map_err(|_| DecodeError::Invalid("too many entries"))?;
            ends.push(end);
        }
        Postings::from_parts(names, ends, chunks, counts).ok_or(DecodeError::Invalid("order of the terms"))
    }

    fn vectors(&mut self, chunk_count: usize) -> Result<Option<Vectors>, DecodeError> {
        match self.byte()? {
            0 => return Ok(None),
            1 => {}
            _ => return Err(DecodeError::Invalid("unknown kind of vectors")),
        }
        let embedder = self.string(MAX_EMBEDDER_BYTES)?;
        let dimensions = self.number()? as usize;
        let mut vectors = VectorsBuilder::new(embedder, dimensions)
            .map_err(|_| DecodeError::Invalid("dimensions of vectors"))?;
        for _ in 0..chunk_count {
            match self.row(dimensions)? {
                None => vectors.push_absent(),
                Some(StoredRow { input, scale, components }) => {
                    if !vectors.push_stored(input, scale, components) {
                        return Err(DecodeError::Invalid("scale of a vector"));
                    }
                }
            }
        }
        Ok(Some(vectors.finish()))
    }

    /// Reads 0, or 1 with the vector of a chunk.
    pub(super) fn row(&mut self, dimensions: usize) -> Result<Option<StoredRow<'a>>, DecodeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => {
                let input = self.array().map(u64::from_le_bytes)?;
                let scale = self.array().map(f32::from_le_bytes)?;
                Ok(Some(StoredRow { input, scale, components: self.take(dimensions)? }))
            }
            _ => Err(DecodeError::Invalid("unknown kind of vector")),
        }
    }
}
