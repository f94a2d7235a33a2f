//! Platform of a replay: the backends of the application, which build their requests and call no other service.

use std::sync::Arc;

use agent_client::outbound::OutboundClient;
use agent_core::backend::{EmbeddedBackend, ModelSource};
use agent_core::model::Model;
use agent_core::role::EmbeddedAi;
use agent_core::secret::Secret;
use agent_core::turn::Platform;
use agent_platform::bpe::BpeCounter;
use agent_platform::fallback::fallback_settings;
use agent_platform::replay::{Replay, ReplayBackend, ReplayModels};
use agent_platform::response_format::FormattedModels;

use super::coding;
use super::models::{embedded_models, model_limits};
use super::platform::{agent_server_backend, subscriptions, workflow_backend};
use crate::StartError;
use crate::config::AppConfig;
use crate::stores::Stores;

/// Builds the platform of a replay. With `is_live`, the models of embedded agents can be called live, with the keys of the
/// role or, where the role has none, with this installation's.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub fn replay(
    config: &AppConfig,
    stores: &Stores,
    local: Option<Arc<dyn Model>>,
    replay: &Arc<Replay>,
    is_live: bool,
) -> Result<Platform, StartError> {
    let outbound = OutboundClient::new(config.server.outbound.clone())?;
    let public_url = config.public_url(config.server.listen);
    let limits = model_limits(&config.server);
    let mut as_recorded = config.clone();
    select_provider(&mut as_recorded, replay.provider());
    let models = embedded_models(&as_recorded, &outbound, local.clone(), &limits);
    let models = FormattedModels::new(models, config.server.catalog.clone());
    let tool_limits = Replay::limits(config.server.tool_loop);
    let fallbacks = config.fallback.defaults.fallbacks.clone();
    let mut models = ReplayModels::new(models, replay.clone())
        .with_fallbacks(move |settings| fallback_settings(settings, &fallbacks).collect());
    if is_live {
        // Live calls need this installation's key in place of the placeholder.
        let own_key = config.server.hosted.api_key.clone();
        as_recorded.server.hosted.api_key = as_recorded.server.hosted.api_key.and(own_key);
        as_recorded.anthropic.api_key = as_recorded.anthropic.api_key.and(config.anthropic.api_key.clone());
        let live = embedded_models(&as_recorded, &outbound, local, &limits);
        models = models.with_live_models(move |settings: &EmbeddedAi| {
            let has_mask = settings.api_key.as_ref().is_some_and(Secret::is_mask);
            (!has_mask).then(|| live.model(settings).ok()).flatten()
        });
    }
    let embedded = EmbeddedBackend::new(models).with_tools(replay.tools()).with_limits(tool_limits);
    let subscriptions = subscriptions(config, &outbound, &coding(config, &outbound, stores), &limits);
    let subscriptions = FormattedModels::new(subscriptions, config.server.catalog.clone());
    let subscriptions = EmbeddedBackend::new(ReplayModels::new(subscriptions, replay.clone()))
        .with_tools(replay.tools())
        .with_limits(tool_limits);
    let agent_server = agent_server_backend(config, &outbound, &public_url, limits);
    let workflow = workflow_backend(config, &outbound, &public_url);
    Ok(replay
        .platform()
        .with_output_limits(config.server.output)
        .with_token_counter(Arc::new(BpeCounter))
        .with_backend(embedded)
        .with_backend(subscriptions)
        .with_backend(ReplayBackend::new(agent_server, replay.clone()))
        .with_backend(ReplayBackend::new(workflow, replay.clone())))
}

/// Makes the record's provider the default, regardless of this installation's.
fn select_provider(config: &mut AppConfig, recorded: Option<&str>) {
    let (server, anthropic) = (&mut config.server, &mut config.anthropic);
    // Requests are also built without a key.
    let (hosted_key, anthropic_key) = match recorded {
        Some("local") => (None, None),
        Some("ollama") => {
            server.ollama.preferred = true;
            (None, None)
        }
        Some("anthropic") => (None, Some(Secret::mask())),
        _ => (Some(Secret::mask()), None),
    };
    server.hosted.api_key = hosted_key.map(|mask| server.hosted.api_key.take().unwrap_or(mask));
    anthropic.api_key = anthropic_key.map(|mask| anthropic.api_key.take().unwrap_or(mask));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Flags;

    #[test]
    fn the_default_provider_is_that_of_the_record() {
        for (own_key, recorded, has_keys, prefers_ollama) in [
            (None, None, (true, false), false),
            (None, Some("openai"), (true, false), false),
            (None, Some("anthropic"), (false, true), false),
            (Some("sk-own"), Some("anthropic"), (false, true), false),
            (Some("sk-own"), Some("openai"), (true, false), false),
            (Some("sk-own"), Some("local"), (false, false), false),
            (Some("sk-own"), Some("ollama"), (false, false), true),
        ] {
            let keys = own_key.map(|key| [("OPENAI_API_KEY", key), ("ANTHROPIC_API_KEY", key)]);
            let env: BTreeMap<&str, &str> =
                keys.into_iter().flatten().chain([("DATA_SECRET", "data-secret-0000")]).collect();
            let mut config = AppConfig::load(&Flags::default(), &env).expect("the settings are right");
            select_provider(&mut config, recorded);
            let server = &config.server;
            let keys = (server.hosted.api_key.is_some(), config.anthropic.api_key.is_some());
            assert_eq!((keys, server.ollama.preferred), (has_keys, prefers_ollama), "{recorded:?}");
        }
    }
}
