//! Models whose calls are booked.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use agent_core::backend::ModelSource;
use agent_core::error::{AgentError, AgentErrorKind};
use agent_core::model::{Model, ModelEvent, ModelInfo, ModelStream};
use agent_core::payload::Payload;
use agent_core::tool::ExecutionContext;
use async_trait::async_trait;
use futures_util::{Stream, StreamExt, stream};

use super::admission::StartingRun;
use super::budget::CallDemand;
use super::call::{BYTES_PER_TOKEN, MeteredCall, count};
use super::prices::{CallBilling, OperatorAddresses, PricedSettings};
use super::{ReservationGuard, RunScope, UsageOperation, UsageRecorder};
use crate::catalog::ModelPrice;
use crate::forward_model::forward_model;
use crate::model_notice::ModelNotice;

/// A [`ModelSource`] whose models report the end of each call.
pub struct MeteredModels<S> {
    source: S,
    recorder: UsageRecorder,
    operation: UsageOperation,
    operator: Option<OperatorAddresses>,
}

impl<S> std::fmt::Debug for MeteredModels<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredModels").finish_non_exhaustive()
    }
}

impl<S> MeteredModels<S> {
    /// Wraps a source.
    pub fn new(source: S, recorder: UsageRecorder) -> Self {
        Self { source, recorder, operation: UsageOperation::Chat, operator: None }
    }

    /// Sets the addresses of the operator: the prices of a role do not hold there.
    #[must_use]
    pub fn with_operator_addresses(self, addresses: OperatorAddresses) -> Self {
        Self { operator: Some(addresses), ..self }
    }

    /// Sets the kind of work that the calls are booked as.
    #[must_use]
    pub fn for_operation(self, operation: UsageOperation) -> Self {
        Self { operation, ..self }
    }

    /// Returns the price that the settings set for the calls that their owner pays.
    pub(crate) fn own_price<C: PricedSettings>(&self, settings: &C) -> Option<ModelPrice> {
        settings.own_price(self.operator.as_ref())
    }

    /// Returns the names and the price of a model's calls, if they are not those of the catalogue.
    fn billing<C: PricedSettings>(&self, settings: &C, model: &dyn Model) -> Option<CallBilling> {
        if let Some(entry) = settings.company_model() {
            let ModelInfo { provider, model, .. } = model.info();
            let price = entry.price.or_else(|| self.recorder.prices().price(&provider, &model).cloned());
            return Some(CallBilling { provider: entry.provider, provider_type: provider, price });
        }
        let price = Some(self.own_price(settings)?);
        let ModelInfo { provider, .. } = model.info();
        Some(CallBilling { provider: provider.clone(), provider_type: provider, price })
    }

    /// Returns the model for one run. Its calls have the numbers that another layer counts, for several models together. A model
    /// of a company's provider is booked under the company's names, and at its price.
    ///
    /// # Errors
    /// Errors of the source.
    pub(crate) fn model_with_numbers<C: PricedSettings>(
        &self,
        settings: &C,
        context: &ExecutionContext,
        numbers: &Arc<CallNumbers>,
    ) -> Result<Arc<dyn Model>, AgentError>
    where
        S: ModelSource<C>,
    {
        self.metered(settings, context, numbers.clone(), None)
    }

    /// Returns the model for one run, whose calls are booked.
    fn metered<C: PricedSettings>(
        &self,
        settings: &C,
        context: &ExecutionContext,
        numbers: Arc<CallNumbers>,
        is_round_over: Option<AtomicBool>,
    ) -> Result<Arc<dyn Model>, AgentError>
    where
        S: ModelSource<C>,
    {
        let model = self.source.model_for_run(settings, context)?;
        // A summary does not wait until the run's beginning is stored: later turns of the thread share it, even if the run fails
        // to begin.
        let is_answer = self.operation == UsageOperation::Chat;
        let starting = if is_answer { self.recorder.starting_run(context) } else { None };
        Ok(Arc::new(MeteredModel {
            billing: self.billing(settings, &*model),
            model,
            scope: context.into(),
            starting,
            recorder: self.recorder.clone(),
            operation: self.operation,
            numbers,
            is_round_over,
        }))
    }
}

impl<C: PricedSettings, S: ModelSource<C>> ModelSource<C> for MeteredModels<S> {
    fn model(&self, settings: &C) -> Result<Arc<dyn Model>, AgentError> {
        self.source.model(settings)
    }

    fn model_for_run(&self, settings: &C, context: &ExecutionContext) -> Result<Arc<dyn Model>, AgentError> {
        self.metered(settings, context, Arc::default(), Some(AtomicBool::new(true)))
    }
}

/// Numbers of a run's calls.
#[derive(Debug, Default)]
pub struct CallNumbers {
    round: AtomicU32,
    attempt: AtomicU32,
}

impl CallNumbers {
    /// Begins the next round, whose first call is attempt 1.
    pub fn begin_round(&self) {
        self.round.fetch_add(1, Ordering::Relaxed);
        self.attempt.store(0, Ordering::Relaxed);
    }

    /// Returns the number of the round, from 1.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::Relaxed)
    }
}

/// A model in one run.
struct MeteredModel {
    model: Arc<dyn Model>,
    billing: Option<CallBilling>,
    scope: RunScope,
    /// The run that the model answers, if it may not be stored when the model is called.
    starting: Option<Arc<StartingRun>>,
    recorder: UsageRecorder,
    operation: UsageOperation,
    numbers: Arc<CallNumbers>,
    /// False after a call that has not started, whose repetition is an attempt at the same round; `None` if another layer
    /// counts the rounds.
    is_round_over: Option<AtomicBool>,
}

impl MeteredModel {
    fn meter_call(&self, payload: &Payload) -> MeteredCall {
        let info = self.model.info();
        let prompt_tokens = prompt_tokens(payload);
        let provider = self.billing.as_ref().map_or(&info.provider, |billing| &billing.provider);
        let names = (provider.as_str(), info.model.as_str());
        let mut call = MeteredCall::new(self.recorder.clone(), self.scope.clone(), names, prompt_tokens);
        call.billing.clone_from(&self.billing);
        if self.is_round_over.as_ref().is_some_and(|is_over| is_over.swap(false, Ordering::Relaxed)) {
            self.numbers.begin_round();
        }
        call.operation = self.operation;
        call.round = self.numbers.round();
        call.attempt = self.numbers.attempt.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        call
    }
}

#[async_trait]
impl Model for MeteredModel {
    forward_model!();

    async fn start(&self, payload: Payload) -> Result<ModelStream, AgentError> {
        let reserved = self.reserve(payload).await?;
        let ReservedPayload { payload, reservation, notice } = reserved;
        if let Some(run) = &self.starting {
            run.begin_call().await?;
        }
        let mut call = self.meter_call(&payload);
        call.reservation = reservation;
        match self.model.start(payload).await {
            Ok(events) => {
                if let Some(is_over) = &self.is_round_over {
                    is_over.store(true, Ordering::Relaxed);
                }
                let events = MeteredStream { events, call };
                Ok(match notice {
                    Some(notice) => stream::iter([Ok(notice.into())]).chain(events).boxed(),
                    None => events.boxed(),
                })
            }
            Err(error) => {
                call.refuse(&error);
                Err(error)
            }
        }
    }
}

/// Body to send, with its reservation.
struct ReservedPayload {
    payload: Payload,
    reservation: Option<ReservationGuard>,
    /// Present if the limit on the answer was lowered.
    notice: Option<ModelNotice>,
}

impl MeteredModel {
    /// Returns the names and the price for reserving a call.
    fn demand(&self, payload: &Payload) -> CallDemand {
        let info = self.model.info();
        let (provider, price) = match &self.billing {
            Some(billing) => (billing.provider.clone(), billing.price.clone()),
            None => {
                let price = self.recorder.prices().price(&info.provider, &info.model).cloned();
                (info.provider, price)
            }
        };
        CallDemand {
            prompt_tokens: count(prompt_tokens(payload)),
            output_tokens: count(info.max_output_tokens),
            price,
            provider,
            model: info.model,
        }
    }

    /// Reserves the most that a call can use in the budgets that apply to it. Lowers the limit on the answer if no more is left.
    async fn reserve(&self, payload: Payload) -> Result<ReservedPayload, AgentError> {
        let unlimited = |payload| Ok(ReservedPayload { payload, reservation: None, notice: None });
        let Some(budgets) = self.recorder.budgets() else { return unlimited(payload) };
        let demand = self.demand(&payload);
        let output_tokens = demand.output_tokens;
        let can_shrink = || payload.with_output_limit(output_tokens).is_some();
        let Some((reservation, output)) = budgets.reserve_call(&self.scope, demand, can_shrink).await? else {
            return unlimited(payload);
        };
        if output >= output_tokens {
            return Ok(ReservedPayload { payload, reservation: Some(reservation), notice: None });
        }
        let limited = payload.with_output_limit(output).ok_or_else(|| {
            let message = "the rest of the budget is too small for an answer";
            AgentError::new(AgentErrorKind::BudgetExceeded, message)
        })?;
        let request_sha256 = limited.sha256();
        let notice = ModelNotice::OutputLimited { max_output_tokens: output, request_sha256 };
        Ok(ReservedPayload { payload: limited, reservation: Some(reservation), notice: Some(notice) })
    }
}

fn prompt_tokens(payload: &Payload) -> usize {
    payload.prompt_tokens().unwrap_or(payload.bytes().len() / BYTES_PER_TOKEN)
}

/// Events of a call. Dropping the stream books the call.
struct MeteredStream {
    events: ModelStream,
    call: MeteredCall,
}

impl Stream for MeteredStream {
    type Item = Result<ModelEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut event = ready!(self.events.poll_next_unpin(cx));
        let call = &mut self.call;
        match &mut event {
            Some(Ok(ModelEvent::Text(text) | ModelEvent::Reasoning(text))) => call.add_answer(text),
            Some(Ok(ModelEvent::ToolCallArgs { delta, .. })) => call.add_answer(delta),
            Some(Ok(ModelEvent::ToolCallStart { name, .. })) => call.add_answer(name),
            Some(Ok(ModelEvent::Usage(usage))) => {
                call.name_model(usage);
                call.set_usage(vec![usage.clone()]);
            }
            Some(Ok(ModelEvent::Finish(_))) => call.set_outcome("ok"),
            Some(Err(error)) => call.set_outcome(error.kind().code()),
            Some(Ok(_)) => {}
            None if call.outcome() == "cancelled" => call.set_outcome("STREAM_TRUNCATED"),
            None => {}
        }
        Poll::Ready(event)
    }
}
