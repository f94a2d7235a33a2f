//! Settings of backends, by type.

use crate::role::{AgentServer, EmbeddedAi, SubscriptionConnector, WorkflowConnector};
use crate::select::{BackendChoice, BackendKind, CustomContainer};

/// Settings of one kind of backend, as a role contains them.
pub trait BackendSettings: Clone + Send + Sync + 'static {
    /// Wraps the settings as the result of a selection.
    fn into_choice(self) -> BackendChoice;

    /// Returns the settings of a selection, or `None` if it selected another kind of backend.
    fn from_choice(choice: &BackendChoice) -> Option<&Self>;
}

/// Settings of one of the platform's own kinds of backend.
pub trait BuiltinSettings: BackendSettings {
    /// The kind of backend.
    const KIND: BackendKind;
}

impl BackendSettings for CustomContainer {
    fn into_choice(self) -> BackendChoice {
        BackendChoice::Custom(self)
    }

    fn from_choice(choice: &BackendChoice) -> Option<&Self> {
        match choice {
            BackendChoice::Custom(container) => Some(container),
            _ => None,
        }
    }
}

macro_rules! builtin_settings {
    ($settings:ty, $variant:ident) => {
        impl BackendSettings for $settings {
            fn into_choice(self) -> BackendChoice {
                BackendChoice::$variant(self.into())
            }

            fn from_choice(choice: &BackendChoice) -> Option<&Self> {
                match choice {
                    BackendChoice::$variant(settings) => Some(settings),
                    _ => None,
                }
            }
        }

        impl BuiltinSettings for $settings {
            const KIND: BackendKind = BackendKind::$variant;
        }
    };
}

builtin_settings!(AgentServer, AgentServer);
builtin_settings!(WorkflowConnector, Workflow);
builtin_settings!(EmbeddedAi, Embedded);
builtin_settings!(SubscriptionConnector, Subscription);
