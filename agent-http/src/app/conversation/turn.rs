//! Start of a turn in a thread: loads the thread, merges the request's messages into it, and commits the beginning of
//! the run while the backend starts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::event::{Event, EventObserver, EventStream};
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_core::turn::{TurnError, run_turn};
use agent_platform::conversation::{
    BeginRun, ConversationError, Conversations, MergeInput, Merged, NewThread, Node, NodeId, NodeLink,
    NodeMessage, NodeOrigin, NodeQuery, NodeRole, NodeSelection, OnDisconnect, RunKey, RunTrigger,
    RunTriggerKind, ThreadKey, ThreadLinks, ThreadOrigin, merge,
};
use agent_platform::history::{
    ChatInput, FieldError, HistorySource, OnBusy, ThreadFields, expects_answer, repair,
};
use agent_platform::run_registry::RunIdClaim;
use futures_util::{TryFutureExt, try_join};
use serde_json::{Map, Value, json};

use super::super::App;
use super::ConversationService;
use super::error::used_run_id;
use super::kept_run::KeptRun;
use crate::error::{Code, HttpError};
use crate::stream::RunRecorder;

/// `Retry-After` of a request for a run in the background, of which there are too many.
const BACKGROUND_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of attempts to begin a run in a thread that concurrent requests change.
const MAX_BEGIN_ATTEMPTS: usize = 8;

/// A request whose run is to be kept, as far as it is known from the request.
pub(in super::super) struct ThreadRequest {
    fields: ThreadFields,
    /// Error of a request without a message that would need one if it were not kept.
    missing_message: Result<(), FieldError>,
}

impl ThreadRequest {
    /// Reads the request for keeping; `None` if its run is not kept: conversations are switched off, it names no thread,
    /// or it forbids it.
    ///
    /// # Errors
    /// 400 for an invalid field that concerns the thread.
    pub(in super::super) fn read(
        service: &ConversationService,
        input: &ChatInput,
    ) -> Result<Option<Self>, HttpError> {
        if !service.is_on() {
            return Ok(None);
        }
        let fields = input.thread_fields();
        let is_kept = match (&fields, input.turn.thread_id.is_empty()) {
            (Ok(fields), true) => fields.store == Some(true),
            (Ok(fields), false) => fields.store != Some(false),
            // Without a thread, the fields are another application's.
            (Err(_), has_no_thread) => !has_no_thread,
        };
        if !is_kept {
            return Ok(None);
        }
        let (fields, missing_message) = (fields?.clone(), input.reject_missing_message());
        Ok(Some(Self { fields, missing_message }))
    }
}

/// A turn whose run is kept.
pub(in super::super) struct KeptTurn {
    store: Arc<dyn Conversations>,
    fields: ThreadFields,
}

impl KeptTurn {
    /// Opens a turn whose run is kept; `None` if it is not, by the agent's role or since the agent does not exist.
    ///
    /// # Errors
    /// 400 if the run is not kept and the request has no message; 429 for a run in the background if there are too many;
    /// errors of the store.
    pub(in super::super) async fn open(
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        request: ThreadRequest,
    ) -> Result<Option<Self>, HttpError> {
        let ThreadRequest { fields, missing_message } = request;
        if fields.is_background && app.conversations.runs.count_detached(&principal.company_id).is_none() {
            let detail = "too many runs of the company go on without a client";
            return Err(HttpError::new(Code::RateLimited, detail).with_retry_after(BACKGROUND_RETRY_AFTER));
        }
        let role = app.roles.role(&principal.company_id, &turn.agent_id).await?;
        // The turn refuses an agent that does not exist.
        let is_kept = role.is_some_and(|role| {
            let settings = role.content.conversations.unwrap_or_default();
            settings.store != Some(false) && has_valid_owner(principal)
        });
        let store = app.conversations.store().filter(|_| is_kept);
        let Some(store) = store.cloned() else {
            missing_message?;
            return Ok(None);
        };
        Ok(Some(Self { store, fields }))
    }

    /// Returns true if the run goes on without the client, which is answered at once.
    pub(in super::super) fn is_background(&self) -> bool {
        self.fields.is_background
    }

    /// Starts the run. The client receives its events only after its beginning is stored.
    ///
    /// # Errors
    /// 409 if the run's id was used, the thread has another run or is full; errors of the turn and of the store.
    pub(in super::super) async fn start(
        self,
        app: &App,
        principal: &Principal,
        turn: TurnRequest,
        is_new_id: bool,
    ) -> Result<(EventStream, Box<dyn RunRecorder>), HttpError> {
        let claim = match is_new_id {
            true => None,
            false => Some(self.claim_run_id(app, principal, &turn).await?),
        };
        match self.begin(app, principal, turn).await {
            Ok((events, kept)) => Ok((events, Box::new(kept))),
            Err(error) => {
                if let Some(claim) = claim {
                    claim.release().await;
                }
                Err(error)
            }
        }
    }

    async fn claim_run_id(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
    ) -> Result<RunIdClaim, HttpError> {
        if let Some(claim) = app.runs.claim(principal, &turn.run_id).await? {
            return Ok(claim);
        }
        let owner = thread_key(principal, turn).thread_owner();
        Err(match self.store.run(&owner, &turn.run_id).await? {
            Some(run) => used_run_id(&run),
            None => HttpError::conflict("this runId was already used"),
        })
    }

    async fn begin(
        &self,
        app: &App,
        principal: &Principal,
        turn: TurnRequest,
    ) -> Result<(EventStream, KeptRun), HttpError> {
        let mut attempts = 1;
        loop {
            let begun = match self.plan(app, principal, &turn).await {
                Ok(plan) => plan.begin(app, principal, &turn, self.store.clone()).await,
                Err(error) => Err(error),
            };
            match begun {
                Err(BeginError::Store(ConversationError::VersionConflict { .. }))
                    if attempts < MAX_BEGIN_ATTEMPTS =>
                {
                    attempts += 1;
                }
                Err(BeginError::Store(ConversationError::ThreadBusy { active_run }))
                    if attempts < MAX_BEGIN_ATTEMPTS && self.fields.on_busy == Some(OnBusy::Interrupt) =>
                {
                    attempts += 1;
                    let key = RunKey { owner: thread_key(principal, &turn).thread_owner(), id: active_run };
                    app.conversations.displace(&*self.store, &key).await?;
                }
                begun => return begun.map_err(HttpError::from),
            }
        }
    }

    /// Loads the thread and merges the request's messages into it.
    async fn plan(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
    ) -> Result<RunPlan, BeginError> {
        let key = thread_key(principal, turn);
        let found = self.load(app, &key).await?;
        if let Some(found) = &found
            && found.thread.agent_id != turn.agent_id
        {
            let agent = found.thread.agent_id.clone();
            return Err(ConversationError::AgentMismatch { agent }.into());
        }
        let (thread, links) = match found {
            Some(found) => (Some(found.thread), found.links),
            None => (None, Vec::new()),
        };
        let merged = merge(MergeInput {
            links: &links,
            head: thread.as_ref().and_then(|thread| thread.head.clone()),
            messages: turn.messages.clone(),
            envelope: self.fields.envelope.clone(),
            parent: self.fields.parent.clone(),
            pending_calls: Vec::new(),
            is_visitor: key.thread_owner().is_visitor(),
        })?;
        let messages = match self.fields.history {
            HistorySource::Client if !turn.messages.is_empty() => turn.messages.clone(),
            _ => {
                let mut stored = match merged.path.last() {
                    Some(end) => load_path(&*self.store, &key, end).await?,
                    None => Vec::new(),
                };
                restore_client_ids(&mut stored, &links);
                repair(merged.prompt(&stored))
            }
        };
        if !expects_answer(&messages) {
            let fault = HttpError::invalid("messages", "must end with a user message or a tool result");
            return Err(BeginError::Request(fault));
        }
        let new_thread = NewThread {
            origin: match principal.caller {
                Caller::Proactive => ThreadOrigin::Proactive,
                _ => ThreadOrigin::Chat,
            },
            title: self.fields.title.clone(),
            metadata: self.fields.metadata.clone(),
            expires_at: None,
        };
        let version = thread.map_or(0, |thread| thread.version);
        Ok(RunPlan { key, merged, messages, new_thread, version, course: RunCourse::of(&self.fields) })
    }

    /// Loads the thread, after its run was interrupted if its process has ended.
    ///
    /// # Errors
    /// [`ConversationError::ThreadBusy`] if the thread has a run, so that no backend is asked in vain.
    async fn load(&self, app: &App, key: &ThreadKey) -> Result<Option<ThreadLinks>, BeginError> {
        let found = self.store.links(key).await?;
        let Some(active_run) = found.as_ref().and_then(|found| found.thread.active_run_id.clone()) else {
            return Ok(found);
        };
        let (owner, clock) = (key.thread_owner(), app.conversations.clock());
        match self.store.interrupt_expired(&owner, &active_run, clock).await? {
            Some(run) if !run.state.is_final() => Err(ConversationError::ThreadBusy { active_run }.into()),
            _ => Ok(self.store.links(key).await?),
        }
    }
}

/// Course of a run whose client leaves.
struct RunCourse {
    on_disconnect: OnDisconnect,
    grace_ms: Option<u32>,
}

impl RunCourse {
    fn of(fields: &ThreadFields) -> Self {
        let default = match fields.is_background {
            true => OnDisconnect::Continue,
            false => OnDisconnect::Cancel,
        };
        Self { on_disconnect: fields.on_disconnect.unwrap_or(default), grace_ms: fields.grace_ms }
    }
}

/// A run that is ready to begin.
struct RunPlan {
    key: ThreadKey,
    merged: Merged,
    /// Messages of the prompt.
    messages: Vec<Message>,
    new_thread: NewThread,
    /// Version of the thread; 0 if it does not exist.
    version: u64,
    course: RunCourse,
}

impl RunPlan {
    /// Commits the beginning of the run while the backend starts.
    async fn begin(
        self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        store: Arc<dyn Conversations>,
    ) -> Result<(EventStream, KeptRun), BeginError> {
        let service = &app.conversations;
        let event = self.thread_event(turn);
        let trigger = match principal.caller {
            Caller::Proactive => RunTrigger {
                kind: RunTriggerKind::Proactive,
                reason: turn.trigger.clone(),
                ..RunTrigger::default()
            },
            _ => self.merged.trigger.into(),
        };
        let begin = BeginRun {
            key: self.key,
            agent_id: turn.agent_id.clone(),
            run_id: turn.run_id.clone(),
            continues: None,
            trigger,
            nodes: self.merged.nodes,
            parent_id: self.merged.parent_id,
            new_thread: self.new_thread,
            expected_version: Some(self.version),
            on_disconnect: self.course.on_disconnect,
            grace_ms: self.course.grace_ms,
            backend: None,
            request_sha256: None,
            lease: service.lease(),
            now: service.now(),
        };
        let turn = TurnRequest { messages: self.messages, ..turn.clone() };
        let mut kept = KeptRun::begin(service, store, begin);
        let begun = async { kept.begun().await.map(drop).map_err(BeginError::from) };
        let started = run_turn(&app.platform, principal, turn).map_err(BeginError::Turn);
        match try_join!(begun, started) {
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
        value.insert("turnId".to_owned(), json!(turn.run_id));
        Event::Custom { name: "agent.thread".to_owned(), value: Value::Object(value) }
    }
}

/// Error that prevents a run from beginning.
enum BeginError {
    Store(ConversationError),
    Turn(TurnError),
    Request(HttpError),
}

impl From<ConversationError> for BeginError {
    fn from(error: ConversationError) -> Self {
        Self::Store(error)
    }
}

impl From<BeginError> for HttpError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Store(error) => error.into(),
            BeginError::Turn(error) => error.into(),
            BeginError::Request(error) => error,
        }
    }
}

/// Adds the event `agent.thread` after those of the run's start.
struct ThreadObserver(Event);

impl EventObserver for ThreadObserver {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        matches!(event, Event::RunStarted { .. }).then(|| self.0.clone())
    }
}

fn thread_key(principal: &Principal, turn: &TurnRequest) -> ThreadKey {
    ThreadKey::new(principal.company_id.clone(), principal.user_id.clone(), turn.thread_id.clone())
}

/// Returns true if the user may have threads: the store bounds the length of an owner's id.
fn has_valid_owner(principal: &Principal) -> bool {
    ThreadKey::new(principal.company_id.clone(), principal.user_id.clone(), "thread").check().is_ok()
}

/// Gives the messages that the client has sent their ids at the client, if any, with which they were first sent to the
/// backend: a message is the same in every prompt.
fn restore_client_ids(path: &mut [Node], links: &[NodeLink]) {
    let ids: HashMap<&NodeId, Option<&String>> =
        links.iter().map(|link| (&link.id, link.client_id.as_ref())).collect();
    for node in path.iter_mut().filter(|node| node.origin != NodeOrigin::Run) {
        let client_id = ids.get(&node.id).copied().flatten().cloned();
        if let NodeMessage::Message(message) = &mut node.message {
            message.id = client_id;
        }
    }
}

/// Loads the path to a node.
async fn load_path(
    store: &dyn Conversations,
    key: &ThreadKey,
    end: &NodeId,
) -> Result<Vec<Node>, ConversationError> {
    let select = NodeSelection::Path { at: Some(end.clone()) };
    let limit = Some(agent_platform::conversation::MAX_PAGE_NODES);
    let mut query = NodeQuery { select, cursor: None, limit };
    let mut path = Vec::new();
    loop {
        let Some(page) = store.nodes(key, &query).await? else {
            return Err(ConversationError::VersionConflict { found: 0 });
        };
        path.extend(page.nodes);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(path);
        }
    }
}
