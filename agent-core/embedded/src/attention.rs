//! Attention of one head at one position, compiled for the processor's widest instructions, which are found at run time.

use pulp::{Arch, NullaryFnOnce};

/// Number of partial sums in a dot product, so that the compiler can vectorise it.
pub(crate) const LANES: usize = 8;

/// Query of one head, and the keys and values that it sees.
pub(crate) struct Attention<'a> {
    pub(crate) query: &'a [f32],
    /// Keys of all key-value heads at the visible positions, concatenated by position.
    pub(crate) keys: &'a [f32],
    /// Values, in the same order.
    pub(crate) values: &'a [f32],
    /// Length of the keys of one position.
    pub(crate) kv_size: usize,
    /// Offset of this head in the keys of a position.
    pub(crate) kv_start: usize,
    /// Factor of the scores.
    pub(crate) scale: f32,
}

impl Attention<'_> {
    /// Adds the mean of the values, weighted by attention, to `mixed`, which has the length of the query.
    pub(crate) fn write_to(self, mixed: &mut [f32]) {
        Arch::new().dispatch(AttentionCall { attention: self, mixed });
    }

    /// Inlined, so that it is compiled for the instructions of the caller.
    #[inline(always)]
    fn add_to(&self, mixed: &mut [f32]) {
        let head = self.kv_start..self.kv_start + self.query.len();
        let mut weights = Vec::with_capacity(self.keys.len() / self.kv_size);
        for key in self.keys.chunks_exact(self.kv_size) {
            weights.push(dot(self.query, &key[head.clone()]) * self.scale);
        }
        softmax(&mut weights);
        for (weight, value) in weights.iter().zip(self.values.chunks_exact(self.kv_size)) {
            for (m, v) in mixed.iter_mut().zip(&value[head.clone()]) {
                *m += weight * v;
            }
        }
    }
}

struct AttentionCall<'a> {
    attention: Attention<'a>,
    mixed: &'a mut [f32],
}

impl NullaryFnOnce for AttentionCall<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.attention.add_to(self.mixed);
    }
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

#[inline(always)]
fn softmax(values: &mut [f32]) {
    let mut max = f32::NEG_INFINITY;
    for value in values.iter() {
        max = max.max(*value);
    }
    let mut sum = 0.0;
    for value in values.iter_mut() {
        *value = (*value - max).exp();
        sum += *value;
    }
    for value in values {
        *value /= sum;
    }
}
