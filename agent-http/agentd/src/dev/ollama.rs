//! Detection of an Ollama server on this machine.

use std::time::Duration;

use agent_client::models::ollama::{choose_chat_model, list_models};
use agent_client::outbound::{OutboundClient, UrlTrust};
use url::Url;

use crate::StartError;
use crate::config::AppConfig;

/// Default address of an Ollama server.
const DEFAULT_OLLAMA_URL: &str = "http://127.0.0.1:11434";
/// Timeout of the model-list request; short, so that it does not delay the start of the demo.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_millis(500);

/// Queries an Ollama server at `OLLAMA_BASE_URL`, or else at its default address, and stores the result in the configuration: the
/// server and a model (`OLLAMA_MODEL`, otherwise the first one that can chat), which then answer for agents without a provider.
/// Returns a message for the terminal, or `None` if no server was found and none was configured.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub async fn detect_ollama(config: &mut AppConfig) -> Result<Option<String>, StartError> {
    let outbound = OutboundClient::new(config.server.outbound.clone())?;
    let ollama = &mut config.server.ollama;
    let default = || Url::parse(DEFAULT_OLLAMA_URL).expect("a constant address");
    let base = ollama.base_url.clone().unwrap_or_else(default);
    ollama.preferred = false;
    let address = base.as_str().trim_end_matches('/').to_owned();
    let Ok(models) = list_models(&outbound, &base, UrlTrust::Operator, MODEL_LIST_TIMEOUT).await else {
        let is_configured = ollama.base_url.is_some();
        return Ok(is_configured.then(|| format!("Ollama is not reachable at {address} (OLLAMA_BASE_URL).")));
    };
    ollama.base_url = Some(base);
    let chosen = ollama.model.clone().or_else(|| choose_chat_model(&models).map(|model| model.name.clone()));
    let Some(chosen) = chosen else {
        return Ok(Some(format!(
            "The Ollama server at {address} has no local chat model; run `ollama pull llama3.2`."
        )));
    };
    ollama.preferred = true;
    ollama.model = Some(chosen.clone());
    let mut message = format!("Agents use {chosen} of the Ollama server at {address}.");
    let latest = format!("{chosen}:latest");
    if !models.iter().any(|model| model.name == chosen || model.name == latest) {
        message += &format!(" The server does not have that model: run `ollama pull {chosen}`.");
    }
    Ok(Some(message))
}
