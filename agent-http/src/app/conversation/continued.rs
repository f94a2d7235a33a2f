//! Continuation of a run whose tool calls have waited for decisions: makes the approved calls, and then asks the
//! agent's backend with the results of all calls. If results of the client's calls are missing, the run ends and waits for
//! them instead.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::context::LayerError;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, Id, RunEnd, RunIds, RunOutcome, SourceEvent};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::message::{FinishReason, Message, Role};
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{RoleBlock, RoleSource};
use agent_core::tool::{Caller, ExecutionContext, NoProgress, ToolError, ToolOutput};
use agent_core::tool_loop::call_tool;
use agent_core::turn::TurnError;
use agent_core::users::UserProfile;
use agent_platform::backoff::Backoff;
use agent_platform::conversation::{
    Approval, ApprovalState, CallExecution, ChangeRunRequest, ConversationError, Conversations, Run,
    RunChange, RunKey, RunState, ThreadOwner,
};
use agent_platform::history::{is_missing_result, repair_shared};
use agent_platform::records::StoreError;
use agent_platform::run_observer::RunObserver;
use agent_platform::run_tools::{AllowedTools, allowed_tools_in_run};
use futures_util::future::{join_all, ready};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

use super::super::App;

/// Pauses between attempts to read or write before an approved call, while the store is unavailable.
const APPROVED_CALL_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

type SourceItem = Result<SourceEvent, AgentError>;

/// A turn that continues a run.
pub(super) struct ContinuedTurn {
    pub(super) app: Arc<App>,
    pub(super) principal: Principal,
    /// The turn; its messages lack the results of the decided calls.
    pub(super) turn: TurnRequest,
    pub(super) store: Arc<dyn Conversations>,
    pub(super) owner: ThreadOwner,
    /// The run that is continued, with its decisions.
    pub(super) run: Run,
    /// Recorder of the run.
    pub(super) observer: Arc<RunObserver>,
}

/// Result of a call that was decided.
struct DecidedCall {
    id: Id,
    content: String,
    is_error: bool,
}

impl DecidedCall {
    fn event(&self) -> SourceItem {
        Ok(SourceEvent::Event(Event::tool_call_result(self.id.clone(), self.content.clone(), self.is_error)))
    }
}

impl ContinuedTurn {
    /// Returns the events of the run: the results of the calls, then the events of the agent's answer.
    pub(super) fn into_events(self) -> EventStream {
        let ids = RunIds { thread_id: self.turn.thread_id.clone(), run_id: self.turn.run_id.clone() };
        let calls: Vec<_> = self.run.approvals.iter().map(|approval| approval.tool_call_id.clone()).collect();
        let audience = self.principal.caller.audience();
        let context = ExecutionContext {
            company_id: self.principal.company_id.clone(),
            user_id: self.principal.user_id.clone(),
            run_id: self.turn.run_id.clone(),
            caller: self.principal.caller,
            ..ExecutionContext::default()
        };
        // The agent's backend has a separate observer for the calls of the answer.
        let changes = self.app.own_tool_registry.tool_changes().observer(&context);
        let source = stream::once(self.make_calls().boxed()).flat_map(|(this, calls)| {
            let results: Vec<SourceItem> = calls.iter().map(DecidedCall::event).collect();
            stream::iter(results).chain(stream::once(this.answer(calls).boxed()).flatten())
        });
        let events = EventStream::new(ids, source.boxed()).with_awaited_results(calls).for_audience(audience);
        match changes {
            Some(observer) => events.with_observer(observer),
            None => events,
        }
    }

    /// Makes the approved calls, side by side.
    async fn make_calls(self) -> (Self, Vec<DecidedCall>) {
        let calls = join_all(self.run.approvals.iter().map(|approval| self.make_call(approval))).await;
        (self, calls)
    }

    async fn make_call(&self, approval: &Approval) -> DecidedCall {
        let error_result =
            |content: String| DecidedCall { id: approval.tool_call_id.clone(), content, is_error: true };
        if approval.state != ApprovalState::Approved {
            return error_result(approval.refusal());
        }
        // A started call is not made again, so the agent and the user are read first.
        let Some(role) = self.role(approval).await else {
            return error_result("the call was not made: the agent cannot be read".to_owned());
        };
        let Some(profile) = self.profile().await else {
            return error_result("the call was not made: the user's settings cannot be read".to_owned());
        };
        // The begin is stored before the call, so that the call is made at most once.
        let clock = &*self.app.approved_calls.clock;
        let begin_result =
            begin_call(|| self.store_begin(approval), || self.has_begun(approval), clock).await;
        if let Err(error) = begin_result {
            tracing::warn!(run_id = %self.turn.run_id, %error, "an approved call was not made: its start could not be stored");
            return error_result("the call was not made: its start could not be stored".to_owned());
        }
        let output = self.call(approval, &role, profile).await;
        DecidedCall { id: approval.tool_call_id.clone(), content: output.text, is_error: output.is_error }
    }

    /// Stores that an approved call begins.
    async fn store_begin(&self, approval: &Approval) -> Result<(), ConversationError> {
        let service = &self.app.conversations;
        let change = RunChange::BeginCall {
            approval: approval.id.clone(),
            by: self.turn.run_id.clone(),
            process: service.process.clone(),
        };
        let key = RunKey { owner: self.owner.clone(), id: self.run.id.clone() };
        self.store.change_run(ChangeRunRequest { run: key, change, now: service.now() }).await.map(drop)
    }

    /// Returns true if the store has the begin of an approved call, and this run still makes it. No other run and no other
    /// process stores it, and this one calls once for each approval.
    async fn has_begun(&self, approval: &Approval) -> Result<bool, ConversationError> {
        let waiting = self.store.run(&self.owner, &self.run.id).await?;
        let continuing = self.store.run(&self.owner, &self.turn.run_id).await?;
        let stored = waiting.iter().flat_map(|run| &run.approvals).find(|stored| stored.id == approval.id);
        let is_begun = stored.is_some_and(|stored| stored.executed == CallExecution::Begun);
        Ok(is_begun && continuing.is_some_and(|run| run.state == RunState::Running))
    }

    /// Returns the role of the agent whose call was approved; `None` if the agent does not exist or cannot be read.
    async fn role(&self, approval: &Approval) -> Option<Arc<RoleBlock>> {
        let clock = &*self.app.approved_calls.clock;
        let role = read_role(&*self.app.roles, clock, &self.principal.company_id, &approval.agent_id).await;
        role.unwrap_or_else(|error| {
            tracing::warn!(run_id = %self.turn.run_id, %error, "an approved call was not made: the agent cannot be read");
            None
        })
    }

    /// Returns the settings of the run's user, the default ones for an unknown user; `None` if they cannot be read.
    async fn profile(&self) -> Option<UserProfile> {
        let calls = &self.app.approved_calls;
        let Principal { company_id, user_id, .. } = &self.principal;
        let read = || calls.users.profile(company_id, user_id);
        match retry_while_unavailable(&*calls.clock, read).await {
            Ok(profile) => Some(profile.unwrap_or_default()),
            Err(error) => {
                tracing::warn!(run_id = %self.turn.run_id, %error, "an approved call was not made: the user cannot be read");
                None
            }
        }
    }

    async fn call(&self, approval: &Approval, role: &RoleBlock, profile: UserProfile) -> ToolOutput {
        let (calls, arguments) = (&self.app.approved_calls, approval.final_arguments());
        let tools = AllowedTools::new(calls.tools.clone(), allowed_tools_in_run(role, self.principal.caller));
        let context = ExecutionContext {
            agent_name: Some(role.name.clone()).filter(|name| !name.is_empty()),
            // As in the run that asked: a visitor has no task list.
            todo_list_id: self.turn.todo_list_id.clone().filter(|_| self.principal.caller != Caller::Widget),
            timezone: self.turn.timezone.clone().or(profile.timezone),
            thread_id: self.turn.thread_id.clone(),
            run_id: self.turn.run_id.clone(),
            idempotency_key: Some(format!("{}/approval/{}", self.run.id, approval.tool_call_id)),
            // The run is stored. Records that the tool writes for it, such as a notification, name the thread.
            can_suspend: true,
            trace: self.turn.trace.clone(),
            arguments_text: Some(arguments.text().into()),
            ..self.principal.agent_context(&approval.agent_id, self.principal.caller)
        };
        let timeout = calls.clock.sleep(calls.limits.tool_timeout);
        let values = Ok(Value::Object(arguments.to_object()));
        let output =
            call_tool(&tools, &context, &approval.tool, values, &NoProgress, timeout, calls.limits).await;
        match &approval.edited_arguments {
            Some(edited) => {
                let edited = edited.text();
                let text = format!("a person has changed the arguments to {edited}. {}", output.text);
                ToolOutput { text, ..output }
            }
            None => output,
        }
    }

    /// Returns the client's calls without a result, for which the answer has to wait; none if the user continues without them.
    fn awaited_client_calls(&self) -> Vec<Id> {
        let messages = &self.turn.messages;
        if messages.last().is_some_and(|message| message.role == Role::User) {
            return Vec::new();
        }
        let has_result = |call: &Id| {
            let is_result = |message: &Arc<Message>| {
                message.tool_call_id.as_deref() == Some(&**call) && !is_missing_result(message)
            };
            messages.iter().any(is_result)
        };
        self.run.pending_calls().iter().filter(|call| !has_result(call)).cloned().collect()
    }

    /// Returns the events of the agent's answer, or the end of a run that waits for results of the client.
    async fn answer(self, calls: Vec<DecidedCall>) -> BoxStream<'static, SourceItem> {
        let pending_tool_call_ids = self.awaited_client_calls();
        if !pending_tool_call_ids.is_empty() {
            let end = RunEnd::Finished {
                result: Some(FinishReason::ToolCalls.into()),
                outcome: Some(RunOutcome::Success { pending_tool_call_ids }),
                usage: Vec::new(),
            };
            return stream::once(ready(Ok(SourceEvent::End(end)))).boxed();
        }
        let mut turn = self.turn;
        let results = calls.into_iter().map(|call| Message::tool_result(&*call.id, call.content));
        Arc::make_mut(&mut turn.messages).extend(results.map(Arc::new));
        turn.messages = repair_shared(turn.messages);
        self.observer.begin_preparation();
        match self.app.run_stored_turn(&self.principal, turn, &self.observer).await {
            // The stream around this one begins the run.
            Ok(events) => events
                .with_observer(self.observer.result_observer())
                .filter(|event| ready(!matches!(event, Event::RunStarted { .. })))
                .map(|event| Ok(SourceEvent::from(event)))
                .boxed(),
            Err(error) => stream::once(ready(Err(start_error(error)))).boxed(),
        }
    }
}

/// Stores by `store_begin` that a call begins. While the store is unavailable, stores it again until the run ends, which drops
/// the future. An earlier attempt may have been committed although its answer was lost: the store refuses the next one then,
/// and `has_begun` indicates that it was this one.
///
/// # Errors
/// Errors of the store, and [`ConversationError::CallRefused`], if the call must not be made.
async fn begin_call<S, B>(
    store_begin: impl Fn() -> S,
    has_begun: impl Fn() -> B,
    clock: &dyn Clock,
) -> Result<(), ConversationError>
where
    S: Future<Output = Result<(), ConversationError>>,
    B: Future<Output = Result<bool, ConversationError>>,
{
    let (mut may_have_begun, mut backoff) = (false, APPROVED_CALL_BACKOFF);
    loop {
        let stored = match store_begin().await {
            Err(ConversationError::CallRefused) if may_have_begun => match has_begun().await {
                Ok(true) => Ok(()),
                Ok(false) => Err(ConversationError::CallRefused),
                Err(error) => Err(error),
            },
            stored => stored,
        };
        match stored {
            Err(ConversationError::Store(StoreError::Unavailable(_))) => may_have_begun = true,
            stored => return stored,
        }
        backoff.sleep(clock).await;
    }
}

/// Reads a role, by [`retry_while_unavailable`].
async fn read_role(
    roles: &dyn RoleSource,
    clock: &dyn Clock,
    company: &CompanyId,
    agent: &AgentId,
) -> Result<Option<Arc<RoleBlock>>, StoreError> {
    retry_while_unavailable(clock, || roles.role(company, agent)).await
}

/// Reads from the store. While it is unavailable, reads again until the run ends, which drops the future.
///
/// # Errors
/// Errors of the store other than [`StoreError::Unavailable`].
async fn retry_while_unavailable<T, F>(clock: &dyn Clock, read: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = APPROVED_CALL_BACKOFF;
    loop {
        match read().await {
            Err(StoreError::Unavailable(_)) => backoff.sleep(clock).await,
            result => return result,
        }
    }
}

/// Returns the error of a run whose backend could not be asked.
fn start_error(error: TurnError) -> AgentError {
    let kind = match error {
        TurnError::Backend(error) => return error,
        TurnError::Store(_)
        | TurnError::Layer(LayerError::Store(StoreError::Unavailable(_)))
        | TurnError::Tools(ToolError::Unavailable(_) | ToolError::StoreUnavailable(_)) => {
            AgentErrorKind::StoreUnavailable
        }
        TurnError::NoConnector(_) | TurnError::NoBackend(_) => AgentErrorKind::NotConfigured,
        TurnError::AgentNotFound | TurnError::WrongAgent | TurnError::InvalidField { .. } => {
            AgentErrorKind::InvalidRequest
        }
        _ => AgentErrorKind::Internal,
    };
    let message = match kind {
        AgentErrorKind::Internal | AgentErrorKind::StoreUnavailable => {
            "the answer could not be prepared".to_owned()
        }
        _ => error.to_string(),
    };
    AgentError::new(kind, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agent_client::clock::TokioClock;
    use async_trait::async_trait;

    use super::*;

    /// Roles in a store that is unavailable for a number of reads.
    struct UnavailableRoles(AtomicUsize);

    #[async_trait]
    impl RoleSource for UnavailableRoles {
        async fn role(&self, _: &CompanyId, _: &AgentId) -> Result<Option<Arc<RoleBlock>>, StoreError> {
            if self.0.load(Ordering::SeqCst) == 0 {
                return Ok(Some(Arc::default()));
            }
            self.0.fetch_sub(1, Ordering::SeqCst);
            Err(StoreError::unavailable("the disk is full"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_agent_of_an_approved_call_is_read_once_the_store_is_back() {
        let roles = UnavailableRoles(AtomicUsize::new(12));
        let role = read_role(&roles, &TokioClock, &"c".into(), &"a".into()).await;
        assert!(role.expect("it reads").is_some());
    }

    /// Begins a call whose attempts to store the begin have these results, and then `has_begun` in the store.
    async fn begin_after(
        attempts: impl IntoIterator<Item = Result<(), ConversationError>>,
        has_begun: bool,
    ) -> Result<(), ConversationError> {
        let attempts = RefCell::new(attempts.into_iter());
        let store_begin = || ready(attempts.borrow_mut().next().expect("another attempt"));
        let begun = begin_call(store_begin, || ready(Ok(has_begun)), &TokioClock).await;
        assert!(attempts.borrow_mut().next().is_none(), "all attempts were made");
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn a_begin_whose_answer_is_lost_does_not_use_up_the_approval() {
        fn lost() -> Result<(), ConversationError> {
            Err(StoreError::unavailable("the connection was closed").into())
        }
        fn refused() -> Result<(), ConversationError> {
            Err(ConversationError::CallRefused)
        }
        begin_after([lost(), lost(), Ok(())], false).await.expect("only the third attempt was stored");
        begin_after([lost(), refused()], true).await.expect("the first attempt was stored");
        for (attempts, has_begun) in [(vec![lost(), refused()], false), (vec![refused()], true)] {
            let begun = begin_after(attempts, has_begun).await;
            assert!(matches!(begun, Err(ConversationError::CallRefused)), "{begun:?}");
        }
    }

    #[test]
    fn an_unavailable_store_is_named_wherever_the_turn_needed_it() {
        let unavailable = || StoreError::unavailable("db at 10.0.0.7");
        for error in [
            TurnError::from(unavailable()),
            LayerError::from(unavailable()).into(),
            TurnError::Tools(unavailable().into()),
        ] {
            let error = start_error(error);
            assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
            assert!(!error.message().contains("10.0.0.7"));
        }
        let internal = start_error(TurnError::Tools(ToolError::internal("a fault")));
        assert_eq!(internal.kind(), AgentErrorKind::Internal);
    }
}
