//! Platform of a replay: the backends of the application, which build their requests and call nobody.

use std::sync::Arc;

use agent_client::backends::agent_server::AgentServerBackend;
use agent_client::backends::workflow::WorkflowBackend;
use agent_client::outbound::OutboundClient;
use agent_core::backend::EmbeddedBackend;
use agent_core::model::Model;
use agent_core::secret::Secret;
use agent_core::turn::Platform;
use agent_platform::bpe::BpeCounter;
use agent_platform::replay::{Replay, ReplayBackend, ReplayModels};

use super::{coding, embedded_models, model_limits, subscriptions};
use crate::StartError;
use crate::config::AppConfig;
use crate::stores::Stores;

/// Builds the platform of a replay.
///
/// # Errors
/// The outbound HTTP client cannot be created.
pub fn replay(
    config: &AppConfig,
    stores: &Stores,
    local: Option<Arc<dyn Model>>,
    replay: &Arc<Replay>,
) -> Result<Platform, StartError> {
    let outbound = OutboundClient::new(config.server.outbound.clone())?;
    let public_url = config.public_url(config.server.listen);
    let limits = model_limits(&config.server);
    let mut with_key = config.clone();
    // Requests are built where the key is not at hand, too.
    with_key.server.hosted.api_key.get_or_insert_with(Secret::mask);
    let models = embedded_models(&with_key, &outbound, local, &limits);
    let tool_limits = Replay::limits(config.server.tool_loop);
    let embedded = EmbeddedBackend::new(ReplayModels::new(models, replay.clone()))
        .with_tools(replay.tools())
        .with_limits(tool_limits);
    let subscriptions = subscriptions(config, &outbound, &coding(config, &outbound, stores), &limits);
    let subscriptions = EmbeddedBackend::new(ReplayModels::new(subscriptions, replay.clone()))
        .with_tools(replay.tools())
        .with_limits(tool_limits);
    let own_runtime = config.runtime_url.clone().map(|url| (url, config.runtime_secret.clone()));
    let agent_server = AgentServerBackend {
        outbound: outbound.clone(),
        own_runtime,
        public_url: public_url.clone(),
        run_token_ttl: config.server.run_timeout,
        limits,
    };
    let workflow = WorkflowBackend { outbound, public_url, run_token_ttl: config.mcp.workflow_ttl };
    Ok(replay
        .platform()
        .with_output_limits(config.server.output)
        .with_token_counter(Arc::new(BpeCounter))
        .with_backend(embedded)
        .with_backend(subscriptions)
        .with_backend(ReplayBackend::new(agent_server, replay.clone()))
        .with_backend(ReplayBackend::new(workflow, replay.clone())))
}
