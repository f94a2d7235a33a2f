//! Lists the models of an Ollama server: `GET /api/tags`.

use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use serde::Deserialize;
use url::Url;

use crate::models::errors::malformed_response;
use crate::outbound::{OutboundClient, UrlTrust, status_failure};

/// Maximum size of the list, in bytes.
const MAX_LIST_BYTES: usize = 1 << 20;

/// A model that the server lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Model name, such as `llama3.2:latest`.
    pub name: String,
    /// True for a chat model, false for an embedding model.
    pub can_chat: bool,
    /// True if the server reports tool support; older servers do not report it.
    pub takes_tools: bool,
    /// True if the server forwards calls to another host.
    pub is_remote: bool,
}

/// Lists the models of the server at `base`, in the server's order, most recently modified first. The whole request
/// takes at most `timeout`.
///
/// # Errors
/// The request failed, timed out, or its response is not a model list.
pub async fn list_models(
    outbound: &OutboundClient,
    base: &Url,
    trust: UrlTrust,
    timeout: Duration,
) -> Result<Vec<ListedModel>, AgentError> {
    let url = crate::outbound::join_path(base, &["api", "tags"])?;
    let reading = async {
        let response = outbound.get(&url, trust)?.send().await?;
        if !response.status.is_success() {
            return Err(status_failure(response.status, &response.headers));
        }
        response.read_limited(MAX_LIST_BYTES, timeout).await
    };
    let late = |_| AgentError::new(AgentErrorKind::Timeout, "the list of models did not arrive in time");
    let body = tokio::time::timeout(timeout, reading).await.map_err(late)??;
    let list: TagsResponse = serde_json::from_slice(&body).map_err(|error| malformed_response(&error))?;
    Ok(list.models.into_iter().map(ListedModel::from).collect())
}

/// Chooses the first local chat model, preferring one that supports tools.
pub fn choose_chat_model(models: &[ListedModel]) -> Option<&ListedModel> {
    let mut able = models.iter().filter(|model| model.can_chat && !model.is_remote);
    able.clone().find(|model| model.takes_tools).or_else(|| able.next())
}

#[derive(Deserialize)]
struct TagsResponse {
    models: Vec<TagsEntry>,
}

#[derive(Deserialize)]
struct TagsEntry {
    name: String,
    #[serde(default)]
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    remote_host: Option<String>,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    family: Option<String>,
}

impl From<TagsEntry> for ListedModel {
    fn from(entry: TagsEntry) -> Self {
        let says =
            |word: &str| entry.capabilities.as_ref().is_some_and(|words| words.iter().any(|w| w == word));
        let family = entry.details.and_then(|details| details.family).unwrap_or_default();
        // Without reported capabilities, embedding models are recognized by their family or name.
        let encodes = family.contains("bert") || entry.name.contains("embed");
        Self {
            can_chat: if entry.capabilities.is_some() { says("completion") } else { !encodes },
            takes_tools: says("tools"),
            is_remote: entry.remote_host.is_some_and(|host| !host.is_empty()),
            name: entry.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::loopback::{AfterResponse, LoopbackServer, chunked_response, outbound_client};

    async fn listed(status: &str, body: &str) -> Result<Vec<ListedModel>, AgentErrorKind> {
        let answer = chunked_response(status, "application/json", body.as_bytes(), 64, true);
        let server = LoopbackServer::respond_with(answer, AfterResponse::Close).await;
        let list =
            list_models(&outbound_client(""), &server.url, UrlTrust::Operator, Duration::from_secs(10)).await;
        assert!(server.requests()[0].starts_with("GET /v1/api/tags HTTP/1.1\r\n"));
        list.map_err(|failure| failure.kind())
    }

    #[tokio::test]
    async fn the_first_chat_model_is_chosen_preferring_tools() {
        let old = |name: &str, family: &str| {
            json!({"name": name, "model": name, "modified_at": "2025-05-04T14:56:49.277302595-07:00",
                "size": 7365960935_u64, "details": {"format": "gguf", "family": family, "families": null}})
        };
        let new = |name: &str, capabilities: &[&str]| json!({"name": name, "capabilities": capabilities});
        let mut cloud = new("big:cloud", &["completion", "tools"]);
        cloud["remote_host"] = "https://ollama.example:443".into();
        let cases: [(Vec<Value>, Option<&str>); 9] = [
            (vec![], None),
            (vec![old("llama3:latest", "llama"), old("mistral:latest", "llama")], Some("llama3:latest")),
            (vec![old("all-minilm:latest", "bert"), old("gemma:2b", "gemma")], Some("gemma:2b")),
            (
                vec![old("embeddinggemma:latest", "gemma3"), old("nomic-embed-text:latest", "nomic-bert")],
                None,
            ),
            (vec![new("a", &["embedding"]), new("b", &["completion"])], Some("b")),
            (vec![new("a", &["completion"]), new("b", &["completion", "tools"])], Some("b")),
            (vec![new("a", &["tools"]), new("b", &[])], None),
            (vec![cloud.clone(), new("b", &["completion"])], Some("b")),
            (vec![cloud], None),
        ];
        for (models, expected) in cases {
            let body = json!({"models": models}).to_string();
            let models = listed("200 OK", &body).await.expect("a list");
            assert_eq!(choose_chat_model(&models).map(|model| model.name.as_str()), expected, "{body}");
        }
    }

    #[tokio::test]
    async fn an_invalid_list_is_an_error() {
        let long = format!("{{\"models\":[{}]}}", " ".repeat(MAX_LIST_BYTES));
        let cases = [
            ("200 OK", "<html>Sorry</html>"),
            ("200 OK", "{}"),
            ("200 OK", "{\"models\":null}"),
            ("200 OK", "{\"models\":[{}]}"),
            ("200 OK", ""),
            ("404 Not Found", "{\"models\":[]}"),
        ];
        for (status, body) in cases {
            assert_eq!(listed(status, body).await, Err(AgentErrorKind::Failed));
        }
        assert_eq!(listed("200 OK", &long).await, Err(AgentErrorKind::OutputTooLarge));
        let silent = chunked_response("200 OK", "application/json", b"{\"models\":[", 64, false);
        for (answer, then) in [(silent, AfterResponse::Hold), (Vec::new(), AfterResponse::Hold)] {
            let server = LoopbackServer::respond_with(answer, then).await;
            let list =
                list_models(&outbound_client(""), &server.url, UrlTrust::Operator, Duration::from_millis(50))
                    .await;
            assert_eq!(list.map_err(|failure| failure.kind()), Err(AgentErrorKind::Timeout));
        }
    }
}
