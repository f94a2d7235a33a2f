//! Operations of the encoders on one text: matrices have a row for each token.

use candle_core::safetensors::BufferedSafetensors;
use candle_core::{D, DType, Device, Result, Tensor};

use super::EmbeddingModelError;

/// Tensors of a file, loaded by name with their dimensions checked.
pub(super) struct Tensors {
    file: BufferedSafetensors,
    /// Prefix of all names in this file.
    prefix: &'static str,
}

impl Tensors {
    /// Reads the header of a file. The names may have the prefix that checkpoints of the whole model have.
    pub(super) fn read(
        bytes: Vec<u8>,
        prefix: &'static str,
    ) -> std::result::Result<Self, EmbeddingModelError> {
        let damaged = |error| EmbeddingModelError::unusable(format!("model.safetensors: {error}"));
        let file = BufferedSafetensors::new(bytes).map_err(damaged)?;
        let has_prefix = file.tensors().iter().any(|(name, _)| name.starts_with(prefix));
        Ok(Self { file, prefix: if has_prefix { prefix } else { "" } })
    }

    /// Loads a tensor in single precision.
    pub(super) fn get(&self, name: &str, dimensions: &[usize]) -> Result<Tensor> {
        self.load_in_file_precision(name, dimensions)?.to_dtype(DType::F32)
    }

    /// Loads a tensor in the precision of the file.
    pub(super) fn load_in_file_precision(&self, name: &str, dimensions: &[usize]) -> Result<Tensor> {
        let tensor = self.file.load(&format!("{}{name}", self.prefix), &Device::Cpu)?;
        if tensor.dims() != dimensions {
            candle_core::bail!("{name} has the dimensions {:?}; {dimensions:?} were expected", tensor.dims());
        }
        match tensor.dtype() {
            DType::F32 | DType::F16 | DType::BF16 => Ok(tensor),
            other => candle_core::bail!("{name} has components of the type {other:?}"),
        }
    }

    /// Loads `name.weight` and, with a bias, `name.bias`.
    pub(super) fn linear(&self, name: &str, from: usize, to: usize, has_bias: bool) -> Result<Linear> {
        let weight = self.get(&format!("{name}.weight"), &[to, from])?.t()?;
        let bias = has_bias.then(|| self.get(&format!("{name}.bias"), &[to])).transpose()?;
        Ok(Linear { weight, bias })
    }

    /// Loads `name.weight` and, with a bias, `name.bias`.
    pub(super) fn norm(&self, name: &str, size: usize, epsilon: f64, has_bias: bool) -> Result<Norm> {
        let weight = self.get(&format!("{name}.weight"), &[size])?;
        let bias = has_bias.then(|| self.get(&format!("{name}.bias"), &[size])).transpose()?;
        Ok(Norm { weight, bias, epsilon })
    }
}

/// A matrix product with an optional bias.
pub(super) struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let output = input.matmul(&self.weight)?;
        match &self.bias {
            Some(bias) => output.broadcast_add(bias),
            None => Ok(output),
        }
    }
}

/// Layer normalization.
pub(super) struct Norm {
    weight: Tensor,
    bias: Option<Tensor>,
    epsilon: f64,
}

impl Norm {
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let centred = input.broadcast_sub(&input.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let scaled =
            centred.broadcast_div(&(variance + self.epsilon)?.sqrt()?)?.broadcast_mul(&self.weight)?;
        match &self.bias {
            Some(bias) => scaled.broadcast_add(bias),
            None => Ok(scaled),
        }
    }
}

/// Activation function of the feed-forward layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Gelu,
    GeluTanh,
    Silu,
    Relu,
}

impl Activation {
    /// Returns the function by its name in `config.json`.
    pub(super) fn from_name(name: &str) -> std::result::Result<Self, String> {
        match name {
            "gelu" => Ok(Self::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" => Ok(Self::GeluTanh),
            "silu" | "swish" => Ok(Self::Silu),
            "relu" => Ok(Self::Relu),
            other => Err(format!("the activation {other:?} is not supported")),
        }
    }

    pub(super) fn apply(self, input: &Tensor) -> Result<Tensor> {
        match self {
            Self::Gelu => input.gelu_erf(),
            Self::GeluTanh => input.gelu(),
            Self::Silu => input.silu(),
            Self::Relu => input.relu(),
        }
    }
}

/// Splits the columns of each token into heads: from tokens × (heads · size) to heads × tokens × size.
pub(super) fn split_heads(input: &Tensor, heads: usize) -> Result<Tensor> {
    let (tokens, hidden) = input.dims2()?;
    input.reshape((tokens, heads, hidden / heads))?.transpose(0, 1)?.contiguous()
}

/// Computes attention over all tokens; `mask` is added to the scores. Takes heads × tokens × size, returns a row for each token.
pub(super) fn attend(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let (heads, tokens, size) = query.dims3()?;
    let scores = (query.matmul(&key.transpose(1, 2)?)? * (1.0 / (size as f64).sqrt()))?;
    let scores = match mask {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    let weights = softmax(&scores)?;
    weights.matmul(value)?.transpose(0, 1)?.reshape((tokens, heads * size))
}

fn softmax(scores: &Tensor) -> Result<Tensor> {
    let exponentials = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    exponentials.broadcast_div(&exponentials.sum_keepdim(D::Minus1)?)
}
