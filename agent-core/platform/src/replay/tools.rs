//! Tools that answer from the record, in the order in which the calls have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use agent_core::event::Interrupt;
use agent_core::tool::{
    ExecutionContext, Progress, Suspension, ToolChoice, ToolError, ToolOutput, ToolRegistry, ToolSpec,
};
use async_trait::async_trait;
use futures_util::future::poll_fn;
use serde_json::{Map, Value};

use super::script::{ReplayStep, Script, ScriptCall, ScriptRound, StepKind};
use crate::run_observer::RunInputs;

/// A [`ToolRegistry`] of recorded tools.
pub(super) struct ReplayTools {
    specs: Vec<Arc<ToolSpec>>,
    rounds: Vec<RecordedRound>,
    interrupts: Vec<Interrupt>,
}

/// Calls of a round.
struct RecordedRound {
    calls: Vec<ScriptCall>,
    /// True for each call that reaches the registry, and is not answered by the tool loop itself.
    reaches_registry: Vec<bool>,
    steps: Vec<ReplayStep>,
    state: Mutex<StepState>,
}

#[derive(Default)]
struct StepState {
    /// Number of steps that are done.
    done: usize,
    /// True if the next step, a result of the tool loop itself, has had the time to be made.
    has_yielded: bool,
    waiting: Vec<Waker>,
}

impl ReplayTools {
    pub(super) fn new(inputs: &RunInputs, script: &Script) -> Self {
        let specs: Vec<Arc<ToolSpec>> = inputs.tools.iter().cloned().map(Arc::new).collect();
        let choice: ToolChoice = inputs.request.tool_choice.clone().map(Into::into).unwrap_or_default();
        let rounds = script.rounds.iter().enumerate();
        let rounds =
            rounds.map(|(index, round)| RecordedRound::new(round, offered(&choice, index, &specs))).collect();
        Self { specs, rounds, interrupts: script.interrupts.clone() }
    }
}

/// Returns the tools that the model may call in a round.
fn offered<'a>(choice: &ToolChoice, round: usize, specs: &'a [Arc<ToolSpec>]) -> &'a [Arc<ToolSpec>] {
    // A forced call applies to the first round alone.
    match (round, choice) {
        (0, choice) | (_, choice @ ToolChoice::None) => choice.offered(specs),
        _ => specs,
    }
}

impl RecordedRound {
    fn new(round: &ScriptRound, offered: &[Arc<ToolSpec>]) -> Self {
        let reaches = |call: &ScriptCall| {
            let is_object = call.arguments.trim().is_empty()
                || serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
            is_object && offered.iter().any(|tool| tool.name == call.name)
        };
        Self {
            reaches_registry: round.calls.iter().map(reaches).collect(),
            calls: round.calls.clone(),
            steps: round.steps.clone(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the call's steps when it is their turn; returns its result. Never completes for a call without a recorded
    /// result.
    async fn steps_of(&self, call: usize, progress: &dyn Progress) -> ToolOutput {
        poll_fn(|cx| {
            let mut state = self.state();
            loop {
                let Some(step) = self.steps.get(state.done) else { return Poll::Pending };
                let is_local = !self.reaches_registry.get(step.call).copied().unwrap_or_default();
                // The tool loop makes this result as soon as it polls the call, which it does in the calls' order.
                if is_local && step.call > call && !std::mem::replace(&mut state.has_yielded, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if !is_local && step.call != call {
                    state.waiting.push(cx.waker().clone());
                    return Poll::Pending;
                }
                (state.done, state.has_yielded) = (state.done + 1, false);
                std::mem::take(&mut state.waiting).into_iter().for_each(Waker::wake);
                match &step.kind {
                    _ if is_local => {}
                    StepKind::Progress(report) => {
                        progress.report(report.progress, report.total, report.message.as_deref());
                    }
                    StepKind::Result { content, is_error } => {
                        let (text, is_error) = (content.clone(), *is_error);
                        return Poll::Ready(ToolOutput { text, is_error, ..ToolOutput::default() });
                    }
                }
            }
        })
        .await
    }
}

#[async_trait]
impl ToolRegistry for ReplayTools {
    async fn list(&self, _: &ExecutionContext) -> Result<Vec<Arc<ToolSpec>>, ToolError> {
        Ok(self.specs.clone())
    }

    async fn call(
        &self,
        context: &ExecutionContext,
        name: &str,
        _: Value,
        progress: &dyn Progress,
    ) -> Result<ToolOutput, ToolError> {
        let unknown = || ToolError::Unavailable("the call is not recorded".to_owned());
        let (round, index) = call_indices(context).ok_or_else(unknown)?;
        let round = self.rounds.get(round).ok_or_else(unknown)?;
        let call = round.calls.get(index).filter(|call| call.name == name).ok_or_else(unknown)?;
        let is_of_call = |interrupt: &&Interrupt| interrupt.tool_call_id.as_deref() == Some(&*call.id);
        if let Some(interrupt) = self.interrupts.iter().find(is_of_call) {
            return Ok(Suspension::Interrupt(Box::new(interrupt.clone())).into());
        }
        Ok(round.steps_of(index, progress).await)
    }
}

/// Returns the indices of a call's round and of the call in it, from the key that the tool loop gives it.
fn call_indices(context: &ExecutionContext) -> Option<(usize, usize)> {
    let mut parts = context.idempotency_key.as_deref()?.rsplit('/');
    let index = parts.next()?.parse().ok()?;
    let round: usize = parts.next()?.parse().ok()?;
    Some((round.checked_sub(1)?, index))
}
