//! Formats of requests, which determine if a list of messages is the whole conversation.

/// Format of a request, which determines if its list of messages is the whole conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RequestFormat {
    /// The field `message`: one new user message.
    Message,
    /// The field `messages` in a separate format or OpenAI's. One element alone is the next message.
    #[default]
    Messages,
    /// AG-UI's `RunAgentInput`, whose list is the whole conversation.
    AgUi,
    /// The AI SDK's body. One element alone is the next message.
    UiMessages {
        /// Field `trigger`.
        trigger: UiTrigger,
        /// Field `messageId`.
        message_id: Option<String>,
    },
}

/// Field `trigger` of the AI SDK.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UiTrigger {
    /// `submit-message`: a new message, or an edited one if `messageId` is given.
    #[default]
    Submit,
    /// `regenerate-message`: the turn `messageId` is made again.
    Regenerate,
}
