//! Checks of texts that become parts of keys of records or values of headers.

use agent_core::role::{AgentServer, Container, EmbeddedAi, RoleBlock};
use agent_core::secret::Secret;

use super::finding::RoleFinding;
use crate::records::MAX_ID_BYTES;

/// Checks the name of the memory's folder, which is in the keys of its entries, and the API keys, which are sent in headers.
/// With others, no turn of the agent succeeds.
pub(super) fn check_texts(findings: &mut Vec<RoleFinding>, role: &RoleBlock) {
    check_memory_folder(findings, role.content.memory_folder.as_deref().unwrap_or_default().trim());
    check_server_keys(findings, "content", &role.content.agent_server);
    for (i, child) in role.children.iter().enumerate() {
        let at = format!("children[{i}].content");
        match child {
            Container::AgentServer(server) => check_server_keys(findings, &at, server),
            Container::EmbeddedAi(embedded) => check_model_keys(findings, &at, embedded),
            _ => {}
        }
    }
}

fn check_memory_folder(findings: &mut Vec<RoleFinding>, folder: &str) {
    let fault = if folder.len() > MAX_ID_BYTES {
        format!("has {} bytes; the limit is {MAX_ID_BYTES}", folder.len())
    } else if folder.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return;
    };
    findings.push(RoleFinding::new("content.memoryFolder", fault));
}

fn check_model_keys(findings: &mut Vec<RoleFinding>, at: &str, embedded: &EmbeddedAi) {
    check_key(findings, format!("{at}.apiKey"), embedded.api_key.as_ref());
    for (i, fallback) in embedded.fallbacks.iter().enumerate() {
        check_key(findings, format!("{at}.fallbacks[{i}].apiKey"), fallback.api_key.as_ref());
    }
}

fn check_server_keys(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    check_key(findings, format!("{at}.agentServerApiKey"), server.agent_server_api_key.as_ref());
    for (i, fallback) in server.fallbacks.iter().enumerate() {
        let path = format!("{at}.fallbacks[{i}].agentServerApiKey");
        check_key(findings, path, fallback.agent_server_api_key.as_ref());
    }
}

/// Checks one API key. The message does not repeat it.
fn check_key(findings: &mut Vec<RoleFinding>, path: String, key: Option<&Secret>) {
    let is_printable = |key: &Secret| key.expose().bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !key.is_none_or(is_printable) {
        findings.push(RoleFinding::new(path, "must have printable ASCII characters only"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn findings(content: Value, children: Value) -> Vec<(String, String)> {
        let role = json!({"id": "a", "companyId": "c", "content": content, "children": children});
        let mut findings = Vec::new();
        check_texts(&mut findings, &serde_json::from_value(role).expect("a role"));
        findings.into_iter().map(|RoleFinding { path, message }| (path, message)).collect()
    }

    #[test]
    fn folders_that_no_key_can_have_are_refused() {
        for folder in ["", " ", "notes", "a/b", "Grüße", &"x".repeat(128)] {
            assert!(findings(json!({"memoryFolder": folder}), json!([])).is_empty(), "{folder}");
        }
        for (folder, fault) in [
            ("a\u{0}b".to_owned(), "has a control character"),
            ("x".repeat(129), "has 129 bytes; the limit is 128"),
        ] {
            let expected = ("content.memoryFolder".to_owned(), fault.to_owned());
            assert_eq!(findings(json!({"memoryFolder": folder}), json!([])), [expected]);
        }
    }

    #[test]
    fn keys_that_no_header_can_have_are_refused_without_being_repeated() {
        let model = json!({"name": "EmbeddedAI", "content": {"apiKey": "sk-canary\n", "fallbacks": [
            {"provider": "openai", "apiKey": "sk-canary-é"}, {"provider": "openai", "apiKey": "sk-1"}]}});
        let server = json!({"name": "AgentServer", "content": {"agentServerApiKey": "***", "fallbacks": [
            {"agentServerUrl": "https://r.example", "agentServerApiKey": "sk-canary\t"}]}});
        let found = findings(json!({"agentServerApiKey": "sk-canary\r"}), json!([model, server]));
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "content.agentServerApiKey",
                "children[0].content.apiKey",
                "children[0].content.fallbacks[0].apiKey",
                "children[1].content.fallbacks[0].agentServerApiKey",
            ]
        );
        assert!(found.iter().all(|(_, message)| !message.contains("canary")), "{found:?}");
    }
}
