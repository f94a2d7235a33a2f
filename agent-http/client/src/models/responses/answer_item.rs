//! Items of an answer that have started.

use agent_core::message::SharedJson;

use super::wire::{WireItem, text};

/// An item of the answer that has started.
pub(super) struct AnswerItem {
    pub(super) id: Option<String>,
    pub(super) output_index: Option<u64>,
    pub(super) is_done: bool,
    pub(super) kind: ItemKind,
}

/// State of an item, by its type.
pub(super) enum ItemKind {
    Message {
        text_bytes: usize,
    },
    Call(OpenCall),
    /// An item that is sent back, once it is done.
    Provider(Option<SharedJson>),
}

pub(super) struct OpenCall {
    /// Index among the calls of the answer.
    pub(super) index: usize,
    pub(super) arguments: String,
    /// False until the call's name is known.
    pub(super) is_started: bool,
    pub(super) has_all_arguments: bool,
}

/// Type of the item that an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemType {
    Message,
    Call,
    Provider,
}

impl ItemKind {
    pub(super) fn item_type(&self) -> ItemType {
        match self {
            Self::Message { .. } => ItemType::Message,
            Self::Call(_) => ItemType::Call,
            Self::Provider(_) => ItemType::Provider,
        }
    }
}

impl ItemType {
    pub(super) fn of(item: &WireItem<'_>) -> Self {
        match text(item.kind).as_deref() {
            Some("message") => Self::Message,
            Some("function_call") => Self::Call,
            _ => Self::Provider,
        }
    }
}
