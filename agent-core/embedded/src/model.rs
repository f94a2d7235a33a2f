//! Implementation of agent-core's [`Model`] for the embedded model.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{Message, Role};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ToolChoice;
use agent_core::tool::ToolSpec;
use async_trait::async_trait;
use futures_channel::mpsc;
use futures_util::StreamExt;

use crate::call::{Decision, ModelCall, ToolCandidate};
use crate::catalog::PROVIDER;
use crate::engine::Engine;
use crate::runner::QueuedCall;
use crate::sample::Sampling;
use crate::shape::{ShapedPrompt, shape};
use crate::vocabulary::{Piece, Vocabulary};
use crate::weights::{Weights, WeightsError};
use crate::{chat, grammar, intent};

/// Minimum space for the answer in the context, in tokens. A prompt that leaves less is rejected.
const MIN_ANSWER_TOKENS: usize = 32;
/// Maximum length of the request text that tool selection uses, in characters.
const MAX_REQUEST_CHARS: usize = 400;
/// Maximum number of events of a call besides its output tokens: tool-call start, usage, finish and an error.
const MAX_NON_TOKEN_EVENTS: usize = 8;

/// Configuration of an embedded model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EmbeddedConfig {
    /// Path of the weights, a GGUF file.
    pub path: PathBuf,
    /// Model name. Defaults to the name in the catalogue, or else to the name in the file's metadata.
    pub name: Option<String>,
    /// Maximum length of prompt and answer together, in tokens. The key-value cache takes about 45 KiB per
    /// token, and prompt processing takes time, so the default is small for a small model.
    pub context: usize,
    /// Maximum length of an answer in tokens, within `context`.
    pub max_output_tokens: usize,
    /// Maximum number of queued calls while one runs. Further calls are rejected.
    pub max_waiting: usize,
    /// Number of inference threads. Defaults to the number of available processors, at most four.
    pub threads: Option<NonZeroUsize>,
    /// Sampling parameters.
    pub sampling: Sampling,
}

impl EmbeddedConfig {
    /// Creates the default configuration for the weights at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            name: None,
            context: 2_048,
            max_output_tokens: 384,
            max_waiting: 8,
            threads: None,
            sampling: Sampling::default(),
        }
    }
}

/// An in-process language model.
pub struct EmbeddedModel {
    engine: Engine,
    vocabulary: Arc<Vocabulary>,
    info: ModelInfo,
    sampling: Sampling,
}

impl std::fmt::Debug for EmbeddedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedModel").finish_non_exhaustive()
    }
}

impl EmbeddedModel {
    /// Reads the header of the weights file and starts the model thread. The weights are loaded at the first
    /// call, or by [`warm`](Self::warm). Takes some tenths of a second; blocking.
    pub fn open(config: EmbeddedConfig) -> Result<Self, WeightsError> {
        let weights = Weights::open(&config.path)?;
        let path: &Path = &config.path;
        let vocabulary = Vocabulary::read(&weights.content)
            .map_err(|kind| WeightsError::UnsupportedVocabulary { path: path.to_owned(), kind })?;
        let context = config.context.min(weights.dimensions.trained_context).max(2 * MIN_ANSWER_TOKENS);
        let info = ModelInfo {
            provider: PROVIDER.to_owned(),
            model: config.name.unwrap_or_else(|| known_name(path).unwrap_or_else(|| weights.name())),
            context_window: context,
            max_output_tokens: config.max_output_tokens.clamp(1, context / 2),
            supports_media: false,
            supports_tools: true,
        };
        let threads = config.threads.unwrap_or_else(default_threads);
        let engine = Engine::start(weights, Arc::clone(&vocabulary), context, config.max_waiting, threads)
            .map_err(|source| WeightsError::Unreadable { path: path.to_owned(), source })?;
        Ok(Self { engine, vocabulary, info, sampling: config.sampling })
    }

    /// Loads the weights, so that the first call does not wait for them.
    pub async fn warm(&self) -> Result<(), AgentError> {
        self.engine.warm().await
    }

    /// Sends the bytes of a call on behalf of a company, as [`start`](Model::start) does on behalf of the process, whose name
    /// is empty. A prefix that the prompt shares with the last call is not processed again if that was the same company's.
    ///
    /// # Errors
    /// As [`start`](Model::start).
    pub async fn start_for(&self, company: &str, payload: Payload) -> Result<ModelStream, AgentError> {
        let call: ModelCall = serde_json::from_slice(payload.bytes()).map_err(unreadable_call)?;
        let prompt = self.encode_prompt(&call)?;
        let (events, stream) =
            mpsc::channel(call.max_tokens.min(self.info.context_window) + MAX_NON_TOKEN_EVENTS);
        let company = company.to_owned();
        self.engine.enqueue(QueuedCall { call, company, prompt, events }).await?;
        Ok(stream.boxed())
    }

    /// Counts the tokens of a text.
    pub fn count_tokens(&self, text: &str) -> usize {
        self.vocabulary.encode(text).len()
    }

    fn build_call(&self, request: &ModelRequest) -> Result<ModelCall, AgentError> {
        let history =
            || request.prompt.messages().iter().map(|m| m.message()).chain(&request.appended_messages);
        if history().any(|message| message.content.has_media()) {
            let message = "the embedded model supports text input only, no images or files";
            return Err(AgentError::new(AgentErrorKind::UnsupportedContent, message));
        }
        let is_latest = history().last().is_some_and(|message| message.role == Role::User);
        let ShapedPrompt { system, messages, quotes } = shape(&request.prompt, is_latest);
        let request_text = request.prompt.latest_user_text().unwrap_or_default();
        let request_text = chat::truncate_chars(request_text.trim(), MAX_REQUEST_CHARS);
        let (decision, tools) = decide(request, &request_text, history().last())?;
        Ok(ModelCall {
            model: self.info.model.clone(),
            prompt: chat::conversation(system, messages.iter().chain(&request.appended_messages)),
            answer: chat::assistant_start(),
            request: format!(" {request_text}"),
            decision,
            tools,
            quotes,
            max_tokens: self.info.max_output_tokens,
            sampling: self.sampling,
        })
    }

    /// Encodes the prompt. Returns an error if it leaves no room for an answer.
    fn encode_prompt(&self, call: &ModelCall) -> Result<Vec<u32>, AgentError> {
        let count = |pieces: &[Piece<'_>]| self.vocabulary.encode_pieces(pieces).map_err(unreadable_call);
        let prompt = count(&call.prompt)?;
        let mut asks = 0;
        for tool in &call.tools {
            asks = asks.max(count(&tool.ask)?.len());
        }
        let needed = prompt.len() + asks + count(&call.answer)?.len();
        let available = self.info.context_window - MIN_ANSWER_TOKENS;
        if needed > available {
            let message =
                format!("the prompt has {needed} tokens; the embedded model reads at most {available}");
            return Err(AgentError::new(AgentErrorKind::InvalidRequest, message));
        }
        Ok(prompt)
    }
}

#[async_trait]
impl Model for EmbeddedModel {
    fn info(&self) -> ModelInfo {
        self.info.clone()
    }

    fn counter(&self) -> Option<Arc<dyn TokenCounter>> {
        Some(Arc::new(EmbeddedTokenCounter(Arc::clone(&self.vocabulary))))
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        let call = self.build_call(request)?;
        self.encode_prompt(&call)?;
        let mut payload = Payload::builder(4_096);
        payload.json(&call);
        Ok(payload.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.start_for("", payload).await
    }
}

/// Maximum length of the request text repeated in the user turn that asks for arguments, in characters.
const MAX_REPEATED_REQUEST_CHARS: usize = 400;

/// Decides between text and tool call, and selects the candidate tools.
fn decide(
    request: &ModelRequest,
    request_text: &str,
    last: Option<&Message>,
) -> Result<(Decision, Vec<ToolCandidate>), AgentError> {
    let tools = &request.tools;
    match &request.tool_choice {
        ToolChoice::Tool(name) => {
            let tool = tools.iter().find(|tool| tool.name == *name).ok_or_else(|| {
                let message =
                    format!("toolChoice names the tool {name:?}, which is not in the list of tools");
                AgentError::new(AgentErrorKind::InvalidRequest, message)
            })?;
            Ok((Decision::Tool, vec![tool_candidate(tool, request_text)?]))
        }
        ToolChoice::Required => {
            let mut candidates = intent::preselect_tools(request_text, tools);
            if candidates.is_empty() {
                candidates = tools.iter().map(Arc::as_ref).take(1).collect();
            }
            match candidates[..] {
                [] => {
                    let message = "toolChoice requires a tool call, but the list of tools is empty";
                    Err(AgentError::new(AgentErrorKind::InvalidRequest, message))
                }
                [only] => Ok((Decision::Tool, vec![tool_candidate(only, request_text)?])),
                _ => scored_decision(None, &candidates, request_text),
            }
        }
        // A history that ends with a tool result is answered with text.
        ToolChoice::Auto if last.is_some_and(|message| message.role == Role::User) => {
            let candidates = intent::preselect_tools(request_text, tools);
            match candidates[..] {
                [] => Ok((Decision::Text, Vec::new())),
                _ => scored_decision(Some(intent::TEXT_INTENT.to_owned()), &candidates, request_text),
            }
        }
        _ => Ok((Decision::Text, Vec::new())),
    }
}

fn scored_decision(
    text_intent: Option<String>,
    tools: &[&ToolSpec],
    request_text: &str,
) -> Result<(Decision, Vec<ToolCandidate>), AgentError> {
    Ok((
        Decision::Scored { text_intent },
        tools.iter().map(|tool| tool_candidate(tool, request_text)).collect::<Result<_, _>>()?,
    ))
}

fn tool_candidate(tool: &ToolSpec, request_text: &str) -> Result<ToolCandidate, AgentError> {
    let schema = serde_json::from_str(tool.input_schema.get()).map_err(|error| {
        let message = format!("the schema of tool {:?} is not JSON", tool.name);
        AgentError::new(AgentErrorKind::InvalidRequest, message).with_source(error)
    })?;
    let mut ask = Vec::new();
    // A model of this size copies the end of the prompt, so the request text follows the tool's description.
    let text = format!(
        "{} Write its arguments as JSON, with the words of this message: {}",
        intent::summary(tool),
        chat::truncate_chars(request_text, MAX_REPEATED_REQUEST_CHARS)
    );
    chat::push_turn(&mut ask, "user", &text);
    let schema = grammar::bounded_schema(&schema);
    Ok(ToolCandidate { name: tool.name.clone(), intent: intent::tool_intent(tool), ask, schema })
}

fn known_name(path: &Path) -> Option<String> {
    let file = path.file_name()?;
    crate::catalog::models()
        .iter()
        .find(|known| known.files.iter().any(|known| file == known.name))
        .map(|known| known.name.to_owned())
}

pub(crate) fn default_threads() -> NonZeroUsize {
    const MAX_DEFAULT_THREADS: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");
    std::thread::available_parallelism()
        .map_or(NonZeroUsize::MIN, |available| available.min(MAX_DEFAULT_THREADS))
}

fn unreadable_call(detail: impl ToString) -> AgentError {
    AgentError::new(AgentErrorKind::Internal, "the embedded model's tool call is not valid JSON")
        .with_source(detail.to_string())
}

struct EmbeddedTokenCounter(Arc<Vocabulary>);

impl TokenCounter for EmbeddedTokenCounter {
    fn id(&self) -> &'static str {
        "embedded"
    }

    fn count(&self, text: &str) -> usize {
        self.0.encode(text).len()
    }
}
