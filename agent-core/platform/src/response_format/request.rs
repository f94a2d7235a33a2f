//! Models whose requests name the format of the answer.

use std::sync::Arc;

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::error::AgentError;
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::prompt::{Fragment, Part, Prompt, STABLE_PREFIX_LIMIT};
use agent_core::role::ResponseFormat;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;

use super::FormatMethod;
use crate::catalog::Catalog;

/// Identifier of the prompt's fragment that describes the format.
const FRAGMENT: &str = "responseFormat";
/// Description of the format in the prompt.
const SCHEMA_INSTRUCTION: &str = "Your final answer must be one JSON value that conforms to the JSON Schema below, and nothing \
                         else: no explanation and no code fence.";
const OBJECT_INSTRUCTION: &str =
    "Your final answer must be one JSON object, and nothing else: no explanation and no code fence.";

/// A [`ModelSource`] whose models request the format of an answer by the [method](FormatMethod) that each model has.
pub struct FormattedModels<S> {
    source: S,
    catalog: Arc<Catalog>,
}

impl<S> std::fmt::Debug for FormattedModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FormattedModels").finish_non_exhaustive()
    }
}

impl<S> FormattedModels<S> {
    /// Wraps a source of models. Each model is called through one provider's API.
    pub fn new(source: S, catalog: Arc<Catalog>) -> Self {
        Self { source, catalog }
    }

    fn wrap(&self, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(FormattedModel { model, catalog: self.catalog.clone() })
    }
}

impl<C, S: ModelSource<C>> ModelSource<C> for FormattedModels<S> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        Ok(self.wrap(self.source.model(settings)?))
    }

    fn model_for_run(&self, settings: &C, context: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        Ok(self.wrap(self.source.model_for_run(settings, context)?))
    }
}

struct FormattedModel {
    model: Arc<dyn Model>,
    catalog: Arc<Catalog>,
}

#[async_trait]
impl Model for FormattedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.model.counter()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let Some(format) = &request.response_format else { return self.model.prepare(request) };
        let info = self.model.info();
        let method = FormatMethod::choose(format, &info, request, &self.catalog);
        let response_format = match method {
            FormatMethod::Schema => Some(format.clone()),
            FormatMethod::Object => {
                Some(Arc::new(ResponseFormat { schema: None, ..ResponseFormat::clone(format) }))
            }
            FormatMethod::Prompt => None,
        };
        let mut request = ModelRequest { response_format, ..request.clone() };
        if method.is_in_prompt(&info) {
            request.prompt = Arc::new(with_description(&request.prompt, format));
        }
        Ok(self.model.prepare(&request)?.with_attachment(method))
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.model.start(payload).await
    }
}

/// Returns the prompt with a description of the format behind the stable fragments of the system prompt.
fn with_description(prompt: &Prompt, format: &ResponseFormat) -> Prompt {
    let text = match &format.schema {
        Some(schema) => format!("{SCHEMA_INSTRUCTION}\n\n{schema}"),
        None => OBJECT_INSTRUCTION.to_owned(),
    };
    let mut fragments = prompt.system_fragments().to_vec();
    let position = fragments.iter().position(|fragment| fragment.stability > STABLE_PREFIX_LIMIT);
    let description = Fragment::new(FRAGMENT, FRAGMENT, STABLE_PREFIX_LIMIT, Part::new(text));
    fragments.insert(position.unwrap_or(fragments.len()), description);
    Prompt::new(fragments, prompt.messages().to_vec())
}
