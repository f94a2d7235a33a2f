//! The secrets of a role: their fields, their destinations, and their merge when a role is saved. Pure.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use url::Url;

use agent_core::role::{
    AgentServer, Container, EmbeddedAi, OwnTool, OwnTools, RoleBlock, WebhookAuth, WorkflowConnector,
};
use agent_core::secret::Secret;

/// A field of a role that may hold a secret.
pub(crate) struct SecretField<'a> {
    /// Path of the field, such as `children.EmbeddedAI[0].content.apiKey`. A container's index counts containers of its own
    /// name only, so that adding or removing other containers does not move its secrets.
    pub path: String,
    /// Addresses that the secret is sent to; empty if the role does not name them.
    destination: Vec<String>,
    /// The field's value.
    pub secret: &'a mut Option<Secret>,
}

/// Returns all fields of a role that may hold a secret.
pub(crate) fn secret_fields(role: &mut RoleBlock) -> Vec<SecretField<'_>> {
    let content = &mut role.content;
    let mut fields = vec![SecretField {
        path: "content.messengerToken".to_owned(),
        destination: Vec::new(),
        secret: &mut content.messenger_token,
    }];
    fields.extend(agent_server_fields("content", &mut content.agent_server));
    fields.extend(own_tool_fields(&mut content.own_tools));
    let mut seen: HashMap<&'static str, usize> = HashMap::new();
    for child in &mut role.children {
        let mut content = |name: &'static str| {
            let nth = seen.entry(name).or_default();
            let path = format!("children.{name}[{nth}].content");
            *nth += 1;
            path
        };
        match child {
            Container::AgentServer(server) => {
                fields.extend(agent_server_fields(&content("AgentServer"), server));
            }
            Container::EmbeddedAi(embedded) => {
                fields.extend(embedded_ai_fields(&content("EmbeddedAI"), embedded));
            }
            Container::WorkflowConnector(workflow) => {
                fields.extend(workflow_field(&content("WorkflowConnector"), workflow));
            }
            Container::SubscriptionConnector(_) | Container::Other { .. } => {}
        }
    }
    fields
}

/// Returns the keys of an agent server and of its fallbacks, which are matched by their positions. The runtime
/// receives the key and passes it on to the configured URL or else to the provider.
fn agent_server_fields<'a>(content: &str, server: &'a mut AgentServer) -> Vec<SecretField<'a>> {
    let provider = resolve_destination(&server.agent_server_local_url, &server.agent_server_provider, "");
    let own = SecretField {
        path: format!("{content}.agentServerApiKey"),
        destination: vec![normalize_url(&server.agent_server_url), provider],
        secret: &mut server.agent_server_api_key,
    };
    let fallbacks = server.fallbacks.iter_mut().enumerate();
    let fallbacks =
        fallbacks.flat_map(|(i, other)| agent_server_fields(&format!("{content}.fallbacks[{i}]"), other));
    [own].into_iter().chain(fallbacks).collect()
}

/// Returns the keys of a container's model and of its fallbacks, which are matched by their positions.
fn embedded_ai_fields<'a>(content: &str, embedded: &'a mut EmbeddedAi) -> Vec<SecretField<'a>> {
    let own = SecretField {
        path: format!("{content}.apiKey"),
        destination: vec![resolve_destination(&embedded.base_url, &embedded.provider, "auto")],
        secret: &mut embedded.api_key,
    };
    let fallbacks = embedded.fallbacks.iter_mut().enumerate().map(|(i, fallback)| SecretField {
        path: format!("{content}.fallbacks[{i}].apiKey"),
        destination: vec![resolve_destination(&fallback.base_url, &fallback.provider, "auto")],
        secret: &mut fallback.api_key,
    });
    [own].into_iter().chain(fallbacks).collect()
}

fn workflow_field<'a>(content: &str, workflow: &'a mut WorkflowConnector) -> Option<SecretField<'a>> {
    let (field, secret) = match workflow.auth.as_mut()? {
        WebhookAuth::None => return None,
        WebhookAuth::Basic { password, .. } => ("password", password),
        WebhookAuth::Header { value, .. } => ("value", value),
        WebhookAuth::Jwt { secret } => ("secret", secret),
    };
    let destination = vec![normalize_url(&workflow.webhook_url)];
    Some(SecretField { path: format!("{content}.auth.{field}"), destination, secret })
}

/// Returns the secrets of the role's own tools. A tool's is identified by its name, and a group's by its id, so that its
/// position in the list does not matter; of two of one name, which cannot be saved, the second has none. It is sent to the
/// origin of the address.
fn own_tool_fields(tools: &mut OwnTools) -> impl Iterator<Item = SecretField<'_>> {
    let http_url = |settings: &Map<String, Value>| {
        let url = text(settings.get("request").and_then(|request| request.get("url")));
        http_tool_destination(&url)
    };
    let url_in = |field: &'static str| {
        move |settings: &Map<String, Value>| normalize_url(&Some(text(settings.get(field))))
    };
    let http_tools = tool_fields(&mut tools.http_tools, ("httpTools", "name"), http_url);
    let open_api = tool_fields(&mut tools.open_api, ("openApi", "id"), url_in("server"));
    let servers = tool_fields(&mut tools.tool_servers, ("toolServers", "id"), url_in("url"));
    http_tools.chain(open_api).chain(servers)
}

/// Returns the secrets of a list of tools; `key` is the field that identifies one.
fn tool_fields<'a>(
    tools: &'a mut [OwnTool],
    (list, key): (&'static str, &'static str),
    address: impl Fn(&Map<String, Value>) -> String,
) -> impl Iterator<Item = SecretField<'a>> {
    let mut names = HashSet::new();
    tools.iter_mut().filter_map(move |OwnTool { auth, settings }| {
        let name = text(settings.get(key));
        let auth = auth.as_mut().filter(|_| names.insert(name.clone()))?;
        // A header that the operator names, or a query, may be logged where another header is not, so type and name are a part
        // of the destination.
        let kind = [text(auth.settings.get("type")), text(auth.settings.get("name"))].join(" ");
        let destination = vec![address(settings), kind];
        let path = format!("content.{list}[{name}].auth.secret");
        Some(SecretField { path, destination, secret: &mut auth.secret })
    })
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the address that receives a tool's secret: scheme, host, port, and the path up to its first placeholder.
fn http_tool_destination(url: &str) -> String {
    normalize_url(&url.split('{').next().map(str::to_owned))
}

/// Returns the address that receives the secret: the URL if given, else one that stands for the provider's name.
pub(crate) fn resolve_destination(url: &Option<String>, provider: &Option<String>, default: &str) -> String {
    let url = normalize_url(url);
    if !url.is_empty() {
        return url;
    }
    let provider = provider.as_deref().map(str::trim).filter(|name| !name.is_empty());
    format!("provider {}", provider.unwrap_or(default).to_ascii_lowercase())
}

/// Returns a URL in normalized form, or the empty string if it is blank. Text that is not a URL is only trimmed.
fn normalize_url(url: &Option<String>) -> String {
    let text = url.as_deref().unwrap_or_default().trim();
    match Url::parse(text) {
        Ok(mut url) => {
            url.set_fragment(None);
            let path = url.path().trim_end_matches('/').to_owned();
            url.set_path(&path);
            url.into()
        }
        Err(_) => text.to_owned(),
    }
}

/// Completes a role, before it is saved, with the secrets of the stored role that it replaces.
///
/// A secret that is absent or [masked](Secret::mask) keeps its stored value, an empty one is cleared, and any other
/// replaces the stored value. A stored secret is kept only for its previous destination. If the address that receives
/// it has changed, or the provider that determines the address, the secret is cleared and never sent to the new
/// destination. Containers are matched by name and by their index among those of that name. Addresses are compared as
/// the URL standard normalizes them, without a trailing slash and without a fragment.
///
/// `stored` may itself be masked; then its masks are kept.
pub fn merge_secrets(role: &mut RoleBlock, mut stored: Option<RoleBlock>) {
    let stored = stored.as_mut().map(secret_fields).unwrap_or_default();
    let mut stored: HashMap<String, SecretField<'_>> =
        stored.into_iter().map(|field| (field.path.clone(), field)).collect();
    for field in secret_fields(role) {
        let new_secret = field.secret.take().filter(|secret| !secret.is_mask());
        *field.secret = match new_secret {
            Some(secret) => Some(secret).filter(|secret| !secret.expose().is_empty()),
            None => {
                let before = stored.remove(&field.path);
                before
                    .filter(|before| before.destination == field.destination)
                    .and_then(|before| before.secret.take())
            }
        };
    }
}

/// Sets the masked secrets of a role to those that the stored role has for the same addresses. The others stay masked.
pub fn fill_secrets(role: &mut RoleBlock, stored: RoleBlock) {
    let mut filled = role.clone();
    merge_secrets(&mut filled, Some(stored));
    for (field, filled) in secret_fields(role).into_iter().zip(secret_fields(&mut filled)) {
        if let Some(secret) = filled.secret.take() {
            *field.secret = Some(secret);
        }
    }
}

#[cfg(test)]
mod tests;
