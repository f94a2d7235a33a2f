//! Budgets of runs: counts of runs and tool calls, concurrent runs, and limits on time.

use agent_core::backend::{BackendCapabilities, ModelSource as _, PreparedRequest, Turn};
use agent_core::budget::TokenBudget;
use agent_core::event::{AssistantRole, Event, EventStream, RunEnd, RunIds, RunOutcome, SourceEvent};
use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::payload::Payload;
use agent_core::role::{EmbeddedAi, WorkflowConnector};
use agent_core::select::{BackendChoice, BackendKind};
use agent_core::store_error::StoreError;
use agent_core::testing::{ScriptedModel, backend_turn, prepare_turn, start_turn};
use agent_core::tool::ExecutionContext;
use futures_util::{FutureExt, stream};

use super::*;
use crate::usage::backend::RunMeter;
use crate::usage::{MeteredModels, StoredRuns};

#[tokio::test]
async fn runs_and_tool_calls_are_counted() {
    let installation = Installation::new();
    let process = installation.process();
    let limits = json!([
        {"unit": "runs", "amount": 3, "window": "minute"},
        {"unit": "concurrentRuns", "amount": 2},
        {"unit": "toolCalls", "amount": 1, "window": "day"},
    ]);
    put(&process, BudgetKind::Agent, "guide", limits).await;
    let budgets = budgets(&process);
    let first = budgets.admit_run(&scope("a")).await.expect("admitted").reservation.0.expect("a reservation");
    let _second = budgets.admit_run(&scope("b")).await.expect("admitted");
    let error = budgets.admit_run(&scope("c")).await.err().expect("two at once");
    assert_eq!(
        (error.kind(), refusal(&error).unit),
        (AgentErrorKind::RateLimited, BudgetUnit::ConcurrentRuns)
    );
    drop(first);
    budgets.flush().await;
    let third = budgets.admit_run(&scope("c")).await.expect("admitted");
    drop(third);
    budgets.flush().await;
    let error = budgets.admit_run(&scope("d")).await.err().expect("three in a minute");
    assert_eq!((error.kind(), refusal(&error).unit), (AgentErrorKind::RateLimited, BudgetUnit::Runs));
    installation.clock.advance(Duration::from_secs(60));
    budgets.admit_run(&scope("d")).await.expect("the next minute");
    budgets.admit_tool_call(&scope("d")).await.expect("the first");
    let error = budgets.admit_tool_call(&scope("d")).await.expect_err("the second");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
}

#[tokio::test]
async fn each_run_has_the_budget_of_its_agents_runs() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "toolCalls", "amount": 2, "window": "run"}]))
        .await;
    for run in ["a", "b"] {
        for _ in 0..2 {
            budgets(&process).admit_tool_call(&scope(run)).await.expect("within the limit");
        }
        let error = budgets(&process).admit_tool_call(&scope(run)).await.expect_err("the third");
        assert_eq!(error.message(), "the run's budget of tool calls is spent");
    }
    for _ in 0..3 {
        budgets(&process)
            .admit_tool_call(&scope(""))
            .await
            .expect("not in a run, as the calls of MCP clients");
    }
    let of_another = RunScope { user_id: "bob".into(), ..scope("a") };
    budgets(&process).admit_tool_call(&of_another).await.expect("another user's run with the same id");
    let meters =
        Collection::of_platform("budgetMeters").and_then(|meters| meters.within(COMPANY)).expect("a name");
    let count = async || {
        installation.records.list(&meters, &ListQuery::default()).await.expect("a page").records.len()
    };
    assert_eq!(count().await, 3);
    let mut sweep = ReservationSweep::default();
    let later = process.now() + jiff::SignedDuration::from_hours(24 * 41);
    // The records have times of the system's clock.
    let later = later.max(
        jiff::Timestamp::try_from(std::time::SystemTime::now()).expect("a time")
            + jiff::SignedDuration::from_hours(24 * 41),
    );
    while sweep.delete_meters_page(&*installation.records, later).await.expect("a page") {}
    assert_eq!(count().await, 0);
}

/// The longest run may take half an hour, for which the places of a killed process must not be taken.
#[tokio::test]
async fn run_slots_of_a_lost_process_are_freed_and_long_runs_keep_theirs() {
    let installation = Installation::new();
    let lease = Duration::from_secs(31 * 60);
    let killable = KillableSpawner::default();
    let lost = installation.process_over(Arc::new(killable.clone()), lease, DefaultLimits::default());
    let spawner = Arc::new(|task: BoxFuture<'static, ()>| drop(tokio::spawn(task)));
    let process = installation.process_over(spawner, lease, DefaultLimits::default());
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 2})).await;
    let kept = budgets(&process).admit_run(&scope("a")).await.expect("admitted");
    std::mem::forget(budgets(&lost).admit_run(&scope("b")).await.expect("admitted"));
    killable.kill().await;
    let mut sweep = ReservationSweep::default();
    let mut settle = async || {
        let inventory: &dyn Inventory = &*installation.records;
        while sweep.settle_page(inventory, budgets(&process), &process).await.expect("a page") {}
        amounts(&process).await
    };
    // The lease ends after a minute, and half a minute later its process has not renewed it.
    for reserved in [2, 2, 2, 2, 2, 2, 1] {
        assert_eq!(settle().await, (0, reserved));
        // The process has renewed the reservation of its run when it waits for the next time.
        installation.clock.wait_for_sleepers(1).await;
        installation.clock.advance(Duration::from_secs(20));
    }
    installation.clock.wait_for_sleepers(1).await;
    assert_eq!(settle().await, (0, 1));
    drop(kept);
    budgets(&process).flush().await;
    assert_eq!(settle().await, (0, 0));
    let reservations =
        Collection::of_platform("budgetReservations").and_then(|all| all.within(COMPANY)).expect("a name");
    assert_eq!(installation.records.count(&reservations).await.expect("the store works"), 0);
}

#[tokio::test]
async fn a_run_ends_when_its_time_is_over() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "wallMs", "amount": 5_000, "window": "run"}]))
        .await;
    let admission = budgets(&process).admit_run(&scope("a")).await.expect("admitted");
    let (timer, error) = admission.deadline.expect("a deadline");
    let ids = RunIds { thread_id: "t".into(), run_id: "a".into() };
    let text = [
        Event::TextMessageStart { message_id: "m".into(), role: AssistantRole::Assistant },
        Event::TextMessageContent { message_id: "m".into(), delta: "Partly".to_owned() },
    ];
    let source = stream::iter(text.map(|event| Ok(SourceEvent::Event(event)))).chain(stream::pending());
    let mut events = with_deadline(EventStream::new(ids, source), timer, error);
    let mut seen = Vec::new();
    let end = loop {
        match futures_util::poll!(events.next()) {
            std::task::Poll::Ready(Some(Event::RunError { code, message, .. })) => break (code, message),
            std::task::Poll::Ready(event) => seen.push(event.expect("the run goes on")),
            std::task::Poll::Pending => installation.clock.advance(Duration::from_secs(1)),
        }
    };
    assert_eq!(end, ("BUDGET_EXCEEDED".to_owned(), "the run's budget of time is spent".to_owned()));
    let starts = seen.iter().filter(|event| matches!(event, Event::RunStarted { .. })).count();
    assert_eq!(starts, 1, "{seen:?}");
    assert!(
        seen.iter()
            .any(|event| matches!(event, Event::TextMessageContent { delta, .. } if delta == "Partly"))
    );
}

/// Service whose calls end as a function says.
struct ScriptedBackend<F>(F);

#[async_trait]
impl<F> Backend for ScriptedBackend<F>
where
    F: Fn() -> BoxFuture<'static, Result<EventStream, AgentError>> + Send + Sync + 'static,
{
    type Settings = WorkflowConnector;

    fn capabilities(&self, _: &WorkflowConnector) -> Result<BackendCapabilities, AgentError> {
        Ok(BackendCapabilities::new(TokenBudget { max_prompt_tokens: 1_000 }))
    }

    fn prepare(&self, _: &WorkflowConnector, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        Ok(PreparedRequest { payload: Payload::text("{}"), turn })
    }

    async fn start(&self, _: &WorkflowConnector, _: PreparedRequest) -> Result<EventStream, AgentError> {
        (self.0)().await
    }
}

/// Returns a service that does not begin to answer.
fn silent_backend() -> impl Backend<Settings = WorkflowConnector> {
    ScriptedBackend(|| std::future::pending::<Result<EventStream, AgentError>>().boxed())
}

#[tokio::test]
async fn a_run_that_does_not_begin_ends_when_its_time_is_over() {
    let installation = Installation::new();
    let process = installation.process();
    put(&process, BudgetKind::Run, "guide", json!([{"unit": "wallMs", "amount": 5_000, "window": "run"}]))
        .await;
    let booking = Booking::PerRun(|_| ("p", "m"));
    let backend = MeteredBackend::new(silent_backend(), BackendKind::Workflow, booking, process.clone());
    let mut turn = backend_turn(BackendChoice::Workflow(Box::default()));
    (turn.context.company_id, turn.context.agent_id) = (COMPANY.into(), "guide".into());
    let prepared = prepare_turn(&backend, Arc::new(turn)).expect("a request");
    let mut started = pin!(start_turn(&backend, prepared));
    let mut waited_seconds = 0;
    let error = loop {
        match futures_util::poll!(started.as_mut()) {
            Poll::Ready(started) => break started.expect_err("no time is left"),
            Poll::Pending => {
                assert!(waited_seconds < 5, "the run goes on");
                waited_seconds += 1;
                installation.clock.advance(Duration::from_secs(1));
            }
        }
    };
    assert_eq!(
        (error.kind(), error.message()),
        (AgentErrorKind::BudgetExceeded, "the run's budget of time is spent")
    );
    process.flush().await;
    let booked = process.store().run_usage(&COMPANY.into(), &"run-1".into()).await.expect("entries");
    let [entry] = &booked[..] else { panic!("one entry: {booked:?}") };
    assert_eq!(
        (entry.outcome.as_str(), entry.estimated),
        ("BUDGET_EXCEEDED", true),
        "usage of a refused answer is estimated"
    );
}

#[tokio::test]
async fn a_run_whose_prompt_is_sent_again_since_it_was_too_long_counts_once() {
    for is_stored in [false, true] {
        let installation = Installation::new();
        let process = installation.process_with(default_limits(1, 0, 0));
        put_company(&process, json!({"unit": "runs", "amount": 1, "window": "day"})).await;
        let too_long = || AgentError::new(AgentErrorKind::ContextExceeded, "too long");
        let backend = ScriptedBackend(move || async move { Err::<EventStream, _>(too_long()) }.boxed());
        let backend = MeteredBackend::new(backend, BackendKind::Workflow, Booking::PerCall, process.clone());
        let start = async |context: &ExecutionContext| {
            let mut turn = backend_turn(BackendChoice::Workflow(Box::default()));
            turn.context = context.clone();
            let prepared = prepare_turn(&backend, Arc::new(turn)).expect("a request");
            start_turn(&backend, prepared).await.expect_err("an error").kind()
        };
        let admitted = match is_stored {
            true => Some(process.admit_run(&context("a")).await.expect("admitted")),
            false => None,
        };
        if let Some(admitted) = &admitted {
            admitted.outcome().record_stored();
        }
        for _ in 0..2 {
            assert_eq!(start(&context("a")).await, AgentErrorKind::ContextExceeded);
        }
        budgets(&process).flush().await;
        assert_eq!(amounts(&process).await, (1, 0));
        assert_eq!(start(&context("b")).await, AgentErrorKind::RateLimited, "another run");
    }
}

/// Without a stored run, the backend's start begins the run.
#[tokio::test]
async fn a_run_whose_first_call_is_refused_does_not_use_up_the_runs_per_minute() {
    for booking in [Booking::PerCall, Booking::PerRun(|_| ("p", "m"))] {
        let installation = Installation::new();
        let process = installation.process_with(default_limits(1, 0, 0));
        let caller = process.clone();
        let backend = ScriptedBackend(move || {
            let caller = caller.clone();
            let call = async move {
                reserve(&caller, 10).await?;
                Err::<EventStream, _>(AgentError::new(AgentErrorKind::Unreachable, "away"))
            };
            call.boxed()
        });
        let backend = MeteredBackend::new(backend, BackendKind::Workflow, booking, process.clone());
        let start = async || {
            let mut turn = backend_turn(BackendChoice::Workflow(Box::default()));
            turn.context = context("a");
            let prepared = prepare_turn(&backend, Arc::new(turn)).expect("a request");
            start_turn(&backend, prepared).await.expect_err("an error").kind()
        };
        put_company(&process, json!({"unit": "tokens", "amount": 1, "window": "day"})).await;
        assert_eq!(start().await, AgentErrorKind::BudgetExceeded);
        put_company(&process, json!({"unit": "tokens", "amount": 1_000_000, "window": "day"})).await;
        assert_eq!(start().await, AgentErrorKind::Unreachable, "there is a place");
        assert_eq!(start().await, AgentErrorKind::RateLimited, "a call was made");
    }
}

#[tokio::test]
async fn a_run_that_is_admitted_before_its_backend_starts_counts_once() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 1})).await;
    let backend =
        MeteredBackend::new(silent_backend(), BackendKind::Workflow, Booking::PerCall, process.clone());
    let mut turn = backend_turn(BackendChoice::Workflow(Box::default()));
    turn.context.company_id = COMPANY.into();
    let context = turn.context.clone();
    let prepared = prepare_turn(&backend, Arc::new(turn)).expect("a request");
    let admitted = process.admit_run(&context).await.expect("admitted");
    assert!(admitted.is_unused());
    let other = ExecutionContext { run_id: "run-2".into(), ..context.clone() };
    let error = process.admit_run(&other).await.expect_err("one at once");
    assert_eq!(error.kind(), AgentErrorKind::RateLimited);
    {
        let mut started = pin!(start_turn(&backend, prepared));
        assert!(futures_util::poll!(started.as_mut()).is_pending());
        assert!(!admitted.is_unused(), "the backend has taken it");
        assert_eq!(amounts(&process).await, (0, 1));
    }
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (0, 0), "the reservation ends when the start fails");
    // Another attempt needs another admission, which ends with the attempt if no backend starts.
    let again = process.admit_run(&context).await.expect("admitted");
    drop(admitted);
    assert!(again.is_unused());
    assert_eq!(amounts(&process).await, (0, 1));
    drop(again);
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (0, 0));
}

/// Returns the context of a run of `ada`.
pub(super) fn context(run: &str) -> ExecutionContext {
    ExecutionContext {
        user_id: "ada".into(),
        company_id: COMPANY.into(),
        agent_id: "guide".into(),
        run_id: run.into(),
        ..ExecutionContext::default()
    }
}

#[tokio::test]
async fn a_run_counts_once_it_is_stored() {
    let installation = Installation::new();
    let (process, other) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "runs", "amount": 1, "window": "day"})).await;
    let loser = process.admit_run(&context("a")).await.expect("admitted");
    assert_eq!(amounts(&process).await, (0, 1));
    let later = context("b");
    let mut waiting = pin!(other.admit_run(&later));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    // A failed commit gives the run back, also if the other request waits in another process.
    drop(loser);
    budgets(&process).flush().await;
    let advance = async {
        loop {
            installation.clock.wait_for_sleepers(1).await;
            installation.clock.advance(Duration::from_millis(200));
            tokio::task::yield_now().await;
        }
    };
    let winner = tokio::select! {
        admitted = waiting => admitted.expect("the last run"),
        () = advance => unreachable!("it has no end"),
    };
    winner.outcome().record_stored();
    drop(winner);
    budgets(&other).flush().await;
    assert_eq!(amounts(&process).await, (1, 0));
    let error = process.admit_run(&context("c")).await.expect_err("one a day");
    assert_eq!(error.kind(), AgentErrorKind::BudgetExceeded);
}

/// The request is sent once the beginning is known to be stored, and the beginning is stored once the first call is reserved.
#[tokio::test]
async fn the_first_call_waits_until_the_run_is_stored() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "tokens", "amount": 100_000, "window": "day"})).await;
    let admitted = process.admit_run(&context("a")).await.expect("admitted");
    let models = MeteredModels::new(Arc::new(ScriptedModel::repeating("x")), process.clone());
    let metered = models.model_for_run(&EmbeddedAi::default(), &context("a")).expect("a model");
    let mut payload = Payload::builder(64);
    payload.raw(r#"{"prompt":"forty bytes","max_tokens":"#).output_limit(1_024).raw("}");
    payload.prompt_tokens(Some(10));
    let mut started = pin!(metered.start(payload.finish()));
    let mut first_call = pin!(admitted.first_call_admitted());
    assert!(admitted.awaits_first_call());
    assert!(futures_util::poll!(first_call.as_mut()).is_pending());
    tokio::select! {
        biased;
        () = first_call => {}
        _ = &mut started => panic!("the call begins before the run is stored"),
    }
    assert!(!admitted.awaits_first_call());
    assert!(futures_util::poll!(started.as_mut()).is_pending());
    assert!(!admitted.is_unused(), "another attempt reserves again");
    admitted.outcome().record_stored();
    assert!(started.await.is_ok());
}

#[tokio::test]
async fn a_call_of_a_run_that_is_not_stored_fails() {
    let installation = Installation::new();
    let process = installation.process();
    let admitted = process.admit_run(&context("a")).await.expect("admitted");
    let models = MeteredModels::new(Arc::new(ScriptedModel::repeating("x")), process.clone());
    let metered = models.model_for_run(&EmbeddedAi::default(), &context("a")).expect("a model");
    let mut started = pin!(metered.start(Payload::text("Hello")));
    let outcome = admitted.outcome();
    drop(admitted);
    assert!(futures_util::poll!(started.as_mut()).is_pending(), "the commit is not known to have failed");
    drop(outcome);
    let Poll::Ready(Err(error)) = futures_util::poll!(started.as_mut()) else { panic!("the call waits") };
    assert_eq!(error.kind(), AgentErrorKind::StoreUnavailable);
}

/// The task that makes a summary outlasts its turn, and the turns of other runs wait for the same one.
#[tokio::test]
async fn a_summary_does_not_wait_until_the_run_is_stored() {
    let installation = Installation::new();
    let process = installation.process();
    let admitted = process.admit_run(&context("a")).await.expect("admitted");
    let models = MeteredModels::new(Arc::new(ScriptedModel::repeating("x")), process.clone())
        .for_operation(UsageOperation::Compact);
    let metered = models.model_for_run(&EmbeddedAi::default(), &context("a")).expect("a model");
    let mut started = pin!(metered.start(Payload::text("Summarize this.")));
    let Poll::Ready(started) = futures_util::poll!(started.as_mut()) else { panic!("the summary waits") };
    assert!(started.is_ok());
    assert!(admitted.is_unused(), "the run itself has called no model");
}

/// The run `a` of `ada`, stored or not.
struct RunOfAda {
    is_stored: bool,
}

#[async_trait]
impl StoredRuns for RunOfAda {
    async fn has_run(&self, company: &CompanyId, owner: &UserId, run: &RunId) -> Result<bool, StoreError> {
        assert_eq!((company.as_str(), owner.as_str(), run.as_str()), (COMPANY, "ada", "a"));
        Ok(self.is_stored)
    }
}

#[tokio::test]
async fn a_run_of_a_lost_process_counts_if_it_is_stored() {
    for (is_stored, is_killed, expected) in
        [(false, true, (0, 0)), (true, true, (1, 0)), (false, false, (0, 0)), (true, false, (1, 0))]
    {
        let installation = Installation::new();
        let (killable, lease) = (KillableSpawner::default(), Duration::from_secs(60));
        let lost = installation.process_over(Arc::new(killable.clone()), lease, DefaultLimits::default());
        let process = installation.process();
        put_company(&process, json!({"unit": "runs", "amount": 5, "window": "day"})).await;
        let admitted = lost.admit_run(&context("a")).await.expect("admitted");
        match is_killed {
            true => {
                std::mem::forget(admitted);
                killable.kill().await;
            }
            // The answer of the commit was lost.
            false => admitted.outcome().record_unknown(),
        }
        let mut sweep = ReservationSweep::new(Some(Arc::new(RunOfAda { is_stored })));
        let inventory: &dyn Inventory = &*installation.records;
        // The lease, and half a minute between the passes that find it over.
        for pause in [0, 61, 31] {
            assert_eq!(amounts(&process).await, (0, 1));
            installation.clock.advance(Duration::from_secs(pause));
            while sweep.settle_page(inventory, budgets(&process), &process).await.expect("a page") {}
        }
        assert_eq!(amounts(&process).await, expected);
    }
}

/// The context layers of a run, or the commit of its beginning, may take longer than the lease.
#[tokio::test]
async fn a_run_that_is_stored_late_counts() {
    let installation = Installation::new();
    let (process, other) = (installation.process(), installation.process());
    put_company(&process, json!({"unit": "runs", "amount": 1, "window": "day"})).await;
    let admitted = process.admit_run(&context("a")).await.expect("admitted");
    let mut sweep = ReservationSweep::new(Some(Arc::new(RunOfAda { is_stored: false })));
    for _ in 0..10 {
        let inventory: &dyn Inventory = &*installation.records;
        while sweep.settle_page(inventory, budgets(&other), &other).await.expect("a page") {}
        assert_eq!(amounts(&other).await, (0, 1), "the last run of the day is taken");
        installation.clock.wait_for_sleepers(1).await;
        installation.clock.advance(Duration::from_secs(20));
    }
    installation.clock.wait_for_sleepers(1).await;
    admitted.outcome().record_stored();
    drop(admitted);
    budgets(&process).flush().await;
    assert_eq!(amounts(&other).await, (1, 0));
    installation.clock.advance(Duration::from_secs(20));
    assert_eq!(amounts(&other).await, (1, 0), "the reservation is not renewed any more");
}

#[tokio::test]
async fn a_run_that_has_ended_does_not_count_while_its_end_is_not_read() {
    let installation = Installation::new();
    let process = installation.process();
    put_company(&process, json!({"unit": "concurrentRuns", "amount": 1})).await;
    let reservation = budgets(&process).admit_run(&scope("a")).await.expect("admitted").reservation;
    let meter =
        RunMeter::new(process.clone(), (scope("a"), None), BackendKind::Workflow, (None, reservation));
    let ids = RunIds { thread_id: "t".into(), run_id: "a".into() };
    let mut events = EventStream::new(ids, stream::pending()).with_observer(Box::new(meter));
    assert_eq!(amounts(&process).await, (0, 1));
    let outcome = Some(RunOutcome::Cancelled);
    events.finish(RunEnd::Finished { result: None, outcome, usage: Vec::new() });
    budgets(&process).admit_run(&scope("b")).await.expect("the place is free");
    drop(events);
    budgets(&process).flush().await;
    assert_eq!(amounts(&process).await, (0, 0), "the reservation is released once");
}
