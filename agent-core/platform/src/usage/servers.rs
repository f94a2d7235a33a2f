//! Agent servers whose calls are booked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::backend::{Backend, PreparedRequest};
use agent_core::error::AgentError;
use agent_core::event::{RunEnd, SourceEvent};
use agent_core::role::AgentServer;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};

use super::backend::reserve_run_call;
use super::call::{MeteredCall, finished_outcome};
use super::prices::{OperatorAddresses, PricedSettings};
use super::{ModelPrice, UsageRecorder};

/// Agent servers, each call of which is booked by itself: a run may need several.
pub struct MeteredServers {
    backend: Arc<dyn Backend<Settings = AgentServer>>,
    recorder: UsageRecorder,
    operator: Option<OperatorAddresses>,
}

impl std::fmt::Debug for MeteredServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeteredServers").finish_non_exhaustive()
    }
}

impl MeteredServers {
    /// Wraps the backend of agent servers.
    pub fn new(backend: impl Backend<Settings = AgentServer>, recorder: UsageRecorder) -> Self {
        Self { backend: Arc::new(backend), recorder, operator: None }
    }

    /// Sets the addresses of the operator: the prices of a role do not hold there.
    #[must_use]
    pub fn with_operator_addresses(self, addresses: OperatorAddresses) -> Self {
        Self { operator: Some(addresses), ..self }
    }

    /// Returns the price that the settings set for the calls that their owner pays.
    pub(crate) fn own_price(&self, settings: &AgentServer) -> Option<ModelPrice> {
        settings.own_price(self.operator.as_ref())
    }

    /// Returns the backend.
    pub(crate) fn backend(&self) -> &dyn Backend<Settings = AgentServer> {
        &*self.backend
    }

    /// Starts a call, which is booked as this attempt at the run.
    pub(crate) async fn start(
        &self,
        settings: &AgentServer,
        prepared: PreparedRequest,
        attempt: u32,
    ) -> Result<BoxStream<'static, Result<SourceEvent, AgentError>>, AgentError> {
        let context = &prepared.turn.context;
        let tokens = prepared.turn.prompt.tokens().total();
        let price = self.own_price(settings);
        let mut call =
            reserve_run_call(&self.recorder, context, server_names(settings), tokens, price).await?;
        call.attempt = attempt;
        match self.backend.start(settings, prepared).await {
            Ok(events) => Ok(MeteredRun { events: events.into_source(), call }.boxed()),
            Err(error) => {
                call.refuse(&error);
                Err(error)
            }
        }
    }
}

/// Returns the provider and the model of an agent server, as its calls are booked.
pub(crate) fn server_names(settings: &AgentServer) -> (&str, &str) {
    let provider = settings.agent_server_provider.as_deref().unwrap_or("runtime");
    (provider, settings.agent_server_model.as_deref().unwrap_or_default())
}

/// Events of a call. Dropping the stream books the call.
struct MeteredRun {
    events: BoxStream<'static, Result<SourceEvent, AgentError>>,
    call: MeteredCall,
}

impl Stream for MeteredRun {
    type Item = Result<SourceEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = ready!(self.events.poll_next_unpin(cx));
        let call = &mut self.call;
        match &event {
            Some(Ok(SourceEvent::Event(event))) => call.add_event(event),
            Some(Ok(SourceEvent::End(RunEnd::Finished { outcome, usage, .. }))) => {
                call.set_outcome(finished_outcome(outcome.as_ref()));
                call.set_usage(usage.clone());
            }
            Some(Ok(SourceEvent::End(RunEnd::Failed { code, usage, .. }))) => {
                call.set_outcome(code);
                call.set_usage(usage.clone());
            }
            Some(Err(error)) => {
                call.set_outcome(error.kind().code());
                call.set_usage(error.usage().to_vec());
            }
            None if call.outcome() == "cancelled" => call.set_outcome("STREAM_TRUNCATED"),
            None => {}
        }
        Poll::Ready(event)
    }
}
