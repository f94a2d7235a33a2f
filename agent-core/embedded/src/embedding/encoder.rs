//! A text's vector: tokenizer, encoder and pooling.

use candle_core::{Result, Tensor};
use tokenizers::{Tokenizer, TruncationParams};

use super::EmbeddingModelError;
use super::bert::{self, Bert};
use super::config::{self, Architecture};
use super::files::EmbeddingFiles;
use super::layers::Tensors;
use super::modernbert::{self, ModernBert};
use crate::catalog::{EmbeddingSpec, Pooling};

/// Maximum number of bytes of a text for each token that the model reads; the rest is not tokenized. Longer tokens are rare.
const MAX_BYTES_PER_TOKEN: usize = 32;

enum Encoder {
    Bert(Bert),
    ModernBert(ModernBert),
}

/// A loaded embedding model.
pub(super) struct TextEncoder {
    tokenizer: Tokenizer,
    encoder: Encoder,
    pooling: Pooling,
}

impl TextEncoder {
    /// Loads a model.
    pub(super) fn load(
        spec: &EmbeddingSpec,
        files: EmbeddingFiles,
    ) -> std::result::Result<Self, EmbeddingModelError> {
        let (dimensions, architecture) = config::read(&files.config)?;
        if dimensions.hidden != spec.dimensions {
            let detail =
                format!("it has {} dimensions; {} were expected", dimensions.hidden, spec.dimensions);
            return Err(EmbeddingModelError::unusable(detail));
        }
        let in_tokenizer = |error| EmbeddingModelError::unusable(format!("tokenizer.json: {error}"));
        let mut tokenizer = Tokenizer::from_bytes(&files.tokenizer).map_err(in_tokenizer)?;
        let max_length = spec.max_tokens.min(dimensions.positions);
        let truncation = TruncationParams { max_length, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(in_tokenizer)?;
        tokenizer.with_padding(None);
        if tokenizer.get_vocab_size(true) > dimensions.vocabulary {
            return Err(EmbeddingModelError::unusable("the tokenizer has more tokens than the model"));
        }
        let in_weights = |error| EmbeddingModelError::unusable(format!("model.safetensors: {error}"));
        let encoder = match architecture {
            Architecture::Bert { token_types } => {
                let tensors = Tensors::read(files.weights, bert::PREFIX)?;
                Encoder::Bert(Bert::load(dimensions, token_types, &tensors).map_err(in_weights)?)
            }
            Architecture::ModernBert(attention) => {
                let tensors = Tensors::read(files.weights, modernbert::PREFIX)?;
                Encoder::ModernBert(ModernBert::load(dimensions, attention, &tensors).map_err(in_weights)?)
            }
        };
        Ok(Self { tokenizer, encoder, pooling: spec.pooling })
    }

    /// Returns the vector of a text, not normalized.
    pub(super) fn embed(&self, text: &str) -> std::result::Result<Vec<f32>, EmbeddingModelError> {
        let failed = |error: &dyn std::fmt::Display| EmbeddingModelError::Failed(error.to_string());
        let encoding = self.tokenizer.encode_fast(text, true).map_err(|error| failed(&error))?;
        if encoding.get_ids().is_empty() {
            return Err(EmbeddingModelError::Failed("the text has no tokens".into()));
        }
        self.run_and_pool(encoding.get_ids()).map_err(|error| failed(&error))
    }

    fn run_and_pool(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let hidden: Tensor = match &self.encoder {
            Encoder::Bert(bert) => bert.forward(tokens)?,
            Encoder::ModernBert(modern) => modern.forward(tokens)?,
        };
        match self.pooling {
            Pooling::First => hidden.get(0)?.to_vec1(),
            Pooling::Mean => hidden.mean(0)?.to_vec1(),
        }
    }
}

/// Returns the beginning of a text that contains all tokens the model reads.
pub(super) fn readable_prefix<'t>(text: &'t str, spec: &EmbeddingSpec) -> &'t str {
    &text[..text.floor_char_boundary(spec.max_tokens * MAX_BYTES_PER_TOKEN)]
}
