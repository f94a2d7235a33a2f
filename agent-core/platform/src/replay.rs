//! Replay of a recorded run: the turn is run again from its recorded inputs, and compared with its record.
//!
//! The turn is run by the functions that run every turn. A [`Replay`] gives them a recorded role and recorded fragments,
//! a [`ReplayModels`] whose models build their requests as always and answer from the record, and a tool registry that
//! answers from the record too. No service is called, and nothing is stored.
//!
//! | module | content |
//! |---|---|
//! | `bundle` | [`RunBundle`]: a run with its inputs and its log, as one JSON text |
//! | `script` | sequence of the run's answers and tool calls, made from its events |
//! | `tools`, `models`, `backend`, `sources` | recorded implementations of the traits of a turn |
//! | `driver` | runs the turn to its end |
//! | `progress`, `outcome` | progress and outcome of the replay |
//! | `compare` | [`ReplayReport`] |
//! | `live` | models called live with the requests of the replay |

mod backend;
mod bundle;
mod compare;
mod driver;
mod live;
mod load;
mod models;
mod outcome;
mod progress;
mod script;
mod sources;
mod tools;

use std::sync::{Arc, Mutex, PoisonError};

use agent_core::clock::SystemClock;
use agent_core::context::RoleLayer;
use agent_core::event::Event;
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::StaticRoles;
use agent_core::tool::ToolRegistry;
use agent_core::tool_loop::LoopLimits;
use agent_core::turn::{Platform, run_observed_turn};

use crate::run_observer::{RunInputs, RunObservers};

pub use backend::ReplayBackend;
pub use bundle::{BundleError, MAX_BUNDLE_BYTES, RunBundle};
pub use compare::{AspectComparison, Difference, ReplayReport};
pub use live::{AnsweredCall, LiveCall, ModelAnswer};
pub use models::ReplayModels;

use outcome::Replayed;
use progress::ReplayProgress;
use script::Script;
use sources::{RecordedComparison, ReplayLayer, ReplayTokens};
use tools::ReplayTools;

/// A recorded run that is run again.
pub struct Replay {
    bundle: RunBundle,
    inputs: RunInputs,
    script: Script,
    tools: Arc<ReplayTools>,
    progress: Mutex<ReplayProgress>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}

impl Replay {
    /// Prepares the replay of a run.
    ///
    /// # Errors
    /// [`BundleError::NoInputs`] if the inputs were not recorded; [`BundleError::NoEvents`] without its log.
    pub fn new(bundle: RunBundle) -> Result<Arc<Self>, BundleError> {
        let inputs = bundle.inputs.clone().ok_or(BundleError::NoInputs)?;
        let events = bundle.events.as_deref().ok_or(BundleError::NoEvents)?;
        let script = Script::new(events, &inputs);
        let tools = Arc::new(ReplayTools::new(&inputs, &script));
        Ok(Arc::new(Self { bundle, inputs, script, tools, progress: Mutex::default() }))
    }

    /// Returns the platform of the replay, without backends.
    pub fn platform(&self) -> Platform {
        let comparison = RecordedComparison::new(self.bundle.prompt.as_ref().map(|prompt| &prompt.cache));
        Platform::new(Arc::new(StaticRoles::new()))
            .with_layer(RoleLayer::new(Arc::default()))
            .with_layer(ReplayLayer::new(&self.inputs.fragments))
            .with_tools(self.tools.clone())
            .with_sent_prompts(Arc::new(comparison))
            .with_run_tokens(Arc::new(ReplayTokens))
    }

    /// Returns the provider of the run's model, by the usage of its calls; `None` if none was reported.
    pub fn provider(&self) -> Option<&str> {
        let of_rounds = self.inputs.rounds.iter().filter_map(|round| round.usage.as_ref());
        of_rounds.chain(&self.bundle.run.usage).find_map(|usage| usage.provider.as_deref())
    }

    /// Returns the tools that the replay's tool loop calls.
    pub fn tools(&self) -> Arc<dyn ToolRegistry> {
        self.tools.clone()
    }

    /// Returns the limits of the replay's tool loop: those of the settings, but without a limit on the size of a result, since
    /// the record has the truncated results.
    pub fn limits(limits: LoopLimits) -> LoopLimits {
        LoopLimits { max_result_bytes: usize::MAX, ..limits }
    }

    /// Runs the turn on a platform with backends, and compares it with its record.
    pub fn run(&self, platform: &Platform) -> ReplayReport {
        let replayed = self.replay(platform);
        compare::report(&self.bundle, &self.script, &replayed)
    }

    fn replay(&self, platform: &Platform) -> Replayed {
        let RunInputs { company_id, user_id, caller, request, sent_contexts, .. } = &self.inputs;
        let principal = Principal::new(user_id.clone(), company_id.clone(), *caller);
        let mut messages = request.messages.clone();
        for sent in sent_contexts {
            if let Some(message) = messages.get_mut(sent.message) {
                message.sent_context = Some(sent.text.as_str().into());
            }
        }
        let turn = TurnRequest {
            agent_id: request.agent_id.clone(),
            messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
            thread_id: request.thread_id.clone(),
            run_id: request.run_id.clone(),
            todo_list_id: request.todo_list_id.clone(),
            timezone: request.timezone.clone(),
            tool_choice: request.tool_choice.clone().map(Into::into).unwrap_or_default(),
            client_tools: request.client_tools.iter().cloned().map(Arc::new).collect(),
            can_suspend: request.can_suspend,
            trigger: request.trigger.clone(),
            role: Some(Arc::new(self.inputs.completed_role())),
            response_format: request.response_format.clone(),
            ..TurnRequest::default()
        };
        let observers = Arc::new(RunObservers::new(Arc::new(SystemClock), false));
        let observer = observers.open(company_id, user_id, &request.run_id, observers.now());
        let started =
            Event::RunStarted { thread_id: request.thread_id.clone(), run_id: request.run_id.clone() };
        let running = run_observed_turn(platform, &principal, turn, &**observer);
        let (events, refusal, is_stuck) = match driver::complete(running) {
            Some(Ok(events)) => {
                let (events, is_stuck) =
                    driver::read_to_end(events, self.script.end.clone(), self.script.cut);
                (events, None, is_stuck)
            }
            Some(Err(error)) => (vec![started], Some(error.to_string()), false),
            // The run was cut before its backend has accepted it.
            None => (vec![started], None, self.script.end.is_none()),
        };
        let requests = std::mem::take(&mut self.progress().requests);
        Replayed { record: observer.record(), requests, events, refusal, is_stuck }
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, ReplayProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
