//! Event stream of a running tool loop.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};

use super::ToolLoop;
use super::answer::{AnswerAssembler, FinishedAnswer};
use super::call::{CallOutcome, ProgressQueue, run_tool_call};
use crate::error::{AgentError, AgentErrorKind};
use crate::event::{Event, EventStream, Id, Interrupt, RunEnd, RunIds, RunOutcome, RunResult, SourceEvent};
use crate::message::{FinishReason, Message, Usage};
use crate::model::{ModelRequest, ModelStream};
use crate::payload::Payload;
use crate::tool::{ExecutionContext, Suspension, ToolChoice};

impl ToolLoop {
    /// Sends `payload`, which [`Model::prepare`](crate::model::Model::prepare) built from `request`, and returns the run's events.
    ///
    /// # Errors
    /// Errors of the model before its first delta; later errors become the run's `RUN_ERROR`.
    pub async fn start(
        self,
        payload: Payload,
        request: ModelRequest,
        context: ExecutionContext,
        run: RunIds,
    ) -> Result<EventStream, AgentError> {
        let stream = self.model.start(payload).await?;
        let mut rounds = ToolLoopStream {
            deps: self,
            used_ids: call_ids(&request),
            request,
            context: Arc::new(context),
            round: 0,
            usage: Vec::new(),
            has_output: false,
            // More than two events are rarely queued, and every open stream holds one of these queues.
            ready: VecDeque::with_capacity(2),
            state: LoopState::Over,
        };
        rounds.begin_round(stream);
        Ok(EventStream::new(run, rounds))
    }
}

/// Returns the ids of all tool calls in the request.
fn call_ids(request: &ModelRequest) -> HashSet<Id> {
    let history = request.prompt.messages().iter().map(|message| message.original());
    let calls = history.chain(&request.appended_messages).flat_map(|message| &message.tool_calls);
    calls.map(|call| call.id.as_str().into()).collect()
}

/// The event stream of a running loop.
struct ToolLoopStream {
    deps: ToolLoop,
    request: ModelRequest,
    context: Arc<ExecutionContext>,
    round: usize,
    usage: Vec<Usage>,
    /// True if the model has sent text, or has called a tool.
    has_output: bool,
    /// Ids of all tool calls so far. A call of a provider that numbers them again in each answer gets a new one.
    used_ids: HashSet<Id>,
    ready: VecDeque<Event>,
    state: LoopState,
}

enum LoopState {
    /// The next round's model call is starting.
    Starting(BoxFuture<'static, Result<ModelStream, AgentError>>),
    /// The model's answer is streaming.
    Answering {
        stream: ModelStream,
        answer: Box<AnswerAssembler>,
    },
    /// Tool calls are running.
    Calling(Box<RunningCalls>),
    /// The run ends once the queued events have been emitted.
    Ending(Option<Result<RunEnd, AgentError>>),
    Over,
}

struct RunningCalls {
    /// The answer with the calls.
    answer: Message,
    /// Results by the index of the call; `None` until the call is complete.
    results: Vec<Option<String>>,
    /// Calls without a result, by their index.
    suspended: BTreeMap<usize, Suspension>,
    pending: FuturesUnordered<BoxFuture<'static, CallOutcome>>,
    progress: Arc<ProgressQueue>,
}

impl RunningCalls {
    /// Returns the outcome of a run that ends with suspended calls; `None` if there are none.
    fn outcome(&self) -> Option<RunOutcome> {
        let (mut interrupts, mut pending_tool_call_ids) = (Vec::new(), Vec::new());
        for (index, suspension) in &self.suspended {
            let id = Id::from(self.answer.tool_calls[*index].id.as_str());
            match suspension {
                Suspension::ClientSide => pending_tool_call_ids.push(id),
                Suspension::Interrupt(interrupt) => {
                    interrupts.push(Interrupt { tool_call_id: Some(id), ..Interrupt::clone(interrupt) });
                }
            }
        }
        match (interrupts.is_empty(), pending_tool_call_ids.is_empty()) {
            (true, true) => None,
            (true, false) => Some(RunOutcome::Success { pending_tool_call_ids }),
            (false, _) => Some(RunOutcome::Interrupt { interrupts, pending_tool_call_ids }),
        }
    }

    /// Records a call that has ended; returns the event of its result, unless it is suspended.
    fn record(&mut self, ended: CallOutcome) -> Option<Event> {
        let CallOutcome { call_index, content, is_error, suspension } = ended;
        if let Some(suspension) = suspension {
            self.suspended.insert(call_index, suspension);
            return None;
        }
        self.results[call_index] = Some(content.clone());
        let id = self.answer.tool_calls[call_index].id.as_str().into();
        Some(Event::tool_call_result(id, content, is_error))
    }
}

impl ToolLoopStream {
    fn begin_round(&mut self, stream: ModelStream) {
        self.round += 1;
        self.ready.push_back(Event::StepStarted { step_name: self.step_name() });
        let answer = AnswerAssembler::new(&self.request.appended_messages).into();
        self.state = LoopState::Answering { stream, answer };
    }

    fn step_name(&self) -> Id {
        format!("round-{}", self.round).into()
    }

    /// Handles the end of an answer: runs its tool calls, or ends the run.
    fn finish_answer(&mut self, answer: AnswerAssembler, finished: FinishedAnswer) -> Result<(), AgentError> {
        let FinishedAnswer { mut result, correction, .. } = finished;
        let cut_short = matches!(result.finish_reason, FinishReason::Length | FinishReason::ContentFilter);
        let mut answer = answer.into_message();
        if let Some(correction) = correction {
            return self.next_round([answer, Message::user(correction)]);
        }
        self.has_output |= !answer.content.is_empty() || !answer.tool_calls.is_empty();
        if answer.tool_calls.is_empty() || cut_short {
            if !cut_short && !self.has_output {
                let message = "the model returned neither text nor a tool call";
                return Err(AgentError::new(AgentErrorKind::Failed, message));
            }
            if result.finish_reason == FinishReason::ToolCalls {
                result.finish_reason = FinishReason::Stop;
            }
            self.finish_run(result, None);
            return Ok(());
        }
        let progress = Arc::new(ProgressQueue::default());
        let pending = FuturesUnordered::new();
        let key = Some(format!("{}/{}", self.context.run_id, self.round));
        let context = ExecutionContext { idempotency_key: key, ..ExecutionContext::clone(&self.context) };
        for (index, call) in answer.tool_calls.iter_mut().enumerate() {
            pending.push(run_tool_call(index, call, &self.deps, &self.request, context.clone(), &progress));
        }
        let (results, suspended) = (vec![None; answer.tool_calls.len()], BTreeMap::new());
        let calls = RunningCalls { answer, results, suspended, pending, progress };
        self.state = LoopState::Calling(Box::new(calls));
        Ok(())
    }

    fn finish_run(&mut self, result: RunResult, outcome: Option<RunOutcome>) {
        self.ready.push_back(Event::StepFinished { step_name: self.step_name() });
        let usage = std::mem::take(&mut self.usage);
        self.state = LoopState::Ending(Some(Ok(RunEnd::Finished { result: Some(result), outcome, usage })));
    }

    /// Continues after a round whose calls are complete or suspended.
    fn finish_calls(&mut self, calling: RunningCalls) -> Result<(), AgentError> {
        if let Some(outcome) = calling.outcome() {
            self.finish_run(FinishReason::ToolCalls.into(), Some(outcome));
            return Ok(());
        }
        let RunningCalls { answer, results, .. } = calling;
        let ids: Vec<String> = answer.tool_calls.iter().map(|call| call.id.clone()).collect();
        let results = ids.into_iter().zip(results);
        let results = results.map(|(id, result)| Message::tool_result(id, result.unwrap_or_default()));
        self.next_round(std::iter::once(answer).chain(results))
    }

    /// Starts the next round with the last answer and what follows it: the results of all its tool calls.
    fn next_round(&mut self, messages: impl IntoIterator<Item = Message>) -> Result<(), AgentError> {
        self.ready.push_back(Event::StepFinished { step_name: self.step_name() });
        if self.round >= self.deps.limits.max_rounds {
            let limit = self.deps.limits.max_rounds;
            let message = format!("the run reached the limit of {limit} model calls without a final answer");
            return Err(AgentError::new(AgentErrorKind::ToolLoopLimit, message));
        }
        self.request.appended_messages.extend(messages);
        // A forced tool call applies to the first round only; otherwise the model could never answer.
        if self.request.tool_choice != ToolChoice::None {
            self.request.tool_choice = ToolChoice::Auto;
        }
        let payload = self.deps.model.prepare(&self.request)?;
        let model = self.deps.model.clone();
        self.state = LoopState::Starting(async move { model.start(payload).await }.boxed());
        Ok(())
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AgentError>> {
        let LoopState::Calling(calling) = &mut self.state else { return Poll::Ready(Ok(())) };
        let outcome = calling.pending.poll_next_unpin(cx);
        calling.progress.drain(cx.waker(), &mut self.ready);
        match outcome {
            Poll::Ready(Some(ended)) => {
                self.ready.extend(calling.record(ended));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(None) => {
                let LoopState::Calling(calling) = std::mem::replace(&mut self.state, LoopState::Over) else {
                    return Poll::Ready(Ok(()));
                };
                Poll::Ready(self.finish_calls(*calling))
            }
            Poll::Pending if !self.ready.is_empty() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Polls the model; returns an event that can be emitted at once, and queues all others.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, AgentError>> {
        let LoopState::Answering { stream, answer } = &mut self.state else { return Poll::Ready(Ok(None)) };
        let Some(event) = ready!(stream.poll_next_unpin(cx)) else {
            let message = "the model's response ended before it was complete";
            return Poll::Ready(Err(AgentError::new(AgentErrorKind::Truncated, message)));
        };
        let event = match answer.continue_open(event?) {
            Ok(event) => return Poll::Ready(Ok(Some(event))),
            Err(event) => event,
        };
        let limits = &self.deps.limits;
        if let Some(mut finished) = answer.process(event, &mut self.ready, &mut self.used_ids, limits)? {
            std::mem::take(&mut finished.usage).add_to(&mut self.usage);
            let LoopState::Answering { answer, .. } = std::mem::replace(&mut self.state, LoopState::Over)
            else {
                return Poll::Ready(Ok(None));
            };
            self.finish_answer(*answer, finished)?;
        }
        Poll::Ready(Ok(None))
    }
}

impl Stream for ToolLoopStream {
    type Item = Result<SourceEvent, AgentError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                if this.ready.is_empty() {
                    // Most events bypass the queue, so free its memory.
                    this.ready = VecDeque::new();
                }
                return Poll::Ready(Some(Ok(SourceEvent::Event(event))));
            }
            let step = match &mut this.state {
                LoopState::Over => return Poll::Ready(None),
                LoopState::Ending(end) => {
                    return Poll::Ready(end.take().map(|end| end.map(SourceEvent::End)));
                }
                LoopState::Starting(start) => {
                    let started = ready!(start.poll_unpin(cx));
                    started.map(|stream| this.begin_round(stream)).map(|()| None)
                }
                LoopState::Answering { .. } => ready!(this.poll_answer(cx)),
                LoopState::Calling(_) => ready!(this.poll_calls(cx)).map(|()| None),
            };
            match step {
                Ok(None) => {}
                Ok(Some(event)) => return Poll::Ready(Some(Ok(SourceEvent::Event(event)))),
                Err(failure) => {
                    if let LoopState::Answering { answer, .. } = &mut this.state {
                        answer.take_usage().add_to(&mut this.usage);
                    }
                    let usage = std::mem::take(&mut this.usage);
                    this.state = LoopState::Ending(Some(Err(failure.with_usage(usage))));
                }
            }
        }
    }
}
