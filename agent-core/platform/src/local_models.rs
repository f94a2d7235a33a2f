//! Shares of the companies in the calls of the in-process model.

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::ids::CompanyId;
use agent_core::model::{Model, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use crate::catalog::LOCAL_PROVIDER;
use crate::company_permits::CompanyPermits;
use crate::forward_model::forward_model;

/// A [`ModelSource`] whose model in the process takes no more calls of a company than its share.
///
/// The model answers one call at a time and has a short queue, which one company would fill. Calls of other models are not
/// limited. Wrap with it what returns the same model for all companies.
pub struct SharedLocalModels<S> {
    source: S,
    permits: Arc<CompanyPermits>,
}

impl<S> std::fmt::Debug for SharedLocalModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedLocalModels").finish_non_exhaustive()
    }
}

impl<S> SharedLocalModels<S> {
    /// Wraps a source. `permits` are those of the model's calls, running and waiting.
    pub fn new(source: S, permits: Arc<CompanyPermits>) -> Self {
        Self { source, permits }
    }
}

impl<S: ModelSource> ModelSource for SharedLocalModels<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        if model.info().provider != LOCAL_PROVIDER {
            return Ok(model);
        }
        let (permits, company_id) = (self.permits.clone(), context.company_id.clone());
        Ok(Arc::new(SharedLocalModel { model, permits, company_id }))
    }
}

/// The in-process model, in a run of a company.
struct SharedLocalModel {
    model: Arc<dyn Model>,
    permits: Arc<CompanyPermits>,
    company_id: CompanyId,
}

#[async_trait]
impl Model for SharedLocalModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let Some(permit) = self.permits.try_acquire(&self.company_id) else {
            let message =
                "the embedded model is busy with calls of the company: it runs one request at a time";
            return Err(AgentError::new(AgentErrorKind::RateLimited, message));
        };
        let events = self.model.start(payload).await?;
        // The permit is returned when the stream is dropped, or at its end.
        let permitted_events = stream::unfold((events, permit), |(mut events, permit)| async move {
            events.next().await.map(|event| (event, (events, permit)))
        });
        Ok(permitted_events.boxed())
    }
}

#[cfg(test)]
mod tests {
    use agent_core::model::{ModelInfo, ModelRequest};

    use super::*;

    /// A model whose answers never end.
    struct EndlessModel(String);

    #[async_trait]
    impl Model for EndlessModel {
        fn info(&self) -> ModelInfo {
            ModelInfo {
                provider: self.0.clone(),
                model: "m".to_owned(),
                context_window: 1_000,
                max_output_tokens: 100,
                supports_media: false,
                supports_tools: false,
            }
        }

        fn prepare(&self, _: &ModelRequest) -> Result<Payload, AgentError> {
            Ok(Payload::text("{}"))
        }

        async fn start(&self, _: Payload) -> Result<ModelStream, AgentError> {
            Ok(stream::pending().boxed())
        }
    }

    struct EndlessModels;

    impl ModelSource for EndlessModels {
        fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
            Ok(Arc::new(EndlessModel(settings.provider.clone().unwrap_or_default())))
        }
    }

    #[tokio::test]
    async fn a_company_has_a_share_of_the_calls_of_the_model_in_the_process() {
        let models = SharedLocalModels::new(EndlessModels, CompanyPermits::new(9, 5));
        let start = async |provider: &str, company: &str| {
            let settings = EmbeddedAi { provider: Some(provider.to_owned()), ..EmbeddedAi::default() };
            let context = ExecutionContext { company_id: company.into(), ..ExecutionContext::default() };
            let model = models.model_for_run(&settings, &context).expect("a model");
            model.start(Payload::text("{}")).await.map_err(|error| error.kind())
        };
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(start("local", "a").await.expect("within the share"));
        }
        assert_eq!(start("local", "a").await.err(), Some(AgentErrorKind::RateLimited));
        assert!(start("local", "b").await.is_ok(), "another company has a share of its own");
        assert!(start("openai", "a").await.is_ok(), "other models are not limited");
        answers.pop();
        assert!(start("local", "a").await.is_ok(), "a call that is dropped returns its permit");
    }
}
