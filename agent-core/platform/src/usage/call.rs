//! Calls in progress, which are booked when they end or are dropped.

use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::event::{Event, RunOutcome};
use agent_core::message::Usage;
use jiff::Timestamp;

use super::counts::token_counts;
use super::entry::clean;
use super::prices::CallBilling;
use super::{ReservationGuard, RunScope, TokenCounts, UsageEntry, UsageOperation, UsageRecorder};
use crate::catalog::without_date;

/// Maximum number of models in the usage of one call. Those of a run elsewhere beyond it are booked as the model `other`.
const MAX_MODELS: usize = 16;
/// Average number of bytes of a token.
pub(super) const BYTES_PER_TOKEN: usize = 4;

/// Returns a number of tokens as the ledger has it.
pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns the outcome of a run that has finished.
pub(super) fn finished_outcome(outcome: Option<&RunOutcome>) -> &'static str {
    match outcome {
        Some(RunOutcome::Cancelled) => "cancelled",
        _ => "ok",
    }
}

/// Returns the ids of all entries that a call with a reservation can have: the id of the reservation, and others that begin
/// with it.
pub(super) fn entry_ids(reservation: &str) -> impl Iterator<Item = String> {
    (0..MAX_MODELS).map(move |index| match index {
        0 => reservation.to_owned(),
        index => format!("{reservation}.{index}"),
    })
}

/// A call in progress. Dropping it books it.
pub(super) struct MeteredCall {
    recorder: UsageRecorder,
    scope: RunScope,
    pub(super) round: u32,
    pub(super) attempt: u32,
    pub(super) operation: UsageOperation,
    provider: String,
    model: String,
    prompt_tokens: usize,
    answer_bytes: usize,
    usage: Vec<Usage>,
    outcome: Option<String>,
    /// True if the call was refused before the model has read the prompt, so that it costs nothing.
    is_refused: bool,
    /// Reservation for the call, if a limit applies to it.
    pub(super) reservation: Option<ReservationGuard>,
    /// Present for a model of a company's provider, and where the role sets the price.
    pub(super) billing: Option<CallBilling>,
}

impl MeteredCall {
    /// Begins a call of a model.
    pub(super) fn new(
        recorder: UsageRecorder,
        scope: RunScope,
        (provider, model): (&str, &str),
        prompt_tokens: usize,
    ) -> Self {
        Self {
            recorder,
            scope,
            round: 1,
            attempt: 1,
            operation: UsageOperation::Chat,
            provider: clean(provider),
            model: clean(model),
            prompt_tokens,
            answer_bytes: 0,
            usage: Vec::new(),
            outcome: None,
            is_refused: false,
            reservation: None,
            billing: None,
        }
    }

    /// Counts text of the answer.
    pub(super) fn add_answer(&mut self, text: &str) {
        self.answer_bytes = self.answer_bytes.saturating_add(text.len());
    }

    /// Counts the text of the answer in an event of a run.
    pub(super) fn add_event(&mut self, event: &Event) {
        if let Event::TextMessageContent { delta, .. }
        | Event::ReasoningMessageContent { delta, .. }
        | Event::ToolCallArgs { delta, .. } = event
        {
            self.add_answer(delta);
        }
    }

    /// Sets the usage that the provider reports, in place of an earlier report.
    pub(super) fn set_usage(&mut self, usage: Vec<Usage>) {
        self.usage = usage;
    }

    /// Sets the requested model's name in a usage report without a model name. Without it, the report would be added to another
    /// model of the run.
    pub(super) fn name_model(&self, usage: &mut Usage) {
        if !self.model.is_empty() {
            usage.model.get_or_insert_with(|| self.model.clone());
        }
    }

    /// Sets the outcome: `ok`, `cancelled` or the code of an error.
    pub(super) fn set_outcome(&mut self, outcome: &str) {
        self.outcome = Some(clean(outcome));
    }

    /// Returns the outcome; `cancelled` if the call has not ended.
    pub(super) fn outcome(&self) -> &str {
        self.outcome.as_deref().unwrap_or("cancelled")
    }

    /// Sets the error that kept the call from starting. A provider that refused it has read no prompt; one that did
    /// not answer in time, or in the time of the run's budget, may have.
    pub(super) fn refuse(&mut self, error: &AgentError) {
        self.set_outcome(error.kind().code());
        self.is_refused = !matches!(error.kind(), AgentErrorKind::Timeout | AgentErrorKind::BudgetExceeded);
    }

    fn entry(&self, provider: &str, model: &str, tokens: TokenCounts, estimated: bool) -> UsageEntry {
        UsageEntry {
            id: agent_core::new_id(),
            scope: self.scope.clone(),
            round: self.round,
            attempt: self.attempt,
            operation: self.operation,
            provider: clean(provider),
            model: clean(model),
            tokens,
            tool_calls: 0,
            cost: None,
            price_as_of: None,
            estimated,
            outcome: self.outcome().to_owned(),
            // Set when it is booked.
            ended_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// Returns the entries of the call. Their ids begin with the id of its reservation.
    fn entries(&self) -> Vec<UsageEntry> {
        let mut entries = self.counted_entries();
        if let Some(reservation) = &self.reservation {
            for (entry, id) in entries.iter_mut().zip(entry_ids(reservation.id())) {
                entry.id = id;
            }
        }
        entries
    }

    /// Returns the entries of the call: one, or one for each model of a run elsewhere.
    fn counted_entries(&self) -> Vec<UsageEntry> {
        let mut expected = TokenCounts {
            input_tokens: count(self.prompt_tokens),
            output_tokens: count(self.answer_bytes.div_ceil(BYTES_PER_TOKEN)),
            ..TokenCounts::default()
        };
        if self.is_refused && self.usage.is_empty() {
            return vec![self.entry(&self.provider, &self.model, TokenCounts::default(), false)];
        }
        if self.usage.is_empty() {
            return vec![self.entry(&self.provider, &self.model, expected, true)];
        }
        let mut entries: Vec<UsageEntry> = Vec::new();
        for usage in &self.usage {
            let (tokens, estimated) = token_counts(Some(usage), std::mem::take(&mut expected));
            let (provider, model) = self.names(usage);
            match entries.get_mut(MAX_MODELS - 1) {
                Some(other) => {
                    (other.provider, other.model) = ("other".to_owned(), "other".to_owned());
                    other.tokens.add(&tokens);
                    other.estimated |= estimated;
                }
                None => entries.push(self.entry(provider, model, tokens, estimated)),
            }
        }
        entries
    }

    /// Returns the provider and the model of a report, or the requested ones if it names none. The requested model also
    /// stands for its dated versions, in any letter case, and for a model without a price.
    fn names<'a>(&'a self, usage: &'a Usage) -> (&'a str, &'a str) {
        if self.billing.as_ref().is_some_and(CallBilling::is_of_company) {
            return (&self.provider, &self.model);
        }
        let provider = usage.provider.as_deref().unwrap_or(&self.provider);
        let model = usage.model.as_deref().unwrap_or(&self.model);
        let has_price = |model: &str| self.recorder.prices().price(provider, model).is_some();
        let is_name = |name: &str| name.eq_ignore_ascii_case(&self.model);
        let is_asked_for = is_name(model) || without_date(model).is_some_and(is_name);
        match is_asked_for || (!has_price(model) && has_price(&self.model)) {
            true => (provider, &self.model),
            false => (provider, model),
        }
    }
}

impl Drop for MeteredCall {
    fn drop(&mut self) {
        self.recorder.book(self.entries(), self.reservation.take(), self.billing.as_ref());
    }
}
