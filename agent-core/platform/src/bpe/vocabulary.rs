//! Byte-pair-encoding vocabulary, looked up in the sorted bytes of its file without building a map.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: usize = 128;
/// The size of a count in the file's header.
const COUNT_BYTES: usize = 4;
/// The size of a rank in the file.
const RANK_BYTES: usize = 3;

/// Tokens and their ranks.
///
/// The file begins with the number of tokens of each length from 1 to [`MAX_TOKEN_BYTES`] bytes, as 32-bit
/// integers. The tokens of each length follow: first the tokens, sorted, then their ranks in the same order, as
/// 24-bit integers. All integers are little-endian.
pub(super) struct Vocabulary {
    by_length: [TokensOfLength; MAX_TOKEN_BYTES],
}

/// The tokens of one length.
#[derive(Clone, Copy, Default)]
struct TokensOfLength {
    tokens: &'static [u8],
    ranks: &'static [u8],
}

impl Vocabulary {
    /// Finds the tokens of each length in a vocabulary's file.
    ///
    /// # Panics
    /// The file is shorter than its header says.
    pub(super) fn parse(file: &'static [u8]) -> Self {
        let (header, mut rest) = file.split_at(MAX_TOKEN_BYTES * COUNT_BYTES);
        let mut by_length = [TokensOfLength::default(); MAX_TOKEN_BYTES];
        for (index, (entry, count)) in by_length.iter_mut().zip(header.chunks_exact(COUNT_BYTES)).enumerate()
        {
            let count = integer(count) as usize;
            (entry.tokens, rest) = rest.split_at(count * (index + 1));
            (entry.ranks, rest) = rest.split_at(count * RANK_BYTES);
        }
        Self { by_length }
    }

    /// Returns the rank of a token: the lower it is, the sooner its halves are merged.
    fn rank(&self, token: &[u8]) -> Option<u32> {
        let TokensOfLength { tokens, ranks } = self.by_length.get(token.len().checked_sub(1)?)?;
        let (mut begin, mut end) = (0, ranks.len() / RANK_BYTES);
        while begin < end {
            let middle = begin.midpoint(end);
            match tokens[middle * token.len()..][..token.len()].cmp(token) {
                Ordering::Less => begin = middle + 1,
                Ordering::Greater => end = middle,
                Ordering::Equal => return Some(integer(&ranks[middle * RANK_BYTES..][..RANK_BYTES])),
            }
        }
        None
    }

    /// Counts the tokens that a piece of text is encoded as: its bytes, of which the two neighbours with the lowest rank
    /// are merged until no two neighbours make a token. Every single byte is a token.
    pub(super) fn count(&self, piece: &[u8], buffers: &mut MergeBuffers) -> usize {
        if self.rank(piece).is_some() {
            return 1;
        }
        let MergeBuffers { ends, previous, merges } = buffers;
        ends.clear();
        ends.extend(1..=piece.len());
        previous.clear();
        previous.extend((0..piece.len()).map(|begin| begin.checked_sub(1)));
        merges.clear();
        let merge = |begin: usize, end: usize| {
            self.rank(&piece[begin..end]).map(|rank| Reverse(Merge { rank, begin, end }))
        };
        merges.extend((2..=piece.len()).filter_map(|end| merge(end - 2, end)));

        let mut tokens = piece.len();
        while let Some(Reverse(Merge { begin, end, .. })) = merges.pop() {
            let middle = ends[begin];
            // One of its halves has been merged with its other neighbour.
            if middle >= end || ends[middle] != end {
                continue;
            }
            tokens -= 1;
            ends[begin] = end;
            ends[middle] = MERGED;
            if let Some(&next_end) = ends.get(end) {
                previous[end] = Some(begin);
                merges.extend(merge(begin, next_end));
            }
            if let Some(previous) = previous[begin] {
                merges.extend(merge(previous, end));
            }
        }
        tokens
    }
}

/// Buffers of a count, which the next one reuses.
#[derive(Default)]
pub(super) struct MergeBuffers {
    /// End of the token that begins at each index.
    ends: Vec<usize>,
    /// Start of the token before the one that begins at each index.
    previous: Vec<Option<usize>>,
    /// The merges that may be next, the lowest rank first and the leftmost of these.
    merges: BinaryHeap<Reverse<Merge>>,
}

/// The end of a token that has become part of the previous token. More than any other end.
const MERGED: usize = usize::MAX;

/// Two neighbours that can be merged to a token.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Merge {
    rank: u32,
    begin: usize,
    end: usize,
}

fn integer(little_endian: &[u8]) -> u32 {
    little_endian.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file holds the tokens of the reference implementation. With `UPDATE_EXPECT` set, it is written.
    #[test]
    fn the_file_has_the_reference_tokens() {
        let encoding = &bpe_openai::o200k_base().bpe;
        let mut by_length = vec![Vec::new(); MAX_TOKEN_BYTES];
        for rank in 0..encoding.num_tokens() as u32 {
            let token = encoding.token_bytes(rank);
            by_length[token.len() - 1].push((token, rank));
        }
        let counts = by_length.iter().map(|tokens| (tokens.len() as u32).to_le_bytes());
        let mut file = counts.flatten().collect::<Vec<u8>>();
        for tokens in &mut by_length {
            tokens.sort_unstable();
            file.extend(tokens.iter().flat_map(|(token, _)| *token));
            file.extend(tokens.iter().flat_map(|(_, rank)| rank.to_le_bytes().into_iter().take(RANK_BYTES)));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bpe/o200k_base.vocabulary");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, &file).expect("the file can be written");
        }
        assert!(std::fs::read(path).expect("the file can be read") == file);
    }
}
