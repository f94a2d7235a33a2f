//! Checks of the prices that a role sets.

use agent_core::role::{AgentServer, EmbeddedAi};
use serde_json::{Map, Value};

use super::finding::RoleFinding;
use crate::catalog::ModelPrice;
use crate::roles::provider_id::company_provider_id;
use crate::usage::CallPayer;

/// Checks the prices of a container's model and of its fallbacks.
pub(super) fn check_model_prices(findings: &mut Vec<RoleFinding>, at: &str, embedded: &EmbeddedAi) {
    let EmbeddedAi { provider, api_key, base_url, prices, .. } = embedded;
    let own = (at.to_owned(), provider, CallPayer::new(provider, api_key, base_url), prices);
    let fallbacks = embedded.fallbacks.iter().enumerate().map(|(i, other)| {
        let payer = CallPayer::new(&other.provider, &other.api_key, &other.base_url);
        (format!("{at}.fallbacks[{i}]"), &other.provider, payer, &other.prices)
    });
    for (at, provider, payer, prices) in std::iter::once(own).chain(fallbacks) {
        let is_own = payer.has_own_key_or_address() && company_provider_id(provider.as_deref()).is_none();
        check_prices(findings, &at, prices, is_own, "apiKey or baseUrl");
    }
}

/// Checks the prices of an agent server and of its fallbacks.
pub(super) fn check_server_prices(findings: &mut Vec<RoleFinding>, at: &str, server: &AgentServer) {
    let own = (at.to_owned(), server);
    let fallbacks = server.fallbacks.iter().enumerate();
    let fallbacks = fallbacks.map(|(i, other)| (format!("{at}.fallbacks[{i}]"), other));
    for (at, server) in std::iter::once(own).chain(fallbacks) {
        let AgentServer { agent_server_provider, agent_server_api_key, agent_server_local_url, .. } = server;
        let payer = CallPayer::new(agent_server_provider, agent_server_api_key, agent_server_local_url);
        let needed = "agentServerApiKey or agentServerLocalUrl";
        check_prices(findings, &at, &server.prices, payer.has_own_key_or_address(), needed);
    }
}

/// Checks prices. Those of calls that the operator or the company pays are not for a role to set: a budget counts them.
fn check_prices(
    findings: &mut Vec<RoleFinding>,
    at: &str,
    prices: &Map<String, Value>,
    is_own: bool,
    needed: &str,
) {
    for fault in ModelPrice::of_role(prices).err().into_iter().flatten() {
        findings.push(RoleFinding::new(format!("{at}.prices.{}", fault.path), fault.message));
    }
    if !prices.is_empty() && !is_own {
        let message = format!("must be absent without a key or an address of the model's own: {needed}");
        findings.push(RoleFinding::new(format!("{at}.prices"), message));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fine() -> Value {
        json!({"input": "0.25", "cachedInput": "0", "cacheWrite": "0.3125", "output": "10000"})
    }

    /// Path of the container.
    const AT: &str = "children[0].content";

    fn paths_in_container(findings: Vec<RoleFinding>) -> Vec<String> {
        let in_container = |path: &str| Some(path.strip_prefix(AT)?.strip_prefix('.')?.to_owned());
        findings.iter().map(|finding| in_container(&finding.path).expect("a path in the container")).collect()
    }

    fn of_model(content: Value) -> Vec<String> {
        let mut findings = Vec::new();
        check_model_prices(&mut findings, AT, &serde_json::from_value(content).expect("a container"));
        paths_in_container(findings)
    }

    fn of_server(content: Value) -> Vec<String> {
        let mut findings = Vec::new();
        check_server_prices(&mut findings, AT, &serde_json::from_value(content).expect("a container"));
        paths_in_container(findings)
    }

    #[test]
    fn prices_are_decimal_numbers_by_their_names() {
        for (prices, expected) in [
            (fine(), &[][..]),
            (json!({"input": "1", "output": "2"}), &[]),
            (json!({}), &[]),
            (json!({"input": "1"}), &["output"]),
            (json!({"input": "-1", "output": "1e400"}), &["input", "output"]),
            (json!({"input": 1, "output": "10000.000000001"}), &["input", "output"]),
            (
                json!({"input": "1", "output": "1", "cachedInput": "", "cacheWrite": null}),
                &["cachedInput", "cacheWrite"],
            ),
            (json!({"input": "1", "output": "1", "reasoning": "1"}), &["reasoning"]),
            (json!({"input": "0.0000000001", "outptu": "NaN"}), &["outptu", "input", "output"]),
        ] {
            let expected: Vec<_> = expected.iter().map(|name| format!("prices.{name}")).collect();
            assert_eq!(of_model(json!({"apiKey": "k", "prices": prices})), expected, "{prices}");
            assert_eq!(of_server(json!({"agentServerApiKey": "k", "prices": prices})), expected, "{prices}");
        }
    }

    #[test]
    fn calls_that_others_pay_have_no_price_of_the_role() {
        for (mut content, is_own) in [
            (json!({}), false),
            (json!({"provider": "openai", "model": "m", "apiKey": " "}), false),
            (json!({"provider": "openai", "apiKey": "***"}), true),
            (json!({"baseUrl": "https://models.example"}), true),
            (json!({"provider": "ollama", "apiKey": "k"}), false),
            (json!({"provider": "ollama", "baseUrl": "https://models.example"}), true),
            (json!({"provider": "local", "apiKey": "k", "baseUrl": "https://models.example"}), false),
            (json!({"provider": "acme", "apiKey": "k"}), false),
        ] {
            content["prices"] = fine();
            let expected: &[&str] = if is_own { &[] } else { &["prices"] };
            assert_eq!(of_model(content.clone()), expected, "{content}");
            let fallback = json!({"apiKey": "k", "fallbacks": [{}, content]});
            let expected: &[&str] = if is_own { &[] } else { &["fallbacks[1].prices"] };
            assert_eq!(of_model(fallback.clone()), expected, "{fallback}");
        }
        for (mut content, is_own) in [
            (json!({"agentServerUrl": "https://runtime.example"}), false),
            (json!({"agentServerProvider": "openai", "agentServerApiKey": "k"}), true),
            (json!({"agentServerProvider": "ollama", "agentServerApiKey": "k"}), false),
            (json!({"agentServerProvider": "ollama", "agentServerLocalUrl": "https://models.example"}), true),
        ] {
            content["prices"] = fine();
            let expected: &[&str] = if is_own { &[] } else { &["prices"] };
            assert_eq!(of_server(content.clone()), expected, "{content}");
            let expected: &[&str] = if is_own { &[] } else { &["fallbacks[0].prices"] };
            assert_eq!(of_server(json!({"fallbacks": [content]})), expected);
        }
    }
}
