//! The embedded model, called on behalf of companies.

use std::sync::Arc;

use agent_client::outbound::current_tenant;
use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_embedded::EmbeddedModel;
use async_trait::async_trait;

/// An [`EmbeddedModel`] that is called on behalf of the current task's tenant, so that a company's calls do not reuse another
/// company's cached prompt.
pub(crate) struct TenantEmbeddedModel {
    model: Arc<EmbeddedModel>,
}

impl TenantEmbeddedModel {
    pub(crate) fn new(model: Arc<EmbeddedModel>) -> Self {
        Self { model }
    }
}

#[async_trait]
impl Model for TenantEmbeddedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.model.counter()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        self.model.prepare(request)
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let company = current_tenant();
        self.model.start_for(&company, payload).await
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use agent_client::outbound::for_tenant;
    use agent_core::message::Message;
    use agent_core::model::ModelEvent;
    use agent_core::prompt::{Fragment, Part, Prompt, PromptMessage, Stability};
    use agent_core::tool::ToolChoice;
    use agent_embedded::{EmbeddedConfig, catalog};
    use futures_util::StreamExt;

    use super::*;

    fn open() -> TenantEmbeddedModel {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/models");
        let pulled = || catalog::default_model().path_in(folder.as_ref());
        let weights = std::env::var_os("EMBEDDED_MODEL_PATH").map_or_else(pulled, PathBuf::from);
        let mut config = EmbeddedConfig::new(weights);
        config.max_output_tokens = 1;
        TenantEmbeddedModel::new(Arc::new(
            EmbeddedModel::open(config).expect("`agentd model pull` has been run"),
        ))
    }

    #[tokio::test]
    async fn a_company_does_not_use_the_prompts_of_others() {
        let model = open();
        let system = Part::new("You are the assistant of a bakery. Be brief.");
        let system = vec![Fragment::new("system", "role", Stability::Role, system)];
        let request = ModelRequest {
            prompt: Arc::new(Prompt::new(system, vec![PromptMessage::new(Message::user("Hello"))])),
            appended_messages: Vec::new(),
            tools: Arc::from([]),
            tool_choice: ToolChoice::Auto,
            thinking: None,
            response_format: None,
        };
        let mut cached = Vec::new();
        for company in ["a", "a", "b", "a"] {
            let payload = model.prepare(&request).expect("prepared");
            let mut events = for_tenant(company, model.start(payload)).await.expect("started");
            while let Some(event) = events.next().await {
                if let ModelEvent::Usage(usage) = event.expect("an event") {
                    cached.push(usage.cached_input_tokens.is_some_and(|tokens| tokens > 0));
                }
            }
        }
        assert_eq!(cached, [false, true, false, false]);
    }
}
