//! Traits and pure logic of an agent chat platform; it knows no transport, no async runtime and no database.
//!
//! A turn is one message to an agent and the stream of events that answers it:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # futures_util::FutureExt::now_or_never(async {
//! use std::sync::Arc;
//!
//! use agent_core::backend::EmbeddedBackend;
//! use agent_core::context::RoleLayer;
//! use agent_core::role::StaticRoles;
//! use agent_core::select::BackendKind;
//! use agent_core::testing::ScriptedModel;
//! use agent_core::tool::Caller;
//! use agent_core::{Event, Message, Platform, Principal, TurnRequest, run_turn};
//! use futures_util::StreamExt;
//!
//! let role = r#"{"id": "guide", "companyId": "acme", "children": [{"name": "EmbeddedAI"}]}"#;
//! let roles = Arc::new(StaticRoles::new().with_role(serde_json::from_str(role)?));
//!
//! // A model of your own stands here, and whichever layers, tools and backends your agents need.
//! let model = Arc::new(ScriptedModel::always("Hello, Ada!"));
//! let platform = Platform::new(roles)
//!     .with_layer(RoleLayer::new(Arc::default()))
//!     .with_backend(BackendKind::Embedded, EmbeddedBackend::new(model));
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
//! # Why each module is there
//!
//! What is said, and how a run goes:
//!
//! - [`message`]: messages, tool calls and usage, so that everything below speaks of the same things.
//! - [`event`]: the one vocabulary of a run, and the stream that ends every run exactly once.
//! - [`error`]: how a run fails, with a public message and an internal cause kept apart.
//! - [`history`]: reads conversations as callers spell them, and mends what models would refuse.
//!
//! Who answers, and from what:
//!
//! - [`role`]: who an agent is, as its owner has set it up.
//! - [`select`]: which backend answers for a role, and why no other, so that it can be shown.
//! - [`context`]: what the model should know beside the conversation, a layer for each kind of knowledge.
//! - [`prompt`]: puts all that into one prompt with its stable parts first, for providers' caches.
//! - [`budget`]: counts tokens, and says what to leave out of a history that is too long.
//! - [`payload`]: the bytes of a request and which of them are secret, so that a preview can be proved.
//!
//! Traits to implement, and what runs over them:
//!
//! - [`backend`]: answers whole turns: a remote runtime, or a model that is called here.
//! - [`model`]: answers one prompt; the vendors' differences end there.
//! - [`tool`]: what a model may call, for whom.
//! - [`messenger`]: how a tool reaches people elsewhere.
//! - [`tool_loop`]: model, tools, model again, within bounds; written once for every backend and service.
//! - [`tools`]: the built-in tools, and the rule of who may use which.
//! - [`turn`]: [`run_turn`], the only place that puts the others in order.
//! - [`preview`]: a turn that is not sent, with everything that went into it, for those who ask why.
//!
//! What runs later:
//!
//! - [`job`]: what waits for its time, the states that it goes through, and the trait of those who keep it.
//! - [`pulse`]: the scheduler as its callers see it, what makes an effect happen once, and saved schedules.
//! - [`schedule`]: when a job runs, by a time, an interval or cron in a zone, as pure functions.
//!
//! What is stored:
//!
//! - [`records`]: one small door to data, with the company in every key, so that no query can forget it.
//! - [`workspace`]: documents, memories, todo lists and people as typed functions over that door.
//! - [`seal`]: secrets under an operator's key, so that a copy of the data gives none away.
//! - [`token`]: credentials for one agent, of which hashes are kept: for pages that embed it, and for callers of
//!   its tools.
//! - [`memory`]: the store in memory, the reference for others.
//!
//! For those who test:
//!
//! - [`clock`]: time as a parameter.
//! - `conformance` (a feature): the contract of each trait as a suite that every implementation runs.
//! - `testing` (the same feature): doubles that follow a script.

pub mod allowed_tools;
pub mod backend;
pub mod budget;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod context;
pub mod error;
pub mod event;
pub mod history;
#[cfg(feature = "jobs")]
pub mod job;
pub mod message;
pub mod model;
pub mod payload;
pub mod preview;
pub mod prompt;
pub mod request;
pub mod role;
pub mod run_token;
#[cfg(feature = "jobs")]
pub mod schedule;
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
