//! A run that is ready to begin, and its start: the commit of its beginning beside the start of the backend.

use std::sync::Arc;
use std::time::Instant;

use agent_core::event::{Event, EventObserver, EventStream};
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_core::turn::run_observed_turn;
use agent_platform::conversation::{
    ApprovalState, BeginOrder, BeginRun, ConversationError, Conversations, Decision, Merged, NewThread,
    NodeRole, OnDisconnect, Run, RunContext, RunState, RunTrigger, ThreadKey,
};
use agent_platform::history::ThreadFields;
use futures_util::{TryFutureExt, try_join};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::super::App;
use super::ConversationService;
use super::contexts::ContextSlot;
use super::continued::ContinuedTurn;
use super::kept_run::KeptRun;
use super::turn::BeginError;
use crate::error::HttpError;

/// Course of a run whose client leaves.
pub(super) struct RunCourse {
    on_disconnect: OnDisconnect,
    grace_ms: Option<u32>,
}

impl RunCourse {
    pub(super) fn of(fields: &ThreadFields) -> Self {
        let default = match fields.is_background {
            true => OnDisconnect::Continue,
            false => OnDisconnect::Cancel,
        };
        Self { on_disconnect: fields.on_disconnect.unwrap_or(default), grace_ms: fields.grace_ms }
    }
}

/// A run that is ready to begin.
pub(super) struct RunPlan {
    pub(super) key: ThreadKey,
    pub(super) merged: Merged,
    /// Messages of the prompt.
    pub(super) messages: Vec<Message>,
    pub(super) new_thread: NewThread,
    pub(super) retention: Option<SignedDuration>,
    /// Version of the thread; 0 if it does not exist.
    pub(super) version: u64,
    /// Run that this one continues.
    pub(super) continues: Option<Run>,
    /// Decisions about the calls of that run.
    pub(super) decisions: Vec<Decision>,
    /// Context of the run's tools.
    pub(super) context: RunContext,
    pub(super) course: RunCourse,
    /// Cause of the run.
    pub(super) trigger: RunTrigger,
    /// Receives the context that is sent with the latest user message.
    pub(super) sent_context: ContextSlot,
}

impl RunPlan {
    /// Commits the beginning of the run while the backend starts.
    pub(super) async fn begin(
        self,
        app: &Arc<App>,
        principal: &Principal,
        turn: &TurnRequest,
        store: Arc<dyn Conversations>,
        accepted: Instant,
    ) -> Result<(EventStream, KeptRun), BeginError> {
        let event = self.thread_event(turn);
        let (continues, slot) = (self.continues.clone(), self.sent_context.clone());
        let (begin, messages) = self.into_begin(&app.conversations, turn);
        let decisions = begin.decisions.clone();
        let RunContext { todo_list_id, timezone } = begin.context.clone();
        // The results of a visitor's calls are not stored, so that no later run could bring them.
        let can_suspend = principal.caller != Caller::Widget;
        let sent_context = slot.text.clone();
        let turn =
            TurnRequest { messages, todo_list_id, timezone, can_suspend, sent_context, ..turn.clone() };
        let owner = begin.key.thread_owner();
        let mut kept = KeptRun::begin(&app.conversations, store.clone(), begin, slot, accepted);
        let observer = kept.observer().clone();
        if let Some(waiting) = continues.filter(|run| run.state == RunState::Waiting) {
            kept.begun().await?;
            for decision in &decisions {
                let decided = waiting.approvals.iter().find(|approval| approval.id == decision.approval);
                if let Some(approval) = decided.filter(|approval| approval.state == ApprovalState::Open) {
                    app.record_decision(&owner, approval, decision);
                }
            }
            let run = store.run(&owner, &waiting.id).await?.ok_or(ConversationError::RunNotFound)?;
            let (app, principal) = (app.clone(), principal.clone());
            let events =
                ContinuedTurn { app, principal, turn, store, owner, run, observer: observer.clone() };
            let events = events.into_events().with_observer(observer.event_observer());
            return Ok((events.with_observer(Box::new(ThreadObserver(event))), kept));
        }
        let begun = async { kept.begun().await.map(drop).map_err(BeginError::from) };
        observer.begin_preparation();
        let started = run_observed_turn(&app.platform, principal, turn, &*observer);
        let started = started.map_ok(|events| events.with_observer(observer.event_observer()));
        match try_join!(begun, started.map_err(BeginError::Turn)) {
            // Visitors receive no extension events.
            Ok(((), events)) if principal.caller == Caller::Widget => Ok((events, kept)),
            Ok(((), events)) => Ok((events.with_observer(Box::new(ThreadObserver(event))), kept)),
            Err(BeginError::Turn(error)) => {
                let error = HttpError::from_turn(error, principal.caller);
                kept.fail(error.code().as_str(), error.detail());
                Err(BeginError::Request(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the commit of the beginning, and the messages of the prompt.
    fn into_begin(self, service: &ConversationService, turn: &TurnRequest) -> (BeginRun, Vec<Message>) {
        let begin = BeginRun {
            key: self.key,
            agent_id: turn.agent_id.clone(),
            run_id: turn.run_id.clone(),
            continues: self.continues.map(|run| run.id),
            decisions: self.decisions,
            context: self.context,
            trigger: self.trigger,
            nodes: self.merged.nodes,
            parent_id: self.merged.parent_id,
            new_thread: self.new_thread,
            retention: self.retention,
            order: BeginOrder::default(),
            expected_version: Some(self.version),
            on_disconnect: self.course.on_disconnect,
            grace_ms: self.course.grace_ms,
            backend: None,
            request_sha256: None,
            lease: service.lease(),
            now: service.now(),
        };
        (begin, self.messages)
    }

    /// Returns the event that names the nodes of the request.
    fn thread_event(&self, turn: &TurnRequest) -> Event {
        let nodes = &self.merged.nodes;
        let user = nodes.iter().rev().find(|node| node.message.role() == NodeRole::User);
        let parent = match nodes.first() {
            Some(first) => first.parent_id.as_ref(),
            None => self.merged.parent_id.as_ref(),
        };
        let mut value = Map::new();
        value.extend(user.map(|node| ("userMessageId".to_owned(), json!(node.id))));
        value.extend(parent.map(|id| ("parentId".to_owned(), json!(id))));
        let turn_id = self.continues.as_ref().map_or(&turn.run_id, |run| &run.turn_id);
        value.insert("turnId".to_owned(), json!(turn_id));
        Event::Custom { name: "agent.thread".to_owned(), value: Value::Object(value) }
    }
}

/// Adds the event `agent.thread` after those of the run's start.
struct ThreadObserver(Event);

impl EventObserver for ThreadObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        matches!(event, Event::RunStarted { .. }).then(|| self.0.clone())
    }
}
