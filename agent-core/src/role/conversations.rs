//! Settings of conversations in a role.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use crate::tool::Caller;

/// Storage of an agent's conversations.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConversationSettings {
    /// If false, no conversation is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Callers that may define tools of their own; absent means `session`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<ClientTools>,
    /// Days after the last activity at which a thread is deleted, unless the server deletes it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<NonZeroU16>,
    /// Effect of a client's disconnect on runs whose request does not say; absent means `cancel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// Time in milliseconds without a client after which a run is cancelled, if its request does not say; absent means 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u32>,
    /// Treatment of a request in a thread whose run has not ended, if the request does not say; absent means `reject`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_busy: Option<OnBusy>,
}

/// Effect of a client's disconnect on a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum OnDisconnect {
    /// The run is cancelled.
    #[default]
    Cancel,
    /// The run continues to its end.
    Continue,
}

/// Treatment of a request in a thread whose run has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum OnBusy {
    /// The request is refused.
    #[default]
    Reject,
    /// The run is cancelled; the incomplete answer is stored.
    Interrupt,
    /// The request waits for the run.
    Queue,
}

/// Callers whose clients may define tools of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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
