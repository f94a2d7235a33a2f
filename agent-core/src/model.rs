//! One model call: a prompt in, a stream of deltas out.
//!
//! A [`Model`] works in two steps. [`prepare`](Model::prepare) is pure and makes the very bytes that
//! will be sent; a preview shows them. [`start`](Model::start) sends them. Whoever runs a model
//! therefore cannot send anything but what the preview has shown.
//!
//! Cancellation is drop: a dropped [`ModelStream`] ends the call below it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::Serialize;

use crate::budget::{self, EstimateCounter, TokenBudget, TokenCounter};
use crate::error::Failure;
use crate::message::{FinishReason, Message, Usage};
use crate::payload::Payload;
use crate::prompt::{Prompt, PromptTokens};
use crate::tool::{ToolChoice, ToolSpec};

/// A language model that answers one prompt at a time.
///
/// The contract, held by `conformance::model`: `prepare` gives the same bytes for the same request
/// and touches nothing outside; `start` gives `Err` for what is known before the first delta; a
/// stream that ends without [`ModelEvent::Finish`] was cut off; nothing follows `Finish` or an `Err`.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// What the model is and can do.
    fn info(&self) -> ModelInfo;

    /// Counts tokens as the model does, where it can say; else the platform's counter estimates.
    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        None
    }

    /// Makes the bytes of the call. Pure.
    fn prepare(&self, request: &ModelRequest) -> Result<Payload, Failure>;

    /// Sends the bytes and gives the answer as it comes.
    async fn start(&self, payload: Payload) -> Result<ModelStream, Failure>;
}

/// What a model answers, in order.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, Failure>>;

/// What a model is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Who runs it, such as `openai` or `local`.
    pub provider: String,
    /// Its name at the provider.
    pub model: String,
    /// How many tokens prompt and answer may have together.
    pub context_window: usize,
    /// How many tokens the answer may have, of those.
    pub max_output_tokens: usize,
    /// Whether it takes pictures and files.
    pub takes_media: bool,
    /// Whether it takes tools.
    pub takes_tools: bool,
}

impl ModelInfo {
    /// The prompt's budget: the context window without the answer's share.
    pub fn prompt_budget(&self) -> TokenBudget {
        TokenBudget { max_prompt_tokens: self.context_window.saturating_sub(self.max_output_tokens) }
    }
}

/// Everything that one model call is made from.
#[derive(Clone)]
pub struct ModelRequest {
    /// System prompt, history and latest turn, with cached JSON and token counts.
    pub prompt: Arc<Prompt>,
    /// What this run has said since: assistant messages with calls, and their results.
    pub appended: Vec<Message>,
    /// The tools on offer, sorted by name.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Whether a tool must be called.
    pub tool_choice: ToolChoice,
    /// Whether the model should think aloud, where it can.
    pub thinking: Option<bool>,
}

impl ModelRequest {
    /// About how many tokens the request costs with these of its tools: the prompt by the count that it
    /// was assembled under, tools and what the run has said since by estimate. What surrounds them at the
    /// provider is not known, and a picture's cost is a guess.
    pub fn estimated_tokens(&self, tools: &[Arc<ToolSpec>]) -> usize {
        let PromptTokens { system, messages, .. } = self.prompt.tokens();
        let count = |text: &str| EstimateCounter.count(text);
        let tools = tools
            .iter()
            .map(|tool| count(&tool.name) + count(&tool.description) + count(tool.input_schema.get()));
        let appended = self.appended.iter().map(|message| budget::count_message(message, &EstimateCounter));
        system + messages + tools.sum::<usize>() + appended.sum::<usize>()
    }

    /// Whether any message has pictures or files.
    pub fn has_media(&self) -> bool {
        self.prompt.has_media() || self.appended.iter().any(|message| message.content.has_media())
    }
}

/// One step of a model's answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// More of the reasoning, where the provider shows it.
    Reasoning(String),
    /// More of the answer.
    Text(String),
    /// A tool call begins. Several may be open at once, told apart by `index`.
    ToolCallStart {
        /// The call's place in the answer.
        index: usize,
        /// The provider's identifier of the call; made up by the model adapter where it gives none.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments, as JSON text.
    ToolCallArgs {
        /// The call's place in the answer.
        index: usize,
        /// The next piece.
        delta: String,
    },
    /// What the call has used; the last one counts.
    Usage(Usage),
    /// Something that is no part of the answer and that whoever looks after the agent should know. It
    /// becomes a `CUSTOM` event `agent.debug`, which visitors do not see.
    Notice(Notice),
    /// The answer is complete. Usage and notices may still have come before, never after.
    Finish(FinishReason),
}

/// What a model adapter has noticed about a call. It holds no words of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Notice {
    /// The provider has left out part of the prompt without saying so.
    PromptCut {
        /// What the prompt costs by our count, in tokens.
        estimated_tokens: u64,
        /// How many tokens the provider says it has read.
        read_tokens: u64,
        /// How many tokens prompt and answer may have together.
        context_window: u64,
    },
}

impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("appended", &self.appended.len())
            .field("tools", &self.tools.len())
            .field("tool_choice", &self.tool_choice)
            .finish_non_exhaustive()
    }
}
