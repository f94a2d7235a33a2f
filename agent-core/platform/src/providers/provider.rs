//! [`Provider`], and its form in requests.

use std::collections::HashSet;
use std::fmt;

use agent_core::secret::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::catalog::{CatalogEntryError, CatalogModel};
use crate::http_url::parse_http_url;
use crate::roles::resolve_destination;

/// Maximum number of models that a provider describes.
pub const MAX_PROVIDER_MODELS: usize = 100;
/// Maximum length of a key in bytes.
pub const MAX_KEY_BYTES: usize = 4 << 10;
/// Maximum length of an address in bytes.
const MAX_URL_BYTES: usize = 2 << 10;
/// Maximum length of a model's name in bytes.
const MAX_MODEL_BYTES: usize = 256;
/// Members of a model: those that catalogues have, without the provider.
const MODEL_MEMBERS: [&str; 8] =
    ["model", "contextWindow", "maxOutputTokens", "input", "tools", "structured", "reasoning", "prices"];

/// API of a provider: the name of the built-in provider that speaks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderType {
    /// OpenAI's Chat Completions, and the servers that are compatible with it.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI's Responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic's Messages.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// Ollama's own.
    #[serde(rename = "ollama")]
    Ollama,
}

impl ProviderType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Ollama];

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }
}

/// A provider without its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// API of the provider.
    #[serde(rename = "type")]
    pub provider_type: ProviderType,
    /// Base URL; absent for that of the operator's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Models with their known properties, in the format of a catalogue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Map<String, Value>>,
}

/// A provider to save.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderInput {
    /// The provider.
    pub provider: Provider,
    /// Key; absent or masked to keep the stored one, empty to clear it.
    pub api_key: Option<Secret>,
}

/// Fault of a provider to save. It does not repeat the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidProviderError {
    /// Path of the member.
    pub path: String,
    /// Description, worded to follow the path.
    pub message: String,
}

impl InvalidProviderError {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for InvalidProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.message)
    }
}

impl std::error::Error for InvalidProviderError {}

impl Provider {
    /// Returns the address that receives the key, or a text that stands for that of the operator's settings.
    pub(super) fn destination(&self) -> String {
        resolve_destination(&self.base_url, &Some(self.provider_type.as_str().to_owned()), "")
    }

    /// Returns the JSON form, with the key masked.
    pub fn masked_json(&self, id: &str, has_key: bool) -> Value {
        let mut shown = json!({"id": id, "type": self.provider_type, "models": self.models});
        if let Some(url) = &self.base_url {
            shown["baseUrl"] = url.as_str().into();
        }
        if has_key {
            shown["apiKey"] = Secret::MASK.into();
        }
        shown
    }

    /// Returns the models with the provider's identifier and the date of their prices.
    pub(super) fn catalog(&self, id: &str, as_of: &str) -> Vec<CatalogModel> {
        let entries = self.models.iter().map(|entry| with_names(entry, id, as_of));
        entries.filter_map(|entry| CatalogModel::of_company(Some(&entry))).collect()
    }

    /// Returns the entry of a model as containers hold it, with the provider's identifier and the date of the prices. A model
    /// without an entry has its names alone.
    pub(super) fn entry(&self, id: &str, model: &str, as_of: &str) -> Map<String, Value> {
        let has_name = |name: &str| {
            let found = self.models.iter().find(|entry| entry.get("model").is_some_and(|own| own == name));
            found.map(|entry| with_names(entry, id, as_of))
        };
        let undated = || has_name(crate::catalog::without_date(model)?);
        let mut entry =
            has_name(model).or_else(undated).unwrap_or_else(|| with_names(&Map::new(), id, as_of));
        entry.insert("model".to_owned(), model.into());
        entry
    }
}

fn with_names(entry: &Map<String, Value>, id: &str, as_of: &str) -> Map<String, Value> {
    let mut entry = entry.clone();
    entry.insert("provider".to_owned(), id.into());
    entry.insert("asOf".to_owned(), as_of.into());
    entry
}

impl ProviderInput {
    /// Reads a provider from the members of a body.
    ///
    /// # Errors
    /// The first member that is not valid.
    pub fn read(body: &Map<String, Value>) -> Result<Self, InvalidProviderError> {
        let known = ["type", "baseUrl", "apiKey", "models"];
        if let Some(name) = body.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(InvalidProviderError::new(name, "is not a member of providers"));
        }
        let names = ProviderType::ALL.map(ProviderType::as_str);
        let provider_type = text(body, "type")?.and_then(|name| {
            ProviderType::ALL.into_iter().find(|provider_type| provider_type.as_str() == name)
        });
        let provider_type = provider_type.ok_or_else(|| {
            InvalidProviderError::new("type", format!("must be one of {}", names.join(", ")))
        })?;
        let base_url = text(body, "baseUrl")?.map(str::trim).filter(|url| !url.is_empty());
        if let Some(url) = base_url {
            check_url(url).map_err(|fault| InvalidProviderError::new("baseUrl", fault))?;
        }
        let api_key = text(body, "apiKey")?.map(Secret::new);
        if let Some(key) = &api_key {
            check_key(key.expose()).map_err(|fault| InvalidProviderError::new("apiKey", fault))?;
        }
        let base_url = base_url.map(str::to_owned);
        Ok(Self { provider: Provider { provider_type, base_url, models: read_models(body)? }, api_key })
    }
}

fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, InvalidProviderError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(InvalidProviderError::new(name, "must be a string")),
    }
}

/// Returns the fault of an address. The policy of outbound requests is checked where they are made.
fn check_url(text: &str) -> Result<(), String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("has {} bytes; the limit is {MAX_URL_BYTES}", text.len()));
    }
    let url = parse_http_url(text)?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or a fragment".to_owned());
    }
    Ok(())
}

/// Returns the fault of a key: it is sent in a header.
fn check_key(key: &str) -> Result<(), String> {
    if key.len() > MAX_KEY_BYTES {
        return Err(format!("has {} bytes; the limit is {MAX_KEY_BYTES}", key.len()));
    }
    match key.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err("must have printable ASCII characters without spaces only".to_owned()),
    }
}

fn read_models(body: &Map<String, Value>) -> Result<Vec<Map<String, Value>>, InvalidProviderError> {
    let entries = match body.get("models") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(InvalidProviderError::new("models", "must be an array")),
    };
    if entries.len() > MAX_PROVIDER_MODELS {
        let fault = format!("has {} models; the limit is {MAX_PROVIDER_MODELS}", entries.len());
        return Err(InvalidProviderError::new("models", fault));
    }
    let (mut models, mut names) = (Vec::with_capacity(entries.len()), HashSet::new());
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("models[{index}]");
        let Value::Object(entry) = entry else {
            return Err(InvalidProviderError::new(at, "must be an object"));
        };
        if let Some(name) = entry.keys().find(|name| !MODEL_MEMBERS.contains(&name.as_str())) {
            return Err(InvalidProviderError::new(format!("{at}.{name}"), "is not a member of models"));
        }
        let name = text(entry, "model").ok().flatten().unwrap_or_default();
        check_model_name(name).map_err(|fault| InvalidProviderError::new(format!("{at}.model"), fault))?;
        if !names.insert(name) {
            return Err(InvalidProviderError::new(format!("{at}.model"), "is the name of another model"));
        }
        CatalogModel::read(&with_names(entry, "", ""), "").map_err(
            |CatalogEntryError { path, message }| {
                let dot = if path.is_empty() { "" } else { "." };
                InvalidProviderError::new(format!("{at}{dot}{path}"), message)
            },
        )?;
        models.push(entry.clone());
    }
    Ok(models)
}

fn check_model_name(name: &str) -> Result<(), &'static str> {
    let is_trimmed = name.trim().len() == name.len();
    if name.is_empty() || !is_trimmed || name == "*" || name.chars().any(char::is_control) {
        return Err("must be the name of a model");
    }
    if name.len() > MAX_MODEL_BYTES { Err("is too long") } else { Ok(()) }
}
