//! Recorder of runs: their times, the selection of their backends, the manifests of their prompts and the attempts at their
//! calls.
//!
//! A [`RunObserver`] exists while this process has a run that is stored. It receives data at three points of the run: as
//! the turn's observer of inputs and request, as an observer of the events before they are filtered for the audience,
//! and as [`ObservedModels`] around the model. Nothing is recorded per token.

mod attempts;
mod events;
mod inputs;
mod manifest;
mod models;
mod timer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent_core::budget::{EstimateCounter, TokenCounter};
use agent_core::clock::Clock;
use agent_core::context::TurnInput;
use agent_core::event::Event;
use agent_core::ids::{CompanyId, RunId, UserId};
use agent_core::prompt::AssemblyInput;
use agent_core::select::{BackendChoice, Selection};
use agent_core::tool::ExecutionContext;
use agent_core::turn::{PrefixReuse, PreparedTurn, TurnObserver};

use crate::conversation::{RunPrompt, RunRecord, RunSelection, RunTiming, VISITOR_OWNER_PREFIX};
use crate::fallback::AttemptReport;
use crate::run_table::{OpenRun, RunTable, table_key};

pub use inputs::{
    MAX_RUN_INPUT_BYTES, RecordedContext, RecordedFragment, RecordedOrigin, RecordedProviderItem,
    RecordedRequest, RecordedResult, RecordedToolChoice, RoundRecord, RunInputs,
};
pub use models::ObservedModels;

use inputs::CapturedInputs;
use manifest::ToolTokens;
use timer::TimerState;

/// Observers of the runs of this process.
pub struct RunObservers {
    clock: Arc<dyn Clock>,
    active: Arc<RunTable<RunObserver>>,
    tool_tokens: Arc<ToolTokens>,
    keeps_inputs: bool,
}

impl std::fmt::Debug for RunObservers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunObservers").field("keeps_inputs", &self.keeps_inputs).finish_non_exhaustive()
    }
}

impl RunObservers {
    /// Creates the observers of a process, which keep the inputs of runs if `keeps_inputs` is true.
    pub fn new(clock: Arc<dyn Clock>, keeps_inputs: bool) -> Self {
        Self { clock, active: Arc::default(), tool_tokens: Arc::default(), keeps_inputs }
    }

    /// Returns monotonic time.
    pub fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    /// Begins the record of a run that was accepted at `accepted`.
    pub fn open(&self, company: &CompanyId, user: &UserId, run: &RunId, accepted: Instant) -> OpenObserver {
        let observer = Arc::new(RunObserver {
            clock: self.clock.clone(),
            accepted,
            tool_tokens: self.tool_tokens.clone(),
            keeps_inputs: self.keeps_inputs,
            is_visitors: user.starts_with(VISITOR_OWNER_PREFIX),
            state: Mutex::default(),
        });
        OpenObserver(self.active.open((company.clone(), user.clone(), run.clone()), observer))
    }

    /// Returns the record, so far, of a run that this process has.
    pub fn record_of(&self, company: &CompanyId, user: &UserId, run: &RunId) -> Option<RunRecord> {
        self.active.find(&(company.clone(), user.clone(), run.clone())).map(|observer| observer.record())
    }

    /// Returns the observer of the run for which a model is called.
    fn find_for(&self, context: &ExecutionContext) -> Option<Arc<RunObserver>> {
        self.active.find(&table_key(context))
    }
}

/// Locks a mutex. No code panics while holding one of this module, so the data behind a poisoned one is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard that keeps a run's observer in the table, by the run's id, until it is dropped.
pub struct OpenObserver(OpenRun<RunObserver>);

impl std::fmt::Debug for OpenObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObserver").finish_non_exhaustive()
    }
}

impl std::ops::Deref for OpenObserver {
    type Target = Arc<RunObserver>;

    fn deref(&self) -> &Arc<RunObserver> {
        &self.0
    }
}

/// Recorder of one run.
pub struct RunObserver {
    clock: Arc<dyn Clock>,
    accepted: Instant,
    tool_tokens: Arc<ToolTokens>,
    keeps_inputs: bool,
    /// True for the run of a visitor, whose events have no results of tool calls.
    is_visitors: bool,
    state: Mutex<ObserverState>,
}

impl std::fmt::Debug for RunObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunObserver")
            .field("keeps_inputs", &self.keeps_inputs)
            .field("is_visitors", &self.is_visitors)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct ObserverState {
    timing: RunTiming,
    timer: TimerState,
    selection: Option<RunSelection>,
    prompt: Option<Box<RunPrompt>>,
    /// Counter of the prompt's tokens.
    counter: Option<Arc<dyn TokenCounter>>,
    /// Requests to the model since its last answer.
    attempts: u32,
    /// Attempts that the run's events and the error of its start have reported.
    attempt_reports: Vec<AttemptReport>,
    /// The model's answers, as many as the run has rounds.
    rounds: Vec<RoundRecord>,
    /// The turn's inputs, if they are kept.
    inputs: Option<Arc<CapturedInputs>>,
    /// Results of tool calls that the run's audience does not see.
    results: Vec<RecordedResult>,
    /// Events with such results that were not taken yet.
    hidden_results: Vec<Event>,
}

impl RunObserver {
    /// Records that the preparation of the prompt begins.
    pub fn begin_preparation(&self) {
        self.state().timing.queued_ms = Some(self.elapsed_ms());
    }

    /// Takes the results of tool calls that the run's audience does not see, since the last time.
    pub fn take_hidden_results(&self) -> Vec<Event> {
        if self.is_visitors { std::mem::take(&mut self.state().hidden_results) } else { Vec::new() }
    }

    /// Returns the record as it is now.
    pub fn record(&self) -> RunRecord {
        let state = self.state();
        let mut timing = state.timing.clone();
        for (timed, answer) in timing.rounds.iter_mut().zip(&state.rounds) {
            timed.attempts = Some(answer.attempts);
            timed.output_tokens = answer.usage.as_ref().and_then(|usage| usage.output_tokens);
        }
        RunRecord {
            timing: Some(timing),
            selection: state.selection.clone(),
            prompt: state.prompt.clone(),
            attempts: state.attempt_reports.clone(),
        }
    }

    /// Returns the run's inputs as JSON; `None` if they are not kept, or have more than [`MAX_RUN_INPUT_BYTES`].
    pub fn inputs(&self) -> Option<Vec<u8>> {
        let (captured, rounds, results) = {
            let state = self.state();
            (state.inputs.clone()?, state.rounds.clone(), state.results.clone())
        };
        let inputs = serde_json::to_vec(&captured.record(rounds, results)).ok()?;
        (inputs.len() <= MAX_RUN_INPUT_BYTES).then_some(inputs)
    }

    fn state(&self) -> MutexGuard<'_, ObserverState> {
        lock(&self.state)
    }

    /// Returns the time since the run was accepted, in milliseconds.
    fn elapsed_ms(&self) -> u64 {
        let elapsed = self.clock.monotonic().saturating_duration_since(self.accepted);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

impl TurnObserver for RunObserver {
    fn on_request(&self, prepared: &PreparedTurn, reuse: Option<&PrefixReuse>) {
        let prepared_ms = self.elapsed_ms();
        let counter = self.state().counter.clone().unwrap_or_else(|| Arc::new(EstimateCounter));
        let prompt = manifest::run_prompt(prepared, reuse, &*counter, &self.tool_tokens);
        let mut state = self.state();
        state.timing.prepared_ms = Some(prepared_ms);
        state.timer.request_at(prepared_ms);
        state.selection = run_selection(&prepared.selection);
        state.prompt = Some(Box::new(prompt));
    }

    fn on_inputs(&self, input: &TurnInput, assembly: &AssemblyInput<'_>) {
        let captured = self.keeps_inputs.then(|| Arc::new(CapturedInputs::new(input, assembly)));
        let mut state = self.state();
        state.counter = Some(assembly.counter.clone());
        state.inputs = captured;
    }
}

/// Returns the backend with the rule that has selected it.
fn run_selection(selection: &Selection) -> Option<RunSelection> {
    let choice = selection.choice.as_ref()?;
    let container = match choice {
        BackendChoice::Custom(container) => Some(container.name.clone()),
        _ => None,
    };
    let matched = selection.rules.iter().find(|outcome| outcome.matched && container.is_none());
    Some(RunSelection { backend: choice.kind(), rule: matched.map(|outcome| outcome.rule), container })
}

#[cfg(test)]
mod tests;
