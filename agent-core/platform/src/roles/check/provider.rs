//! Checks of the providers and addresses of models and agent servers.

use agent_core::role::{Container, EmbeddedAi, FallbackModel, RoleBlock};

use super::super::provider_id::{EMBEDDED_PROVIDERS, company_provider_id};
use super::finding::RoleFinding;

/// Providers of an agent server.
pub(super) const SERVER_PROVIDERS: [&str; 3] = ["anthropic", "ollama", "openai"];

pub(super) fn check_provider(
    findings: &mut Vec<RoleFinding>,
    path: String,
    provider: &Option<String>,
    known: &[&str],
) {
    let provider = provider.as_deref().map_or("", str::trim);
    if !provider.is_empty() && !known.contains(&provider) {
        findings
            .push(RoleFinding::new(path, format!("is not a provider: expected one of {}", known.join(", "))));
    }
}

/// Returns the providers of a model, as messages list them.
fn model_providers() -> Vec<&'static str> {
    [&EMBEDDED_PROVIDERS[..], &["the id of a provider of the company"]].concat()
}

/// Checks the form of the provider of a model. The existence of a company's own is checked with the store at hand, by
/// [`company_provider_faults`].
pub(super) fn check_model_provider(findings: &mut Vec<RoleFinding>, path: String, provider: &Option<String>) {
    if company_provider_id(provider.as_deref()).is_none() {
        check_provider(findings, path, provider, &model_providers());
    }
}

/// Checks the provider of the model that summarizes. It is one of the server's: the model has neither key nor address.
pub(super) fn check_summary_provider(findings: &mut Vec<RoleFinding>, provider: &Option<String>) {
    check_provider(findings, "content.compaction.model.provider".to_owned(), provider, &EMBEDDED_PROVIDERS);
}

/// Returns the faults of the models in a role that name a provider of the company. It has its own address and key,
/// which a role cannot replace: its key must not be sent to an address of the role's owner.
pub(crate) fn company_provider_faults(role: &RoleBlock, exists: impl Fn(&str) -> bool) -> Vec<RoleFinding> {
    let mut findings = Vec::new();
    for (i, child) in role.children.iter().enumerate() {
        let Container::EmbeddedAi(settings) = child else { continue };
        let EmbeddedAi { provider, model, base_url, api_key, fallbacks, .. } = settings;
        let own = (format!("children[{i}].content"), provider, model, (base_url, api_key));
        let fallbacks = fallbacks.iter().enumerate().map(|(index, fallback)| {
            let FallbackModel { provider, model, base_url, api_key, .. } = fallback;
            let at = format!("children[{i}].content.fallbacks[{index}]");
            (at, provider, model, (base_url, api_key))
        });
        for (at, provider, model, (base_url, api_key)) in std::iter::once(own).chain(fallbacks) {
            let Some(id) = company_provider_id(provider.as_deref()) else { continue };
            if !exists(id) {
                check_provider(&mut findings, format!("{at}.provider"), provider, &model_providers());
                continue;
            }
            let has_key =
                api_key.as_ref().is_some_and(|key| !key.is_mask() && !key.expose().trim().is_empty());
            for (name, is_set) in [("baseUrl", !is_blank(base_url)), ("apiKey", has_key)] {
                if is_set {
                    let message = "must be absent: the provider of the company has its own";
                    findings.push(RoleFinding::new(format!("{at}.{name}"), message));
                }
            }
            if is_blank(model) {
                let message = "must name a model of the company's provider";
                findings.push(RoleFinding::new(format!("{at}.model"), message));
            }
        }
    }
    findings
}

pub(super) fn is_blank(url: &Option<String>) -> bool {
    url.as_deref().is_none_or(|url| url.trim().is_empty())
}
