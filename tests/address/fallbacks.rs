//! Fallbacks at addresses that are not public: the call of the first entry fails, and the fallback is not connected to.

use super::*;
use crate::support::expect_problem;

/// Addresses of the cloud's metadata and others of its network, and a name of one.
const HOSTS: [&str; 7] = [
    "169.254.169.254",
    "169.254.0.1",
    "0xa9fea9fe",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "metadata.google.internal",
];

/// An agent whose first entry is at `down`, and whose fallback is at `url`, as a model or as a runtime. The model is named as
/// the agent, so that each has a separate circuit.
fn agent(id: &str, (down, url): (&str, &str), is_model: bool) -> Value {
    let container = match is_model {
        true => json!({"name": "EmbeddedAI", "content": {"provider": "openai", "model": id, "baseUrl": down,
            "fallbacks": [{"provider": "openai", "model": "m", "baseUrl": url, "apiKey": "key-canary"}]}}),
        false => json!({"name": "AgentServer", "content": {"agentServerUrl": down, "agentServerModel": id,
            "fallbacks": [{"agentServerUrl": url, "agentServerModel": "m", "agentServerApiKey": "key-canary"}]}}),
    };
    json!({"id": id, "name": id, "ownerId": "u1", "companyId": "c1", "content": {"mcpPreset": "none"},
        "children": [container]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fallback_at_an_address_that_is_not_public_is_never_connected_to() {
    let (vendor, trap) = (Vendor::start().await, Vendor::start().await);
    vendor.on_all(json_response("503 Service Unavailable", "", "{}"));
    let network = FakeNetwork::new(NON_PUBLIC_NAMES, trap.address);
    let urls: Vec<String> =
        HOSTS.iter().map(|host| format!("http://{host}:{}/latest", trap.address.port())).collect();
    let down = vendor.base_url();
    let cases: Vec<_> = urls.iter().flat_map(|url| [(url, true), (url, false)]).collect();
    let agents = cases.iter().enumerate();
    let agents: Vec<Value> =
        agents.map(|(index, (url, is_model))| agent(&format!("a{index}"), (&down, url), *is_model)).collect();
    let people = json!([{"id": "u1", "companyId": "c1"}]);
    let stores = server::stores(&json!({"users": people, "agents": agents})).await;
    let mut config = server::app_config(&[("OUTBOUND_ALLOW", &vendor.address.to_string())]);
    config.server.outbound.network = network.clone();
    let app = server::app_with_config(config, stores).await;
    let vendor_address = vendor.address.to_string();
    for (index, (url, is_model)) in cases.iter().enumerate() {
        let id = format!("a{index}");
        let response = app.chat(&json!({"agentId": id, "message": "hello", "store": false})).await;
        let problem = expect_problem(response, 502, "BACKEND_FAILED").await;
        let reasons: Vec<_> = problem["attempts"]
            .as_array()
            .unwrap_or_else(|| panic!("{url}: {problem}"))
            .iter()
            .map(|attempt| (attempt["entry"].as_u64(), attempt["reason"].as_str()))
            .collect();
        assert_eq!(
            reasons,
            [(Some(0), Some("BACKEND_FAILED")), (Some(1), Some("OUTBOUND_BLOCKED"))],
            "{url}, a model: {is_model}"
        );
        assert!(!problem.to_string().contains("canary"), "{problem}");
        let others: Vec<String> =
            network.take_connections().into_iter().filter(|to| *to != vendor_address).collect();
        assert!(others.is_empty(), "{url} was connected to: {others:?}");
        // Saving the role connects to nothing either, whether it is refused or not.
        let saved = app.request("PUT", &format!("/api/agents/{id}")).json(&agents[index]);
        let saved = saved.bearer_auth(session_token("u1", "c1")).send().await.expect("an answer");
        assert!(matches!(saved.status().as_u16(), 200 | 400), "{url}: {}", saved.status());
        assert!(network.take_connections().is_empty(), "{url}");
    }
    assert_eq!(trap.connections(), 0);
}
