//! Cache of the token counts of recent pieces.

use std::sync::atomic::{AtomicU64, Ordering};

/// The longest piece whose count is kept, in bytes.
const MAX_BYTES: usize = 7;
/// Number of bits of an entry's index.
const INDEX_BITS: u32 = 12;
/// Position of the count in an entry. It has three bits, since it is at most [`MAX_BYTES`].
const COUNT_SHIFT: u32 = 56;
/// Position of the piece's length in the last byte of an entry.
const LENGTH_SHIFT: u32 = 3;
/// Mask of the count in an entry.
const COUNT_MASK: u64 = (MAX_BYTES as u64) << COUNT_SHIFT;

/// Token counts of short pieces, in place of a search of the vocabulary.
///
/// An entry is a piece, its length and its count in 64 bits, so that any thread reads and replaces it as a whole. The
/// length is 0 if the entry is empty, since no piece has the length 0.
pub(super) struct RecentPieces {
    entries: [AtomicU64; 1 << INDEX_BITS],
}

impl RecentPieces {
    /// Creates an empty cache.
    pub(super) const fn new() -> Self {
        Self { entries: [const { AtomicU64::new(0) }; 1 << INDEX_BITS] }
    }

    /// Returns the count of a piece, which is at most the number of its bytes; calls `count` if it is not kept.
    pub(super) fn count(&self, piece: &[u8], count: impl FnOnce(&[u8]) -> usize) -> usize {
        let Some(key) = key(piece) else { return count(piece) };
        let entry = &self.entries[index(key)];
        let cached = entry.load(Ordering::Relaxed);
        if cached & !COUNT_MASK == key {
            return ((cached & COUNT_MASK) >> COUNT_SHIFT) as usize;
        }
        let computed = count(piece);
        entry.store(key | (computed as u64) << COUNT_SHIFT, Ordering::Relaxed);
        computed
    }
}

/// Returns the entry of a piece without its count; `None` if it is empty or too long.
fn key(piece: &[u8]) -> Option<u64> {
    let mut key = [0; MAX_BYTES + 1];
    key.get_mut(..piece.len()).filter(|_| (1..=MAX_BYTES).contains(&piece.len()))?.copy_from_slice(piece);
    key[MAX_BYTES] = (piece.len() as u8) << LENGTH_SHIFT;
    Some(u64::from_le_bytes(key))
}

/// Returns the index of an entry, by multiplication with a constant that has half of its bits set.
fn index(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - INDEX_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_piece_is_counted_once_and_a_long_one_each_time() {
        let recent = RecentPieces::new();
        for (piece, counted) in [(&b" tea"[..], 1), (b"sevenby", 7), (b"\0", 1), (b"\0\0", 2)] {
            assert_eq!(recent.count(piece, |_| counted), counted);
            assert_eq!(recent.count(piece, |_| unreachable!("it is kept")), counted, "{piece:?}");
        }
        for (piece, counted) in [(&b"eightbyt"[..], 3), (b"", 0)] {
            assert_eq!(recent.count(piece, |_| counted), counted);
            assert_eq!(recent.count(piece, |_| 5), 5, "{piece:?} is not kept");
        }
    }

    #[test]
    fn pieces_of_one_place_replace_each_other() {
        let recent = RecentPieces::new();
        let slot_index = |number: u32| index(key(&number.to_le_bytes()).expect("a short piece"));
        let other =
            (1..).find(|number| slot_index(*number) == slot_index(0)).expect("there are fewer places");
        for (number, counted) in [(0_u32, 1), (other, 2), (0, 3)] {
            assert_eq!(recent.count(&number.to_le_bytes(), |_| counted), counted);
        }
    }
}
