//! Start of a turn in a thread: loads the thread, merges the request's messages into it, and commits the beginning of
//! the run while the backend starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::event::RunIds;
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{ConversationSettings, OnBusy};
use agent_core::tool::Caller;
use agent_core::turn::TurnError;
use agent_platform::conversation::{
    BeginOrder, CancelReason, ConversationError, ParentChoice, RequestFormat, RunKey, ThreadKey,
};
use agent_platform::history::{ChatInput, FieldError, MAX_GRACE_MS, ThreadFields};
use agent_platform::run_registry::RunIdClaim;
use agent_platform::usage::AdmittedRun;
use jiff::{SignedDuration, Timestamp};

use super::super::App;
use super::begin_error::BeginError;
use super::plan::BeginInputs;
use super::starting_client::StartingClient;
use super::stored_run_recorder::StoredRunRecorder;
use super::stored_turn::{StoredTurn, thread_key};
use crate::app::services::{ChosenRunId, ConversationService};
use crate::error::{Code, HttpError};
use crate::stream::{RunRecorder, RunSource};

/// `Retry-After` of a request that is refused because too many runs are in the background.
const BACKGROUND_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Pause before another attempt to begin a run that interrupts another one, while the limit on concurrent runs is reached.
const RUN_SLOT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of these attempts.
const MAX_RUN_SLOT_POLLS: usize = 100;
/// Time after the end of a run in which its process may not have released the run's place among the concurrent ones.
const RUN_SLOT_RELEASE_TIME: SignedDuration = SignedDuration::from_secs(2);
/// Maximum number of attempts to begin a run in a thread that concurrent requests change.
const MAX_BEGIN_ATTEMPTS: usize = 8;

/// A request whose run will be stored, unless the agent's role forbids it.
pub(in super::super) struct ThreadRequest {
    fields: ThreadFields,
    /// Error of a request without a message that would need one if its run were not stored.
    missing_message: Result<(), FieldError>,
}

impl ThreadRequest {
    /// Reads the fields that concern the thread; `None` if the run is not stored: conversations are switched off, or the
    /// request names no thread or forbids it.
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
        let is_stored = match (&fields, input.turn.thread_id.is_empty()) {
            (Ok(fields), true) => fields.store == Some(true),
            (Ok(fields), false) => fields.store != Some(false),
            // With neither a thread nor `store`, the fields may belong to another application.
            (Err(_), has_no_thread) => !has_no_thread || input.asks_for_storage(),
        };
        if !is_stored {
            return Ok(None);
        }
        let (fields, missing_message) = (fields?.clone(), input.reject_missing_message());
        Ok(Some(Self { fields, missing_message }))
    }

    /// Returns the request for a preview, which starts nothing that could continue in the background.
    pub(super) fn without_background(mut self) -> Self {
        self.fields.is_background = false;
        self.missing_message = Ok(());
        self
    }

    /// Creates a request whose message is a new root of its thread.
    pub(super) fn for_new_root() -> Self {
        let fields = ThreadFields {
            format: RequestFormat::Message,
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

impl StoredTurn {
    /// Opens a turn whose run is stored; `None` if it is not, by the agent's role or since the agent does not exist.
    ///
    /// # Errors
    /// 400 if the run is not stored and the request has no message; 404 if the agent does not exist and the request has no
    /// message; 429 for a run in the background if there are too many; errors of the store.
    pub(in super::super) async fn open(
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        request: ThreadRequest,
    ) -> Result<Option<Self>, HttpError> {
        let ThreadRequest { mut fields, missing_message } = request;
        if fields.is_background && app.conversations.runs.acquire_detached(&principal.company_id).is_none() {
            let detail = "too many runs of the company continue without a client";
            return Err(HttpError::new(Code::RateLimited, detail).with_retry_after(BACKGROUND_RETRY_AFTER));
        }
        let Some(role) = app.roles.role(&principal.company_id, &turn.agent_id).await? else {
            // The turn refuses an agent that does not exist, but only with a message.
            missing_message.map_err(|_| TurnError::AgentNotFound)?;
            return Ok(None);
        };
        let settings = Some(role.content.conversations.unwrap_or_default())
            .filter(|settings| settings.store != Some(false) && has_valid_owner(principal));
        let (Some(store), Some(settings)) = (app.conversations.store().cloned(), settings) else {
            missing_message?;
            return Ok(None);
        };
        apply_defaults(&mut fields, &settings, principal.caller);
        let client = StartingClient::default();
        Ok(Some(Self {
            store,
            fields,
            trigger: None,
            settings,
            max_wait: None,
            client,
            is_new_thread: false,
        }))
    }

    /// Returns true if the run continues without the client, which is answered at once.
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
        chosen_id: Option<ChosenRunId>,
    ) -> Result<(RunSource, Box<dyn RunRecorder>), HttpError> {
        let ids = RunIds { thread_id: turn.thread_id.clone(), run_id: turn.run_id.clone() };
        let is_collected = turn.whole_delivery.is_some();
        let claim = match chosen_id {
            Some(chosen_id) => self.claim_run_id(app, principal, &turn, chosen_id).await.map(Some),
            None => Ok(None),
        };
        let (claim, result) = match claim {
            Ok(claim) => (claim, self.begin(app, principal, turn).await),
            Err(error) => (None, Err(self.repeated_or_error(app, principal, &turn, error).await)),
        };
        let answer = match result {
            Ok((events, recorder)) => return Ok((events, Box::new(recorder))),
            Err(BeginError::StillWaiting { run, .. }) => {
                match self.reissue_interrupts(app, principal, ids, &run).await {
                    Ok(ended) => return Ok(ended),
                    Err(error) => Err(error),
                }
            }
            // No run has the id of this request.
            Err(BeginError::Repeated { run }) => self.answer_again(app, principal, *run, is_collected).await,
            Err(error) => Err(error.into()),
        };
        if let Some(claim) = claim {
            claim.release().await;
        }
        answer
    }

    async fn claim_run_id(
        &self,
        app: &App,
        principal: &Principal,
        turn: &TurnRequest,
        chosen_id: ChosenRunId,
    ) -> Result<RunIdClaim, BeginError> {
        let claim = chosen_id.claim(&app.runs, principal, &turn.run_id).await;
        if let Some(claim) = claim.map_err(|error| BeginError::Request(error.into()))? {
            return Ok(claim);
        }
        let owner = thread_key(principal, turn).thread_owner();
        Err(match self.store.run(&owner, &turn.run_id).await? {
            Some(run) => ConversationError::RunIdUsed { run: Box::new(run) }.into(),
            None => BeginError::Request(HttpError::conflict("this runId was already used")),
        })
    }

    pub(super) async fn begin(
        &self,
        app: &Arc<App>,
        principal: &Principal,
        turn: TurnRequest,
    ) -> Result<(RunSource, StoredRunRecorder), BeginError> {
        let (accepted, key) = (app.conversations.observers.now(), thread_key(principal, &turn));
        let inputs = BeginInputs { app, principal, turn: &turn };
        let (mut attempts, mut run_slot_polls, mut admitted) = (1, 0, None);
        let is_interrupting = self.fields.on_busy == Some(OnBusy::Interrupt);
        loop {
            let may_repeat = attempts < MAX_BEGIN_ATTEMPTS;
            match self.try_begin(inputs, accepted, &mut admitted).await {
                Err(BeginError::Store(ConversationError::ThreadBusy { .. }))
                    if may_repeat && self.fields.on_busy == Some(OnBusy::Queue) =>
                {
                    attempts += 1;
                    if let Some(queued) = self.queue(app, principal, &turn, accepted).await? {
                        return Ok(queued);
                    }
                }
                Err(BeginError::Store(ConversationError::VersionConflict { .. })) if may_repeat => {
                    attempts += 1
                }
                Err(BeginError::Store(ConversationError::ThreadBusy { .. }))
                    if may_repeat && is_interrupting =>
                {
                    attempts += 1;
                    app.conversations.displace_thread(&*self.store, &key).await?;
                }
                // The run that this one replaces counts until its process has released its permit.
                Err(error @ BeginError::NotAdmitted { is_full: true, .. })
                    if run_slot_polls < MAX_RUN_SLOT_POLLS && is_interrupting =>
                {
                    run_slot_polls += 1;
                    tokio::time::sleep(RUN_SLOT_POLL_INTERVAL).await;
                    if attempts == 1 && !self.may_have_run_slot(&key, app.conversations.now()).await? {
                        return Err(error);
                    }
                }
                Err(BeginError::Store(ConversationError::InterruptsOpen { run }))
                    if may_repeat && is_interrupting && self.fields.resume.is_empty() =>
                {
                    attempts += 1;
                    let key = RunKey { owner: key.thread_owner(), id: run.id };
                    app.conversations.cancel(&*self.store, &key, CancelReason::Displaced).await?;
                }
                Err(BeginError::StillWaiting { run, decisions, results }) => {
                    let owner = key.thread_owner();
                    let run = self.store_results(app, &owner, *run, results).await?;
                    let run = self.store_decisions(app, &owner, run, &decisions).await?;
                    // Others may have decided meanwhile.
                    if run.is_undecided() || !may_repeat {
                        let (run, decisions, results) = (Box::new(run), Vec::new(), Vec::new());
                        return Err(BeginError::StillWaiting { run, decisions, results });
                    }
                    attempts += 1;
                }
                result => return result,
            }
        }
    }

    /// Returns true if a run of the thread may count among the concurrent ones: it has not ended, or has ended so recently that its
    /// process may not have released its permit.
    async fn may_have_run_slot(&self, key: &ThreadKey, now: Timestamp) -> Result<bool, ConversationError> {
        let thread = self.store.thread(key).await?;
        Ok(thread.is_some_and(|thread| {
            thread.active_run_id.is_some()
                || now.duration_since(thread.last_activity_at) < RUN_SLOT_RELEASE_TIME
        }))
    }

    /// Plans the run and begins it: below results that the thread has, if the request brings them again and their answer was not
    /// completed.
    ///
    /// # Errors
    /// [`BeginError::Repeated`] if it cannot begin since the thread has its results.
    async fn try_begin(
        &self,
        inputs: BeginInputs<'_>,
        accepted: Instant,
        admitted: &mut Option<AdmittedRun>,
    ) -> Result<(RunSource, StoredRunRecorder), BeginError> {
        let BeginInputs { app, principal, turn } = inputs;
        let error = match self.plan(app, principal, turn, BeginOrder::AfterQueue, None).await {
            Ok(plan) => match plan.begin(inputs, self, accepted, admitted).await {
                Err(error @ BeginError::Store(_)) => error,
                result => return result,
            },
            Err(error) => error,
        };
        let below = match self.repeated_or_error(app, principal, turn, error).await {
            BeginError::Unanswered { below } => below,
            error => return Err(error),
        };
        let (repetition, answer_turn) = self.for_answer_below(below, turn);
        let result = match repetition.plan(app, principal, &answer_turn, BeginOrder::AfterQueue, None).await {
            Ok(plan) => {
                let inputs = BeginInputs { turn: &answer_turn, ..inputs };
                plan.begin(inputs, &repetition, accepted, admitted).await
            }
            Err(error) => Err(error),
        };
        match result {
            // A concurrent request may have started the answer.
            Err(error @ BeginError::Store(_)) => {
                Err(self.repeated_or_error(app, principal, turn, error).await)
            }
            result => result,
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
    ) -> Result<Option<Arc<Vec<Arc<Message>>>>, HttpError> {
        match self.plan(app, principal, turn, BeginOrder::BeforeQueue, None).await {
            Ok(plan) => Ok(Some(plan.messages)),
            Err(BeginError::Store(error @ ConversationError::Store(_))) => Err(error.into()),
            Err(error) => Some(HttpError::from(error))
                .filter(|error| error.code() == Code::StoreUnavailable)
                .map_or(Ok(None), Err),
        }
    }
}

/// Returns true if the user may have threads: the store bounds the length of an owner's id.
fn has_valid_owner(principal: &Principal) -> bool {
    ThreadKey::new(principal.company_id.clone(), principal.user_id.clone(), "thread").check().is_ok()
}
