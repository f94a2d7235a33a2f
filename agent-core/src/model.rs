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

use crate::budget::TokenCounter;
use crate::error::Failure;
use crate::message::{FinishReason, Message, Usage};
use crate::payload::Payload;
use crate::prompt::Prompt;
use crate::tool::ToolSpec;

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

/// Whether the model may, must or must not call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// Text only.
    None,
    /// Some tool.
    Required,
    /// This tool.
    Tool(String),
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
    /// The answer is complete. Usage may still have come before, never after.
    Finish(FinishReason),
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
