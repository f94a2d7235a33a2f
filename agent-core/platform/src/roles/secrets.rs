//! Which secrets a role has, where each of them is sent, and what becomes of them when it is saved. Pure.

use std::collections::HashMap;

use url::Url;

use agent_core::role::{AgentServer, Container, EmbeddedAi, RoleBlock, WebhookAuth, WorkflowConnector};
use agent_core::secret::Secret;

/// A place where a role may have a secret.
pub(crate) struct Place<'a> {
    /// The field, such as `children.EmbeddedAI[0].content.apiKey`. A container is counted among those
    /// of its name, so that its secrets stay where they are when others come and go.
    pub path: String,
    /// Where the secret is sent; empty for one whose receiver the role does not name.
    destination: Vec<String>,
    /// What stands there.
    pub secret: &'a mut Option<Secret>,
}

/// All places for secrets in a role.
pub(crate) fn places(role: &mut RoleBlock) -> Vec<Place<'_>> {
    let content = &mut role.content;
    let mut places = vec![
        Place {
            path: "content.messengerToken".to_owned(),
            destination: Vec::new(),
            secret: &mut content.messenger_token,
        },
        of_agent_server("content", &mut content.agent_server),
    ];
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
                places.push(of_agent_server(&content("AgentServer"), server));
            }
            Container::EmbeddedAi(embedded) => {
                places.push(of_embedded_ai(&content("EmbeddedAI"), embedded));
            }
            Container::WorkflowConnector(workflow) => {
                places.extend(of_workflow(&content("WorkflowConnector"), workflow));
            }
            Container::SubscriptionConnector(_) | Container::Other { .. } => {}
        }
    }
    places
}

/// The runtime is given the key, and hands it on to the address that it is told or else to the provider.
fn of_agent_server<'a>(content: &str, server: &'a mut AgentServer) -> Place<'a> {
    let provider = receiver(&server.agent_server_local_url, &server.agent_server_provider, "");
    Place {
        path: format!("{content}.agentServerApiKey"),
        destination: vec![address(&server.agent_server_url), provider],
        secret: &mut server.agent_server_api_key,
    }
}

fn of_embedded_ai<'a>(content: &str, embedded: &'a mut EmbeddedAi) -> Place<'a> {
    Place {
        path: format!("{content}.apiKey"),
        destination: vec![receiver(&embedded.base_url, &embedded.provider, "auto")],
        secret: &mut embedded.api_key,
    }
}

fn of_workflow<'a>(content: &str, workflow: &'a mut WorkflowConnector) -> Option<Place<'a>> {
    let (field, secret) = match workflow.auth.as_mut()? {
        WebhookAuth::None => return None,
        WebhookAuth::Basic { password, .. } => ("password", password),
        WebhookAuth::Header { value, .. } => ("value", value),
        WebhookAuth::Jwt { secret } => ("secret", secret),
    };
    let destination = vec![address(&workflow.webhook_url)];
    Some(Place { path: format!("{content}.auth.{field}"), destination, secret })
}

/// Without an address of its own a provider is reached at one that its name stands for.
fn receiver(url: &Option<String>, provider: &Option<String>, default: &str) -> String {
    let url = address(url);
    if !url.is_empty() {
        return url;
    }
    let provider = provider.as_deref().map(str::trim).filter(|name| !name.is_empty());
    format!("provider {}", provider.unwrap_or(default).to_ascii_lowercase())
}

/// An address in the one form that all its spellings have; blank is absent.
fn address(url: &Option<String>) -> String {
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

/// Completes a role that is to be saved with the secrets of the one that it replaces.
///
/// A secret that is absent or [masked](Secret::mask) stays as it is, an empty one is cleared, and any
/// other replaces what was there. A secret is kept only for where it was sent before: where an address
/// that receives it has changed, or the provider whose name stands for the address, the old one is
/// cleared and never sent to the new place. Containers are matched by name and by their place among
/// those of that name. Addresses are compared as the URL standard normalises them, without a slash at
/// the end and without a fragment.
///
/// `stored` may itself be masked; its masks are then what is kept.
pub fn merge_secrets(role: &mut RoleBlock, mut stored: Option<RoleBlock>) {
    let stored = stored.as_mut().map(places).unwrap_or_default();
    let mut stored: HashMap<String, Place<'_>> =
        stored.into_iter().map(|place| (place.path.clone(), place)).collect();
    for place in places(role) {
        let given = place.secret.take().filter(|secret| !secret.is_mask());
        *place.secret = match given {
            Some(secret) => Some(secret).filter(|secret| !secret.expose().is_empty()),
            None => {
                let before = stored.remove(&place.path);
                before
                    .filter(|before| before.destination == place.destination)
                    .and_then(|before| before.secret.take())
            }
        };
    }
}

#[cfg(test)]
mod tests;
