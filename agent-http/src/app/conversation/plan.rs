//! A run that is ready to begin, and its start: the commit of its beginning beside the start of the backend.

use std::sync::Arc;
use std::time::Instant;

use agent_core::event::{EventStream, RunIds};
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::{Caller, ExecutionContext};
use agent_platform::conversation::{
    BeginOrder, BeginRunRequest, ConversationError, Conversations, Decision, DecisionRoute, MergeResult,
    NewThread, NodeRole, OnDisconnect, Run, RunContext, RunState, RunTrigger, ThreadKey, ThreadOwner,
};
use agent_platform::history::ThreadFields;
use agent_platform::run_observer::RunObserver;
use agent_platform::usage::{AdmittedRun, BudgetExceededError, BudgetUnit};
use futures_util::future::ready;
use futures_util::{FutureExt, stream, try_join};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::super::App;
use super::begin_error::BeginError;
use super::contexts::ContextSlot;
use super::continued::ContinuedTurn;
use super::queued_begin::{AnswerPosition, QueuedBegin};
use super::stored_run_recorder::StoredRunRecorder;
use super::stored_turn::StoredTurn;
use crate::error::{Code, HttpError};
use crate::stream::RunSource;

/// Treatment of a run whose client disconnects.
pub(super) struct DisconnectPolicy {
    pub(super) on_disconnect: OnDisconnect,
    pub(super) grace_ms: Option<u32>,
}

impl DisconnectPolicy {
    pub(super) fn of(fields: &ThreadFields) -> Self {
        // A background run has no client that could disconnect.
        let on_disconnect = match fields.is_background {
            true => OnDisconnect::Continue,
            false => fields.on_disconnect.unwrap_or(OnDisconnect::Cancel),
        };
        Self { on_disconnect, grace_ms: fields.grace_ms }
    }
}

/// Returns the context of a run: the request's, otherwise the context of the run that it continues.
pub(super) fn run_context(turn: &TurnRequest, continues: Option<&Run>) -> RunContext {
    let continued = continues.map(|run| run.context.clone()).unwrap_or_default();
    RunContext {
        todo_list_id: turn.todo_list_id.clone().or(continued.todo_list_id),
        timezone: turn.timezone.clone().or(continued.timezone),
        response_format: turn.response_format.clone().or(continued.response_format),
        max_output_tokens: turn.max_output_tokens.or(continued.max_output_tokens),
    }
}

/// Returns true for a run that a limit has refused before its beginning was committed and anything was sent.
fn is_refused_before_start(admitted: Option<&AdmittedRun>, error: &HttpError) -> bool {
    let is_temporary =
        matches!(error.code(), Code::BudgetExceeded | Code::RateLimited | Code::StoreUnavailable);
    is_temporary && admitted.is_some_and(AdmittedRun::awaits_first_call)
}

/// Request for which a run begins.
#[derive(Clone, Copy)]
pub(super) struct BeginInputs<'r> {
    pub(super) app: &'r Arc<App>,
    pub(super) principal: &'r Principal,
    pub(super) turn: &'r TurnRequest,
}

/// A run that is ready to begin.
pub(super) struct RunPlan {
    pub(super) key: ThreadKey,
    pub(super) merged: MergeResult,
    /// Messages of the prompt.
    pub(super) messages: Arc<Vec<Arc<Message>>>,
    pub(super) new_thread: NewThread,
    pub(super) retention: Option<SignedDuration>,
    /// Relation to the thread's queue.
    pub(super) order: BeginOrder,
    /// Time for which the run was queued, in milliseconds.
    pub(super) queued_ms: Option<u64>,
    /// Version of the thread; 0 if it does not exist.
    pub(super) version: u64,
    /// Run that this one continues.
    pub(super) continues: Option<Run>,
    /// Decisions about the calls of that run.
    pub(super) decisions: Vec<Decision>,
    /// Context of the run's tools.
    pub(super) context: RunContext,
    pub(super) disconnect: DisconnectPolicy,
    /// Cause of the run.
    pub(super) trigger: RunTrigger,
    /// Receives the context that is sent with the latest user message.
    pub(super) sent_context: ContextSlot,
}

impl RunPlan {
    /// Commits the beginning of the run while the backend prepares its request, or before if the run is in the background. A run
    /// that is stopped meanwhile has no events but its start, and its recorder has its end. A run that is refused by the limits on
    /// runs, or on the first call of a model, leaves nothing, so that the client can send the request again. `admitted` is kept
    /// between attempts to begin it.
    pub(super) async fn begin(
        self,
        inputs: BeginInputs<'_>,
        stored_turn: &StoredTurn,
        accepted: Instant,
        admitted: &mut Option<AdmittedRun>,
    ) -> Result<(RunSource, StoredRunRecorder), BeginError> {
        *admitted = self.admission(inputs, admitted.take()).await?;
        let (slot, store) = (self.sent_context.clone(), stored_turn.store.clone());
        let (begin, start) = self.into_begin(inputs, store.clone());
        let BeginInputs { app, principal, turn } = inputs;
        let position = AnswerPosition { parent: begin.parent_id.clone(), sent_context: slot };
        let outcome = admitted.as_ref().map(AdmittedRun::outcome);
        let mut recorder =
            StoredRunRecorder::begin(&app.conversations, store, begin, (position, outcome), accepted);
        let observer = recorder.observer().clone();
        let ids = RunIds { thread_id: turn.thread_id.clone(), run_id: turn.run_id.clone() };
        if stored_turn.is_background() {
            recorder.wait_until_stored().await?;
            let admitted = admitted.take();
            let events = async move {
                let _admitted = admitted;
                start.start_stored(&observer).await
            };
            return Ok((RunSource::starting(ids, events.in_current_span().boxed()), recorder));
        }
        let stopped = recorder.stopped_at_start(&stored_turn.client);
        let begin_stored = async { recorder.wait_until_stored().await.map(drop) };
        let started = tokio::select! {
            biased;
            () = stopped => None,
            started = start.start(begin_stored, &observer, admitted.as_ref()) => Some(started),
        };
        match started {
            Some(Ok(events)) => Ok((events.into(), recorder)),
            None => Ok((EventStream::new(ids, stream::pending()).into(), recorder)),
            Some(Err(BeginError::Turn(error))) => {
                let error = HttpError::from_turn(error, principal.caller);
                if is_refused_before_start(admitted.as_ref(), &error) {
                    recorder.discard();
                    return Err(BeginError::NotAdmitted { error, is_full: false });
                }
                recorder.fail(error.code().as_str(), error.detail()).await;
                Err(BeginError::Request(error))
            }
            Some(Err(error)) => Err(error),
        }
    }

    /// Commits the beginning of a queued run while the backend prepares its request. `admitted` is kept between attempts.
    pub(super) async fn begin_queued(
        self,
        inputs: BeginInputs<'_>,
        queued: &QueuedBegin,
        admitted: &mut Option<AdmittedRun>,
    ) -> Result<EventStream, BeginError> {
        *admitted = self.admission(inputs, admitted.take()).await?;
        let slot = self.sent_context.clone();
        let (begin, start) = self.into_begin(inputs, queued.store.clone());
        let outcome = admitted.as_ref().map(AdmittedRun::outcome);
        let begin_stored = queued.begin(begin, slot, outcome);
        match start.start(begin_stored, &queued.observer, admitted.as_ref()).await {
            Err(BeginError::Turn(error)) => {
                Err(BeginError::Request(HttpError::from_turn(error, inputs.principal.caller)))
            }
            result => result,
        }
    }

    /// Admits the run by the limits on runs, unless `admitted`, by an earlier attempt to begin it, is unused. A run that makes
    /// decided calls first is admitted when it asks its backend.
    fn admission(
        &self,
        BeginInputs { app, principal, turn }: BeginInputs<'_>,
        admitted: Option<AdmittedRun>,
    ) -> impl Future<Output = Result<Option<AdmittedRun>, BeginError>> + Send + use<> {
        let makes_calls = self.continues.as_ref().is_some_and(|run| run.state == RunState::Waiting);
        let unused = admitted.filter(|admitted| !makes_calls && admitted.is_unused());
        let (app, caller) = (app.clone(), principal.caller);
        let context = ExecutionContext {
            run_id: turn.run_id.clone(),
            ..principal.agent_context(&turn.agent_id, caller)
        };
        async move {
            if makes_calls || unused.is_some() {
                return Ok(unused);
            }
            match app.usage.recorder.admit_run(&context).await {
                Ok(admitted) => Ok(Some(admitted)),
                Err(error) => {
                    let is_full = BudgetExceededError::find(&error)
                        .is_some_and(|refusal| refusal.unit == BudgetUnit::ConcurrentRuns);
                    Err(BeginError::NotAdmitted {
                        error: HttpError::from_turn(error.into(), caller),
                        is_full,
                    })
                }
            }
        }
    }

    /// Returns the commit of the beginning, and the start of the backend.
    fn into_begin(
        self,
        BeginInputs { app, principal, turn }: BeginInputs<'_>,
        store: Arc<dyn Conversations>,
    ) -> (BeginRunRequest, RunStart) {
        let service = &app.conversations;
        let thread_info = self.thread_info(turn);
        let RunContext { todo_list_id, timezone, response_format, max_output_tokens } = self.context.clone();
        let start = RunStart {
            app: app.clone(),
            principal: principal.clone(),
            turn: TurnRequest {
                messages: self.messages,
                todo_list_id,
                timezone,
                response_format,
                max_output_tokens,
                can_suspend: true,
                is_stored: true,
                sent_context: self.sent_context.text.clone(),
                ..turn.clone()
            },
            store,
            owner: self.key.thread_owner(),
            continues: self.continues.clone(),
            decisions: self.decisions.clone(),
            thread_info,
        };
        let begin = BeginRunRequest {
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
            order: self.order,
            expected_version: Some(self.version),
            on_disconnect: self.disconnect.on_disconnect,
            grace_ms: self.disconnect.grace_ms,
            backend: None,
            request_sha256: None,
            lease: service.begin_lease(),
            now: service.now(),
        };
        (begin, start)
    }

    /// Returns the value of the event that names the nodes of the request.
    fn thread_info(&self, turn: &TurnRequest) -> Value {
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
        value.extend(self.queued_ms.map(|time| ("queuedMs".to_owned(), json!(time))));
        Value::Object(value)
    }
}

/// Start of the backend of a run.
struct RunStart {
    app: Arc<App>,
    principal: Principal,
    turn: TurnRequest,
    store: Arc<dyn Conversations>,
    owner: ThreadOwner,
    /// Run that this one continues.
    continues: Option<Run>,
    decisions: Vec<Decision>,
    /// Value of the event that names the nodes of the request.
    thread_info: Value,
}

impl RunStart {
    /// Starts the backend of a run whose beginning is stored.
    ///
    /// # Errors
    /// Errors of the turn and of the store, as a chat request has them.
    async fn start_stored(self, observer: &Arc<RunObserver>) -> Result<EventStream, HttpError> {
        let caller = self.principal.caller;
        self.start(ready(Ok(())), observer, None).await.map_err(|error| match error {
            BeginError::Turn(error) => HttpError::from_turn(error, caller),
            error => error.into(),
        })
    }

    /// Starts the backend while `commit` stores the beginning: it sends nothing before. If limits apply to the
    /// calls of models, `commit` waits until they have admitted the first one. A run that waits for the results of its decided
    /// calls starts the backend after them.
    async fn start(
        self,
        commit: impl Future<Output = Result<(), ConversationError>>,
        observer: &Arc<RunObserver>,
        admitted: Option<&AdmittedRun>,
    ) -> Result<EventStream, BeginError> {
        let Self { app, principal, turn, store, owner, continues, decisions, thread_info } = self;
        let caller = principal.caller;
        let events = if let Some(waiting) = continues.filter(|run| run.state == RunState::Waiting) {
            commit.await?;
            let run = store.run(&owner, &waiting.id).await?.ok_or(ConversationError::RunNotFound)?;
            for decision in &decisions {
                let decided = run.approvals.iter().find(|approval| approval.id == decision.approval);
                // The approvals route records its own decisions, also an equal one from just before.
                if let Some(approval) = decided.filter(|approval| approval.via == Some(DecisionRoute::Chat)) {
                    app.record_decision(&owner, approval, decision);
                }
            }
            let observer = observer.clone();
            ContinuedTurn { app, principal, turn, store, owner, run, observer }.into_events()
        } else {
            observer.begin_preparation();
            let started = async {
                let events =
                    app.run_stored_turn(&principal, turn, observer).await.map_err(BeginError::Turn)?;
                // Not every backend books its calls.
                if let Some(admitted) = admitted {
                    admitted.record_start();
                }
                Ok::<_, BeginError>(events)
            };
            let commit = async {
                if let Some(admitted) = admitted {
                    admitted.first_call_admitted().await;
                }
                commit.await.map_err(BeginError::from)
            };
            let ((), events) = try_join!(commit, started)?;
            events
        };
        let events = events.with_observer(observer.event_observer());
        Ok(match caller {
            // Visitors receive no extension events.
            Caller::Widget => events,
            _ => events.with_custom_event("agent.thread", thread_info),
        })
    }
}
