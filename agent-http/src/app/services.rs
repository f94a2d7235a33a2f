//! Services of the application that its routes share.

mod anonymous;
mod approved_calls;
mod bundle_downloads;
mod coding;
mod console;
mod conversation;
mod document_uploads;
mod leased_tools;
pub(super) mod live;
mod mcp;
mod providers;
mod quotas;
mod rate_limits;
mod request_bounds;
mod response_readers;
mod run_id;
mod scheduler;
pub(super) mod tail;
mod usage;

pub use approved_calls::ApprovedCalls;
pub use coding::{SubscriptionService, SubscriptionServiceConfig};
pub use console::{ConsoleService, console_link};
pub(in crate::app) use conversation::EarlySignal;
pub use conversation::{ConversationService, RunSettings};
pub use document_uploads::DocumentUploads;
pub use leased_tools::LeasedTools;
pub use mcp::McpEndpoint;
pub use providers::ProviderService;
pub use quotas::ResourceQuotas;
pub use rate_limits::RateLimits;
pub use request_bounds::RequestBounds;
pub(super) use response_readers::hold_while_read;
pub(super) use run_id::{ChosenRunId, UnstartedRunId};
pub(super) use scheduler::CALLBACK_PATH;
pub use scheduler::{SchedulerConnection, SchedulerConnectionConfig};
pub use usage::UsageService;
