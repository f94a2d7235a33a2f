//! [`ParameterNotices`]: models that report the parameters which they are not sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_core::backend::ModelSource;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::EmbeddedAi;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use crate::catalog::CatalogModel;
use crate::forward_model::forward_model;
use crate::model_notice::ModelNotice;
use crate::parameters::{ModelApi, ModelParameters, thinking_switch};

/// A [`ModelSource`] whose models report once a run the parameters of the settings that they are not sent, before the first
/// event of an answer.
pub struct ParameterNotices<S> {
    source: S,
}

impl<S> std::fmt::Debug for ParameterNotices<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParameterNotices").finish_non_exhaustive()
    }
}

impl<S> ParameterNotices<S> {
    /// Wraps a source of models. Each model is called through one provider's API.
    pub fn new(source: S) -> Self {
        Self { source }
    }
}

impl<S: ModelSource> ModelSource for ParameterNotices<S> {
    fn model(&self, settings: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(
        &self,
        settings: &EmbeddedAi,
        context: &ExecutionContext,
    ) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        Ok(match ignored_parameters(settings, &*model) {
            Some(notice) => Arc::new(NoticingModel { model, notice, is_reported: Arc::default() }),
            None => model,
        })
    }
}

/// Returns the notice of the parameters that a model is not sent; `None` if it is sent all of them.
fn ignored_parameters(settings: &EmbeddedAi, model: &dyn Model) -> Option<ModelNotice> {
    if settings.parameters.is_empty() {
        return None;
    }
    let info = model.info();
    let parameters = ModelParameters::read(&settings.parameters).ok()?;
    let thinking = thinking_switch(settings.enable_thinking, settings.reasoning_effort.as_deref());
    let api = ModelApi::of_provider(&info.provider)?;
    let ignored = parameters.ignored(api, &info.model, thinking, Some(info.max_output_tokens));
    let company_model = CatalogModel::of_company(settings.company_model.as_deref());
    (!ignored.is_empty()).then(|| ModelNotice::ParametersIgnored {
        provider: company_model.map_or(info.provider, |model| model.provider),
        model: info.model,
        parameters: ignored.into_iter().map(str::to_owned).collect(),
    })
}

/// A model of one run that is not sent some parameters.
struct NoticingModel {
    model: Arc<dyn Model>,
    notice: ModelNotice,
    is_reported: Arc<AtomicBool>,
}

#[async_trait]
impl Model for NoticingModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let events = self.model.start(payload).await?;
        if self.is_reported.load(Ordering::Relaxed) {
            return Ok(events);
        }
        let (notice, is_reported) = (self.notice.clone(), self.is_reported.clone());
        // A call that fails before its first event is repeated, or another model is called.
        let with_notice = events.flat_map(move |event| {
            let is_first = event.is_ok() && !is_reported.swap(true, Ordering::Relaxed);
            let notice = is_first.then(|| Ok(notice.clone().into()));
            stream::iter(notice.into_iter().chain([event]))
        });
        Ok(with_notice.boxed())
    }
}

#[cfg(test)]
mod tests {
    use agent_core::error::AgentErrorKind;
    use agent_core::message::FinishReason;
    use agent_core::model::{ModelEvent, ModelInfo, ModelRequest};
    use async_trait::async_trait;
    use serde_json::json;

    use super::*;

    /// A model whose first answer ends with an error at once.
    #[derive(Default)]
    struct FlakyModel(AtomicBool);

    #[async_trait]
    impl Model for FlakyModel {
        fn info(&self) -> ModelInfo {
            ModelInfo {
                provider: "openai".to_owned(),
                model: "m".to_owned(),
                context_window: 8_000,
                max_output_tokens: 1_000,
                supports_media: false,
                supports_tools: true,
            }
        }

        fn prepare(&self, _: &ModelRequest) -> Result<Payload, AgentError> {
            Ok(Payload::text("{}"))
        }

        async fn start(&self, _: Payload) -> Result<ModelStream, AgentError> {
            let events = match self.0.swap(true, Ordering::Relaxed) {
                false => vec![Err(AgentError::new(AgentErrorKind::Failed, "it fails"))],
                true => {
                    vec![Ok(ModelEvent::Text("Hi.".to_owned())), Ok(ModelEvent::Finish(FinishReason::Stop))]
                }
            };
            Ok(stream::iter(events).boxed())
        }
    }

    struct FlakyModels;

    impl ModelSource for FlakyModels {
        fn model(&self, _: &EmbeddedAi) -> Result<Arc<dyn Model>, AgentError> {
            Ok(Arc::new(FlakyModel::default()))
        }
    }

    /// Returns the notices of three calls of a run.
    async fn notices(settings: &EmbeddedAi) -> Vec<Vec<serde_json::Value>> {
        let models = ParameterNotices::new(FlakyModels);
        let model = models.model_for_run(settings, &ExecutionContext::default()).expect("a model");
        let mut all = Vec::new();
        for _ in 0..3 {
            let events: Vec<_> = model.start(Payload::text("{}")).await.expect("it starts").collect().await;
            let notices = events.into_iter().filter_map(|event| match event {
                Ok(ModelEvent::Notice(notice)) => Some(notice.into()),
                _ => None,
            });
            all.push(notices.collect());
        }
        all
    }

    #[tokio::test]
    async fn ignored_parameters_are_reported_once_with_the_first_answer() {
        let parameters = |value: serde_json::Value| EmbeddedAi {
            parameters: value.as_object().cloned().unwrap_or_default(),
            ..EmbeddedAi::default()
        };
        let notice =
            json!({"kind": "parametersIgnored", "provider": "openai", "model": "m", "parameters": ["topK"]});
        let reported_notices = notices(&parameters(json!({"topK": 9, "temperature": 0.5}))).await;
        assert_eq!(reported_notices, [vec![], vec![notice], vec![]], "a call that failed reports nothing");
        let reported_notices = notices(&parameters(json!({"temperature": 0.5}))).await;
        assert_eq!(reported_notices, vec![Vec::<serde_json::Value>::new(); 3]);
    }
}
