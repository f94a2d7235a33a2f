//! The embedded model as agent-core's [`Model`].

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::budget::TokenCounter;
use agent_core::error::{Failure, FailureKind};
use agent_core::message::{Message, Role};
use agent_core::model::{Model, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ToolChoice;
use agent_core::tool::ToolSpec;
use async_trait::async_trait;
use futures_channel::mpsc;
use futures_util::StreamExt;

use crate::call::{Call, Choice, Decision};
use crate::engine::Engine;
use crate::runner::Job;
use crate::sample::Sampling;
use crate::vocabulary::{Piece, Vocabulary};
use crate::weights::{Weights, WeightsError};
use crate::{chat, grammar, intent};

/// The provider's name of models in the process.
pub const PROVIDER: &str = "local";

/// What an answer must have room for at least, in tokens; a longer prompt is refused.
const MIN_ANSWER: usize = 32;
/// How much of the latest message tells what is asked for, in characters.
const MAX_REQUEST: usize = 400;
/// What the events of an answer need in a channel beside its tokens: start, usage, end, a failure.
const OTHER_EVENTS: usize = 8;

/// How an embedded model runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EmbeddedConfig {
    /// The weights, a GGUF file.
    pub path: PathBuf,
    /// What the model is called; by default its name in the catalogue, else the file's own for it.
    pub name: Option<String>,
    /// How many tokens prompt and answer may have together. What the model has read stays in memory,
    /// about 45 KiB a token; reading takes time, so a small model has a small context.
    pub context: usize,
    /// How many tokens an answer may have, of those.
    pub max_output_tokens: usize,
    /// How many calls may wait while one is answered; a further one is refused.
    pub max_waiting: usize,
    /// How many threads compute; by default as many as the process has processors, at most four.
    pub threads: Option<NonZeroUsize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

impl EmbeddedConfig {
    /// The defaults, for the weights at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            name: None,
            context: 2_048,
            max_output_tokens: 384,
            max_waiting: 4,
            threads: None,
            sampling: Sampling::default(),
        }
    }
}

/// A language model in the process.
pub struct EmbeddedModel {
    engine: Engine,
    vocabulary: Arc<Vocabulary>,
    info: ModelInfo,
    sampling: Sampling,
}

impl EmbeddedModel {
    /// Reads the header of the weights and starts the model's thread. The weights themselves are
    /// loaded at the first call, or by [`warm`](Self::warm). Takes some tenths of a second.
    pub fn open(config: EmbeddedConfig) -> Result<Self, WeightsError> {
        let weights = Weights::open(&config.path)?;
        let path: &Path = &config.path;
        let vocabulary = Vocabulary::read(&weights.content)
            .map_err(|kind| WeightsError::UnsupportedVocabulary { path: path.to_owned(), kind })?;
        let context = config.context.min(weights.shape.trained_context).max(2 * MIN_ANSWER);
        let info = ModelInfo {
            provider: PROVIDER.to_owned(),
            model: config.name.unwrap_or_else(|| known_name(path).unwrap_or_else(|| weights.name())),
            context_window: context,
            max_output_tokens: config.max_output_tokens.clamp(1, context / 2),
            takes_media: false,
            takes_tools: true,
        };
        let threads = config.threads.unwrap_or_else(default_threads);
        let engine = Engine::start(weights, Arc::clone(&vocabulary), context, config.max_waiting, threads)
            .map_err(|source| WeightsError::Unreadable { path: path.to_owned(), source })?;
        Ok(Self { engine, vocabulary, info, sampling: config.sampling })
    }

    /// Loads the weights now, so that the first answer need not wait for them.
    pub async fn warm(&self) -> Result<(), Failure> {
        self.engine.warm().await
    }

    /// How many tokens a text has.
    pub fn count_tokens(&self, text: &str) -> usize {
        self.vocabulary.encode(text).len()
    }

    fn plan(&self, request: &ModelRequest) -> Result<Call, Failure> {
        let history = || request.prompt.messages().iter().map(|m| m.message()).chain(&request.appended);
        if history().any(|message| message.content.has_media()) {
            let message = "the embedded model reads text only, no pictures and no files";
            return Err(Failure::new(FailureKind::UnsupportedContent, message));
        }
        let asked = request.prompt.latest_user_text().unwrap_or_default();
        let asked = chat::clipped(asked.trim(), MAX_REQUEST);
        let (decision, tools) = decide(request, &asked, history().last())?;
        Ok(Call {
            model: self.info.model.clone(),
            prompt: chat::conversation(request.prompt.system_text(), history()),
            answer: chat::answer(),
            request: format!(" {asked}"),
            decision,
            tools,
            max_tokens: self.info.max_output_tokens,
            sampling: self.sampling,
        })
    }

    /// The prompt's tokens; a prompt that leaves no room for an answer is refused.
    fn read(&self, call: &Call) -> Result<Vec<u32>, Failure> {
        let count = |pieces: &[Piece<'_>]| self.vocabulary.encode_pieces(pieces).map_err(damaged);
        let prompt = count(&call.prompt)?;
        let mut asks = 0;
        for tool in &call.tools {
            asks = asks.max(count(&tool.ask)?.len());
        }
        let needed = prompt.len() + asks + count(&call.answer)?.len();
        let available = self.info.context_window - MIN_ANSWER;
        if needed > available {
            let message =
                format!("the prompt has {needed} tokens; the embedded model reads at most {available}");
            return Err(Failure::new(FailureKind::InvalidRequest, message));
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
        Some(Arc::new(Counter(Arc::clone(&self.vocabulary))))
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, Failure> {
        let call = self.plan(request)?;
        self.read(&call)?;
        let mut payload = Payload::builder(4_096);
        payload.json(&call);
        Ok(payload.finish())
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, Failure> {
        let call: Call = serde_json::from_slice(payload.bytes()).map_err(damaged)?;
        let prompt = self.read(&call)?;
        let (events, stream) = mpsc::channel(call.max_tokens.min(self.info.context_window) + OTHER_EVENTS);
        self.engine.call(Job { call, prompt, events }).await?;
        Ok(stream.boxed())
    }
}

/// How much of a wish is repeated where its tool's arguments are asked for, in characters.
const MAX_ASKED: usize = 400;

/// What the answer is to be, and the tools in question.
fn decide(
    request: &ModelRequest,
    asked: &str,
    last: Option<&Message>,
) -> Result<(Decision, Vec<Choice>), Failure> {
    let tools = &request.tools;
    match &request.tool_choice {
        ToolChoice::Tool(name) => {
            let tool = tools.iter().find(|tool| tool.name == *name).ok_or_else(|| {
                let message = format!("the tool {name:?} is to be called and is not on offer");
                Failure::new(FailureKind::InvalidRequest, message)
            })?;
            Ok((Decision::Tool, vec![choice(tool, asked)?]))
        }
        ToolChoice::Required => {
            let mut candidates = intent::plausible(asked, tools);
            if candidates.is_empty() {
                candidates = tools.iter().map(Arc::as_ref).take(1).collect();
            }
            match candidates[..] {
                [] => {
                    let message = "a tool is to be called and none is on offer";
                    Err(Failure::new(FailureKind::InvalidRequest, message))
                }
                [only] => Ok((Decision::Tool, vec![choice(only, asked)?])),
                _ => scored(None, &candidates, asked),
            }
        }
        // A result is there to be put into words.
        ToolChoice::Auto if last.is_some_and(|message| message.role == Role::User) => {
            let candidates = intent::plausible(asked, tools);
            match candidates[..] {
                [] => Ok((Decision::Text, Vec::new())),
                _ => scored(Some(intent::SMALL_TALK.to_owned()), &candidates, asked),
            }
        }
        _ => Ok((Decision::Text, Vec::new())),
    }
}

fn scored(
    text_intent: Option<String>,
    tools: &[&ToolSpec],
    asked: &str,
) -> Result<(Decision, Vec<Choice>), Failure> {
    Ok((
        Decision::Scored { text_intent },
        tools.iter().map(|tool| choice(tool, asked)).collect::<Result<_, _>>()?,
    ))
}

fn choice(tool: &ToolSpec, asked: &str) -> Result<Choice, Failure> {
    let schema = serde_json::from_str(tool.input_schema.get()).map_err(|error| {
        let message = format!("the schema of tool {:?} is not JSON", tool.name);
        Failure::new(FailureKind::InvalidRequest, message).with_source(error)
    })?;
    let mut ask = Vec::new();
    // What stands last is what a model of this size copies, so the wish stands after the tool.
    let text = format!(
        "{} Write its arguments as JSON, with the words of this message: {}",
        intent::summary(tool),
        chat::clipped(asked, MAX_ASKED)
    );
    chat::turn(&mut ask, "user", &text);
    let schema = grammar::forcible(&schema);
    Ok(Choice { name: tool.name.clone(), intent: intent::wanting(tool), ask, schema })
}

fn known_name(path: &Path) -> Option<String> {
    let file = path.file_name()?;
    crate::catalog::models().iter().find(|known| file == known.file).map(|known| known.name.to_owned())
}

fn default_threads() -> NonZeroUsize {
    const MOST: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");
    std::thread::available_parallelism().map_or(NonZeroUsize::MIN, |available| available.min(MOST))
}

fn damaged(detail: impl ToString) -> Failure {
    Failure::new(FailureKind::Internal, "the embedded model cannot read the call")
        .with_source(detail.to_string())
}

struct Counter(Arc<Vocabulary>);

impl TokenCounter for Counter {
    fn id(&self) -> &'static str {
        "embedded"
    }

    fn count(&self, text: &str) -> usize {
        self.0.encode(text).len()
    }
}
