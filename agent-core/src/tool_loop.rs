//! The tool loop: calls the model, runs its tool calls, and returns their results to it, until the answer is complete.
//!
//! The embedded backend, the agent runtime and the subscription flow share this loop. One loop is one stream polled by
//! one task. The calls of a round run concurrently inside it, no queue separates the model's deltas from the events,
//! and dropping the stream cancels all work in progress.
//!
//! Errors of a tool call are returned to the model as the call's result: an unknown name, arguments that are not JSON,
//! a timeout, a panic. Errors of the model end the run: a truncated or empty answer, or more rounds than the limit
//! allows. The event stream bounds the output, and with it the messages that the loop accumulates.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::model::Model;
use crate::tool::ToolRegistry;

mod answer;
mod call;
mod stream;

pub use call::call_tool;

/// Limits of a tool loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Limit on the model calls of one run.
    pub max_rounds: usize,
    /// Limit on the tool calls of one answer; an answer with more fails the run.
    pub max_calls_per_round: usize,
    /// Time limit of one tool call.
    pub tool_timeout: Duration,
    /// Limit on the bytes of a result that the model receives; a longer result is truncated with a notice.
    pub max_result_bytes: usize,
    /// Limit on the bytes of a call's arguments.
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

/// A model, its tools, and the limits of their loop.
pub struct ToolLoop {
    /// The model that answers.
    pub model: Arc<dyn Model>,
    /// The tools that the model may call.
    pub tools: Arc<dyn ToolRegistry>,
    /// Clock for the timeouts of tool calls.
    pub clock: Arc<dyn Clock>,
    /// The limits of the loop.
    pub limits: LoopLimits,
}

#[cfg(test)]
mod tests;
