//! Slices of vectors, encoded apart from the index that they belong to, so that a store need not write a large index again
//! for each slice.
//!
//! Slices follow one another. All numbers are little endian. The head of a slice is the number of bytes behind it (u32) and
//! their checksum (u64). The rest is the checksum of the encoded index (u64), and, encoded as in the index, the embedder, the
//! dimensions, the number of the first chunk, the number of chunks, and for each chunk 0, or 1 and its vector. A later vector
//! of a chunk replaces an earlier one. Vectors of another embedder or with other dimensions replace all.

use super::codec::{DecodeError, Reader, StoredRow, checksum, put_number, put_row, put_string};
use super::vectors::{MAX_EMBEDDER_BYTES, VectorsBuilder};
use super::{DocIndex, Vectors};

/// Vectors of the slices of an index.
struct SliceRows<'a> {
    embedder: &'a str,
    dimensions: usize,
    rows: Vec<Option<StoredRow<'a>>>,
}

impl DocIndex {
    /// Encodes the vectors of some chunks, in ascending order, as a slice of the encoded index with this
    /// [checksum](Self::checksum_of). Without vectors there is nothing to encode.
    pub fn encode_slice(&self, index_checksum: u64, chunks: &[usize]) -> Vec<u8> {
        let (Some(vectors), [first, ..], [.., last]) = (self.vectors(), chunks, chunks) else {
            return Vec::new();
        };
        let mut body = index_checksum.to_le_bytes().to_vec();
        put_string(&mut body, vectors.embedder());
        put_number(&mut body, vectors.dimensions());
        put_number(&mut body, *first);
        put_number(&mut body, last + 1 - first);
        for (chunk, row) in vectors.rows().enumerate().take(last + 1).skip(*first) {
            put_row(&mut body, row.filter(|_| chunks.binary_search(&chunk).is_ok()));
        }
        let head = [&(body.len() as u32).to_le_bytes()[..], &checksum(&body).to_le_bytes()].concat();
        [head, body].concat()
    }

    /// Decodes an index with its slices. Any bytes result in an index or an error, without a panic.
    pub fn decode_with_slices(bytes: &[u8], slices: &[u8]) -> Result<Self, DecodeError> {
        let index = Self::decode(bytes)?;
        let mut reader = Reader { rest: slices };
        let mut added: Option<SliceRows<'_>> = None;
        while !reader.rest.is_empty() {
            let (first, slice) = read_slice(&mut reader, Self::checksum_of(bytes))?;
            if first + slice.rows.len() > index.chunk_count() {
                return Err(DecodeError::Invalid("unknown chunk of a slice"));
            }
            let is_comparable = |added: &SliceRows<'_>| {
                (added.embedder, added.dimensions) == (slice.embedder, slice.dimensions)
            };
            let mut rows = match added.take().filter(is_comparable) {
                Some(added) => added.rows,
                None => vec![None; index.chunk_count()],
            };
            let SliceRows { embedder, dimensions, rows: new_rows } = slice;
            for (row, new_row) in rows[first..].iter_mut().zip(new_rows) {
                *row = new_row.or(*row);
            }
            added = Some(SliceRows { embedder, dimensions, rows });
        }
        let Some(added) = added else { return Ok(index) };
        let vectors = added.merge(index.vectors())?;
        index.with_vectors(Some(vectors)).map_err(|_| DecodeError::Invalid("number of vectors"))
    }
}

impl SliceRows<'_> {
    /// Returns the vectors of the slices beside those of the index, if both are comparable.
    fn merge(&self, stored: Option<&Vectors>) -> Result<Vectors, DecodeError> {
        let is_comparable =
            |stored: &&Vectors| (stored.embedder(), stored.dimensions()) == (self.embedder, self.dimensions);
        let mut stored_rows = stored.filter(is_comparable).map(Vectors::rows);
        let empty = VectorsBuilder::new(self.embedder, self.dimensions);
        let mut vectors = empty.map_err(|_| DecodeError::Invalid("dimensions of vectors"))?;
        for row in &self.rows {
            let stored_row = stored_rows.as_mut().and_then(Iterator::next).flatten();
            let Some(StoredRow { input, scale, components }) = *row else {
                vectors.push_row(stored_row);
                continue;
            };
            if !vectors.push_stored(input, scale, components) {
                return Err(DecodeError::Invalid("scale of a vector"));
            }
        }
        Ok(vectors.finish())
    }
}

/// Reads a slice of the index with a checksum. Returns it with the number of its first chunk.
fn read_slice<'a>(
    reader: &mut Reader<'a>,
    index_checksum: Option<u64>,
) -> Result<(usize, SliceRows<'a>), DecodeError> {
    let length = reader.array().map(u32::from_le_bytes)?;
    let sum = reader.array().map(u64::from_le_bytes)?;
    let body = reader.take(length as usize)?;
    let mut reader = Reader { rest: body };
    let index = reader.array().map(u64::from_le_bytes)?;
    if sum != checksum(body) || Some(index) != index_checksum {
        return Err(DecodeError::Checksum);
    }
    let embedder = reader.string(MAX_EMBEDDER_BYTES)?;
    let dimensions = reader.number()? as usize;
    let first = reader.number()? as usize;
    let count = reader.count(1)?;
    let rows = (0..count).map(|_| reader.row(dimensions)).collect::<Result<Vec<_>, _>>()?;
    if !reader.rest.is_empty() {
        return Err(DecodeError::Invalid("bytes after the end"));
    }
    Ok((first, SliceRows { embedder, dimensions, rows }))
}
