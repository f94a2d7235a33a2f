//! Attempts at one round's call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::ReportedToolCalls;
use agent_core::payload::Payload;
use serde_json::json;

use super::circuits::{CircuitCall, CircuitError};
use super::class::is_own_refusal;
use super::entries::{Entries, PreparedCall};
use super::target::{AnswerEvents, CallTarget};
use super::{AttemptReport, FailureClass, NextStep, RoundHistory, UpstreamError, plan};

/// Code of an entry whose circuit is open.
pub(super) const CIRCUIT_OPEN: &str = "CIRCUIT_OPEN";
/// Code of an entry whose address has had too many repeated calls with its key.
const REPEATS_SPENT: &str = "REPEATS_SPENT";

/// State of one round: the entries that may still be called, and the attempts so far.
pub(super) struct RoundCalls<T: CallTarget> {
    entries: Arc<Entries<T>>,
    prepared: PreparedCall<T>,
    round: u32,
    /// The entry that answered last, which this round sets.
    answered: Arc<AtomicUsize>,
    is_trusted: bool,
    /// Entries that this round has not tried.
    later: VecDeque<usize>,
    /// Entries that get notes in place of content, which are tried after all others.
    with_notes: VecDeque<usize>,
    current: Option<EntryCall>,
    next: NextStep,
    attempts: u32,
    reports: Vec<AttemptReport>,
    notices: Vec<T::Event>,
    /// The latest failure of the first entry that was called.
    failure: Option<(usize, AgentError)>,
    /// The shortest delay that a provider requested.
    retry_after: Option<Duration>,
    /// Prompt limit that an entry stated when it refused the prompt, in tokens.
    refused_tokens: Option<usize>,
    /// Addresses that this round has called.
    called: Vec<Arc<str>>,
    /// Receiver of the tool calls that the target makes by itself, if it may.
    tool_calls: Option<Box<dyn ReportedToolCalls>>,
}

/// The calls of one entry in a round.
struct EntryCall {
    entry: usize,
    payload: Payload,
    circuit: Option<CircuitCall>,
    attempts: u32,
    waited: Duration,
    last_wait: Duration,
    /// True if the latest call has failed by a rate limit.
    is_limited: bool,
}

/// A round, and the events of a call that has a response, or the error of the round.
pub(super) type AdvancedRound<T> = (Box<RoundCalls<T>>, Result<AnswerEvents<T>, AgentError>);

impl<T: CallTarget> RoundCalls<T> {
    pub(super) fn new(
        prepared: PreparedCall<T>,
        (round, answered): (u32, Arc<AtomicUsize>),
        is_trusted: bool,
    ) -> Self {
        let entries = prepared.entries.clone();
        let first = answered.load(Ordering::Relaxed);
        let later =
            if prepared.request.is_some() { entries.order(first).collect() } else { [prepared.entry].into() };
        Self {
            entries,
            prepared,
            round,
            answered,
            is_trusted,
            later,
            with_notes: VecDeque::new(),
            current: None,
            next: NextStep::NextEntry,
            attempts: 0,
            reports: Vec::new(),
            notices: Vec::new(),
            failure: None,
            retry_after: None,
            refused_tokens: None,
            called: Vec::new(),
            tool_calls: None,
        }
    }

    /// Sets the receiver of the tool calls that the target makes by itself. After one, nothing is repeated.
    pub(super) fn with_tool_calls(self, tool_calls: Option<Box<dyn ReportedToolCalls>>) -> Self {
        Self { tool_calls, ..self }
    }

    fn has_called_tools(&mut self) -> bool {
        let calls = self.tool_calls.as_mut();
        calls.is_some_and(|calls| !calls.take().is_empty() || calls.omitted_count() > 0)
    }

    /// Makes calls until one has a response or every entry has failed. Dropping the future ends the round: no further call is
    /// made.
    pub(super) async fn advance(mut self: Box<Self>) -> AdvancedRound<T> {
        let entries = self.entries.clone();
        loop {
            let is_selected = match std::mem::replace(&mut self.next, NextStep::NextEntry) {
                NextStep::Repeat { wait } => {
                    entries.clock.sleep(wait).await;
                    if !self.repeat(wait) {
                        // The entry's circuit has opened meanwhile.
                        continue;
                    }
                    true
                }
                NextStep::NextEntry => self.enter_next(),
                NextStep::GiveUp => false,
            };
            let selected = self.current.as_ref().filter(|_| is_selected);
            let call = selected.and_then(|call| {
                let target = entries.entries[call.entry].target.as_ref().ok()?;
                Some((target, call.payload.clone()))
            });
            let Some((target, payload)) = call else {
                let error = self.final_error();
                return (self, Err(error));
            };
            self.attempts += 1;
            match target.start(payload, self.attempts).await {
                Ok(events) => return (self, Ok(events)),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Begins another call of the current entry.
    fn repeat(&mut self, wait: Duration) -> bool {
        let now = self.entries.clock.monotonic();
        let is_last = self.is_last();
        let Some(call) = &mut self.current else { return false };
        let route = &self.entries.entries[call.entry].route;
        let is_last_resort = is_last && call.is_limited;
        let circuit = self.entries.circuits.begin(*route.circuit(), now, (true, is_last_resort));
        let Ok(circuit) = circuit else { return false };
        call.circuit = Some(circuit);
        call.attempts += 1;
        call.waited += wait;
        call.last_wait = wait;
        true
    }

    /// Begins a call of the next entry that can take it. If the circuits of all are open, the first is called.
    fn enter_next(&mut self) -> bool {
        self.current = None;
        let mut last_resort = None;
        while let Some((entry, is_postponed)) = self.next_entry() {
            let payload = match self.prepare(entry) {
                Ok(payload) if !is_postponed && self.prepared.has_more_content_than(&payload) => {
                    self.with_notes.push_back(entry);
                    continue;
                }
                Ok(payload) => payload,
                Err(error) => {
                    self.skip(entry, error.kind().code());
                    continue;
                }
            };
            match self.begin(entry, false) {
                Ok(circuit) => {
                    self.enter(entry, payload, circuit);
                    return true;
                }
                Err(refusal) => {
                    let reason = match refusal {
                        CircuitError::Open => CIRCUIT_OPEN,
                        CircuitError::BudgetSpent => REPEATS_SPENT,
                    };
                    last_resort.get_or_insert((entry, payload));
                    if self.entries.entries.len() > 1 {
                        self.skip(entry, reason);
                    }
                }
            }
        }
        match last_resort.filter(|_| self.attempts == 0) {
            Some((entry, payload)) => match self.begin(entry, true) {
                Ok(circuit) => {
                    self.enter(entry, payload, circuit);
                    true
                }
                Err(_) => false,
            },
            None => false,
        }
    }

    /// Returns true if no entry is left after the current one.
    fn is_last(&self) -> bool {
        self.later.is_empty() && self.with_notes.is_empty()
    }

    /// Takes the next entry that was not tried. True if it was postponed because it gets notes.
    fn next_entry(&mut self) -> Option<(usize, bool)> {
        match self.later.pop_front() {
            Some(entry) => Some((entry, false)),
            None => self.with_notes.pop_front().map(|entry| (entry, true)),
        }
    }

    fn prepare(&self, entry: usize) -> Result<Payload, AgentError> {
        let limit = self.entries.entries[entry].max_prompt_tokens();
        if self.refused_tokens.is_some_and(|refused| limit <= refused) {
            return Err(AgentError::new(AgentErrorKind::ContextExceeded, "the window is not larger"));
        }
        self.prepared.payload_for(entry)
    }

    fn begin(&self, entry: usize, is_last_resort: bool) -> Result<CircuitCall, CircuitError> {
        let now = self.entries.clock.monotonic();
        let route = &self.entries.entries[entry].route;
        let is_repeat = self.called.contains(route.address());
        let kind = (is_repeat, is_last_resort);
        self.entries.circuits.begin(*route.circuit(), now, kind)
    }

    fn enter(&mut self, entry: usize, payload: Payload, circuit: CircuitCall) {
        self.called.push(self.entries.entries[entry].route.address().clone());
        self.current = Some(EntryCall {
            entry,
            payload,
            circuit: Some(circuit),
            attempts: 1,
            waited: Duration::ZERO,
            last_wait: Duration::ZERO,
            is_limited: false,
        });
    }

    fn skip(&mut self, entry: usize, reason: &str) {
        let report = AttemptReport { reason: Some(reason.to_owned()), ..self.report(entry) };
        self.push(report);
    }

    fn report(&self, entry: usize) -> AttemptReport {
        let model = &self.entries.entries[entry];
        AttemptReport {
            round: self.round,
            entry,
            provider: model.provider.clone(),
            model: model.name.clone(),
            ..AttemptReport::default()
        }
    }

    fn attempt_report(&self, call: &EntryCall) -> AttemptReport {
        AttemptReport {
            attempt: Some(self.attempts),
            waited_ms: u64::try_from(call.last_wait.as_millis()).unwrap_or(u64::MAX),
            request_sha256: Some(call.payload.sha256()),
            ..self.report(call.entry)
        }
    }

    fn push(&mut self, report: AttemptReport) {
        self.notices.extend(T::attempt_event(&report));
        self.reports.push(report);
    }

    /// Records the failure of the current call, whose answer was held back, and decides on the next call.
    pub(super) fn fail(&mut self, error: AgentError) {
        let Some(mut call) = self.current.take() else { return };
        let (class, now) = (FailureClass::of(&error), self.entries.clock.monotonic());
        let report = AttemptReport {
            reason: Some(error.kind().code().to_owned()),
            status: UpstreamError::find(&error).and_then(UpstreamError::status),
            ..self.attempt_report(&call)
        };
        self.push(report);
        let is_last = self.is_last();
        let entry = &self.entries.entries[call.entry];
        let may_repeat = || self.entries.circuits.allows_repeat(entry.route.circuit(), now);
        let has_repeats = || self.entries.circuits.has_repeats(entry.route.circuit(), now);
        call.is_limited = class == FailureClass::RateLimit;
        // A rate limit opens the circuit for the time that this round may wait. A round without another entry waits also if the
        // call of another round has opened it: there is nothing else to try.
        let may_wait = if is_last { has_repeats() } else { may_repeat() };
        let may_wait = may_wait && call.is_limited;
        // A call that was not made says nothing about the model.
        if let Some(circuit) = call.circuit.take().filter(|_| !is_own_refusal(&error)) {
            circuit.fail(class, error.retry_after(), now);
        }
        let may_repeat = may_wait || may_repeat();
        if class.is_of_request() {
            // The call of another model at the same address repeats nothing: the provider works.
            self.called.pop();
        }
        if class == FailureClass::Size {
            self.refused_tokens = self.refused_tokens.max(Some(entry.max_prompt_tokens()));
        }
        let history = RoundHistory {
            policy: self.entries.policy,
            attempts: call.attempts,
            waited: call.waited,
            may_repeat,
            jitter: random_fraction(),
        };
        self.next = match self.has_called_tools() {
            true => NextStep::GiveUp,
            false => plan(class, error.retry_after(), &history),
        };
        if error.kind() == AgentErrorKind::RateLimited {
            self.retry_after = self.retry_after.into_iter().chain(error.retry_after()).min();
        }
        // A spent budget ends the round whatever the first entry's failure was, and is not the provider's fault.
        let is_budget = error.kind() == AgentErrorKind::BudgetExceeded;
        if is_budget || self.failure.as_ref().is_none_or(|(entry, _)| *entry == call.entry) {
            self.failure = Some((call.entry, error));
        }
        self.current = Some(call);
    }

    /// Records that the answer of the current call is released.
    pub(super) fn succeed(&mut self) {
        let Some(mut call) = self.current.take() else { return };
        if let Some(circuit) = call.circuit.take() {
            circuit.succeed(self.entries.clock.monotonic());
        }
        self.answered.store(call.entry, Ordering::Relaxed);
        if !self.reports.is_empty() {
            self.push(self.attempt_report(&call));
        }
    }

    /// Returns the failure with which an event ends an answer that is held back; `None` if it is an answer. One that has text
    /// is a failure only while another entry may answer.
    pub(super) fn failure(&self, event: &T::Event, has_output: bool) -> Option<AgentError> {
        let failure = T::failure(event, (self.round, has_output), &self.entries.policy);
        failure.filter(|_| !has_output || !self.is_last())
    }

    /// Returns the reports that the run has not been given.
    pub(super) fn take_notices(&mut self) -> Vec<T::Event> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the error of a round in which every call has failed, which is the error of the first entry.
    fn final_error(&mut self) -> AgentError {
        let Some((_, error)) = self.failure.take() else {
            return AgentError::new(
                AgentErrorKind::Failed,
                "none of the agent's models can answer this turn",
            );
        };
        let error = match (error.kind(), self.retry_after) {
            (AgentErrorKind::RateLimited, Some(delay)) => error.with_retry_after(delay),
            _ => error,
        };
        match self.is_trusted && self.reports.len() > 1 {
            true => error.with_member("attempts", json!(self.reports)),
            false => error,
        }
    }
}

/// Returns a random number from 0 to 1.
fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        // A wait without jitter is better than none.
        Err(_) => 1.0,
    }
}
