//! Backends whose runs are booked.

use std::sync::Arc;

use agent_core::backend::{Backend, BackendCapabilities, PreparedRequest, Turn};
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, EventObserver, EventStream};
use agent_core::ids::TraceContext;
use agent_core::select::BackendKind;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;

use super::budget::{
    BudgetExceededError, BudgetUnit, CallDemand, PendingCounts, RunAdmission, RunReservation,
    start_with_deadline,
};
use super::call::{MeteredCall, count, finished_outcome};
use super::prices::CallBilling;
use super::{ModelPrice, RunScope, UsageRecorder};

/// Returns the provider and the model that a backend's settings name.
type SettingsNames<S> = fn(&S) -> (&str, &str);

/// Origin of a backend's entries in the ledger.
pub enum Booking<S> {
    /// The backend's models or agent servers book each call: see [`MeteredModels`](super::MeteredModels) and
    /// [`MeteredServers`](super::MeteredServers).
    PerCall,
    /// Another service calls the models, and reports the usage of the run at its end.
    PerRun(SettingsNames<S>),
}

impl<S> std::fmt::Debug for Booking<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::PerCall => "PerCall",
            Self::PerRun(_) => "PerRun",
        })
    }
}

/// A [`Backend`] whose runs are booked, even if they fail or their client disconnects.
pub struct MeteredBackend<B: Backend> {
    backend: B,
    kind: BackendKind,
    booking: Booking<B::Settings>,
    recorder: UsageRecorder,
}

impl<B: Backend> std::fmt::Debug for MeteredBackend<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredBackend").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<B: Backend> MeteredBackend<B> {
    /// Wraps a backend. Its runs are reported under a backend kind.
    pub fn new(
        backend: B,
        kind: BackendKind,
        booking: Booking<B::Settings>,
        recorder: UsageRecorder,
    ) -> Self {
        Self { backend, kind, booking, recorder }
    }
}

/// Begins the call of a service that calls models itself. Its answer is not known beforehand, so that the budgets are asked
/// for the prompt alone. `own_price` replaces that of the catalogue. The run's first call waits until its beginning is stored.
pub(super) async fn reserve_run_call(
    recorder: &UsageRecorder,
    context: &ExecutionContext,
    (provider, model): (&str, &str),
    tokens: usize,
    own_price: Option<ModelPrice>,
) -> Result<MeteredCall, AgentError> {
    let scope = &RunScope::from(context);
    let reservation = match recorder.budgets() {
        Some(budgets) => {
            let demand = CallDemand {
                provider: provider.to_owned(),
                model: model.to_owned(),
                prompt_tokens: count(tokens),
                output_tokens: 0,
                price: own_price.clone().or_else(|| recorder.prices().price(provider, model).cloned()),
            };
            budgets.reserve_call(scope, demand, || false).await?.map(|(reservation, _)| reservation)
        }
        None => None,
    };
    if let Some(run) = recorder.starting_run(context) {
        run.begin_call().await?;
    }
    let mut call = MeteredCall::new(recorder.clone(), scope.clone(), (provider, model), tokens);
    call.reservation = reservation;
    call.billing = own_price.map(|price| {
        let provider = provider.to_owned();
        CallBilling { provider_type: provider.clone(), provider, price: Some(price) }
    });
    Ok(call)
}

#[async_trait]
impl<B: Backend> Backend for MeteredBackend<B> {
    type Settings = B::Settings;

    fn capabilities(&self, settings: &B::Settings) -> Result<BackendCapabilities, AgentError> {
        self.backend.capabilities(settings)
    }

    fn prepare(&self, settings: &B::Settings, turn: Arc<Turn>) -> Result<PreparedRequest, AgentError> {
        self.backend.prepare(settings, turn)
    }

    async fn start(
        &self,
        settings: &B::Settings,
        prepared: PreparedRequest,
    ) -> Result<EventStream, AgentError> {
        let scope = RunScope::from(&prepared.turn.context);
        let context = &prepared.turn.context;
        let RunAdmission { reservation, deadline, pending, .. } =
            self.recorder.take_admission(context).await?;
        let mut counts = StartingCounts(pending);
        let call = match self.booking {
            Booking::PerCall => None,
            Booking::PerRun(names) => {
                let tokens = prepared.turn.prompt.tokens().total();
                let call = reserve_run_call(&self.recorder, context, names(settings), tokens, None).await;
                Some(call.inspect_err(|error| counts.refuse(error))?)
            }
        };
        let scope = (scope, prepared.turn.context.trace.clone());
        let mut meter = RunMeter::new(self.recorder.clone(), scope, self.kind, (call, reservation));
        let started = self.backend.start(settings, prepared);
        let started = match deadline {
            Some((timer, expire)) => start_with_deadline(started, timer, expire).await,
            None => started.await,
        };
        match started {
            Ok(events) => Ok(events.with_observer(Box::new(meter))),
            Err(error) => {
                counts.refuse(&error);
                meter.refuse(&error);
                Err(error)
            }
        }
    }
}

/// Counts of a run whose backend starts. They apply when this is dropped, also if the start is cancelled.
struct StartingCounts(PendingCounts);

impl StartingCounts {
    /// Leaves the run uncounted if a budget refuses its first call. One whose time is over has started.
    fn refuse(&mut self, error: &AgentError) {
        if BudgetExceededError::find(error).is_some_and(|refusal| refusal.unit != BudgetUnit::WallMs) {
            drop(std::mem::take(&mut self.0));
        }
    }
}

impl Drop for StartingCounts {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).count_run();
    }
}

/// Observer of a run's events that books the run's call, and reports the run's end when it is dropped.
pub(super) struct RunMeter {
    recorder: UsageRecorder,
    scope: RunScope,
    backend: BackendKind,
    /// Call to book. Boxed to save memory, since most runs have none and last long.
    call: Option<Box<MeteredCall>>,
    has_content: bool,
    outcome: Option<String>,
    /// Counts the run among the concurrent ones until its end.
    reservation: RunReservation,
}

impl RunMeter {
    pub(super) fn new(
        recorder: UsageRecorder,
        (scope, trace): (RunScope, Option<TraceContext>),
        backend: BackendKind,
        (call, reservation): (Option<MeteredCall>, RunReservation),
    ) -> Self {
        recorder.open_run(&scope, trace);
        let call = call.map(Box::new);
        Self { recorder, scope, backend, call, has_content: false, outcome: None, reservation }
    }

    fn refuse(&mut self, error: &AgentError) {
        // The turn may send a shorter prompt, which is the same run.
        if let Some(budgets) =
            self.recorder.budgets().filter(|_| error.kind() == AgentErrorKind::ContextExceeded)
        {
            budgets.record_restart(&self.scope);
        }
        self.outcome = Some(error.kind().code().to_owned());
        if let Some(call) = &mut self.call {
            call.refuse(error);
        }
    }

    fn end(&mut self, outcome: &str, usage: &[agent_core::message::Usage]) {
        // The client may read the end late, and a run that waits for this end begins once it is stored.
        drop(std::mem::take(&mut self.reservation));
        self.outcome = Some(super::entry::clean(outcome));
        if let Some(mut call) = self.call.take() {
            call.set_outcome(outcome);
            call.set_usage(usage.to_vec());
        }
    }
}

impl EventObserver for RunMeter {
    fn observe(&mut self, event: &Event) -> Option<Event> {
        if !self.has_content && is_content(event) {
            self.has_content = true;
            self.recorder.record_first_content(&self.scope);
        }
        match event {
            Event::RunFinished { outcome, usage, .. } => self.end(finished_outcome(outcome.as_ref()), usage),
            Event::RunError { code, usage, .. } => self.end(code, usage),
            event => {
                if let Some(call) = &mut self.call {
                    call.add_event(event);
                }
            }
        }
        None
    }
}

impl Drop for RunMeter {
    fn drop(&mut self) {
        // Books the call before the run's sums are logged.
        drop(self.call.take());
        self.recorder.close_run(&self.scope, self.backend, self.outcome.as_deref().unwrap_or("cancelled"));
    }
}

/// Returns true for text, reasoning and tool calls.
fn is_content(event: &Event) -> bool {
    matches!(
        event,
        Event::TextMessageContent { .. }
            | Event::ReasoningMessageContent { .. }
            | Event::ToolCallStart { .. }
    )
}
