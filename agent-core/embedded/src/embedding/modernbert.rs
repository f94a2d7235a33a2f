//! ModernBERT encoder (Warner et al. 2024): rotary positions, gated feed-forward layers, normalization before each
//! sublayer, and layers that see the tokens around each token alone.

use candle_core::{DType, Device, Result, Tensor};

use super::config::{EncoderDimensions, LocalAttention};
use super::layers::{Linear, Norm, Tensors, attend, split_heads};

/// Prefix of the names in checkpoints with a head.
pub(super) const PREFIX: &str = "model.";

struct ModernBertLayer {
    /// Absent in the first layer, whose input is normalized already.
    attention_norm: Option<Norm>,
    projections: Linear,
    attention_output: Linear,
    feed_norm: Norm,
    /// Input and gate of the feed-forward layer, stacked.
    feed_in: Linear,
    feed_out: Linear,
}

/// A ModernBERT encoder.
pub(super) struct ModernBert {
    dimensions: EncoderDimensions,
    attention: LocalAttention,
    words: Tensor,
    norm: Norm,
    layers: Vec<ModernBertLayer>,
    final_norm: Norm,
}

impl ModernBert {
    pub(super) fn load(
        dimensions: EncoderDimensions,
        attention: LocalAttention,
        tensors: &Tensors,
    ) -> Result<Self> {
        let EncoderDimensions { hidden, feed_forward, norm_epsilon, .. } = dimensions;
        let norm = |name: &str| tensors.norm(name, hidden, norm_epsilon, false);
        let layer = |number: usize| {
            let name = |part: &str| format!("layers.{number}.{part}");
            Ok(ModernBertLayer {
                attention_norm: (number > 0).then(|| norm(&name("attn_norm"))).transpose()?,
                projections: tensors.linear(&name("attn.Wqkv"), hidden, 3 * hidden, false)?,
                attention_output: tensors.linear(&name("attn.Wo"), hidden, hidden, false)?,
                feed_norm: norm(&name("mlp_norm"))?,
                feed_in: tensors.linear(&name("mlp.Wi"), hidden, 2 * feed_forward, false)?,
                feed_out: tensors.linear(&name("mlp.Wo"), feed_forward, hidden, false)?,
            })
        };
        Ok(Self {
            words: tensors.load_in_file_precision(
                "embeddings.tok_embeddings.weight",
                &[dimensions.vocabulary, hidden],
            )?,
            norm: norm("embeddings.norm")?,
            layers: (0..dimensions.layers).map(layer).collect::<Result<_>>()?,
            final_norm: norm("final_norm")?,
            dimensions,
            attention,
        })
    }

    /// Returns the last hidden state of each token.
    pub(super) fn forward(&self, tokens: &[u32]) -> Result<Tensor> {
        let size = self.dimensions.hidden / self.dimensions.heads;
        let global = Rotation::new(tokens.len(), size, self.attention.global_theta)?;
        let local = Rotation::new(tokens.len(), size, self.attention.local_theta)?;
        let mask = window_mask(tokens.len(), self.attention.window)?;
        let words = self.words.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?.to_dtype(DType::F32)?;
        let mut hidden = self.norm.forward(&words)?;
        for (layer, &is_global) in self.layers.iter().zip(&self.attention.is_global) {
            let (rotation, mask) = if is_global { (&global, None) } else { (&local, Some(&mask)) };
            hidden = (self.attention(layer, &hidden, rotation, mask)? + hidden)?;
            hidden = (self.feed_forward(layer, &hidden)? + hidden)?;
        }
        self.final_norm.forward(&hidden)
    }

    fn attention(
        &self,
        layer: &ModernBertLayer,
        input: &Tensor,
        rotation: &Rotation,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let projected = match &layer.attention_norm {
            Some(norm) => layer.projections.forward(&norm.forward(input)?)?,
            None => layer.projections.forward(input)?,
        };
        let hidden = self.dimensions.hidden;
        let heads =
            |part: usize| split_heads(&projected.narrow(1, part * hidden, hidden)?, self.dimensions.heads);
        let (query, key) = (rotation.apply(&heads(0)?)?, rotation.apply(&heads(1)?)?);
        layer.attention_output.forward(&attend(&query, &key, &heads(2)?, mask)?)
    }

    fn feed_forward(&self, layer: &ModernBertLayer, input: &Tensor) -> Result<Tensor> {
        let size = self.dimensions.feed_forward;
        let fed = layer.feed_in.forward(&layer.feed_norm.forward(input)?)?;
        let activated = self.dimensions.activation.apply(&fed.narrow(1, 0, size)?)?;
        layer.feed_out.forward(&(activated * fed.narrow(1, size, size)?)?)
    }
}

/// Rotary position embedding: cosines and sines of each position's angles.
struct Rotation {
    cosines: Tensor,
    sines: Tensor,
}

impl Rotation {
    fn new(tokens: usize, size: usize, theta: f64) -> Result<Self> {
        let angles: Vec<f32> = (0..tokens)
            .flat_map(|position| {
                let frequency = move |pair: usize| theta.powf(-((2 * pair) as f64) / size as f64);
                (0..size / 2).map(move |pair| (position as f64 * frequency(pair)) as f32)
            })
            .collect();
        let angles = Tensor::from_vec(angles, (tokens, size / 2), &Device::Cpu)?;
        Ok(Self { cosines: angles.cos()?, sines: angles.sin()? })
    }

    /// Rotates the pairs of components. The second component of each pair is in the second half.
    fn apply(&self, input: &Tensor) -> Result<Tensor> {
        let half = input.dim(2)? / 2;
        let (first, second) = (input.narrow(2, 0, half)?, input.narrow(2, half, half)?);
        let rotated_first = (first.broadcast_mul(&self.cosines)? - second.broadcast_mul(&self.sines)?)?;
        let rotated_second = (second.broadcast_mul(&self.cosines)? + first.broadcast_mul(&self.sines)?)?;
        Tensor::cat(&[rotated_first, rotated_second], 2)
    }
}

/// Returns the mask of tokens within a distance: 0 for visible tokens, minus infinity for the others.
fn window_mask(tokens: usize, window: usize) -> Result<Tensor> {
    let mask_value =
        |row: usize, column: usize| if row.abs_diff(column) <= window { 0.0 } else { f32::NEG_INFINITY };
    let mask: Vec<f32> =
        (0..tokens).flat_map(|row| (0..tokens).map(move |column| mask_value(row, column))).collect();
    Tensor::from_vec(mask, (tokens, tokens), &Device::Cpu)
}
