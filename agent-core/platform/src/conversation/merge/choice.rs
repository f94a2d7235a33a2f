//! Result of a walk along the tree: the position of a run, and its new messages.

use std::sync::Arc;

use agent_core::message::{Message, Role};

use super::super::{NodeOrigin, RunTriggerKind};

/// Position of a run in the tree, and its new messages.
#[derive(Debug)]
pub(super) struct Choice {
    /// Index of the node below which the first new message goes, or the answer if there is none.
    pub(super) below: Option<usize>,
    /// New messages, each the child of the previous one.
    pub(super) messages: Vec<Arc<Message>>,
    /// Author of each new message.
    pub(super) origins: Vec<NodeOrigin>,
    pub(super) trigger: RunTriggerKind,
}

impl Choice {
    /// Adds messages of the owner; results of client-side calls are the client's.
    pub(super) fn new(below: Option<usize>, messages: Vec<Arc<Message>>, trigger: RunTriggerKind) -> Self {
        let origin = |message: &Arc<Message>| match message.role {
            Role::User => NodeOrigin::User,
            _ => NodeOrigin::Client,
        };
        let origins = messages.iter().map(origin).collect();
        Self { below, messages, origins, trigger }
    }

    /// Creates the choice of an answer below a node, without a new message.
    pub(super) fn answer(below: Option<usize>, trigger: RunTriggerKind) -> Self {
        Self::new(below, Vec::new(), trigger)
    }

    /// Adds a conversation of the client as a new root. Its last message is what the owner says now.
    pub(super) fn new_root(mut messages: Vec<Arc<Message>>, is_visitor: bool) -> Self {
        if is_visitor {
            messages.retain(|message| message.role == Role::User);
        }
        let mut origins = vec![NodeOrigin::Client; messages.len()];
        if let (Some(origin), Some(Role::User)) = (origins.last_mut(), messages.last().map(|last| last.role))
        {
            *origin = NodeOrigin::User;
        }
        Self { below: None, messages, origins, trigger: RunTriggerKind::Chat }
    }
}
