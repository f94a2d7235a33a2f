//! The one tool loop: a model answers, its tool calls are run, the results go back, until it is done.
//!
//! The embedded backend, the agent runtime and the subscription flow all run it. One loop is one
//! stream polled by one task: the calls of a round run side by side inside it, no queue stands
//! between the model's deltas and the events, and dropping the stream stops whatever is under way.
//!
//! What a tool does wrong goes back to the model as the call's result: an unknown name, arguments
//! that are not JSON, a time-out, a panic. What the model does wrong ends the run: a cut-off answer,
//! or more rounds than the limit allows.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};

use crate::clock::Clock;
use crate::error::{Failure, FailureKind};
use crate::event::{Event, EventStream, Id, ResultMetadata, RunIds, RunResult, ToolRole};
use crate::message::{FinishReason, Message, Usage};
use crate::model::{Model, ModelRequest, ModelStream};
use crate::payload::Payload;
use crate::tool::ToolChoice;
use crate::tool::{ExecutionContext, ToolRegistry};

mod answer;
mod call;

use answer::Answer;
use call::{CallOutcome, ProgressBoard};

/// Bounds of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// How many times the model may answer in one run.
    pub max_rounds: usize,
    /// How many calls one answer may make; an answer with more fails the run.
    pub max_calls_per_round: usize,
    /// How long one call may take.
    pub tool_timeout: Duration,
    /// How many bytes of a call's result the model is given; the rest is cut off, and says so.
    pub max_result_bytes: usize,
    /// How many bytes of arguments a call may have.
    pub max_argument_bytes: usize,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self {
            max_rounds: 16,
            max_calls_per_round: 32,
            tool_timeout: Duration::from_secs(60),
            max_result_bytes: 256 * 1024,
            max_argument_bytes: 256 * 1024,
        }
    }
}

/// A model, the tools that it may call, and the bounds.
pub struct ToolLoop {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What it may call.
    pub tools: Arc<dyn ToolRegistry>,
    /// Measures the calls' time-outs.
    pub clock: Arc<dyn Clock>,
    /// The bounds.
    pub limits: LoopLimits,
}

impl ToolLoop {
    /// Sends `payload`, which [`Model::prepare`] has made of `request`, and gives the run's events.
    ///
    /// # Errors
    /// What the model refuses before its first delta; later failures are the run's `RUN_ERROR`.
    pub async fn start(
        self,
        payload: Payload,
        request: ModelRequest,
        context: ExecutionContext,
        run: RunIds,
    ) -> Result<EventStream, Failure> {
        let stream = self.model.start(payload).await?;
        let mut rounds = Rounds {
            deps: self,
            used_ids: call_ids(&request),
            request,
            context: Arc::new(context),
            round: 0,
            usage: None,
            // Seldom more than two wait, and there is one of these for every open stream.
            ready: VecDeque::with_capacity(2),
            state: State::Over,
        };
        rounds.begin_round(stream);
        Ok(EventStream::new(run, rounds))
    }
}

/// The calls that the model is told of before it answers.
fn call_ids(request: &ModelRequest) -> Vec<Id> {
    let history = request.prompt.messages().iter().map(|message| message.original());
    let calls = history.chain(&request.appended).flat_map(|message| &message.tool_calls);
    calls.map(|call| call.id.as_str().into()).collect()
}

/// The loop under way: a stream of events.
struct Rounds {
    deps: ToolLoop,
    request: ModelRequest,
    context: Arc<ExecutionContext>,
    round: usize,
    /// Boxed, as there is none in most runs' only round before its end.
    usage: Option<Box<Usage>>,
    /// The calls of the conversation so far, so that a provider that counts anew in each answer gets
    /// fresh identifiers.
    used_ids: Vec<Id>,
    ready: VecDeque<Event>,
    state: State,
}

enum State {
    /// The next round's request is on its way.
    Starting(BoxFuture<'static, Result<ModelStream, Failure>>),
    /// The model answers.
    Answering {
        stream: ModelStream,
        answer: Box<Answer>,
    },
    /// Tools are at work.
    Calling(Box<Calling>),
    /// The run fails as soon as what is ready has been told.
    Failed(Failure),
    Over,
}

struct Calling {
    text: String,
    /// Results by the calls' place; a place is empty until its call is done.
    results: Vec<(crate::message::ToolCall, Option<String>)>,
    pending: FuturesUnordered<BoxFuture<'static, CallOutcome>>,
    progress: Arc<ProgressBoard>,
}

impl Rounds {
    fn begin_round(&mut self, stream: ModelStream) {
        self.round += 1;
        self.ready.push_back(Event::StepStarted { step_name: self.step_name() });
        self.state = State::Answering { stream, answer: Answer::new().into() };
    }

    fn step_name(&self) -> Id {
        format!("round-{}", self.round).into()
    }

    /// The model has finished an answer: call its tools, or end the run.
    fn finish_answer(&mut self, answer: Answer, reason: FinishReason) {
        let cut_short = matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        let (text, mut calls) = answer.into_parts();
        if calls.is_empty() || cut_short {
            let reason = if reason == FinishReason::ToolCalls { FinishReason::Stop } else { reason };
            return self.finish_run(reason);
        }
        let progress = Arc::new(ProgressBoard::default());
        let pending = FuturesUnordered::new();
        for (place, call) in calls.iter_mut().enumerate() {
            pending.push(call::run(place, call, &self.deps, &self.request, &self.context, &progress));
        }
        let results = calls.into_iter().map(|call| (call, None)).collect();
        self.state = State::Calling(Box::new(Calling { text, results, pending, progress }));
    }

    fn finish_run(&mut self, reason: FinishReason) {
        self.ready.push_back(Event::StepFinished { step_name: self.step_name() });
        self.ready.push_back(Event::RunFinished {
            thread_id: Id::default(),
            run_id: Id::default(),
            result: Some(RunResult { finish_reason: reason }),
            outcome: None,
            usage: used(self.usage.take()),
        });
        self.state = State::Over;
    }

    /// All calls are done: give their results to the model.
    fn next_round(&mut self, calling: Calling) -> Result<(), Failure> {
        self.ready.push_back(Event::StepFinished { step_name: self.step_name() });
        if self.round >= self.deps.limits.max_rounds {
            let limit = self.deps.limits.max_rounds;
            return Err(Failure::new(
                FailureKind::ToolLoopLimit,
                format!("the model was still calling tools after {limit} rounds"),
            ));
        }
        let (calls, results): (Vec<_>, Vec<_>) = calling.results.into_iter().unzip();
        let answered: Vec<Message> = calls
            .iter()
            .zip(results)
            .map(|(call, result)| Message::tool_result(call.id.clone(), result.unwrap_or_default()))
            .collect();
        self.request.appended.push(Message::calls(calling.text, calls));
        self.request.appended.extend(answered);
        // Whoever forces a call wants it once; forced again, the model could never answer.
        if self.request.tool_choice != ToolChoice::None {
            self.request.tool_choice = ToolChoice::Auto;
        }
        let payload = self.deps.model.prepare(&self.request)?;
        let model = self.deps.model.clone();
        self.state = State::Starting(async move { model.start(payload).await }.boxed());
        Ok(())
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let State::Calling(calling) = &mut self.state else { return Poll::Ready(Ok(())) };
        let outcome = calling.pending.poll_next_unpin(cx);
        calling.progress.drain(cx.waker(), &mut self.ready);
        match outcome {
            Poll::Ready(Some(outcome)) => {
                self.ready.push_back(Event::ToolCallResult {
                    message_id: crate::new_id().into(),
                    tool_call_id: calling.results[outcome.place].0.id.as_str().into(),
                    content: outcome.content.clone(),
                    role: ToolRole::Tool,
                    metadata: outcome.is_error.then_some(ResultMetadata { is_error: true }),
                });
                calling.results[outcome.place].1 = Some(outcome.content);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(None) => {
                let State::Calling(calling) = std::mem::replace(&mut self.state, State::Over) else {
                    return Poll::Ready(Ok(()));
                };
                Poll::Ready(self.next_round(*calling))
            }
            Poll::Pending if !self.ready.is_empty() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// The next event, where it may be told at once; what must wait for another is queued.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, Failure>> {
        let State::Answering { stream, answer } = &mut self.state else { return Poll::Ready(Ok(None)) };
        let event = match ready!(stream.poll_next_unpin(cx)) {
            Some(event) => event?,
            None => {
                return Poll::Ready(Err(Failure::new(
                    FailureKind::Truncated,
                    "the model's answer ended before it was complete",
                )));
            }
        };
        let event = match answer.go_on(event) {
            Ok(event) => return Poll::Ready(Ok(Some(event))),
            Err(event) => event,
        };
        let limits = &self.deps.limits;
        if let Some(done) = answer.take(event, &mut self.ready, &mut self.used_ids, limits)? {
            self.usage.get_or_insert_default().add(&done.usage);
            let State::Answering { answer, .. } = std::mem::replace(&mut self.state, State::Over) else {
                return Poll::Ready(Ok(None));
            };
            self.finish_answer(*answer, done.reason);
        }
        Poll::Ready(Ok(None))
    }
}

/// A run's usage as events tell it: nothing where the model has told nothing.
fn used(usage: Option<Box<Usage>>) -> Vec<Usage> {
    usage.map(|usage| *usage).filter(|usage| *usage != Usage::default()).into_iter().collect()
}

impl Stream for Rounds {
    type Item = Result<Event, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                if this.ready.is_empty() {
                    // Most of a run's events never wait here.
                    this.ready = VecDeque::new();
                }
                return Poll::Ready(Some(Ok(event)));
            }
            let step = match &mut this.state {
                State::Over => return Poll::Ready(None),
                // What happened before it has been told by now.
                State::Failed(_) => {
                    let State::Failed(failure) = std::mem::replace(&mut this.state, State::Over) else {
                        return Poll::Ready(None);
                    };
                    return Poll::Ready(Some(Err(failure)));
                }
                State::Starting(start) => match ready!(start.poll_unpin(cx)) {
                    Ok(stream) => {
                        this.begin_round(stream);
                        Ok(None)
                    }
                    Err(failure) => Err(failure),
                },
                State::Answering { .. } => ready!(this.poll_answer(cx)),
                State::Calling(_) => ready!(this.poll_calls(cx)).map(|()| None),
            };
            match step {
                Ok(None) => {}
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Err(failure) => {
                    this.state = State::Failed(failure.with_usage(used(this.usage.take())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
