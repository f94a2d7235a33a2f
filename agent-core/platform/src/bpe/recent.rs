//! Cache of the token counts of recent pieces.

/// The longest piece whose count is kept, in bytes: most words, with the space before them.
const MAX_BYTES: usize = 15;
/// Number of bits of an entry's index.
const INDEX_BITS: u32 = 12;
/// Position of the count in an entry. It has four bits, since it is at most [`MAX_BYTES`].
const COUNT_SHIFT: u32 = 120;
/// Position of the piece's length in the last byte of an entry.
const LENGTH_SHIFT: u32 = 4;
/// Mask of the count in an entry.
const COUNT_MASK: u128 = (MAX_BYTES as u128) << COUNT_SHIFT;

/// Token counts of short pieces, in place of a search of the vocabulary. Each thread has its own, of 64 KiB.
///
/// An entry is a piece, its length and its count in 128 bits. It is 0 while it is empty, since no piece has the length 0.
pub(super) struct RecentPieces {
    entries: Box<[u128]>,
}

impl RecentPieces {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        Self { entries: vec![0; 1 << INDEX_BITS].into() }
    }

    /// Returns the count of a piece, which is at most the number of its bytes; calls `count` if it is not kept.
    pub(super) fn count(&mut self, piece: &[u8], count: impl FnOnce(&[u8]) -> usize) -> usize {
        let Some(key) = key(piece) else { return count(piece) };
        let entry = &mut self.entries[index(key)];
        if *entry & !COUNT_MASK == key {
            return ((*entry & COUNT_MASK) >> COUNT_SHIFT) as usize;
        }
        let computed = count(piece);
        *entry = key | (computed as u128) << COUNT_SHIFT;
        computed
    }
}

/// Returns the entry of a piece without its count; `None` if it is empty or too long.
fn key(piece: &[u8]) -> Option<u128> {
    let mut key = [0; MAX_BYTES + 1];
    key.get_mut(..piece.len()).filter(|_| (1..=MAX_BYTES).contains(&piece.len()))?.copy_from_slice(piece);
    key[MAX_BYTES] = (piece.len() as u8) << LENGTH_SHIFT;
    Some(u128::from_le_bytes(key))
}

/// Returns the index of an entry: both halves are multiplied by constants of which half of the bits are set.
fn index(key: u128) -> usize {
    let first = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let second = ((key >> u64::BITS) as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    ((first ^ second.rotate_left(u64::BITS / 2)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> (u64::BITS - INDEX_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_piece_is_counted_once_and_a_long_one_each_time() {
        let mut recent = RecentPieces::new();
        let pieces =
            [(&b" tea"[..], 1), (b" authentication", 15), (b" authenticatio\0", 2), (b"\0", 1), (b"\0\0", 2)];
        for (piece, counted) in pieces {
            assert_eq!(recent.count(piece, |_| counted), counted);
            assert_eq!(recent.count(piece, |_| unreachable!("it is kept")), counted, "{piece:?}");
        }
        for (piece, counted) in [(&b"sixteen bytes..."[..], 3), (b"", 0)] {
            assert_eq!(recent.count(piece, |_| counted), counted);
            assert_eq!(recent.count(piece, |_| 5), 5, "{piece:?} is not kept");
        }
    }

    #[test]
    fn pieces_of_one_place_replace_each_other() {
        let mut recent = RecentPieces::new();
        let slot_index = |number: u32| index(key(&number.to_le_bytes()).expect("a short piece"));
        let other =
            (1..).find(|number| slot_index(*number) == slot_index(0)).expect("there are fewer places");
        for (number, counted) in [(0_u32, 1), (other, 2), (0, 3)] {
            assert_eq!(recent.count(&number.to_le_bytes(), |_| counted), counted);
        }
    }
}
