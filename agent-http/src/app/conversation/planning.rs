//! Plan of a run: loads the thread and merges the request's messages into it.

use std::sync::Arc;

use agent_core::event::Id;
use agent_core::ids::RunId;
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::tool::Caller;
use agent_platform::conversation::commit::{check_child_count, check_node_count};
use agent_platform::conversation::{
    BeginOrder, ConversationError, LoadedThread, MAX_QUEUED_RUNS, MergeInput, MergeResult, NewThread, NodeId,
    NodeLink, NodeOrigin, NodeRole, ParentChoice, Run, RunKey, RunState, RunTrigger, RunTriggerKind, Thread,
    ThreadKey, ThreadOrigin, ThreadStatus, append_queued, continue_head, merge,
};
use agent_platform::history::{HistorySource, expects_answer, is_missing_result, repair_shared};

use super::super::App;
use super::begin_error::BeginError;
use super::contexts::{ContextSlot, attach_to_client_messages};
use super::plan::{DisconnectPolicy, RunPlan, run_context};
use super::resume::new_messages;
use super::stored_turn::{StoredTurn, thread_key};
use crate::error::HttpError;

impl StoredTurn {
    /// Loads the thread and merges the request's messages into it. `queued` is the merge of a request that was queued as the
    /// next message of its thread.
    pub(super) async fn plan(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        order: BeginOrder,
        queued: Option<&MergeResult>,
    ) -> Result<RunPlan, BeginError> {
        let key = thread_key(principal, turn);
        let mut loaded = self.load(app, &key, order, &turn.run_id).await?;
        let (thread, links, known_path) = (loaded.thread(), loaded.links(), loaded.path());
        if let Some(thread) = thread.filter(|thread| thread.agent_id != turn.agent_id) {
            return Err(ConversationError::AgentMismatch { agent: thread.agent_id.clone() }.into());
        }
        let open_run = self.open_run(&key, thread).await?;
        let waiting = open_run.as_ref().filter(|run| run.state == RunState::Waiting);
        let decisions = match waiting {
            Some(run) => self.decisions(app, principal, turn, &loaded, run).await?,
            None => Vec::new(),
        };
        let is_waiting = waiting.is_some();
        let head = thread.and_then(|thread| thread.head.as_ref());
        let appended =
            queued.filter(|_| !is_waiting).and_then(|next| append_queued(links, known_path, head, next));
        let merged = match appended {
            Some(merged) => merged,
            None => self.place(turn, &loaded, open_run.as_ref(), &key)?,
        };
        check_capacity(links, &merged)?;
        let answer_capacity = if is_waiting { Ok(()) } else { check_answer_capacity(links, &merged) };
        let version = thread.map_or(0, |thread| thread.version);
        let sent_context = ContextSlot::new(&merged, links);
        let continues = open_run.filter(|_| is_waiting || merged.trigger == RunTriggerKind::Tools);
        let messages = self.prompt(turn, &key, &merged, &mut loaded).await?;
        // The results of decided calls come before the repair.
        let needs_repair = !is_waiting && !loaded.is_paired(&messages);
        app.conversations.threads.keep(&key, loaded);
        let messages = if needs_repair { repair_shared(messages) } else { messages };
        // A run that waits gets the results of its calls before the model is asked.
        if !is_waiting && !expects_answer(&messages) {
            return Err(BeginError::Request(self.nothing_to_answer()));
        }
        answer_capacity?;
        let trigger = self.trigger(principal, turn, merged.trigger);
        let retention = app.conversations.retention(&key.thread_owner(), &self.settings);
        Ok(RunPlan {
            key,
            merged,
            messages,
            new_thread: self.new_thread(&trigger),
            retention,
            order: if is_waiting { order.continuing() } else { order },
            queued_ms: None,
            version,
            context: run_context(turn, continues.as_ref()),
            continues,
            decisions,
            disconnect: DisconnectPolicy::of(&self.fields),
            trigger,
            sent_context,
        })
    }

    /// Returns the error of a request that leaves the model nothing to answer.
    fn nothing_to_answer(&self) -> HttpError {
        match (self.fields.resume.is_empty(), self.fields.ends_with_results) {
            (false, _) => HttpError::invalid("resume", "has decisions that the thread is not waiting for"),
            (true, true) => {
                HttpError::invalid("messages", "has results of tool calls that the thread is not waiting for")
            }
            (true, false) => HttpError::invalid("messages", "must end with a user message or a tool result"),
        }
    }

    /// Places the request's messages in the tree of their thread. `open_run` is the run whose calls wait. Decisions
    /// continue the branch of their run, whichever is shown.
    pub(super) fn place(
        &self,
        turn: &TurnRequest,
        loaded: &LoadedThread,
        open_run: Option<&Run>,
        key: &ThreadKey,
    ) -> Result<MergeResult, BeginError> {
        let (links, known_path) = (loaded.links(), loaded.path());
        let head = loaded.thread().and_then(|thread| thread.head.clone());
        let pending_calls = open_run.map(Run::pending_calls).unwrap_or_default();
        let messages = self.messages_to_merge(turn, pending_calls);
        let waiting = open_run.filter(|run| run.state == RunState::Waiting);
        if waiting.is_none() && self.may_repeat_results(links, pending_calls) {
            return Err(BeginError::Request(self.nothing_to_answer()));
        }
        let input = MergeInput {
            links,
            known_path,
            ids: Some(loaded.ids()),
            head,
            messages,
            format: self.fields.format.clone(),
            parent: self.fields.parent.clone(),
            pending_calls: pending_calls.iter().map(|id| id.to_string()).collect(),
            is_visitor: key.thread_owner().is_visitor(),
        };
        let merged = match waiting.and_then(|run| Some((run, run.node_ids.last()?))) {
            Some((run, last)) => continue_head(links, known_path, last, new_messages(run, last, input)?)?,
            None => merge(input).map_err(merge_error)?,
        };
        Ok(merged)
    }

    /// Returns the messages of the prompt, with the contexts of former turns. They are not repaired if they are
    /// stored ones.
    async fn prompt(
        &self,
        turn: &TurnRequest,
        key: &ThreadKey,
        merged: &MergeResult,
        loaded: &mut LoadedThread,
    ) -> Result<Arc<Vec<Arc<Message>>>, BeginError> {
        let is_continued = !merged.nodes.is_empty();
        if self.fields.history == HistorySource::Client && !turn.messages.is_empty() {
            let contexts = loaded.read_contexts(&*self.store, key, &merged.path, is_continued).await?;
            let mut messages = turn.messages.to_vec();
            attach_to_client_messages(&contexts, merged.trigger, &mut messages);
            return Ok(Arc::new(messages));
        }
        loaded.read_path(&*self.store, key, &merged.path, is_continued).await?;
        Ok(loaded.prompt(merged))
    }

    /// Returns the cause of the run. `merged` is the kind by its messages.
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

    /// Returns the request's messages with those results of pending calls that it has sent without the calls.
    fn messages_to_merge(&self, turn: &TurnRequest, pending: &[Id]) -> Vec<Arc<Message>> {
        let results = self.fields.results.iter().filter(|result| is_result_of(result, pending));
        let results = results.cloned().map(Arc::new);
        let sent = turn.messages.iter().filter(|message| !is_missing_result(message)).cloned();
        match self.fields.ends_with_results {
            true => sent.chain(results).collect(),
            false => results.chain(sent).collect(),
        }
    }

    /// Returns true if the request ends with results without their calls, of which none is pending, in a thread that has results of
    /// its client. The results may repeat stored ones, and then the message before them is not a new one.
    fn may_repeat_results(&self, links: &[NodeLink], pending: &[Id]) -> bool {
        let is_client_result =
            |link: &NodeLink| (link.role, link.origin) == (NodeRole::Tool, NodeOrigin::Client);
        self.fields.ends_with_results
            && self.fields.parent == ParentChoice::Unspecified
            && !self.fields.results.iter().any(|result| is_result_of(result, pending))
            && links.iter().any(is_client_result)
    }

    /// Returns the run whose calls wait for decisions, or for the client's results at the thread's head.
    async fn open_run(&self, key: &ThreadKey, thread: Option<&Thread>) -> Result<Option<Run>, BeginError> {
        let Some((thread, id)) = thread.and_then(|thread| Some((thread, thread.open_run_id.as_ref()?)))
        else {
            return Ok(None);
        };
        let run = self.store.run(&key.thread_owner(), id).await?;
        let is_shown = |run: &Run| thread.head.as_ref().is_some_and(|head| run.node_ids.contains(head));
        Ok(run.filter(|run| run.state == RunState::Waiting || is_shown(run)))
    }

    /// Loads the thread, after the runs before this one were interrupted whose processes have ended. The caller gives it back
    /// to the cache.
    ///
    /// # Errors
    /// [`ConversationError::ThreadBusy`] if the run has to wait, so that no backend is called for it.
    pub(super) async fn load(
        &self,
        app: &App,
        key: &ThreadKey,
        order: BeginOrder,
        run: &RunId,
    ) -> Result<LoadedThread, BeginError> {
        if self.is_new_thread {
            return Ok(LoadedThread::default());
        }
        let threads = &app.conversations.threads;
        for _ in 0..=MAX_QUEUED_RUNS {
            let loaded = threads.load(&*self.store, key).await?;
            let Some(thread) = loaded.thread() else { return Ok(loaded) };
            // A request with decisions continues its run before the queued runs.
            let is_waiting = thread.status == ThreadStatus::Waiting;
            let order = if is_waiting { order.continuing() } else { order };
            let Some(blocking_id) = order.blocking_run(thread, run).cloned() else { return Ok(loaded) };
            threads.keep(key, loaded);
            let blocking = RunKey { owner: key.thread_owner(), id: blocking_id.clone() };
            match app.conversations.interrupt_abandoned(&*self.store, &blocking).await? {
                Some(run) if !run.state.is_final() => {
                    return Err(ConversationError::ThreadBusy { active_run: blocking_id }.into());
                }
                _ => {}
            }
        }
        Ok(threads.load(&*self.store, key).await?)
    }
}

/// Returns true for a result of one of these calls.
fn is_result_of(message: &Message, calls: &[Id]) -> bool {
    message.tool_call_id.as_deref().is_some_and(|call| calls.iter().any(|id| **id == *call))
}

/// Names the field of a parent that the thread does not have.
fn merge_error(error: ConversationError) -> BeginError {
    match error {
        ConversationError::NodeNotFound(_) => BeginError::Request(HttpError::field_not_found("parentId")),
        error => error.into(),
    }
}

/// Returns an error if the new nodes exceed the limits of the thread, so that no backend is called for them.
fn check_capacity(links: &[NodeLink], merged: &MergeResult) -> Result<(), ConversationError> {
    let Some(first) = merged.nodes.first() else { return Ok(()) };
    check_node_count(links.len(), merged.nodes.len())?;
    check_children(links, first.parent_id.as_ref())
}

/// Returns an error if an answer that is made again exceeds the limits of the thread. Without this check, their number would
/// have no limit: the output of a run is stored regardless of the thread's size.
fn check_answer_capacity(links: &[NodeLink], merged: &MergeResult) -> Result<(), ConversationError> {
    if !merged.nodes.is_empty() {
        return Ok(());
    }
    check_node_count(links.len(), 1)?;
    check_children(links, merged.parent_id.as_ref())
}

/// Returns an error if a node, or the thread for `None`, has as many children as it may have.
fn check_children(links: &[NodeLink], parent_id: Option<&NodeId>) -> Result<(), ConversationError> {
    // Children come after their parent, and most parents are the newest nodes.
    let (parent, later) = match parent_id {
        None => (None, links),
        Some(id) => match links.iter().rposition(|link| link.id == *id) {
            Some(at) => (Some(links[at].seq), &links[at + 1..]),
            // The commit refuses it.
            None => return Ok(()),
        },
    };
    check_child_count(later.iter().filter(|link| link.parent == parent).count())
}
