//! Contexts of a thread's user messages: in a client's messages, for a run's prompt, and as a run sends one, for its end.

use std::sync::{Arc, OnceLock};

use agent_core::message::{Message, Role};
use agent_platform::conversation::{
    MergeResult, NodeId, NodeLink, NodeRole, PathContexts, RunTriggerKind, SentContext,
};

/// Context that a run sends, which is known once the backend has accepted the turn.
#[derive(Debug, Clone, Default)]
pub(super) struct ContextSlot {
    /// The user message that the run answers.
    pub(super) node: Option<NodeId>,
    pub(super) text: Arc<OnceLock<Arc<str>>>,
}

impl ContextSlot {
    /// Creates an empty slot for the latest user message of a merged request.
    pub(super) fn new(merged: &MergeResult, links: &[NodeLink]) -> Self {
        let new = merged.nodes.iter().rev().find(|node| node.message.role() == NodeRole::User);
        let path = || merged.path.iter().rev().filter_map(|seq| NodeLink::find(links, *seq));
        let stored = || path().find(|link| link.role == NodeRole::User).map(|link| &link.id);
        let node = new.map(|node| &node.id).or_else(stored);
        Self { node: node.cloned(), text: Arc::default() }
    }

    /// Returns the context, if the run has sent one that later prompts repeat.
    pub(super) fn sent(&self) -> Option<SentContext> {
        let (node, text) = (self.node.clone()?, Arc::clone(self.text.get()?));
        Some(SentContext { node, text })
    }
}

/// Sets the contexts of a client's messages. The latest user message gets one only if its turn continues.
pub(super) fn attach_to_client_messages(
    contexts: &PathContexts,
    trigger: RunTriggerKind,
    messages: &mut [Arc<Message>],
) {
    contexts.attach_to_messages(messages);
    let is_continuation = matches!(trigger, RunTriggerKind::Resume | RunTriggerKind::Tools);
    let latest = messages.iter_mut().rev().find(|message| message.role == Role::User);
    if let Some(latest) = latest.filter(|_| !is_continuation) {
        Arc::make_mut(latest).sent_context = None;
    }
}
