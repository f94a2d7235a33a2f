//! Limits on the output of a run, which bound the memory of everything that accumulates it.

use super::Event;
use crate::error::{AgentError, AgentErrorKind};

/// Limits on the output of a run. Beyond one of them, the run ends with [`OutputTooLarge`](AgentErrorKind::OutputTooLarge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Limit on text, reasoning and tool arguments of one answer of the model, in bytes; 4 MiB.
    pub max_answer_bytes: usize,
    /// Limit on all answers and tool results of a run, in bytes; 16 MiB.
    pub max_run_bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self { max_answer_bytes: 4 << 20, max_run_bytes: 16 << 20 }
    }
}

/// Counter of a run's output. A step of the run is one answer; a run without steps is a single answer.
#[derive(Debug, Default)]
pub(super) struct OutputMeter {
    pub(super) limits: OutputLimits,
    answer_bytes: usize,
    run_bytes: usize,
}

impl OutputMeter {
    /// Counts an event's text, names and identifiers.
    ///
    /// # Errors
    /// `OutputTooLarge` if a limit is exceeded.
    pub(super) fn count(&mut self, event: &Event) -> Result<(), AgentError> {
        let (answer, other) = match event {
            Event::TextMessageContent { delta, .. }
            | Event::ReasoningMessageContent { delta, .. }
            | Event::ToolCallArgs { delta, .. } => (delta.len(), 0),
            Event::ToolCallStart { tool_call_id, tool_call_name, .. } => {
                (tool_call_id.len() + tool_call_name.len(), 0)
            }
            Event::TextMessageStart { message_id, .. }
            | Event::ReasoningStart { message_id }
            | Event::ReasoningMessageStart { message_id, .. } => (message_id.len(), 0),
            Event::ToolCallResult { content, .. } => (0, content.len()),
            Event::StepStarted { step_name } => {
                self.answer_bytes = 0;
                (0, step_name.len())
            }
            _ => return Ok(()),
        };
        self.answer_bytes = self.answer_bytes.saturating_add(answer);
        self.run_bytes = self.run_bytes.saturating_add(answer + other);
        let OutputLimits { max_answer_bytes, max_run_bytes } = self.limits;
        if self.answer_bytes > max_answer_bytes {
            return Err(too_large("an answer of the model", max_answer_bytes));
        }
        if self.run_bytes > max_run_bytes {
            return Err(too_large("the output of the run", max_run_bytes));
        }
        Ok(())
    }
}

fn too_large(subject: &str, limit: usize) -> AgentError {
    AgentError::new(AgentErrorKind::OutputTooLarge, format!("{subject} exceeds the limit of {limit} bytes"))
}
