//! Configuration of the embedding model.

use agent_core::secret::Secret;
use url::Url;

use super::SettingError;
use super::resolve::ResolvedSettings;
use super::values::SettingValues;

const PROVIDER: &str = "EMBEDDING_PROVIDER";
const MODEL: &str = "EMBEDDING_MODEL";
const BASE_URL: &str = "EMBEDDING_BASE_URL";
const API_KEY: &str = "EMBEDDING_API_KEY";
const DIMENSIONS: &str = "EMBEDDING_DIMENSIONS";

/// Defaults by provider.
const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
const OPENAI_MODEL: &str = "text-embedding-3-small";
const OLLAMA_BASE_URL: &str = "http://127.0.0.1:11434";
const LOCAL_MODEL: &str = "granite-embedding-97m-multilingual-r2";

/// Configuration of the embedding model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingConfig {
    /// No embedding model.
    Lexical,
    /// A server of OpenAI's Embeddings API.
    OpenAi(EmbeddingServerConfig),
    /// An Ollama server.
    Ollama(EmbeddingServerConfig),
    /// A model in this process, by its name in the catalogue.
    Local(String),
}

/// Configuration of an embedding model on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingServerConfig {
    /// Base URL of the server.
    pub base_url: Url,
    /// API key; it is sent to the base URL and below it only.
    pub api_key: Option<Secret>,
    /// Name of the model.
    pub model: String,
    /// Number of components to request, if not the model's own.
    pub dimensions: Option<usize>,
}

/// Adds the errors of settings that do not fit together.
pub(super) fn check(resolved: &ResolvedSettings, values: &SettingValues, errors: &mut Vec<SettingError>) {
    let is_faulty = |name: &str| errors.iter().any(|error| error.name.starts_with(name));
    let is_missing = |name: &str| resolved.get(name).is_none() && !is_faulty(name);
    let provider = values.text(PROVIDER).unwrap_or_default();
    let missing = match provider.as_str() {
        // Only the vendor's own API is known to require a key.
        "openai" if is_missing(BASE_URL) && is_missing(API_KEY) => {
            Some((API_KEY, "is missing: OPENAI_API_KEY is not used for documents"))
        }
        "ollama" if is_missing(MODEL) => Some((MODEL, "is missing: ollama has no default model")),
        _ => None,
    };
    if let Some((name, message)) = missing {
        errors.push(SettingError { name: name.to_owned(), source: None, message: message.to_owned() });
    }
    if provider == "local" {
        for name in [BASE_URL, API_KEY, DIMENSIONS] {
            if let Some((_, source)) = resolved.get(name) {
                let message = "is not a setting of the provider local".to_owned();
                errors.push(SettingError { name: name.to_owned(), source: Some(source.clone()), message });
            }
        }
    }
}

/// Builds the configuration from values that [`check`] has accepted.
pub(super) fn load(values: &SettingValues) -> EmbeddingConfig {
    let model = values.text(MODEL);
    let server = |base_url: &str, model: Option<String>| EmbeddingServerConfig {
        base_url: values
            .url(BASE_URL)
            .unwrap_or_else(|| Url::parse(base_url).expect("the defaults are URLs")),
        api_key: values.secret(API_KEY),
        model: model.unwrap_or_default(),
        dimensions: values.number(DIMENSIONS).and_then(|dimensions| usize::try_from(dimensions).ok()),
    };
    match values.text(PROVIDER).as_deref() {
        Some("openai") => {
            EmbeddingConfig::OpenAi(server(OPENAI_BASE_URL, model.or_else(|| Some(OPENAI_MODEL.to_owned()))))
        }
        Some("ollama") => EmbeddingConfig::Ollama(server(OLLAMA_BASE_URL, model)),
        Some("local") => EmbeddingConfig::Local(model.unwrap_or_else(|| LOCAL_MODEL.to_owned())),
        _ => EmbeddingConfig::Lexical,
    }
}
