//! Models whose answers are validated.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use agent_core::backend::ModelSource;
use agent_core::budget::TokenCounter;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::FinishReason;
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::role::ResponseFormat;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt};

use super::AnswerValidator;
use super::schema::exact_text;
use crate::model_notice::ModelNotice;

/// Limit on an answer that is held back, in bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Number of bytes after which the run reports progress of an answer that is held back, so that the run does not count as idle.
const PROGRESS_BYTES: usize = 1 << 10;
/// Number of repairs if the format has none.
const DEFAULT_REPAIRS: u8 = 1;

/// A [`ModelSource`] whose models hold back an answer in JSON until it is complete and valid.
///
/// A valid answer becomes a text and an [`Object`](ModelEvent::Object). An invalid answer becomes a request for a corrected one,
/// up to the format's number of repairs, and then an error. Text in front of tool calls is a [`Draft`](ModelEvent::Draft).
pub struct ValidatedModels<S> {
    source: S,
}

impl<S> std::fmt::Debug for ValidatedModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidatedModels").finish_non_exhaustive()
    }
}

impl<S> ValidatedModels<S> {
    /// Wraps a source.
    pub fn new(source: S) -> Self {
        Self { source }
    }
}

impl<C, S: ModelSource<C>> ModelSource<C> for ValidatedModels<S> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        Ok(ValidatedModel::wrap(self.source.model(settings)?))
    }

    fn model_for_run(&self, settings: &C, context: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        Ok(ValidatedModel::wrap(self.source.model_for_run(settings, context)?))
    }
}

/// A model in one run.
struct ValidatedModel {
    model: Arc<dyn Model>,
    /// Number of the run's answers that were rejected.
    repairs: Arc<AtomicU32>,
}

/// Format of the answer to a prepared request.
struct RequestedFormat(Arc<ResponseFormat>);

impl ValidatedModel {
    fn wrap(model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(Self { model, repairs: Arc::default() })
    }
}

#[async_trait]
impl Model for ValidatedModel {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        self.model.counter()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let payload = self.model.prepare(request)?;
        Ok(match &request.response_format {
            Some(format) => payload.with_attachment(RequestedFormat(format.clone())),
            None => payload,
        })
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let format = payload.attachment::<RequestedFormat>().map(|format| format.0.clone());
        let Some(format) = format else { return self.model.start(payload).await };
        let validator = AnswerValidator::new(&format).map_err(|fault| {
            let message = format!("responseFormat.{} {}", fault.path, fault.message);
            AgentError::new(AgentErrorKind::InvalidRequest, message)
        })?;
        let answer = ValidatedAnswer {
            events: self.model.start(payload).await?,
            validator,
            max_repairs: format.repairs.unwrap_or(DEFAULT_REPAIRS).into(),
            repairs: self.repairs.clone(),
            answer_text: String::new(),
            noticed_bytes: 0,
            has_calls: false,
            ready: VecDeque::new(),
            is_over: false,
        };
        Ok(answer.boxed())
    }
}

/// Events of an answer, whose text is held back.
struct ValidatedAnswer {
    events: ModelStream,
    validator: AnswerValidator,
    max_repairs: u32,
    repairs: Arc<AtomicU32>,
    answer_text: String,
    noticed_bytes: usize,
    /// True if the answer calls a tool, so that its text is not the final answer.
    has_calls: bool,
    ready: VecDeque<ModelEvent>,
    is_over: bool,
}

impl ValidatedAnswer {
    /// Adds a text to the part of the answer that is held back.
    fn hold_back(&mut self, text: &str) -> Result<(), AgentError> {
        if self.answer_text.len() + text.len() > MAX_ANSWER_BYTES {
            let message = format!("an answer in JSON exceeds the limit of {MAX_ANSWER_BYTES} bytes");
            return Err(AgentError::new(AgentErrorKind::OutputTooLarge, message));
        }
        self.answer_text.push_str(text);
        if self.answer_text.len() - self.noticed_bytes >= PROGRESS_BYTES {
            self.noticed_bytes = self.answer_text.len();
            self.ready.push_back(ModelNotice::OutputProgress { bytes: self.answer_text.len() as u64 }.into());
        }
        Ok(())
    }

    /// Passes the held text on as a draft.
    fn release_draft(&mut self) {
        let draft = std::mem::take(&mut self.answer_text);
        self.noticed_bytes = 0;
        self.ready.extend((!draft.is_empty()).then_some(ModelEvent::Draft(draft)));
    }

    /// Handles the end of the answer.
    fn finish(&mut self, reason: FinishReason) -> Result<(), AgentError> {
        let invalid = |message: String| Err(AgentError::new(AgentErrorKind::OutputInvalid, message));
        match reason {
            FinishReason::Length => {
                return invalid(
                    "the answer reached the limit of its tokens before it was complete".to_owned(),
                );
            }
            FinishReason::ContentFilter => return invalid("the model has refused to answer".to_owned()),
            FinishReason::Stop | FinishReason::ToolCalls => {}
        }
        if self.has_calls {
            self.release_draft();
            self.ready.push_back(ModelEvent::Finish(reason));
            return Ok(());
        }
        let error = match self.validator.read(&self.answer_text) {
            Ok(object) => {
                // The text is the value as JSON, without surrounding text and duplicate members.
                let events = [
                    ModelEvent::Text(exact_text(&object, &self.answer_text)),
                    ModelEvent::Object(object),
                    ModelEvent::Finish(FinishReason::Stop),
                ];
                self.ready.extend(events);
                return Ok(());
            }
            Err(error) => error,
        };
        let repair = self.repairs.fetch_add(1, Ordering::Relaxed) + 1;
        if repair > self.max_repairs {
            return invalid(format!("the answer does not have the requested format: {}", error.paths));
        }
        self.release_draft();
        self.ready.push_back(ModelNotice::OutputRejected { repair, reason: error.paths }.into());
        let correction = format!(
            "Your answer is not valid: {}. Answer again, with the corrected JSON value and nothing else.",
            error.description
        );
        self.ready.push_back(ModelEvent::Rejected(correction));
        Ok(())
    }

    fn process(&mut self, event: ModelEvent) -> Result<(), AgentError> {
        match event {
            ModelEvent::Text(text) => self.hold_back(&text)?,
            ModelEvent::Finish(reason) => self.finish(reason)?,
            ModelEvent::ToolCallStart { .. } | ModelEvent::ToolCallArgs { .. } => {
                self.has_calls = true;
                self.release_draft();
                self.ready.push_back(event);
            }
            event => self.ready.push_back(event),
        }
        Ok(())
    }
}

impl Stream for ValidatedAnswer {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            let processed = match ready!(this.events.poll_next_unpin(cx)) {
                Some(Ok(event)) => {
                    this.is_over = matches!(event, ModelEvent::Finish(_));
                    this.process(event)
                }
                Some(Err(error)) => Err(error),
                None => {
                    this.is_over = true;
                    Ok(())
                }
            };
            if let Err(error) = processed {
                this.is_over = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
