//! Forward pass of a Llama-family decoder, in single precision over 8-bit matrices.
//!
//! Replaces the model in `candle-transformers`. That model has no key-value cache that can be truncated to a shared
//! prefix, no logits of every position (to score a text), no packed embedding table, and no control over the thread
//! pool (see [`crate::matrix`]). The file format, the quantised blocks and their dot products come from candle.

use std::io::{Read, Seek};

use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Error};
use rayon::prelude::*;

use crate::attention::{Attention, LANES};
use crate::matrix::{Arithmetic, Matrix};

/// Model dimensions, from the metadata of the weights file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ModelDimensions {
    pub(crate) layers: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) rope_base: f32,
    pub(crate) norm_epsilon: f32,
    /// Context length that the model was trained with, in tokens.
    pub(crate) trained_context: usize,
}

impl ModelDimensions {
    /// Reads the dimensions. `Err` is the metadata key that is missing or out of range.
    pub(crate) fn read(content: &Content) -> Result<Self, String> {
        let number = |key: &str| {
            let key = format!("llama.{key}");
            content.metadata.get(&key).and_then(|v| v.to_u32().ok()).map(|v| v as usize).ok_or(key)
        };
        let float = |key: &str| {
            let key = format!("llama.{key}");
            content.metadata.get(&key).and_then(|v| v.to_f32().ok()).ok_or(key)
        };
        let dimensions = Self {
            layers: number("block_count")?,
            hidden: number("embedding_length")?,
            heads: number("attention.head_count")?,
            kv_heads: number("attention.head_count_kv").or_else(|_| number("attention.head_count"))?,
            rope_base: float("rope.freq_base").unwrap_or(10_000.0),
            norm_epsilon: float("attention.layer_norm_rms_epsilon")?,
            trained_context: number("context_length")?,
        };
        let divides = |part: usize, whole: usize| part > 0 && whole > 0 && whole.is_multiple_of(part);
        if !divides(dimensions.heads, dimensions.hidden) || !divides(LANES, dimensions.head_size()) {
            return Err("llama.attention.head_count".into());
        }
        if !divides(dimensions.kv_heads, dimensions.heads) {
            return Err("llama.attention.head_count_kv".into());
        }
        Ok(dimensions)
    }

    fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    fn kv_size(&self) -> usize {
        self.kv_heads * self.head_size()
    }
}

struct Layer {
    attention_norm: Vec<f32>,
    /// Query, key and value matrices, stacked.
    projections: Matrix,
    attention_output: Matrix,
    feed_norm: Vec<f32>,
    /// Gate and up matrices, stacked.
    gate_up: Matrix,
    down: Matrix,
}

/// Model weights, loaded for inference on the CPU.
pub(crate) struct Llama {
    dimensions: ModelDimensions,
    embeddings: Matrix,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// Output matrix. Absent if the model ties its output to the embeddings and ships one table for both.
    output: Option<Matrix>,
    /// RoPE frequency of each pair of a head's dimensions, in radians per position.
    rope_frequencies: Vec<f32>,
}

impl Llama {
    /// Loads the tensors that `content` describes.
    pub(crate) fn load(
        dimensions: ModelDimensions,
        content: &Content,
        reader: &mut (impl Read + Seek),
    ) -> Result<Self, Error> {
        let mut tensor = |name: &str| content.tensor(reader, &format!("{name}.weight"), &Device::Cpu);
        let embeddings = Matrix::stack(&[tensor("token_embd")?])?;
        let output = match content.tensor_infos.contains_key("output.weight") {
            true => Some(Matrix::stack(&[tensor("output")?])?),
            false => None,
        };
        let norm = tensor_to_f32(tensor("output_norm")?)?;
        let layers = (0..dimensions.layers)
            .map(|n| {
                let mut tensor = |name: &str| tensor(&format!("blk.{n}.{name}"));
                Ok(Layer {
                    attention_norm: tensor_to_f32(tensor("attn_norm")?)?,
                    projections: Matrix::stack(&[tensor("attn_q")?, tensor("attn_k")?, tensor("attn_v")?])?,
                    attention_output: Matrix::stack(&[tensor("attn_output")?])?,
                    feed_norm: tensor_to_f32(tensor("ffn_norm")?)?,
                    gate_up: Matrix::stack(&[tensor("ffn_gate")?, tensor("ffn_up")?])?,
                    down: Matrix::stack(&[tensor("ffn_down")?])?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let size = dimensions.head_size();
        let turns =
            (0..size).step_by(2).map(|i| dimensions.rope_base.powf(-(i as f32) / size as f32)).collect();
        let model = Self { dimensions, embeddings, layers, norm, output, rope_frequencies: turns };
        model.check()?;
        Ok(model)
    }

    /// Checks the dimensions of all matrices against each other, so that no index in the forward pass is out
    /// of bounds.
    fn check(&self) -> Result<(), Error> {
        let ModelDimensions { hidden, .. } = self.dimensions;
        let fits = |matrix: &Matrix, rows: usize, columns: usize| {
            matrix.rows() == rows && matrix.columns() == columns
        };
        let layer_fits = |layer: &Layer| {
            let feed = layer.down.columns();
            fits(&layer.projections, hidden + 2 * self.dimensions.kv_size(), hidden)
                && fits(&layer.attention_output, hidden, hidden)
                && fits(&layer.gate_up, 2 * feed, hidden)
                && fits(&layer.down, hidden, feed)
                && layer.attention_norm.len() == hidden
                && layer.feed_norm.len() == hidden
        };
        let vocabulary = self.embeddings.rows();
        let ends_fit = fits(&self.embeddings, vocabulary, hidden)
            && self.output.as_ref().is_none_or(|output| fits(output, vocabulary, hidden))
            && self.norm.len() == hidden;
        match ends_fit && self.layers.iter().all(layer_fits) {
            true => Ok(()),
            false => Err(Error::msg("the tensor shapes do not match the metadata")),
        }
    }

    /// Returns the vocabulary size in tokens.
    pub(crate) fn vocabulary(&self) -> usize {
        self.embeddings.rows()
    }

    /// Creates an empty key-value cache for this model.
    pub(crate) fn cache(&self) -> KvCache {
        let layers = vec![(Vec::new(), Vec::new()); self.dimensions.layers];
        KvCache { layers, len: 0, kv_size: self.dimensions.kv_size() }
    }

    /// Runs `tokens` at the positions after the cached ones and appends them to the cache. Returns the hidden
    /// states of the new positions, concatenated. Every token must be below the vocabulary size. With the same arithmetic
    /// for all positions, the states do not depend on how the tokens are divided among calls.
    ///
    /// Returns `None` and leaves the cache as it was if `is_cancelled` returns true before one of the layers.
    pub(crate) fn forward(
        &self,
        tokens: &[u32],
        cache: &mut KvCache,
        arithmetic: Arithmetic,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<Vec<f32>> {
        let ModelDimensions { hidden, norm_epsilon, .. } = self.dimensions;
        let mut x = vec![0.0; tokens.len() * hidden];
        for (token, x) in tokens.iter().zip(x.chunks_exact_mut(hidden)) {
            self.embeddings.row(*token as usize, x);
        }
        for (layer, layer_cache) in self.layers.iter().zip(&mut cache.layers) {
            if is_cancelled() {
                cache.truncate(cache.len);
                return None;
            }
            let normed = normalise(&x, &layer.attention_norm, norm_epsilon);
            let mixed = self.attend(layer.projections.multiply(&normed, arithmetic), layer_cache, cache.len);
            add(&mut x, &layer.attention_output.multiply(&mixed, arithmetic));
            let normed = normalise(&x, &layer.feed_norm, norm_epsilon);
            let gated = gated_silu(&layer.gate_up.multiply(&normed, arithmetic), layer.down.columns());
            add(&mut x, &layer.down.multiply(&gated, arithmetic));
        }
        cache.len += tokens.len();
        Some(x)
    }

    /// Computes the logits over the vocabulary for hidden states, concatenated by position.
    pub(crate) fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        let normed = normalise(hidden, &self.norm, self.dimensions.norm_epsilon);
        let arithmetic = Arithmetic::fastest(hidden.len() / self.dimensions.hidden);
        self.output.as_ref().unwrap_or(&self.embeddings).multiply(&normed, arithmetic)
    }

    /// Returns the hidden states of the last position.
    pub(crate) fn last_position<'a>(&self, hidden: &'a [f32]) -> &'a [f32] {
        &hidden[hidden.len() - self.dimensions.hidden..]
    }

    /// Computes causal grouped-query attention. `projected` holds query, key and value of each position.
    fn attend(
        &self,
        mut projected: Vec<f32>,
        layer_cache: &mut (Vec<f32>, Vec<f32>),
        past: usize,
    ) -> Vec<f32> {
        let ModelDimensions { heads, kv_heads, hidden, .. } = self.dimensions;
        let (size, kv_size) = (self.dimensions.head_size(), self.dimensions.kv_size());
        let width = hidden + 2 * kv_size;
        let (keys, values) = layer_cache;
        for (n, position) in projected.chunks_exact_mut(width).enumerate() {
            self.rotate(&mut position[..hidden + kv_size], past + n);
            keys.extend_from_slice(&position[hidden..hidden + kv_size]);
            values.extend_from_slice(&position[hidden + kv_size..]);
        }
        let scale = 1.0 / (size as f32).sqrt();
        let mut mixed = vec![0.0; projected.len() / width * hidden];
        mixed.par_chunks_exact_mut(size).enumerate().for_each(|(task, mixed)| {
            let (n, head) = (task / heads, task % heads);
            let query = &projected[n * width + head * size..][..size];
            let kv_start = head / (heads / kv_heads) * size;
            let visible_range = ..(past + n + 1) * kv_size;
            let (keys, values) = (&keys[visible_range], &values[visible_range]);
            Attention { query, keys, values, kv_size, kv_start, scale }.write_to(mixed);
        });
        mixed
    }

    /// Applies RoPE: rotates each pair of adjacent dimensions by the position, in the order that GGUF uses
    /// for Llama heads.
    fn rotate(&self, heads: &mut [f32], position: usize) {
        for head in heads.chunks_exact_mut(self.dimensions.head_size()) {
            for (pair, turn) in head.chunks_exact_mut(2).zip(&self.rope_frequencies) {
                let (sin, cos) = (position as f32 * turn).sin_cos();
                (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos);
            }
        }
    }
}

/// Key-value cache of the positions run so far.
pub(crate) struct KvCache {
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    len: usize,
    /// Length of the keys, and of the values, of a position in each layer.
    kv_size: usize,
}

impl KvCache {
    /// Drops all positions from `len` on, and those that not all layers have.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        for (keys, values) in &mut self.layers {
            keys.truncate(self.len * self.kv_size);
            values.truncate(self.len * self.kv_size);
        }
    }
}

fn normalise(x: &[f32], weights: &[f32], epsilon: f32) -> Vec<f32> {
    let mut normed = Vec::with_capacity(x.len());
    for x in x.chunks_exact(weights.len()) {
        let mean_square = x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (mean_square + epsilon).sqrt();
        normed.extend(x.iter().zip(weights).map(|(v, w)| v * scale * w));
    }
    normed
}

/// Computes the gated linear unit with SiLU. `gate_up` holds gate and up of each position, `size` numbers each.
fn gated_silu(gate_up: &[f32], size: usize) -> Vec<f32> {
    let mut gated = Vec::with_capacity(gate_up.len() / 2);
    for position in gate_up.chunks_exact(2 * size) {
        let (gate, up) = position.split_at(size);
        gated.extend(gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u));
    }
    gated
}

fn add(x: &mut [f32], addend: &[f32]) {
    for (x, addend) in x.iter_mut().zip(addend) {
        *x += addend;
    }
}

fn tensor_to_f32(tensor: QTensor) -> Result<Vec<f32>, Error> {
    tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()
}
