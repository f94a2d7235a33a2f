//! Results of the client's calls that are sent again, since the response to the first request was lost. They are answered as
//! the first time: by the log of the run that has them. If that run has not completed, its answer is made again.

use std::collections::HashSet;
use std::sync::Arc;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, RunIds, SourceEvent};
use agent_core::message::{Message, Role};
use agent_core::request::{Principal, TurnRequest};
use agent_platform::conversation::{
    ContentHash, ConversationError, MAX_PAGE_NODES, NodeContent, NodeId, NodeLink, NodeOrigin, NodeRole,
    NodeStatus, ParentChoice, Run, RunFilter, RunKey, RunState, ThreadKey, ThreadOwner,
};
use agent_platform::history::{HistorySource, ThreadFields, is_missing_result};
use futures_util::{StreamExt, stream};

use super::super::App;
use super::begin_error::BeginError;
use super::log_reader::{LogReader, log_gone, too_many_readers};
use super::reissue_interrupts::ReplayRecorder;
use super::stored_turn::{StoredTurn, thread_key};
use crate::error::{Code, HttpError};
use crate::stream::{RunRecorder, RunSource};

/// Maximum number of a thread's latest runs that are searched for results.
const MAX_SEARCHED_RUNS: usize = 8;

/// Stored results of the calls for which a request contains results again.
enum EarlierResults {
    /// The results equal the stored results.
    Same(Box<SameResults>),
    /// A result differs from the stored result of its call.
    Other,
}

/// Results that are sent again.
struct SameResults {
    /// The run that has them.
    run: Run,
    /// True if they are results of the run's own calls, which it got while it waited for decisions.
    is_own: bool,
    /// The latest run that has made the answer again, since `run` has not completed.
    latest_repetition: Option<Run>,
    /// True if the thread shows the answer of one of these runs.
    is_shown: bool,
}

impl SameResults {
    /// Returns the node below which the answer must be made again; `None` if the latest run that answers the results has
    /// completed or is in progress, or if the thread has continued without it.
    fn unanswered_node(&self) -> Option<&NodeId> {
        let state = self.latest_repetition.as_ref().unwrap_or(&self.run).state;
        let is_unanswered = state.is_final() && state != RunState::Completed;
        self.run.parent_id.as_ref().filter(|_| is_unanswered && self.is_shown && !self.is_own)
    }
}

impl StoredTurn {
    /// Returns the error of a request that was refused for `error`; if its results are stored already,
    /// [`BeginError::Repeated`] with the run that answers them, [`BeginError::Unanswered`] if that has not completed, or 409 if one
    /// of them differs.
    pub(super) async fn repeated_or_error(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        error: BeginError,
    ) -> BeginError {
        let is_refused = match &error {
            BeginError::Store(
                ConversationError::ThreadBusy { .. }
                | ConversationError::InterruptsOpen { .. }
                | ConversationError::RunIdUsed { .. },
            ) => true,
            BeginError::Request(error) => error.code() == Code::InvalidRequest,
            _ => false,
        };
        let results = self.sent_results(turn);
        if !is_refused || results.is_empty() {
            return error;
        }
        let key = thread_key(principal, turn);
        match self.earlier_results(app, &key, &results).await {
            Ok(None) => error,
            Ok(Some(EarlierResults::Same(same))) => {
                let owner = key.thread_owner();
                let error = match self.or_used_id(&owner, turn, error).await {
                    Ok(error) => error,
                    Err(error) => return error.into(),
                };
                match self.answering_run(app, &owner, *same, &error).await {
                    Ok(Some(answer)) => answer,
                    Ok(None) => error,
                    Err(error) => error.into(),
                }
            }
            Ok(Some(EarlierResults::Other)) => match error {
                BeginError::Store(ConversationError::RunIdUsed { .. }) => error,
                _ => BeginError::Request(HttpError::conflict(
                    "a different result of a client's tool call is stored",
                )),
            },
            Err(error) => error.into(),
        }
    }

    /// Returns the error of a request whose `runId` a stored run has; `error` if none has it. The request's claim refuses only ids
    /// that clients have chosen, and not those that the service has generated.
    async fn or_used_id(
        &self,
        owner: &ThreadOwner,
        turn: &TurnRequest,
        error: BeginError,
    ) -> Result<BeginError, ConversationError> {
        let used = self.store.run(owner, &turn.run_id).await?;
        Ok(used.map_or(error, |run| ConversationError::RunIdUsed { run: Box::new(run) }.into()))
    }

    /// Returns the request for another answer below a node, whose results the request brings again. Its messages before results
    /// without their calls are history, as the first time.
    pub(super) fn for_answer_below(&self, node: NodeId, turn: &TurnRequest) -> (Self, TurnRequest) {
        let mut fields = ThreadFields { parent: ParentChoice::Node(node), ..self.fields.clone() };
        let mut turn = turn.clone();
        if fields.ends_with_results {
            fields.history = HistorySource::Server;
            let is_instruction =
                |message: &Arc<Message>| matches!(message.role, Role::System | Role::Developer);
            Arc::make_mut(&mut turn.messages).retain(is_instruction);
        }
        (Self { fields, ..self.clone() }, turn)
    }

    /// Returns the results that a request consists of, the first one of each call; none if it has a decision, or a message
    /// after them.
    fn sent_results<'t>(&'t self, turn: &'t TurnRequest) -> Vec<&'t Message> {
        let spoken = turn.messages.iter().map(|message| &**message);
        let spoken: Vec<&Message> =
            spoken.filter(|message| !matches!(message.role, Role::System | Role::Developer)).collect();
        let is_message =
            spoken.last().is_some_and(|last| last.role == Role::User) && !self.fields.ends_with_results;
        if is_message || !self.fields.resume.is_empty() {
            return Vec::new();
        }
        let start = spoken.iter().rposition(|message| message.role != Role::Tool).map_or(0, |last| last + 1);
        let last = spoken[start..].iter().copied().filter(|message| !is_missing_result(message));
        let mut calls = HashSet::new();
        let all = self.fields.results.iter().chain(last);
        all.filter(|result| calls.insert(result.tool_call_id.as_deref())).collect()
    }

    /// Returns the calls whose results are sent, as the thread has them; `None` if it has no result of the client for any of
    /// them. Results of other calls are ignored, as they are the first time.
    async fn earlier_results(
        &self,
        app: &App,
        key: &ThreadKey,
        sent: &[&Message],
    ) -> Result<Option<EarlierResults>, ConversationError> {
        let threads = &app.conversations.threads;
        let loaded = threads.load(&*self.store, key).await?;
        let head = loaded.thread().and_then(|thread| thread.head.as_ref());
        let found = self.find_results(key, (loaded.links(), head), sent).await;
        threads.keep(key, loaded);
        found
    }

    async fn find_results(
        &self,
        key: &ThreadKey,
        (links, head): (&[NodeLink], Option<&NodeId>),
        sent: &[&Message],
    ) -> Result<Option<EarlierResults>, ConversationError> {
        let filter = RunFilter { thread: Some(key.id.clone()), ..RunFilter::default() };
        let runs = self.store.runs(&key.thread_owner(), &filter, None, MAX_SEARCHED_RUNS).await?.runs;
        for (at, run) in runs.iter().enumerate() {
            let (mut has_results, mut is_own) = (false, false);
            let own_links: Vec<&NodeLink> = {
                let ids: HashSet<&NodeId> = run.node_ids.iter().collect();
                links.iter().filter(|link| ids.contains(&link.id)).collect()
            };
            let answer = own_links.iter().find(|link| link.role == NodeRole::Assistant).map(|link| link.seq);
            for stored in self.client_results(key, &own_links).await? {
                let Some(message) = stored.message.as_message() else { continue };
                let same_call = sent.iter().find(|sent| sent.tool_call_id == message.tool_call_id);
                let Some(result) = same_call else { continue };
                if ContentHash::of(message) != ContentHash::of(result) {
                    return Ok(Some(EarlierResults::Other));
                }
                has_results = true;
                is_own |= answer.is_some_and(|answer| answer < stored.seq);
            }
            if has_results {
                // Runs that answer the results, the latest first.
                let answering: Vec<&Run> =
                    runs[..=at].iter().filter(|later| later.parent_id == run.parent_id).collect();
                let is_shown =
                    head.is_some_and(|head| answering.iter().any(|run| run.node_ids.contains(head)));
                let latest_repetition = answering.first().filter(|latest| latest.id != run.id && !is_own);
                let latest_repetition = latest_repetition.map(|latest| (*latest).clone());
                let same = SameResults { run: run.clone(), is_own, latest_repetition, is_shown };
                return Ok(Some(EarlierResults::Same(Box::new(same))));
            }
        }
        Ok(None)
    }

    /// Returns the results among the nodes of a run that the client has sent.
    async fn client_results(
        &self,
        key: &ThreadKey,
        links: &[&NodeLink],
    ) -> Result<Vec<NodeContent>, ConversationError> {
        let is_result = |link: &&&NodeLink| {
            (link.role, link.origin) == (NodeRole::Tool, NodeOrigin::Client)
                && link.status != NodeStatus::Deleted
        };
        let seqs: Vec<u32> = links.iter().filter(is_result).map(|link| link.seq).collect();
        let mut results = Vec::new();
        for page in seqs.chunks(MAX_PAGE_NODES) {
            results.extend(self.store.contents(key, page).await?);
        }
        Ok(results)
    }

    /// Returns the answer to the results: the log of the run that they began, or another answer if that has not completed and the
    /// thread is free; for results of a run's own calls the log of the run that continues it, or its open questions. `None` if the
    /// request was refused for the id of another run, or if nothing answers them.
    async fn answering_run(
        &self,
        app: &App,
        owner: &ThreadOwner,
        same: SameResults,
        error: &BeginError,
    ) -> Result<Option<BeginError>, ConversationError> {
        let unanswered = same.unanswered_node().cloned();
        let SameResults { run, is_own, latest_repetition, .. } = same;
        if let BeginError::Store(ConversationError::RunIdUsed { run: used }) = error {
            let is_same = match is_own {
                true => used.continues.as_ref() == Some(&run.id),
                // An earlier run that made the answer again is also a repetition.
                false => used.thread_id == run.thread_id && used.parent_id == run.parent_id,
            };
            return Ok(is_same.then(|| BeginError::Repeated { run: used.clone() }));
        }
        if let Some(below) = unanswered.filter(|_| matches!(error, BeginError::Request(_))) {
            return Ok(Some(BeginError::Unanswered { below }));
        }
        if !is_own {
            return Ok(Some(BeginError::Repeated { run: Box::new(latest_repetition.unwrap_or(run)) }));
        }
        if let Some(id) = &run.continued_by {
            let continuing = self.store.run(owner, id).await?;
            return Ok(continuing.map(|run| BeginError::Repeated { run: Box::new(run) }));
        }
        let is_waiting = run.state == RunState::Waiting;
        Ok(is_waiting.then(|| {
            let run = Box::new(run.at(app.conversations.now()));
            BeginError::StillWaiting { run, decisions: Vec::new(), results: Vec::new() }
        }))
    }

    /// Returns the events of a run from its log: the stored ones, then live ones. `is_collected` is true for a
    /// response that is a single object.
    ///
    /// # Errors
    /// 410 if the log has been deleted, 429 if it or its company has too many readers; errors of the store.
    pub(super) async fn answer_again(
        &self,
        app: &App,
        principal: &Principal,
        run: Run,
        is_collected: bool,
    ) -> Result<(RunSource, Box<dyn RunRecorder>), HttpError> {
        let service = &app.conversations;
        if !run.has_log(service.now()) {
            return Err(log_gone());
        }
        let owner = ThreadOwner::new(principal.company_id.clone(), principal.user_id.clone());
        let continued = match &run.continues {
            Some(id) => self.store.run(&owner, id).await?,
            None => None,
        };
        // The log may begin with the results of these calls.
        let calls = continued.into_iter().flat_map(|run| run.approvals).map(|approval| approval.tool_call_id);
        let permit = app.bounds.readers.admit_log(&owner.company, is_collected)?;
        let key = RunKey { owner, id: run.id.clone() };
        let reader = LogReader::open(service, &self.store, key, 0, true).ok_or_else(too_many_readers)?;
        let source = stream::unfold(Some((reader, permit)), |attached| async move {
            let (mut reader, permit) = attached?;
            let next = reader.next().await;
            match next {
                Ok(events) => {
                    let items = |events: Vec<Event>| -> Vec<Result<SourceEvent, AgentError>> {
                        events.into_iter().map(|event| Ok(SourceEvent::from(event))).collect()
                    };
                    events.map(|events| (items(events), Some((reader, permit))))
                }
                Err(error) => Some((vec![Err(log_error(error))], None)),
            }
        });
        let ids = RunIds { thread_id: run.thread_id, run_id: run.id };
        let events = EventStream::new(ids, source.flat_map(stream::iter)).with_awaited_results(calls);
        Ok((RunSource::replay(events), Box::new(ReplayRecorder { turn_id: run.turn_id })))
    }
}

/// Returns the error of a run whose log cannot be read to its end.
fn log_error(error: HttpError) -> AgentError {
    let kind = match error.code() {
        Code::StoreUnavailable => AgentErrorKind::StoreUnavailable,
        _ => AgentErrorKind::Truncated,
    };
    AgentError::new(kind, "the log of the run could not be read to its end").with_source(error)
}
