//! Traits and pure logic of an agent chat platform; it knows no transport, no async runtime and no database.
//!
//! A turn is one message to an agent and the stream of events that answers it:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # futures_util::FutureExt::now_or_never(async {
//! use agent_core::prelude::*;
//! use agent_core::testing::ScriptedModel;
//! use futures_util::StreamExt;
//!
//! let role = r#"{"id": "guide", "companyId": "acme", "children": [{"name": "EmbeddedAI"}]}"#;
//! let roles = Arc::new(StaticRoles::new().with_role(serde_json::from_str(role)?));
//!
//! // An application uses its own model, layers, tools and backends.
//! let model = Arc::new(ScriptedModel::repeating("Hello, Ada!"));
//! let platform = Platform::new(roles)
//!     .with_layer(RoleLayer::new(Arc::default()))
//!     .with_backend(EmbeddedBackend::new(model));
//!
//! let you = Principal::new("ada", "acme", Caller::Session);
//! let request = TurnRequest::new("guide", vec![Message::user("Hello!")]);
//! let events: Vec<Event> = run_turn(&platform, &you, request).await?.collect().await;
//!
//! assert!(matches!(events.first(), Some(Event::RunStarted { .. })));
//! assert!(matches!(events.last(), Some(Event::RunFinished { .. })));
//! # Ok(())
//! # }).expect("nothing here waits")
//! # }
//! ```
//!
//! # Modules, lowest layer first
//!
//! - [`ids`], [`message`], [`tool`], [`event`]: the vocabulary: identifiers, messages, tools and AG-UI 1.0 events.
//! - [`error`], [`store_error`], [`secret`], [`clock`]: errors of a run and of a store, secrets, time as a parameter.
//! - [`payload`], [`budget`], [`prompt`]: request bytes with redacted ranges, token counts, prompt assembly.
//! - [`role`], [`select`], [`allowed_tools`]: role blocks, and the pure rules for backend and tools.
//! - [`request`], [`context`]: the request of a turn, and context layers.
//! - [`model`], [`tool_loop`], [`backend`]: one model call, the loop between model and tools, whole turns.
//! - [`turn`]: [`run_turn`] orchestrates a turn; `prepare_turn` stops before the request is sent.
//! - `conformance`, `testing` (feature `conformance`): a test suite for each trait, and scripted doubles.

pub mod allowed_tools;
pub mod backend;
pub mod budget;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod context;
pub mod error;
pub mod event;
pub mod ids;
pub mod message;
pub mod model;
pub mod payload;
pub mod prelude;
pub mod prompt;
pub mod request;
pub mod role;
pub mod run_token;
pub mod secret;
pub mod select;
pub mod store_error;
#[cfg(feature = "conformance")]
pub mod testing;
pub mod tool;
pub mod tool_loop;
pub mod turn;
pub mod users;

pub use event::{Event, EventStream};
pub use message::Message;
pub use request::{Principal, TurnRequest};
pub use turn::{Platform, run_turn};

/// Returns a new identifier: a UUID of version 7, which sorts by creation time.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
