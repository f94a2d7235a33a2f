//! Folding of a run's events into message nodes.
//!
//! The messages are those that a client of AG-UI builds from the same events: a call belongs to the message that it
//! names as its parent, or to one of the call's own id. A run may be cut after any event.

use std::collections::HashMap;

use agent_core::event::{Event, RunOutcome};
use agent_core::message::{Content, Message, Role, ToolCall};

use super::{
    CancelReason, NewNode, NodeId, NodeMessage, NodeOrigin, NodeStatus, PublicRunError, RunEndKind, RunEnding,
};

/// A run's answer as nodes, and its end.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedRun {
    /// Nodes, each the child of the previous one.
    pub nodes: Vec<NewNode>,
    /// End of the run.
    pub ending: RunEnding,
}

/// Folds the events of a run, below the node `parent`. `cut` is the end of a run without a terminal event.
pub fn fold<'e>(
    events: impl IntoIterator<Item = &'e Event>,
    parent: Option<NodeId>,
    cut: RunEndKind,
) -> FoldedRun {
    let mut fold = RunFold::default();
    events.into_iter().for_each(|event| fold.push(event));
    fold.finish(parent, cut)
}

/// Collects the messages of a run while its events pass.
#[derive(Debug, Default)]
pub struct RunFold {
    messages: Vec<FoldedMessage>,
    by_id: HashMap<String, usize>,
    /// Message and position of each call.
    calls: HashMap<String, (usize, usize)>,
    /// Messages with results that the run's audience does not see.
    hidden_results: Vec<usize>,
    /// True if one of them is the result of an earlier run's call.
    has_awaited_result: bool,
    ending: Option<RunEnding>,
}

#[derive(Debug)]
struct FoldedMessage {
    id: String,
    message: NodeMessage,
    is_open: bool,
    /// Calls whose arguments are not complete.
    open_calls: Vec<String>,
}

impl RunFold {
    /// Adds an event. Events after the terminal one are ignored.
    pub fn push(&mut self, event: &Event) {
        if self.ending.is_some() {
            return;
        }
        match event {
            Event::TextMessageStart { message_id, .. } => {
                self.assistant(message_id).is_open = true;
            }
            Event::ReasoningMessageStart { message_id, .. } => {
                self.add(message_id, NodeMessage::reasoning("")).is_open = true;
            }
            Event::TextMessageContent { message_id, delta }
            | Event::ReasoningMessageContent { message_id, delta } => self.append(message_id, delta),
            Event::TextMessageEnd { message_id } | Event::ReasoningMessageEnd { message_id } => {
                if let Some(at) = self.by_id.get(&**message_id) {
                    self.messages[*at].is_open = false;
                }
            }
            Event::ToolCallStart { tool_call_id, tool_call_name, parent_message_id } => {
                self.begin_call(tool_call_id, tool_call_name, parent_message_id.as_deref());
            }
            Event::ToolCallArgs { tool_call_id, delta } => {
                if let Some((message, call)) = self.calls.get(&**tool_call_id).copied()
                    && let NodeMessage::Message(message) = &mut self.messages[message].message
                {
                    message.tool_calls[call].function.arguments.push_str(delta);
                }
            }
            Event::ToolCallEnd { tool_call_id } => {
                if let Some((message, _)) = self.calls.get(&**tool_call_id).copied() {
                    self.messages[message].open_calls.retain(|call| **call != **tool_call_id);
                }
            }
            Event::ToolCallResult { message_id, tool_call_id, content, .. } => {
                let result = Message::tool_result(&**tool_call_id, content.as_str());
                self.add(message_id, result.into());
            }
            Event::RunFinished { result, outcome, usage, .. } => {
                let kind = match outcome {
                    Some(RunOutcome::Cancelled) => RunEndKind::Cancelled(CancelReason::Requested),
                    Some(outcome) => RunEndKind::Suspended(outcome.clone()),
                    None => RunEndKind::Completed,
                };
                let finish_reason = result.as_ref().map(|result| result.finish_reason);
                self.ending = Some(RunEnding { kind, finish_reason, usage: usage.clone() });
            }
            Event::RunError { message, code, usage } => {
                let failure = PublicRunError { code: code.clone(), message: message.clone() };
                let kind = RunEndKind::Failed(failure);
                self.ending = Some(RunEnding { kind, finish_reason: None, usage: usage.clone() });
            }
            _ => {}
        }
    }

    /// Adds the result of a tool call that the run's audience does not see. It becomes a node only if another run needs it:
    /// if this run ends to wait, or if it continues one whose call waited.
    pub fn push_hidden_result(&mut self, event: &Event) {
        let Event::ToolCallResult { tool_call_id, .. } = event else { return };
        if self.ending.is_none() {
            self.has_awaited_result |= !self.calls.contains_key(&**tool_call_id);
            self.hidden_results.push(self.messages.len());
            self.push(event);
        }
    }

    /// Returns the nodes below `parent`. `cut` is the end of a run without a terminal event, and the reason for
    /// cancellation that a terminal event does not tell.
    pub fn finish(self, parent: Option<NodeId>, cut: RunEndKind) -> FoldedRun {
        let mut ending =
            self.ending.unwrap_or_else(|| RunEnding { kind: cut.clone(), ..RunEnding::default() });
        if let (RunEndKind::Cancelled(reason), RunEndKind::Cancelled(known)) = (&mut ending.kind, &cut) {
            *reason = *known;
        }
        let cut_status = match ending.kind {
            RunEndKind::Completed | RunEndKind::Suspended(_) => NodeStatus::Complete,
            RunEndKind::Cancelled(_) => NodeStatus::Cancelled,
            RunEndKind::Failed(_) | RunEndKind::Interrupted => NodeStatus::Incomplete,
        };
        let keeps_hidden = self.has_awaited_result || matches!(ending.kind, RunEndKind::Suspended(_));
        let mut parent = parent;
        let mut nodes: Vec<NewNode> = Vec::with_capacity(self.messages.len());
        for (at, folded) in self.messages.into_iter().enumerate() {
            if !keeps_hidden && self.hidden_results.contains(&at) {
                continue;
            }
            let is_cut = folded.is_open || !folded.open_calls.is_empty();
            let Some(message) = folded.into_message() else { continue };
            let (id, message) = message;
            let status = if is_cut { cut_status } else { NodeStatus::Complete };
            let parent_id = parent.replace(id.clone());
            nodes.push(NewNode { id, parent_id, client_id: None, status, origin: NodeOrigin::Run, message });
        }
        // A reader sees at the end that the run was cut, even between two messages.
        if let Some(last) = nodes.last_mut() {
            last.status = cut_status;
        }
        FoldedRun { nodes, ending }
    }

    fn add(&mut self, id: &str, message: NodeMessage) -> &mut FoldedMessage {
        let at = self.messages.len();
        self.by_id.insert(id.to_owned(), at);
        self.messages.push(FoldedMessage {
            id: id.to_owned(),
            message,
            is_open: false,
            open_calls: Vec::new(),
        });
        &mut self.messages[at]
    }

    /// Returns the assistant message of this id, a new one if there is none.
    fn assistant(&mut self, id: &str) -> &mut FoldedMessage {
        match self.by_id.get(id).copied() {
            Some(at) if self.messages[at].message.role() == super::NodeRole::Assistant => {
                &mut self.messages[at]
            }
            _ => self.add(id, Message::text(Role::Assistant, "").into()),
        }
    }

    fn append(&mut self, id: &str, delta: &str) {
        // Nearly every delta belongs to the latest message, which takes no hash to find.
        let is_latest = self.messages.last().is_some_and(|latest| latest.id == id);
        let at = if is_latest { Some(self.messages.len() - 1) } else { self.by_id.get(id).copied() };
        let Some(at) = at else { return };
        match &mut self.messages[at].message {
            NodeMessage::Reasoning(reasoning) => reasoning.content.push_str(delta),
            NodeMessage::Message(message) => {
                if let Content::Text(text) = &mut message.content {
                    text.push_str(delta);
                }
            }
        }
    }

    fn begin_call(&mut self, id: &str, name: &str, parent: Option<&str>) {
        let parent = parent.unwrap_or(id).to_owned();
        let folded = self.assistant(&parent);
        folded.open_calls.push(id.to_owned());
        let NodeMessage::Message(message) = &mut folded.message else { return };
        message.tool_calls.push(ToolCall::new(id, name, ""));
        let call = message.tool_calls.len() - 1;
        if let Some(at) = self.by_id.get(&parent).copied() {
            self.calls.insert(id.to_owned(), (at, call));
        }
    }
}

impl FoldedMessage {
    /// Returns the message without calls whose arguments are not complete, which were never made; `None` if it is empty.
    fn into_message(self) -> Option<(NodeId, NodeMessage)> {
        let id = NodeId::from(self.id);
        let is_empty = match &self.message {
            NodeMessage::Reasoning(reasoning) => reasoning.content.is_empty(),
            NodeMessage::Message(message) if message.role == Role::Tool => false,
            NodeMessage::Message(message) => {
                message.content.is_empty() && message.tool_calls.len() == self.open_calls.len()
            }
        };
        let mut message = self.message.with_id(&id);
        if let NodeMessage::Message(message) = &mut message {
            message.tool_calls.retain(|call| !self.open_calls.contains(&call.id));
        }
        (!is_empty).then_some((id, message))
    }
}

#[cfg(test)]
mod tests;
