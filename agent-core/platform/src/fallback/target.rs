//! Targets of calls: models and agent servers.

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::FinishReason;
use agent_core::model::{Model, ModelEvent, ModelRequest};
use agent_core::payload::Payload;
use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::{AttemptReport, RetryPolicy, UpstreamError};
use crate::content_notes::{ContentNotes, request_for_model};

/// Events of an answer.
pub(super) type AnswerEvents<T> = BoxStream<'static, Result<<T as CallTarget>::Event, AgentError>>;

/// Target of the calls of one run: a model, which is called in each round, or an agent server, which is called once.
#[async_trait]
pub(super) trait CallTarget: Sized + Send + Sync + 'static {
    /// Input from which a request is built.
    type Request: Send + Sync + 'static;
    /// Event of an answer.
    type Event: Send + Unpin + 'static;

    /// Public message of an answer that has neither content nor an end.
    const TRUNCATED: &'static str;
    /// Public message of an answer that has not started in time.
    const NO_CONTENT: &'static str;

    /// Returns the limit on the prompt, in tokens.
    fn max_prompt_tokens(&self) -> usize;

    /// Returns the limit on the answer, in tokens, if it is known.
    fn max_output_tokens(&self) -> Option<usize> {
        None
    }

    /// Returns the tokens of the assembled prompt, without the messages that the run has added.
    fn assembled_tokens(&self, request: &Self::Request) -> usize;

    /// Builds the request. Pure.
    ///
    /// # Errors
    /// The reason why the target cannot take the call.
    fn prepare(&self, request: &Self::Request) -> Result<Payload, AgentError>;

    /// Sends a request. `attempt` is the number of the call in the round, from 1.
    async fn start(&self, payload: Payload, attempt: u32) -> Result<AnswerEvents<Self>, AgentError>;

    /// Returns true for an event that a client may see. Nothing is repeated after it, unless the answer is delivered whole.
    fn is_content(event: &Self::Event) -> bool;

    /// Returns true for text and tool calls, without which an answer is empty. This function and the next three have no effect
    /// where no answer is held back to its end.
    fn is_output(_event: &Self::Event) -> bool {
        false
    }

    /// Returns true for the event that ends an answer.
    fn is_end(_event: &Self::Event) -> bool {
        false
    }

    /// Returns true for diagnostics, which are given out even if the answer is dropped: some are sent once a run.
    fn is_notice(_event: &Self::Event) -> bool {
        false
    }

    /// Returns the number of bytes of an event besides its own size in memory.
    fn content_bytes(_event: &Self::Event) -> usize {
        0
    }

    /// Returns the failure with which an event ends an answer that is held back; `None` if it is an answer. `state` is the
    /// number of the round, and true if there was text or a tool call.
    fn failure(event: &Self::Event, state: (u32, bool), policy: &RetryPolicy) -> Option<AgentError>;

    /// Returns the event that reports an attempt.
    fn attempt_event(report: &AttemptReport) -> Option<Self::Event>;

    /// Returns the event that ends an answer whose every call has failed, or the error.
    fn last_event(error: AgentError) -> Result<Self::Event, AgentError> {
        Err(error)
    }
}

/// A model in one run.
pub(super) struct ModelTarget(pub(super) Arc<dyn Model>);

#[async_trait]
impl CallTarget for ModelTarget {
    type Request = ModelRequest;
    type Event = ModelEvent;

    const TRUNCATED: &'static str = "the model's response ended before it was complete";
    const NO_CONTENT: &'static str = "the model sent no content in time";

    fn max_prompt_tokens(&self) -> usize {
        let info = self.0.info();
        info.context_window.saturating_sub(info.max_output_tokens)
    }

    fn max_output_tokens(&self) -> Option<usize> {
        Some(self.0.info().max_output_tokens)
    }

    fn assembled_tokens(&self, request: &ModelRequest) -> usize {
        request.prompt.tokens().total()
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let info = self.0.info();
        let supported = request_for_model(request, &info)?;
        if !request.tools.is_empty() && !info.supports_tools {
            let message = "the model does not support tools";
            return Err(AgentError::new(AgentErrorKind::InvalidRequest, message));
        }
        let payload = self.0.prepare(&supported)?;
        Ok(match supported {
            Cow::Borrowed(_) => payload,
            Cow::Owned(_) => payload.with_attachment(ContentNotes),
        })
    }

    async fn start(&self, payload: Payload, _attempt: u32) -> Result<AnswerEvents<Self>, AgentError> {
        self.0.start(payload).await
    }

    fn is_content(event: &ModelEvent) -> bool {
        match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => !text.is_empty(),
            ModelEvent::ToolCallStart { .. } | ModelEvent::ToolCallArgs { .. } | ModelEvent::Finish(_) => {
                true
            }
            _ => false,
        }
    }

    fn is_output(event: &ModelEvent) -> bool {
        match event {
            ModelEvent::Text(text) | ModelEvent::Draft(text) => !text.is_empty(),
            ModelEvent::ToolCallStart { .. } => true,
            _ => false,
        }
    }

    fn is_end(event: &ModelEvent) -> bool {
        matches!(event, ModelEvent::Finish(_) | ModelEvent::Rejected(_))
    }

    fn is_notice(event: &ModelEvent) -> bool {
        matches!(event, ModelEvent::Notice(_))
    }

    fn content_bytes(event: &ModelEvent) -> usize {
        match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) | ModelEvent::Draft(text) => text.len(),
            ModelEvent::ToolCallStart { id, name, .. } => id.len() + name.len(),
            ModelEvent::ToolCallArgs { delta, .. } => delta.len(),
            ModelEvent::ProviderItem(item) => item.json.get().len(),
            _ => 0,
        }
    }

    fn failure(
        event: &ModelEvent,
        (round, has_output): (u32, bool),
        policy: &RetryPolicy,
    ) -> Option<AgentError> {
        let ModelEvent::Finish(reason) = event else { return None };
        match reason {
            FinishReason::Stop | FinishReason::ToolCalls if round == 1 && !has_output => {
                let message = "the model returned neither text nor a tool call";
                Some(AgentError::new(AgentErrorKind::Failed, message))
            }
            FinishReason::ContentFilter if policy.falls_back_on_content => {
                let message = "the provider's filter refused the content";
                let cause = UpstreamError::new(None, ["content_filter"], "finish reason content_filter");
                Some(AgentError::new(AgentErrorKind::Failed, message).with_source(cause))
            }
            _ => None,
        }
    }

    fn attempt_event(report: &AttemptReport) -> Option<ModelEvent> {
        report.notice().map(ModelEvent::from)
    }
}
