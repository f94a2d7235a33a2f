//! Checks of the addresses of models, agent servers and workflows.

use agent_core::role::{AgentServer, Container, EmbeddedAi, RoleBlock};

use super::finding::RoleFinding;
use crate::http_url::parse_http_url;

/// Checks the addresses of a role. No request is sent to an address that is not an `http` or `https` URL, or that has a
/// password, which all users of the company could read.
pub(super) fn check_addresses(findings: &mut Vec<RoleFinding>, role: &RoleBlock) {
    check_server(findings, "content", &role.content.agent_server);
    for (i, child) in role.children.iter().enumerate() {
        let at = format!("children[{i}].content");
        match child {
            Container::AgentServer(server) => check_server(findings, &at, server),
            Container::EmbeddedAi(embedded) => check_models(findings, &at, embedded),
            Container::WorkflowConnector(workflow) => {
                check_address(findings, &format!("{at}.webhookUrl"), workflow.webhook_url.as_deref());
            }
            _ => {}
        }
    }
}

fn check_models(findings: &mut Vec<RoleFinding>, at: &str, embedded: &EmbeddedAi) {
    check_address(findings, &format!("{at}.baseUrl"), embedded.base_url.as_deref());
    for (i, fallback) in embedded.fallbacks.iter().enumerate() {
        check_address(findings, &format!("{at}.fallbacks[{i}].baseUrl"), fallback.base_url.as_deref());
    }
}

fn check_server(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    let fallbacks = server.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.map(|(i, fallback)| (format!("{at}.fallbacks[{i}]"), fallback));
    for (at, server) in std::iter::once((at.to_owned(), server)).chain(fallbacks) {
        check_address(findings, &format!("{at}.agentServerUrl"), server.agent_server_url.as_deref());
        check_address(
            findings,
            &format!("{at}.agentServerLocalUrl"),
            server.agent_server_local_url.as_deref(),
        );
    }
}

/// Checks one address. A blank one counts as absent.
fn check_address(findings: &mut Vec<RoleFinding>, path: &str, address: Option<&str>) {
    let address = address.map(str::trim).filter(|address| !address.is_empty());
    if let Some(Err(fault)) = address.map(parse_http_url) {
        findings.push(RoleFinding::new(path, fault));
    }
}
