//! Calls of a role whose price is not known.

use std::iter::once;

use agent_core::role::{AgentServer, EmbeddedAi, RoleBlock};
use agent_core::select::{BackendChoice, select_backend};

use super::{MAX_FALLBACKS, fallback_settings};
use crate::catalog::Catalog;
use crate::usage::{PricedSettings, server_names};

/// Names of calls whose price is not known, as they would be booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpricedCalls {
    /// Name of the provider, or the identifier of one of the company.
    pub provider: String,
    /// Name of the model; empty where another service chooses it.
    pub model: String,
}

/// Returns the first calls of a role's backend and of its fallbacks whose price is not known: neither the role, completed with
/// the company's providers, nor the catalogue has it. `names` returns the provider and the model of a container's settings.
///
/// Prices of the role count wherever they are set. Whether they hold depends on the addresses of the operator, by which a
/// run decides.
pub fn unpriced_calls(
    role: &RoleBlock,
    catalog: &Catalog,
    names: impl Fn(&EmbeddedAi) -> (String, String),
) -> Option<UnpricedCalls> {
    let unpriced = |provider: &str, model: &str| {
        let is_unpriced = catalog.price(provider, model).is_none();
        is_unpriced.then(|| UnpricedCalls { provider: provider.to_owned(), model: model.to_owned() })
    };
    let of_model = |settings: &EmbeddedAi| {
        let company_model = settings.company_model();
        let has_price = match &company_model {
            Some(entry) => entry.price.is_some(),
            None => !settings.prices.is_empty(),
        };
        let (provider, model) = names(settings);
        let found = unpriced(&provider, &model).filter(|_| !has_price)?;
        Some(UnpricedCalls {
            provider: company_model.map_or(found.provider, |entry| entry.provider),
            ..found
        })
    };
    let of_server = |settings: &AgentServer| {
        let (provider, model) = server_names(settings);
        unpriced(provider, model).filter(|_| settings.prices.is_empty())
    };
    match select_backend(role).choice? {
        BackendChoice::Embedded(settings) => {
            of_model(&settings).or_else(|| fallback_settings(&settings, &[]).find_map(|own| of_model(&own)))
        }
        BackendChoice::AgentServer(server) => {
            once(&*server).chain(server.fallbacks.iter().take(MAX_FALLBACKS)).find_map(of_server)
        }
        BackendChoice::Workflow(_) => unpriced("workflow", ""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use agent_core::role::Container;
    use serde_json::{Map, Value, json};

    use super::*;

    fn role(container: &str, content: &Value) -> RoleBlock {
        let role =
            json!({"id": "a", "companyId": "c", "children": [{"name": container, "content": content}]});
        serde_json::from_value(role).expect("a role")
    }

    fn names(settings: &EmbeddedAi) -> (String, String) {
        let text = |name: &Option<String>, default: &str| name.clone().unwrap_or_else(|| default.to_owned());
        (text(&settings.provider, "openai"), text(&settings.model, "default"))
    }

    fn found(role: &RoleBlock, catalog: &Catalog) -> Option<(String, String)> {
        unpriced_calls(role, catalog, names).map(|calls| (calls.provider, calls.model))
    }

    #[test]
    fn the_calls_of_the_selected_backend_are_looked_at_with_its_fallbacks() {
        let file = r#"{"asOf":"2026-01-31","models":[
            {"provider":"openai","model":"m","prices":{"input":"1","output":"2"}},
            {"provider":"runtime","model":"*","prices":{"input":"1","output":"2"}}]}"#;
        let catalog = Catalog::default().merged(file).expect("a catalogue");
        let prices = json!({"input": "1", "output": "2"});
        let server = |model: &str| {
            json!({"agentServerUrl": "https://r.example", "agentServerProvider": "openai",
            "agentServerModel": model})
        };
        let with_fallback = |fallback: Value| {
            let mut server = server("m");
            server["fallbacks"] = json!([fallback]);
            server
        };
        for (container, content, expected) in [
            ("EmbeddedAI", json!({"model": "m"}), None),
            ("EmbeddedAI", json!({}), Some(("openai", "default"))),
            ("EmbeddedAI", json!({"model": "new"}), Some(("openai", "new"))),
            ("EmbeddedAI", json!({"model": "new", "apiKey": "k", "prices": prices}), None),
            ("EmbeddedAI", json!({"model": "m", "fallbacks": [{"model": "m"}]}), None),
            (
                "EmbeddedAI",
                json!({"model": "m", "fallbacks": [{"provider": "anthropic", "model": "m"}]}),
                Some(("anthropic", "m")),
            ),
            ("AgentServer", server("m"), None),
            ("AgentServer", server("new"), Some(("openai", "new"))),
            ("AgentServer", with_fallback(json!({"agentServerUrl": "https://s.example"})), None),
            ("AgentServer", with_fallback(server("new")), Some(("openai", "new"))),
            ("WorkflowConnector", json!({"webhookUrl": "https://w.example"}), Some(("workflow", ""))),
            ("Own", json!({}), None),
        ] {
            let expected = expected.map(|(provider, model)| (provider.to_owned(), model.to_owned()));
            assert_eq!(found(&role(container, &content), &catalog), expected, "{container} {content}");
        }
        let mut both = role("EmbeddedAI", &json!({"model": "new"}));
        let selected = role("AgentServer", &server("m")).children;
        both.children.extend(selected);
        assert_eq!(found(&both, &catalog), None, "the embedded model is never called");
    }

    #[test]
    fn a_provider_of_the_company_has_its_own_prices_and_name() {
        let completed = |entry: Value| {
            let mut role = role("EmbeddedAI", &json!({"provider": "openai", "model": "new"}));
            let Container::EmbeddedAi(settings) = &mut role.children[0] else { panic!("a container") };
            let entry: Map<String, Value> = serde_json::from_value(entry).expect("an object");
            settings.company_model = Some(std::sync::Arc::new(entry));
            role
        };
        let bare = json!({"provider": "acme", "model": "new"});
        let expected = Some(("acme".to_owned(), "new".to_owned()));
        assert_eq!(found(&completed(bare.clone()), &Catalog::default()), expected);
        let mut priced = bare;
        priced["prices"] = json!({"input": "1", "output": "2"});
        assert_eq!(found(&completed(priced), &Catalog::default()), None);
    }
}
