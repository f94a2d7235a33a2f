//! Settings of conversations in a role.

#[cfg(feature = "schemars")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool::Caller;

/// Keeping of an agent's conversations.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConversationSettings {
    /// Keeps no conversation if false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Callers that may bring tools of their own; absent means `session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<ClientTools>,
}

/// Callers whose clients may bring tools of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ClientTools {
    /// All but the visitors of a widget.
    #[default]
    Session,
    /// All callers.
    All,
    /// No caller.
    Off,
}

impl ClientTools {
    /// Returns true if the caller's client may bring tools.
    pub fn allows(self, caller: Caller) -> bool {
        match self {
            Self::Session => caller != Caller::Widget,
            Self::All => true,
            Self::Off => false,
        }
    }
}
