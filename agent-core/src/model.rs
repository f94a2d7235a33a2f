//! Model calls: a prompt in, a stream of deltas out.
//!
//! A [`Model`] works in two steps. [`prepare`](Model::prepare) is pure and builds the exact bytes to send, which a
//! preview shows. [`start`](Model::start) sends them, so that a caller cannot send anything else.
//!
//! Dropping a [`ModelStream`] cancels the call below it.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde_json::{Map, Value};

use crate::budget::{self, EstimateCounter, TokenCounter};
use crate::error::AgentError;
use crate::message::{FinishReason, Message, ProviderItem, Usage};
use crate::payload::Payload;
use crate::prompt::{Prompt, PromptTokens};
use crate::role::ResponseFormat;
use crate::tool::{ToolChoice, ToolSpec};

/// A language model that answers one prompt at a time.
///
/// The contract, checked by `conformance::model`: `prepare` returns the same bytes for the same request and has no
/// side effects; `start` returns `Err` for errors known before the first delta; a stream that ends without
/// [`ModelEvent::Finish`] is truncated; nothing follows `Finish` or an `Err`.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// Returns the model's name, limits and capabilities.
    fn info(&self) -> ModelInfo;

    /// Returns the model's own token counter, exact or nearer than the platform's, or `None` if that one is used.
    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        None
    }

    /// Builds the bytes of the call. Pure. Fails with `UnsupportedContent` for media that the model does not accept.
    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError>;

    /// Sends the bytes and returns the events of the answer as they arrive. Dropping the future cancels the call.
    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError>;
}

/// Events of a model's answer, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, AgentError>>;

/// Name, limits and capabilities of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Provider of the model, such as `openai` or `local`.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Limit on prompt and answer together, in tokens.
    pub context_window: usize,
    /// Limit on the answer, in tokens; part of the context window.
    pub max_output_tokens: usize,
    /// True if the model accepts images and files.
    pub supports_media: bool,
    /// True if the model supports tool calls.
    pub supports_tools: bool,
}

/// Input of one model call.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// System prompt, history and latest turn, with cached JSON and token counts.
    pub prompt: Arc<Prompt>,
    /// Messages appended by this run: assistant messages with tool calls, and their results.
    pub appended_messages: Vec<Message>,
    /// The tools on offer, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Constraint on tool calls.
    pub tool_choice: ToolChoice,
    /// Enables or disables the model's reasoning output, where supported; `None` leaves the model's default.
    pub thinking: Option<bool>,
    /// Format of the answer in JSON, which an adapter requests in the terms of its API; `None` for text.
    pub response_format: Option<Arc<ResponseFormat>>,
}

impl ModelRequest {
    /// Estimates the tokens of the request with a subset of its tools: the prompt by the counter of its assembly, the rest
    /// by [`EstimateCounter`]. The provider's framing is unknown, and the cost of an image is a guess.
    pub fn estimated_tokens(&self, tools: &[Arc<ToolSpec>]) -> usize {
        let PromptTokens { system, messages, .. } = self.prompt.tokens();
        let count = |text: &str| EstimateCounter.count(text);
        let tools = tools
            .iter()
            .map(|tool| count(&tool.name) + count(&tool.description) + count(tool.input_schema.get()));
        let appended =
            self.appended_messages.iter().map(|message| budget::count_message(message, &EstimateCounter));
        let format = self.response_format.as_ref().map_or(0, |format| format.estimated_tokens());
        system + messages + tools.sum::<usize>() + appended.sum::<usize>() + format
    }

    /// Returns true if any message contains images or files.
    pub fn has_media(&self) -> bool {
        self.prompt.has_media() || self.appended_messages.iter().any(|message| message.content.has_media())
    }
}

/// One event of a model's answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// A reasoning delta, if the provider exposes reasoning.
    Reasoning(String),
    /// A text delta.
    Text(String),
    /// A text delta that the model's next request contains, and that reaches no client.
    Draft(String),
    /// A tool call starts. Several may be open at once, distinguished by `index`.
    ToolCallStart {
        /// Index of the call in the answer. The calls of a message are in the order of their start.
        index: usize,
        /// Identifier of the call from the provider, or generated by the model adapter if the provider sends none.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// A delta of a call's arguments, as JSON text.
    ToolCallArgs {
        /// Index of the call in the answer.
        index: usize,
        /// JSON text to append.
        delta: String,
    },
    /// An item that the adapter needs back in the run's next request; it reaches no client.
    ProviderItem(ProviderItem),
    /// Token usage of the call; the last event replaces earlier ones.
    Usage(Usage),
    /// Diagnostic information for the agent's operator, which is not part of the answer. It becomes a `CUSTOM` event
    /// `agent.debug`, which is hidden from visitors. It contains no text of the conversation; its `kind` names its members.
    Notice(Map<String, Value>),
    /// The answer as a value, which conforms to the format that the request names.
    Object(Value),
    /// The answer is complete and invalid: another one is requested with this user message. Takes the place of `Finish`.
    Rejected(String),
    /// The answer is complete. Usage and notices may precede it, but never follow it.
    Finish(FinishReason),
}
