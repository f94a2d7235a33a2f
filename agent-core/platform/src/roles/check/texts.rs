//! Checks of texts that become parts of keys of records, values of headers, parts of an address or fields with a limit.

use agent_core::role::{AgentServer, Container, EmbeddedAi, RoleBlock, WebhookAuth};
use agent_core::secret::Secret;

use super::finding::RoleFinding;
use crate::messenger::is_bot_token;
use crate::records::MAX_KEY_ID_BYTES;

/// Limit on the names of a provider, model or agent that a runtime is sent, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// Checks texts that become parts of keys, headers or URLs: the name of the memory folder (record keys), API keys and webhook
/// credentials (headers), and the bot token (URL); and the names of agent and model, which a runtime takes up to a limit. With
/// others, no turn or no call succeeds.
pub(super) fn check_texts(findings: &mut Vec<RoleFinding>, role: &RoleBlock) {
    check_name(findings, "name", &role.name);
    check_memory_folder(findings, role.content.memory_folder.as_deref().unwrap_or_default().trim());
    check_bot_token(findings, role.content.messenger_token.as_ref());
    check_server_keys(findings, "content", &role.content.agent_server);
    for (i, child) in role.children.iter().enumerate() {
        let at = format!("children[{i}].content");
        match child {
            Container::AgentServer(server) => check_server_keys(findings, &at, server),
            Container::EmbeddedAi(embedded) => check_model_keys(findings, &at, embedded),
            Container::WorkflowConnector(workflow) => {
                check_webhook(findings, &format!("{at}.auth"), workflow.auth.as_ref());
            }
            _ => {}
        }
    }
}

/// Checks a name that a runtime is sent. It refuses every run with a longer one.
fn check_name(findings: &mut Vec<RoleFinding>, path: impl Into<String>, name: &str) {
    if name.len() > MAX_NAME_BYTES {
        let message = format!("has {} bytes; the limit is {MAX_NAME_BYTES}", name.len());
        findings.push(RoleFinding::new(path, message));
    }
}

fn check_memory_folder(findings: &mut Vec<RoleFinding>, folder: &str) {
    let fault = if folder.len() > MAX_KEY_ID_BYTES {
        format!("has {} bytes; the limit is {MAX_KEY_ID_BYTES}", folder.len())
    } else if folder.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else {
        return;
    };
    findings.push(RoleFinding::new("content.memoryFolder", fault));
}

/// Checks the token of the messenger's bot. The message does not repeat it.
fn check_bot_token(findings: &mut Vec<RoleFinding>, token: Option<&Secret>) {
    let is_valid =
        |token: &Secret| token.expose().is_empty() || token.is_mask() || is_bot_token(token.expose());
    if !token.is_none_or(is_valid) {
        let message = "is not the token of a bot, such as 123456:AbC-dEf_0";
        findings.push(RoleFinding::new("content.messengerToken", message));
    }
}

/// Checks the credential of a webhook. A secret that signs tokens may have any characters.
fn check_webhook(findings: &mut Vec<RoleFinding>, at: &str, auth: Option<&WebhookAuth>) {
    match auth {
        Some(WebhookAuth::Basic { user, password }) => {
            let has_control = |text: &str| text.chars().any(char::is_control);
            if user.contains(':') || has_control(user) {
                let message = "must not have a colon or a control character";
                findings.push(RoleFinding::new(format!("{at}.user"), message));
            }
            if password.as_ref().is_some_and(|password| has_control(password.expose())) {
                let message = "must not have a control character";
                findings.push(RoleFinding::new(format!("{at}.password"), message));
            }
        }
        Some(WebhookAuth::Header { value, .. }) => {
            check_key(findings, format!("{at}.value"), value.as_ref());
        }
        None | Some(WebhookAuth::None | WebhookAuth::Jwt { .. }) => {}
    }
}

fn check_model_keys(findings: &mut Vec<RoleFinding>, at: &str, embedded: &EmbeddedAi) {
    check_key(findings, format!("{at}.apiKey"), embedded.api_key.as_ref());
    for (i, fallback) in embedded.fallbacks.iter().enumerate() {
        check_key(findings, format!("{at}.fallbacks[{i}].apiKey"), fallback.api_key.as_ref());
    }
}

fn check_server_keys(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    check_key(findings, format!("{at}.agentServerApiKey"), server.agent_server_api_key.as_ref());
    check_name(
        findings,
        format!("{at}.agentServerModel"),
        server.agent_server_model.as_deref().unwrap_or_default(),
    );
    for (i, fallback) in server.fallbacks.iter().enumerate() {
        let at = format!("{at}.fallbacks[{i}]");
        check_key(findings, format!("{at}.agentServerApiKey"), fallback.agent_server_api_key.as_ref());
        check_name(
            findings,
            format!("{at}.agentServerModel"),
            fallback.agent_server_model.as_deref().unwrap_or_default(),
        );
    }
}

/// Checks one value of a header. The message does not repeat it.
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
    fn names_that_no_runtime_accepts_are_refused() {
        let role = |name: &str, model: &str| {
            let server = json!({"agentServerModel": model, "fallbacks": [{"agentServerModel": model}]});
            let mut findings = Vec::new();
            let role = json!({"id": "a", "companyId": "c", "name": name,
                "children": [{"name": "AgentServer", "content": server}, {"name": "EmbeddedAI", "content": {"model": model}}]});
            check_texts(&mut findings, &serde_json::from_value(role).expect("a role"));
            findings
        };
        let longest = "x".repeat(MAX_NAME_BYTES);
        assert!(role(&longest, &longest).is_empty());
        let found = role(&"é".repeat(129), &"é".repeat(129));
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        let at = "children[0].content";
        assert_eq!(
            paths,
            ["name", &format!("{at}.agentServerModel"), &format!("{at}.fallbacks[0].agentServerModel")]
        );
        assert!(
            found.iter().all(|finding| finding.message == "has 258 bytes; the limit is 256"),
            "{found:?}"
        );
    }

    #[test]
    fn folders_that_no_key_can_have_are_refused() {
        for folder in ["", " ", "notes", "a/b", "Grüße", &"x".repeat(256)] {
            assert!(findings(json!({"memoryFolder": folder}), json!([])).is_empty(), "{folder}");
        }
        for (folder, fault) in [
            ("a\u{0}b".to_owned(), "has a control character"),
            ("x".repeat(257), "has 257 bytes; the limit is 256"),
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

    #[test]
    fn credentials_that_cannot_be_sent_are_refused_without_being_repeated() {
        for (token, is_valid) in
            [("1:a", true), ("", true), ("***", true), ("1:canary\n", false), ("1:canary/x", false)]
        {
            let found = findings(json!({"messengerToken": token}), json!([]));
            assert_eq!(found.is_empty(), is_valid, "{token:?}: {found:?}");
            assert!(found.iter().all(|(path, _)| path == "content.messengerToken"), "{found:?}");
            assert!(found.iter().all(|(_, message)| !message.contains("canary")), "{found:?}");
        }
        for (auth, path) in [
            (json!({"type": "none"}), None),
            (json!({"type": "basic", "user": "ädä", "password": "größe"}), None),
            (json!({"type": "basic", "user": "ada", "password": "canary\n"}), Some("password")),
            (json!({"type": "basic", "user": "a:da", "password": "canary"}), Some("user")),
            (json!({"type": "header", "name": "X-Key", "value": "canary"}), None),
            (json!({"type": "header", "name": "X-Key", "value": "canary\r\nx: y"}), Some("value")),
            (json!({"type": "jwt", "secret": "canary\n"}), None),
        ] {
            let webhook = json!({"name": "WorkflowConnector",
                "content": {"webhookUrl": "https://n8n.example/webhook", "auth": auth}});
            let found = findings(json!({}), json!([webhook]));
            let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
            let expected = path.map(|path| format!("children[0].content.auth.{path}"));
            assert_eq!(paths, expected.iter().map(String::as_str).collect::<Vec<_>>(), "{auth}");
            assert!(found.iter().all(|(_, message)| !message.contains("canary")), "{found:?}");
        }
    }
}
