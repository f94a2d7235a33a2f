//! Start of a turn in a thread: loads the thread, merges the request's messages into it, and commits the beginning of
//! the run while the backend starts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::event::Id;
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{ConversationSettings, OnBusy};
use agent_core::tool::Caller;
use agent_core::turn::TurnError;
use agent_platform::conversation::{
    BeginOrder, CancelReason, ConversationError, Conversations, Envelope, MergeInput, Merged, NewThread,
    Node, NodeId, NodeLink, NodeMessage, NodeOrigin, NodeQuery, NodeSelection, ParentChoice, Run, RunKey,
    RunState, RunTrigger, RunTriggerKind, Thread, ThreadKey, ThreadOrigin, continue_head, merge,
};
use agent_platform::history::{
    ChatInput, FieldError, HistorySource, MAX_GRACE_MS, ThreadFields, expects_answer, is_missing_result,
    repair,
};
use agent_platform::run_registry::RunIdClaim;

use super::super::App;
use super::ConversationService;
use super::contexts::{ContextSlot, attach_to_client_messages, load_contexts};
use super::detach::StartingClient;
use super::error::used_run_id;
use super::kept_run::KeptRun;
use super::plan::{RunCourse, RunPlan, run_context};
use super::queue::append;
use super::resume::new_messages;
use crate::error::{Code, HttpError};
use crate::stream::{RunRecorder, RunSource};

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

    /// Returns the request for a preview, which starts nothing that could go on in the background.
    pub(super) fn without_background(mut self) -> Self {
        self.fields.is_background = false;
        self.missing_message = Ok(());
        self
    }

    /// Creates a request whose message is a new root of its thread.
    pub(super) fn for_new_root() -> Self {
        let fields = ThreadFields {
            envelope: Envelope::Message,
            parent: ParentChoice::Root,
            ..ThreadFields::default()
        };
        Self { fields, missing_message: Ok(()) }
    }
}

/// Sets the fields that the request leaves to the role.
fn apply_defaults(fields: &mut ThreadFields, role: &ConversationSettings, caller: Caller) {
    // A run in the background has no client, and a proactive call or a job waits for the user's run.
    if !fields.is_background {
        fields.on_disconnect = fields.on_disconnect.or(role.on_disconnect);
        fields.grace_ms = fields.grace_ms.or(role.grace_ms.map(|grace| grace.min(MAX_GRACE_MS)));
    }
    fields.on_busy = fields.on_busy.or(match caller {
        Caller::Proactive => Some(OnBusy::Queue),
        _ => role.on_busy,
    });
}

/// A turn whose run is kept.
#[derive(Clone)]
pub(in super::super) struct KeptTurn {
    pub(super) store: Arc<dyn Conversations>,
    pub(super) fields: ThreadFields,
    /// Cause of the run, if the request does not tell it.
    pub(super) trigger: Option<RunTrigger>,
    /// Settings of the agent's role.
    pub(super) settings: ConversationSettings,
    /// Maximum time in the thread's queue; none for a client's request, whose client may leave.
    pub(super) max_wait: Option<Duration>,
    /// The client that waits for the start of the run, if any.
    pub(super) client: StartingClient,
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
        let ThreadRequest { mut fields, missing_message } = request;
        if fields.is_background && app.conversations.runs.count_detached(&principal.company_id).is_none() {
            let detail = "too many runs of the company go on without a client";
            return Err(HttpError::new(Code::RateLimited, detail).with_retry_after(BACKGROUND_RETRY_AFTER));
        }
        let role = app.roles.role(&principal.company_id, &turn.agent_id).await?;
        // The turn refuses an agent that does not exist.
        let settings = role.map(|role| role.content.conversations.unwrap_or_default());
        let settings =
            settings.filter(|settings| settings.store != Some(false) && has_valid_owner(principal));
        let (Some(store), Some(settings)) = (app.conversations.store().cloned(), settings) else {
            missing_message?;
            return Ok(None);
        };
        apply_defaults(&mut fields, &settings, principal.caller);
        let client = StartingClient::default();
        Ok(Some(Self { store, fields, trigger: None, settings, max_wait: None, client }))
    }

    /// Returns true if the run goes on without the client, which is answered at once.
    pub(in super::super) fn is_background(&self) -> bool {
        self.fields.is_background
    }

    /// Starts the run. The client receives its events only after its beginning is stored.
    ///
    /// # Errors
    /// 409 if the run's id was used, the thread has another run or is full, 429 if too many wait for it; errors of the turn and of the store.
    pub(in super::super) async fn start(
        self,
        app: &Arc<App>,
        principal: &Principal,
        turn: TurnRequest,
        is_new_id: bool,
    ) -> Result<(RunSource, Box<dyn RunRecorder>), HttpError> {
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
                Err(error.into())
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

    pub(super) async fn begin(
        &self,
        app: &Arc<App>,
        principal: &Principal,
        turn: TurnRequest,
    ) -> Result<(RunSource, KeptRun), BeginError> {
        let accepted = app.conversations.observers.now();
        let mut attempts = 1;
        loop {
            let begun = match self.plan(app, principal, &turn, BeginOrder::AfterQueue, None).await {
                Ok(plan) => plan.begin(app, principal, &turn, self, accepted).await,
                Err(error) => Err(error),
            };
            match begun {
                Err(BeginError::Store(ConversationError::ThreadBusy { .. }))
                    if attempts < MAX_BEGIN_ATTEMPTS && self.fields.on_busy == Some(OnBusy::Queue) =>
                {
                    attempts += 1;
                    if let Some(queued) = self.queue(app, principal, &turn, accepted).await? {
                        return Ok(queued);
                    }
                }
                Err(BeginError::Store(ConversationError::VersionConflict { .. }))
                    if attempts < MAX_BEGIN_ATTEMPTS =>
                {
                    attempts += 1;
                }
                Err(BeginError::Store(ConversationError::ThreadBusy { .. }))
                    if attempts < MAX_BEGIN_ATTEMPTS && self.fields.on_busy == Some(OnBusy::Interrupt) =>
                {
                    attempts += 1;
                    let key = thread_key(principal, &turn);
                    app.conversations.displace_thread(&*self.store, &key).await?;
                }
                Err(BeginError::Store(ConversationError::InterruptsOpen { run }))
                    if attempts < MAX_BEGIN_ATTEMPTS
                        && self.fields.on_busy == Some(OnBusy::Interrupt)
                        && self.fields.resume.is_empty() =>
                {
                    attempts += 1;
                    let key = RunKey { owner: thread_key(principal, &turn).thread_owner(), id: run.id };
                    app.conversations.cancel(&*self.store, &key, CancelReason::Displaced).await?;
                }
                begun => return begun.map(|(events, kept)| (events.into(), kept)),
            }
        }
    }

    /// Returns the messages of the run's prompt; `None` if the run cannot begin now.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) async fn messages(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
    ) -> Result<Option<Vec<Message>>, HttpError> {
        match self.plan(app, principal, turn, BeginOrder::BeforeQueue, None).await {
            Ok(plan) => Ok(Some(plan.messages)),
            Err(BeginError::Store(error @ ConversationError::Store(_))) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Loads the thread and merges the request's messages into it. `queued` is the merge of a request that was queued as the
    /// next message of its thread.
    pub(super) async fn plan(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        order: BeginOrder,
        queued: Option<&Merged>,
    ) -> Result<RunPlan, BeginError> {
        let key = thread_key(principal, turn);
        let found = self.load(app, &key, order, &turn.run_id).await?;
        if let Some(found) = &found
            && found.thread.agent_id != turn.agent_id
        {
            let agent = found.thread.agent_id.clone();
            return Err(ConversationError::AgentMismatch { agent }.into());
        }
        let (thread, links) = found.map(|found| (found.thread, found.links)).unzip();
        let links = links.unwrap_or_default();
        let open_run = self.open_run(&key, thread.as_ref()).await?;
        let waiting = open_run.as_ref().filter(|run| run.state == RunState::Waiting);
        let decisions = match waiting {
            Some(run) => self.decisions(app, principal, &key, run).await?,
            None => Vec::new(),
        };
        let is_waiting = waiting.is_some();
        let merged =
            match queued.filter(|_| !is_waiting).and_then(|next| append(&links, thread.as_ref(), next)) {
                Some(merged) => merged,
                None => self.place(turn, &links, thread.as_ref(), open_run.as_ref(), &key)?,
            };
        let continues = open_run.filter(|_| is_waiting || merged.trigger == RunTriggerKind::Tools);
        let messages = self.prompt(turn, &key, &merged, &links).await?;
        let sent_context = ContextSlot::new(&merged, &links);
        // The results of decided calls come before the repair.
        let messages = if is_waiting { messages } else { repair(messages) };
        // A run that waits gets the results of its calls before the model is asked.
        if !is_waiting && !expects_answer(&messages) {
            let fault = HttpError::invalid("messages", "must end with a user message or a tool result");
            return Err(BeginError::Request(fault));
        }
        let trigger = self.trigger(principal, turn, merged.trigger);
        let new_thread = self.new_thread(&trigger);
        let course = RunCourse::of(&self.fields);
        let context = run_context(turn, continues.as_ref());
        let retention = app.conversations.retention(&key.thread_owner(), &self.settings);
        Ok(RunPlan {
            key,
            merged,
            messages,
            new_thread,
            retention,
            order: if is_waiting { order.continuing() } else { order },
            queued_ms: None,
            version: thread.map_or(0, |thread| thread.version),
            continues,
            decisions,
            context,
            course,
            trigger,
            sent_context,
        })
    }

    /// Places the request's messages in the tree. `open_run` is the run whose calls wait at the head.
    pub(super) fn place(
        &self,
        turn: &TurnRequest,
        links: &[NodeLink],
        thread: Option<&Thread>,
        open_run: Option<&Run>,
        key: &ThreadKey,
    ) -> Result<Merged, BeginError> {
        let head = thread.and_then(|thread| thread.head.clone());
        let pending_calls = open_run.map(Run::pending_calls).unwrap_or_default();
        let messages = self.messages_to_merge(turn, pending_calls);
        let waiting = open_run.filter(|run| run.state == RunState::Waiting);
        let merged = match waiting.zip(head.as_ref()) {
            Some((run, head)) => continue_head(links, head, new_messages(run, &messages))?,
            None => merge(MergeInput {
                links,
                head,
                messages,
                envelope: self.fields.envelope.clone(),
                parent: self.fields.parent.clone(),
                pending_calls: pending_calls.iter().map(|id| id.to_string()).collect(),
                is_visitor: key.thread_owner().is_visitor(),
            })?,
        };
        Ok(merged)
    }

    /// Returns the messages of the prompt, those of former turns with their contexts. They are not repaired if they are
    /// stored ones.
    async fn prompt(
        &self,
        turn: &TurnRequest,
        key: &ThreadKey,
        merged: &Merged,
        links: &[NodeLink],
    ) -> Result<Vec<Message>, BeginError> {
        let contexts = load_contexts(&*self.store, key, merged, links).await?;
        if self.fields.history == HistorySource::Client && !turn.messages.is_empty() {
            let mut messages = turn.messages.clone();
            attach_to_client_messages(&contexts, merged.trigger, &mut messages);
            return Ok(messages);
        }
        let mut stored = match merged.path.last() {
            Some(end) => load_path(&*self.store, key, end).await?,
            None => Vec::new(),
        };
        restore_client_ids(&mut stored, links);
        contexts.attach_to_nodes(&mut stored);
        Ok(merged.prompt(&stored))
    }

    /// Returns the cause of the run. `merged` is the kind that its messages tell.
    pub(super) fn trigger(
        &self,
        principal: &Principal,
        turn: &TurnRequest,
        merged: RunTriggerKind,
    ) -> RunTrigger {
        match (&self.trigger, principal.caller) {
            (Some(trigger), _) => trigger.clone(),
            (None, Caller::Proactive) => {
                let reason = turn.trigger.clone();
                RunTrigger { reason, ..RunTriggerKind::Proactive.into() }
            }
            (None, _) => merged.into(),
        }
    }

    /// Returns the attributes of a thread that a run of this cause creates.
    fn new_thread(&self, trigger: &RunTrigger) -> NewThread {
        NewThread {
            origin: match trigger.kind {
                RunTriggerKind::Job => ThreadOrigin::Job,
                RunTriggerKind::Proactive => ThreadOrigin::Proactive,
                _ => ThreadOrigin::Chat,
            },
            title: self.fields.title.clone(),
            metadata: self.fields.metadata.clone(),
        }
    }

    /// Returns the request's messages with those results of pending calls that it has sent alone.
    fn messages_to_merge(&self, turn: &TurnRequest, pending: &[Id]) -> Vec<Message> {
        let is_pending = |message: &&Message| {
            message.tool_call_id.as_deref().is_some_and(|call| pending.iter().any(|id| **id == *call))
        };
        let results = self.fields.results.iter().filter(is_pending);
        let sent = turn.messages.iter().filter(|message| !is_missing_result(message));
        results.chain(sent).cloned().collect()
    }

    /// Returns the run whose calls wait for results at the thread's head.
    async fn open_run(&self, key: &ThreadKey, thread: Option<&Thread>) -> Result<Option<Run>, BeginError> {
        let Some((thread, id)) = thread.and_then(|thread| Some((thread, thread.open_run_id.as_ref()?)))
        else {
            return Ok(None);
        };
        let run = self.store.run(&key.thread_owner(), id).await?;
        Ok(run.filter(|run| thread.head.as_ref().is_some_and(|head| run.node_ids.contains(head))))
    }
}

/// Error that prevents a run from beginning.
pub(super) enum BeginError {
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

pub(super) fn thread_key(principal: &Principal, turn: &TurnRequest) -> ThreadKey {
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
