//! Tests of compaction in whole turns, with models that answer and summarize by a script.

mod company;
mod course;
mod hostile;
mod step;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::backend::EmbeddedBackend;
use agent_core::clock::SystemClock;
use agent_core::error::AgentError;
use agent_core::event::Event;
use agent_core::message::{FinishReason, Message};
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
use agent_core::payload::Payload;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{RoleBlock, StaticRoles};
use agent_core::testing::ScriptedModel;
use agent_core::tool::Caller;
use agent_core::turn::{Platform, prepare_turn, run_turn};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Compaction, Summaries};
use crate::conversation::Conversations;
use crate::memory::MemoryRecords;
use crate::records::Records;

/// A model that summarizes by keeping the words of the form `fact-7=x`.
#[derive(Default)]
struct FactModel {
    calls: AtomicUsize,
    /// Text that replaces the facts.
    answer: Option<Result<String, fn() -> AgentError>>,
    /// Permits of calls to end.
    gate: Option<Arc<Semaphore>>,
    /// Text that is added to each answer.
    mark: String,
}

impl FactModel {
    fn answering(answer: Result<String, fn() -> AgentError>) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn facts_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"\\".contains(c));
    let mut facts: Vec<String> = words.filter(|word| word.starts_with("fact-")).map(str::to_owned).collect();
    facts.sort();
    facts.dedup();
    facts
}

#[async_trait]
impl Model for FactModel {
    fn info(&self) -> ModelInfo {
        let info = ScriptedModel::new([]).info();
        ModelInfo { context_window: 4_000, max_output_tokens: 1_000, ..info }
    }

    fn prepare(&self, request: &ModelRequest) -> Result<Payload, AgentError> {
        Ok(Payload::text(request.prompt.messages()[0].original().content.to_text()))
    }

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.acquire().await.expect("it is open").forget();
        }
        let text = String::from_utf8_lossy(payload.bytes()).into_owned();
        let answer = match &self.answer {
            Some(Ok(answer)) => answer.clone(),
            Some(Err(error)) => return Err(error()),
            None => format!("Known: {}{}", facts_in(&text).join(" "), self.mark),
        };
        let events = [Ok(ModelEvent::Text(answer)), Ok(ModelEvent::Finish(FinishReason::Stop))];
        Ok(stream::iter(events).boxed())
    }
}

/// A process with an agent whose conversations are compacted.
struct Process {
    platform: Platform,
    model: Arc<ScriptedModel>,
    summarizer: Arc<FactModel>,
    compaction: Compaction,
}

/// Tokens of the model's window for a prompt.
const WINDOW: usize = 8_000;

fn role(compaction: Value) -> RoleBlock {
    let role = json!({"id": "a", "companyId": "c",
        "content": {"systemPrompt": "Be brief.", "compaction": compaction},
        "children": [{"name": "EmbeddedAI"}]});
    serde_json::from_value(role).expect("a role")
}

impl Process {
    fn new(records: Arc<dyn Records>, summarizer: FactModel) -> Self {
        Self::with(records, None, summarizer, json!({}))
    }

    fn with(
        records: Arc<dyn Records>,
        conversations: Option<Arc<dyn Conversations>>,
        summarizer: FactModel,
        settings: Value,
    ) -> Self {
        let info = ModelInfo {
            context_window: WINDOW + 1_000,
            max_output_tokens: 1_000,
            ..ScriptedModel::new([]).info()
        };
        let (model, summarizer) =
            (Arc::new(ScriptedModel::repeating("Noted.").with_info(info)), Arc::new(summarizer));
        let summaries = Summaries::new(records, conversations, Arc::new(SystemClock));
        let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
        let models = Arc::new(summarizer.clone());
        let compaction = Compaction::new(summaries, models, None, Arc::new(SystemClock), spawner);
        let platform = Platform::new(Arc::new(StaticRoles::new().with_role(role(settings))))
            .with_layer(agent_core::context::RoleLayer::new(Arc::default()))
            .with_backend(EmbeddedBackend::new(model.clone()))
            .with_history_step(compaction.clone());
        Self { platform, model, summarizer, compaction }
    }

    /// Runs a turn in a stored thread and returns its events, once the summary that follows it is made.
    async fn run(&self, messages: &[Message]) -> Vec<Event> {
        let events = self.run_as(Caller::Session, messages).await;
        self.compaction.drain().await;
        events
    }

    async fn run_as(&self, caller: Caller, messages: &[Message]) -> Vec<Event> {
        let principal = Principal::new("ada", "c", caller);
        let events = run_turn(&self.platform, &principal, request(messages)).await.expect("a turn");
        let events: Vec<Event> = events.collect().await;
        assert!(matches!(events.last(), Some(Event::RunFinished { .. })), "{:?}", events.last());
        events
    }

    /// Returns the messages of the latest prompt.
    fn sent(&self) -> Vec<Value> {
        let requests = self.model.payloads();
        let latest = requests.last().expect("a request");
        let request: Value = serde_json::from_slice(latest.bytes()).expect("JSON");
        request["messages"].as_array().expect("messages").clone()
    }

    /// Returns the hash of what a preview shows, and its account of the compaction.
    async fn preview(&self, messages: &[Message]) -> (String, Value) {
        let principal = Principal::new("ada", "c", Caller::Session);
        let request = TurnRequest { is_preview: true, ..request(messages) };
        let prepared = prepare_turn(&self.platform, &principal, request).await.expect("a preview");
        let prompt = &prepared.request.turn.prompt;
        let mut reports = prompt.reports().map(|report| report.preview());
        let account = reports.find(|(name, _)| *name == "compaction").map(|(_, value)| value);
        (prepared.request.payload.sha256(), account.unwrap_or_default())
    }
}

fn request(messages: &[Message]) -> TurnRequest {
    let request = TurnRequest::new("a", messages.to_vec());
    TurnRequest { thread_id: "t".into(), is_stored: true, ..request }
}

/// Returns the account that a run announces.
fn compacted(events: &[Event]) -> Option<&Value> {
    events.iter().find_map(|event| match event {
        Event::Custom { value, .. } if value["kind"] == "compacted" => Some(value),
        _ => None,
    })
}

/// Returns a conversation of turns of about 90 tokens, which ends with a question. The first turns mention a fact.
fn conversation(turns: usize) -> Vec<Message> {
    let turn = |i: usize| {
        let fact = if i < 20 { format!("fact-{i}=x. ") } else { String::new() };
        let question = format!("Question {i}: {fact}{FILLER}");
        [Message::user(question), Message::assistant(format!("Answer {i}. {FILLER}"))]
    };
    let mut messages: Vec<Message> = (0..turns).flat_map(turn).collect();
    messages.push(Message::user("And now?"));
    messages
}

const FILLER: &str = "The parcel has left the warehouse, and nobody knows where it is now, although its page has been \
     telling us for three days that it arrives tomorrow before noon at the latest.";
