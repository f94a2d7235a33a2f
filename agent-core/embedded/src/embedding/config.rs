//! Dimensions of an encoder, from `config.json`.

use serde::Deserialize;

use super::EmbeddingModelError;
use super::layers::Activation;

/// Maximum accepted values, so that an invalid file cannot cause unbounded work.
const MAX_LAYERS: usize = 64;
const MAX_HIDDEN: usize = 8192;

/// `config.json` as the model hub has it, in the old and the new names of the rotary embedding.
#[derive(Debug, Deserialize)]
struct RawConfig {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    #[serde(alias = "hidden_activation")]
    hidden_act: Option<String>,
    #[serde(alias = "norm_eps")]
    layer_norm_eps: Option<f64>,
    type_vocab_size: Option<usize>,
    position_embedding_type: Option<String>,
    local_attention: Option<usize>,
    layer_types: Option<Vec<String>>,
    global_attn_every_n_layers: Option<usize>,
    global_rope_theta: Option<f64>,
    local_rope_theta: Option<f64>,
    rope_parameters: Option<RopeParameters>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    norm_bias: bool,
}

#[derive(Debug, Deserialize)]
struct RopeParameters {
    full_attention: Option<RopeParameter>,
    sliding_attention: Option<RopeParameter>,
}

#[derive(Debug, Deserialize)]
struct RopeParameter {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
}

/// Dimensions that both architectures have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EncoderDimensions {
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) feed_forward: usize,
    pub(super) positions: usize,
    pub(super) activation: Activation,
    pub(super) norm_epsilon: f64,
}

/// The architecture of an encoder.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Architecture {
    Bert { token_types: usize },
    ModernBert(LocalAttention),
}

/// The attention of ModernBERT's layers, which see all tokens or those around each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LocalAttention {
    /// True for each layer whose tokens attend to all tokens, and not only to near ones.
    pub(super) is_global: Vec<bool>,
    /// Distance of tokens that the other layers see.
    pub(super) window: usize,
    pub(super) global_theta: f64,
    pub(super) local_theta: f64,
}

/// Reads `config.json`.
pub(super) fn read(json: &[u8]) -> Result<(EncoderDimensions, Architecture), EmbeddingModelError> {
    let raw: RawConfig = serde_json::from_slice(json)
        .map_err(|error| EmbeddingModelError::unusable(format!("config.json: {error}")))?;
    let unusable = |detail: String| EmbeddingModelError::unusable(format!("config.json: {detail}"));
    let is_sound = raw.num_attention_heads > 0
        && raw.hidden_size.is_multiple_of(2 * raw.num_attention_heads)
        && (1..=MAX_HIDDEN).contains(&raw.hidden_size)
        && (1..=MAX_LAYERS).contains(&raw.num_hidden_layers)
        && raw.max_position_embeddings > 1;
    if !is_sound {
        return Err(unusable("the dimensions do not fit together".into()));
    }
    let architecture = match raw.model_type.as_str() {
        "bert" => bert(&raw),
        "modernbert" => modern_bert(&raw),
        other => Err(format!("the architecture {other:?} is not supported, only bert and modernbert are")),
    };
    let default_epsilon = if raw.model_type == "bert" { 1e-12 } else { 1e-5 };
    let dimensions = EncoderDimensions {
        vocabulary: raw.vocab_size,
        hidden: raw.hidden_size,
        layers: raw.num_hidden_layers,
        heads: raw.num_attention_heads,
        feed_forward: raw.intermediate_size,
        positions: raw.max_position_embeddings,
        activation: Activation::from_name(raw.hidden_act.as_deref().unwrap_or("gelu")).map_err(unusable)?,
        norm_epsilon: raw.layer_norm_eps.unwrap_or(default_epsilon),
    };
    Ok((dimensions, architecture.map_err(unusable)?))
}

fn bert(raw: &RawConfig) -> Result<Architecture, String> {
    match raw.position_embedding_type.as_deref().unwrap_or("absolute") {
        "absolute" => Ok(Architecture::Bert { token_types: raw.type_vocab_size.unwrap_or(2) }),
        other => Err(format!("positions of the type {other:?} are not supported")),
    }
}

fn modern_bert(raw: &RawConfig) -> Result<Architecture, String> {
    if raw.attention_bias || raw.mlp_bias || raw.norm_bias {
        return Err("biases are not supported".into());
    }
    let every = raw.global_attn_every_n_layers.unwrap_or(3).max(1);
    let is_global: Vec<bool> = match &raw.layer_types {
        Some(types) => types.iter().map(|kind| kind == "full_attention").collect(),
        None => (0..raw.num_hidden_layers).map(|layer| layer.is_multiple_of(every)).collect(),
    };
    if is_global.len() != raw.num_hidden_layers {
        return Err("layer_types does not have one entry for each layer".into());
    }
    let rope = |of: fn(&RopeParameters) -> &Option<RopeParameter>| {
        raw.rope_parameters.as_ref().and_then(|parameters| of(parameters).as_ref())
    };
    let (full, sliding) = (rope(|all| &all.full_attention), rope(|all| &all.sliding_attention));
    if let Some(scaled) = [full, sliding]
        .into_iter()
        .flatten()
        .find_map(|rope| rope.rope_type.as_deref())
        .filter(|kind| *kind != "default")
    {
        return Err(format!("the rotary embedding {scaled:?} is not supported"));
    }
    let theta = |new: Option<&RopeParameter>, old: Option<f64>, default: f64| {
        new.and_then(|rope| rope.rope_theta).or(old).unwrap_or(default)
    };
    Ok(Architecture::ModernBert(LocalAttention {
        is_global,
        window: raw.local_attention.unwrap_or(128) / 2,
        global_theta: theta(full, raw.global_rope_theta, 160_000.0),
        local_theta: theta(sliding, raw.local_rope_theta, 10_000.0),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn modern(more: Value) -> Result<LocalAttention, String> {
        let mut config = json!({"model_type": "modernbert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 4,
            "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        match read(config.to_string().as_bytes()) {
            Ok((_, Architecture::ModernBert(attention))) => Ok(attention),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn old_and_new_names_mean_the_same() {
        let old = json!({"global_attn_every_n_layers": 3, "local_attention": 8, "global_rope_theta": 160000.0,
            "local_rope_theta": 10000.0});
        let new = json!({"layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "local_attention": 8, "rope_parameters": {"full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}});
        let attention = modern(old).unwrap();
        assert_eq!(attention.is_global, [true, false, false, true]);
        assert_eq!((attention.window, attention.global_theta), (4, 160_000.0));
        assert_eq!(modern(new), Ok(attention));
    }

    #[test]
    fn unusable_configurations_are_named() {
        let cases = [
            (json!({"model_type": "t5"}), "\"t5\" is not supported"),
            (json!({"num_attention_heads": 3}), "do not fit together"),
            (json!({"num_attention_heads": 0}), "do not fit together"),
            (json!({"num_hidden_layers": 1000}), "do not fit together"),
            (json!({"hidden_activation": "relu6"}), "\"relu6\" is not supported"),
            (json!({"mlp_bias": true}), "biases are not supported"),
            (json!({"layer_types": ["full_attention"]}), "one entry for each layer"),
            (
                json!({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}),
                "\"yarn\" is not supported",
            ),
            (json!({"hidden_size": "8"}), "invalid type"),
        ];
        for (more, expected) in cases {
            let error = modern(more).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
