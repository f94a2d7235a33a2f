//! Models whose answers are recorded in turns that jobs have started.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};

use super::entry::{JournalEntry, RecordedCall, RecordedItem, truncated};
use super::{Journals, RunJournal};
use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::message::{FinishReason, ProviderItem};
use agent_core::model::{Model, ModelEvent, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ExecutionContext;

use crate::forward_model::forward_model;
use crate::records::StoreError;

/// Maximum size of the calls of one answer, names and arguments together, in bytes.
const MAX_CALLS_BYTES: usize = 512 * 1024;
/// Maximum size of an answer's items in the provider's format, in bytes. Of more, none is recorded: a repeated turn
/// then continues without them, which providers accept.
const MAX_ITEMS_BYTES: usize = 128 * 1024;

/// A [`ModelSource`] that journals the answers in the turns of jobs.
pub struct JournaledModels<S> {
    source: S,
    journals: Arc<Journals>,
}

impl<S> std::fmt::Debug for JournaledModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournaledModels").finish_non_exhaustive()
    }
}

impl<S> JournaledModels<S> {
    /// Wraps a source.
    pub fn new(source: S, journals: Arc<Journals>) -> Self {
        Self { source, journals }
    }
}

impl<C, S: ModelSource<C>> ModelSource<C> for JournaledModels<S> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(&self, settings: &C, context: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        let model = self.source.model_for_run(settings, context)?;
        Ok(match self.journals.find(context) {
            Some(journal) => Arc::new(JournaledModel { model, journal }),
            None => model,
        })
    }
}

/// A model in one run.
struct JournaledModel {
    model: Arc<dyn Model>,
    journal: Arc<RunJournal>,
}

#[async_trait]
impl Model for JournaledModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let name = format!("answer.{}", self.journal.next_round());
        if let Some(JournalEntry::Answer { text, calls, provider_items }) =
            self.journal.read(&name).await.map_err(not_recorded)?
        {
            return Ok(stream::iter(replay(text, calls, provider_items).into_iter().map(Ok)).boxed());
        }
        let recording = Recording {
            events: self.model.start(payload).await?,
            journal: self.journal.clone(),
            name,
            answer: RecordedAnswer::default(),
        };
        Ok(stream::unfold(recording, Recording::next).boxed())
    }
}

/// Returns the events of a recorded answer. The tokens were spent in an earlier attempt, so there is no usage.
fn replay(text: String, calls: Vec<RecordedCall>, items: Vec<RecordedItem>) -> Vec<ModelEvent> {
    let mut events = Vec::with_capacity(2 * calls.len() + items.len() + 2);
    events.extend((!text.is_empty()).then_some(ModelEvent::Text(text)));
    for (index, RecordedCall { id, name, arguments }) in calls.into_iter().enumerate() {
        events.push(ModelEvent::ToolCallStart { index, id, name });
        events.push(ModelEvent::ToolCallArgs { index, delta: arguments });
    }
    events.extend(items.into_iter().filter_map(RecordedItem::into_item).map(ModelEvent::ProviderItem));
    events.push(ModelEvent::Finish(FinishReason::ToolCalls));
    events
}

/// An answer that is being streamed and recorded.
struct Recording {
    events: ModelStream,
    journal: Arc<RunJournal>,
    name: String,
    answer: RecordedAnswer,
}

impl Recording {
    /// Returns the next event. The end of an answer with calls is recorded before it is returned, and so before the
    /// calls are made.
    async fn next(mut self) -> Option<(Result<ModelEvent, AgentError>, Self)> {
        let event = self.events.next().await?;
        let recorded = match &event {
            Ok(ModelEvent::Finish(reason)) => self.record(reason).await,
            Ok(event) => self.answer.add(event),
            Err(_) => Ok(()),
        };
        Some((recorded.and(event), self))
    }

    async fn record(&mut self, reason: &FinishReason) -> Result<(), AgentError> {
        let RecordedAnswer { text, calls, provider_items, .. } = std::mem::take(&mut self.answer);
        if calls.is_empty() || matches!(reason, FinishReason::Length | FinishReason::ContentFilter) {
            return Ok(());
        }
        let item_bytes: usize = provider_items.iter().map(|item| item.json.get().len()).sum();
        let provider_items = if item_bytes > MAX_ITEMS_BYTES { Vec::new() } else { provider_items };
        let entry = JournalEntry::Answer {
            text: truncated(&text),
            calls: calls.into_iter().map(|(_, call)| call).collect(),
            provider_items: provider_items.iter().map(RecordedItem::from).collect(),
        };
        self.journal.write(&self.name, &entry).await.map_err(not_recorded)
    }
}

#[derive(Default)]
struct RecordedAnswer {
    text: String,
    /// Recorded calls with their index in the answer, in the order of their start: by that the run numbers them.
    calls: Vec<(usize, RecordedCall)>,
    calls_bytes: usize,
    provider_items: Vec<ProviderItem>,
}

impl RecordedAnswer {
    fn add(&mut self, event: &ModelEvent) -> Result<(), AgentError> {
        match event {
            // Longer texts are truncated in the record in any case.
            ModelEvent::Text(delta) if self.text.len() <= super::entry::MAX_RECORDED_TEXT_BYTES => {
                self.text.push_str(delta);
            }
            ModelEvent::ToolCallStart { index, id, name } => {
                self.take_bytes(id.len() + name.len())?;
                let call = RecordedCall { id: id.clone(), name: name.clone(), arguments: String::new() };
                self.calls.push((*index, call));
            }
            ModelEvent::ToolCallArgs { index, delta } => {
                self.take_bytes(delta.len())?;
                if let Some((_, call)) = self.calls.iter_mut().find(|(started, _)| started == index) {
                    call.arguments.push_str(delta);
                }
            }
            ModelEvent::ProviderItem(item) => self.provider_items.push(item.clone()),
            _ => {}
        }
        Ok(())
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<(), AgentError> {
        self.calls_bytes += bytes;
        if self.calls_bytes <= MAX_CALLS_BYTES {
            return Ok(());
        }
        let message = format!("the tool calls of one answer exceed {MAX_CALLS_BYTES} bytes");
        Err(AgentError::new(AgentErrorKind::ToolLoopLimit, message))
    }
}

fn not_recorded(error: StoreError) -> AgentError {
    AgentError::new(AgentErrorKind::Failed, "the run's steps cannot be recorded").with_source(error)
}
