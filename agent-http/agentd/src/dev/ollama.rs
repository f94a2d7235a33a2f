//! Looking for an Ollama on this machine.

use std::time::Duration;

use agent_http::config::AppConfig;
use agent_http::model::ollama::{choose, list};
use agent_http::outbound::{Outbound, Trust};
use url::Url;

use crate::StartError;

/// Where Ollama listens where nobody says otherwise.
const USUAL_PLACE: &str = "http://127.0.0.1:11434";
/// How long it may take to say what it has. Nobody should wait for a demo because of it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Looks for an Ollama at `OLLAMA_BASE_URL`, else where it usually listens, and enters what it finds into
/// the configuration: the server and a model, `OLLAMA_MODEL` or else the first that can chat, which then
/// answer agents that leave the provider open. Gives a sentence for the person at the terminal, unless
/// there is nothing that they would expect one about.
///
/// # Errors
/// The outbound client cannot be made.
pub async fn look_for_ollama(config: &mut AppConfig) -> Result<Option<String>, StartError> {
    let outbound = Outbound::new(config.server.outbound.clone())?;
    let ollama = &mut config.server.ollama;
    let usual = || Url::parse(USUAL_PLACE).expect("a constant address");
    let base = ollama.base_url.clone().unwrap_or_else(usual);
    ollama.preferred = false;
    let shown = base.as_str().trim_end_matches('/').to_owned();
    let Ok(models) = list(&outbound, &base, Trust::Operator, PATIENCE).await else {
        let expected = ollama.base_url.is_some();
        return Ok(expected.then(|| format!("No Ollama answers at {shown} (OLLAMA_BASE_URL).")));
    };
    ollama.base_url = Some(base);
    let chosen = ollama.model.clone().or_else(|| choose(&models).map(|model| model.name.clone()));
    let Some(chosen) = chosen else {
        return Ok(Some(format!(
            "The Ollama at {shown} has no model of its own that can chat; `ollama pull llama3.2` brings one."
        )));
    };
    ollama.preferred = true;
    ollama.model = Some(chosen.clone());
    let mut words = format!("Agents are answered by {chosen} of the Ollama at {shown}.");
    let latest = format!("{chosen}:latest");
    if !models.iter().any(|model| model.name == chosen || model.name == latest) {
        words += &format!(" It does not have that model yet: `ollama pull {chosen}` brings it.");
    }
    Ok(Some(words))
}
