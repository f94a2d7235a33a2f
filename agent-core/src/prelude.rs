//! The names that most embedders need: `use agent_core::prelude::*;`.

pub use std::sync::Arc;

pub use crate::backend::{
    Backend, BackendCapabilities, BackendSettings, CustomContainer, EmbeddedBackend, PreparedRequest, Turn,
};
pub use crate::budget::TokenBudget;
pub use crate::context::{ContextLayer, LayerError, RoleLayer, TurnInput};
pub use crate::error::{AgentError, AgentErrorKind};
pub use crate::event::{AssistantRole, Event, EventStream, Id, RunEnd, SourceEvent};
pub use crate::ids::{AgentId, CompanyId, RunId, ThreadId, UserId};
pub use crate::message::{FinishReason, Message, Role, Usage};
pub use crate::model::{Model, ModelEvent, ModelInfo, ModelRequest, ModelStream};
pub use crate::payload::Payload;
pub use crate::prompt::{Fragment, Part, Stability};
pub use crate::request::{Principal, TurnRequest};
pub use crate::role::{RoleBlock, RoleSource, StaticRoles};
pub use crate::tool::{
    Caller, ExecutionContext, LocalToolRegistry, Progress, Tool, ToolAnnotations, ToolError, ToolOutput,
    ToolRegistry, ToolSpec,
};
pub use crate::turn::{Platform, PreparedTurn, TurnError, prepare_turn, run_turn};
pub use async_trait::async_trait;
