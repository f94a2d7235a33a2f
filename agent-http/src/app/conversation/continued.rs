//! A run that continues one whose tool calls have waited for decisions: makes the approved calls, and then asks the
//! agent's backend with the results of all calls.

use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Clock;
use agent_core::context::LayerError;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventStream, Id, RunIds, SourceEvent};
use agent_core::ids::{AgentId, CompanyId};
use agent_core::message::Message;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::{RoleBlock, RoleSource};
use agent_core::tool::{ExecutionContext, NoProgress, ToolError, ToolOutput};
use agent_core::tool_loop::call_tool;
use agent_core::turn::TurnError;
use agent_platform::conversation::{
    Approval, ApprovalState, ChangeRun, Conversations, Run, RunChange, RunKey, ThreadOwner,
};
use agent_platform::history::repair;
use agent_platform::records::StoreError;
use agent_platform::run_observer::RunObserver;
use agent_platform::run_tools::{AllowedTools, allowed_tools_in_run};
use futures_util::future::{join_all, ready};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::super::App;

/// Initial pause between attempts to read the agent of an approved call; it doubles up to [`MAX_ROLE_RETRY_PAUSE`].
const MIN_ROLE_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_ROLE_RETRY_PAUSE: Duration = Duration::from_secs(5);

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
    /// Returns the events of the run: the results of the calls, then those of the agent's answer.
    pub(super) fn into_events(self) -> EventStream {
        let ids = RunIds { thread_id: self.turn.thread_id.clone(), run_id: self.turn.run_id.clone() };
        let calls: Vec<_> = self.run.approvals.iter().map(|approval| approval.tool_call_id.clone()).collect();
        let audience = self.principal.caller.audience();
        let source = stream::once(self.make_calls().boxed()).flat_map(|(this, calls)| {
            let results: Vec<SourceItem> = calls.iter().map(DecidedCall::event).collect();
            stream::iter(results).chain(stream::once(this.answer(calls).boxed()).flatten())
        });
        EventStream::new(ids, source.boxed()).with_awaited_results(calls).for_audience(audience)
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
        // A begun call is not made again, so the agent is read before.
        let Some(role) = self.role(approval).await else {
            return error_result("the call was not made: the agent cannot be read".to_owned());
        };
        // The call is made at most once: that it begins is stored before.
        let service = &self.app.conversations;
        let change = RunChange::BeginCall {
            approval: approval.id.clone(),
            by: self.turn.run_id.clone(),
            process: service.process.clone(),
        };
        let key = RunKey { owner: self.owner.clone(), id: self.run.id.clone() };
        if let Err(error) = self.store.change_run(ChangeRun { run: key, change, now: service.now() }).await {
            tracing::warn!(run_id = %self.turn.run_id, %error, "an approved call was not made: its begin is not stored");
            return error_result("the call was not made: its begin could not be stored".to_owned());
        }
        let output = self.call(approval, &role).await;
        DecidedCall { id: approval.tool_call_id.clone(), content: output.text, is_error: output.is_error }
    }

    /// Returns the role of the agent whose call was approved; `None` if there is none, or if it cannot be read.
    async fn role(&self, approval: &Approval) -> Option<Arc<RoleBlock>> {
        let clock = &*self.app.approved_calls.clock;
        let role = read_role(&*self.app.roles, clock, &self.principal.company_id, &approval.agent_id).await;
        role.unwrap_or_else(|error| {
            tracing::warn!(run_id = %self.turn.run_id, %error, "an approved call was not made: the agent cannot be read");
            None
        })
    }

    async fn call(&self, approval: &Approval, role: &RoleBlock) -> ToolOutput {
        let (company, agent) = (&self.principal.company_id, &approval.agent_id);
        let calls = &self.app.approved_calls;
        let tools = AllowedTools::new(calls.tools.clone(), allowed_tools_in_run(role, self.principal.caller));
        let context = ExecutionContext {
            user_id: self.principal.user_id.clone(),
            company_id: company.clone(),
            agent_id: agent.clone(),
            agent_name: Some(role.name.clone()).filter(|name| !name.is_empty()),
            todo_list_id: self.turn.todo_list_id.clone(),
            timezone: self.turn.timezone.clone(),
            thread_id: self.turn.thread_id.clone(),
            run_id: self.turn.run_id.clone(),
            caller: self.principal.caller,
            idempotency_key: Some(format!("{}/approval/{}", self.run.id, approval.tool_call_id)),
            trace: self.turn.trace.clone(),
            ..ExecutionContext::default()
        };
        let timeout = calls.clock.sleep(calls.limits.tool_timeout);
        let arguments = Ok(approval.final_arguments());
        let output =
            call_tool(&tools, &context, &approval.tool, arguments, &NoProgress, timeout, calls.limits).await;
        match &approval.edited_arguments {
            Some(_) => {
                let arguments = approval.final_arguments();
                let text = format!("a person has changed the arguments to {arguments}. {}", output.text);
                ToolOutput { text, ..output }
            }
            None => output,
        }
    }

    /// Returns the events of the agent's answer.
    async fn answer(self, calls: Vec<DecidedCall>) -> BoxStream<'static, SourceItem> {
        let mut turn = self.turn;
        let results = calls.into_iter().map(|call| Message::tool_result(&*call.id, call.content));
        turn.messages.extend(results);
        turn.messages = repair(turn.messages);
        self.observer.begin_preparation();
        match self.app.run_kept_turn(&self.principal, turn, &self.observer).await {
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

/// Reads a role. While the store is unavailable, reads it again until the run ends, which drops the future.
///
/// # Errors
/// Those of the store other than [`StoreError::Unavailable`].
async fn read_role(
    roles: &dyn RoleSource,
    clock: &dyn Clock,
    company: &CompanyId,
    agent: &AgentId,
) -> Result<Option<Arc<RoleBlock>>, StoreError> {
    let mut pause = MIN_ROLE_RETRY_PAUSE;
    loop {
        match roles.role(company, agent).await {
            Err(StoreError::Unavailable(_)) => clock.sleep(pause).await,
            read => return read,
        }
        pause = (pause * 2).min(MAX_ROLE_RETRY_PAUSE);
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
