//! BERT encoder (Devlin et al. 2018): learned positions, normalization after each sublayer.

use candle_core::{Device, Result, Tensor};

use super::config::EncoderDimensions;
use super::layers::{Linear, Norm, Tensors, attend, split_heads};

/// Prefix of the names in checkpoints with a head.
pub(super) const PREFIX: &str = "bert.";

struct BertLayer {
    query: Linear,
    key: Linear,
    value: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    feed_in: Linear,
    feed_out: Linear,
    feed_norm: Norm,
}

/// A BERT encoder.
pub(super) struct Bert {
    dimensions: EncoderDimensions,
    words: Tensor,
    positions: Tensor,
    /// Embedding of the first token type, the one of single texts.
    token_type: Tensor,
    norm: Norm,
    layers: Vec<BertLayer>,
}

impl Bert {
    pub(super) fn load(dimensions: EncoderDimensions, token_types: usize, tensors: &Tensors) -> Result<Self> {
        let EncoderDimensions { hidden, feed_forward, norm_epsilon, .. } = dimensions;
        let embeddings = |name: &str, rows: usize| {
            tensors.load_in_file_precision(&format!("embeddings.{name}_embeddings.weight"), &[rows, hidden])
        };
        let norm = |name: &str| tensors.norm(name, hidden, norm_epsilon, true);
        let square = |name: &str| tensors.linear(name, hidden, hidden, true);
        let layer = |number: usize| {
            let name = |part: &str| format!("encoder.layer.{number}.{part}");
            Ok(BertLayer {
                query: square(&name("attention.self.query"))?,
                key: square(&name("attention.self.key"))?,
                value: square(&name("attention.self.value"))?,
                attention_output: square(&name("attention.output.dense"))?,
                attention_norm: norm(&name("attention.output.LayerNorm"))?,
                feed_in: tensors.linear(&name("intermediate.dense"), hidden, feed_forward, true)?,
                feed_out: tensors.linear(&name("output.dense"), feed_forward, hidden, true)?,
                feed_norm: norm(&name("output.LayerNorm"))?,
            })
        };
        Ok(Self {
            words: embeddings("word", dimensions.vocabulary)?,
            positions: embeddings("position", dimensions.positions)?,
            token_type: embeddings("token_type", token_types)?.narrow(0, 0, 1)?,
            norm: norm("embeddings.LayerNorm")?,
            layers: (0..dimensions.layers).map(layer).collect::<Result<_>>()?,
            dimensions,
        })
    }

    /// Returns the last hidden state of each token.
    pub(super) fn forward(&self, tokens: &[u32]) -> Result<Tensor> {
        let single = candle_core::DType::F32;
        let words = self.words.index_select(&Tensor::new(tokens, &Device::Cpu)?, 0)?.to_dtype(single)?;
        let positions = self.positions.narrow(0, 0, tokens.len())?.to_dtype(single)?;
        let input = (words + positions)?.broadcast_add(&self.token_type.to_dtype(single)?)?;
        let mut hidden = self.norm.forward(&input)?;
        for layer in &self.layers {
            hidden = self.layer(layer, &hidden)?;
        }
        Ok(hidden)
    }

    fn layer(&self, layer: &BertLayer, input: &Tensor) -> Result<Tensor> {
        let heads = |linear: &Linear| split_heads(&linear.forward(input)?, self.dimensions.heads);
        let mixed = attend(&heads(&layer.query)?, &heads(&layer.key)?, &heads(&layer.value)?, None)?;
        let attended = layer.attention_norm.forward(&(layer.attention_output.forward(&mixed)? + input)?)?;
        let fed = self.dimensions.activation.apply(&layer.feed_in.forward(&attended)?)?;
        layer.feed_norm.forward(&(layer.feed_out.forward(&fed)? + attended)?)
    }
}
