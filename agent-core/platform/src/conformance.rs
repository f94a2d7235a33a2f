//! The contracts of this crate's traits as suites that every implementation runs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use agent_platform::conformance;
//! use agent_platform::memory::MemoryRecords;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::records(async || Arc::new(MemoryRecords::default()) as _).await;
//! # }
//! ```

mod approval_floors;
mod budgets;
mod coding;
pub(crate) mod conversations;
mod documents;
mod files;
mod interleaved;
mod providers;
mod pulse;
mod quotas;
mod records;
mod retrieval;
mod retriever;
mod role_store;
mod summaries;
mod usage;

pub use approval_floors::approval_floors;
pub use budgets::{BudgetStores, budgets};
pub use coding::{coding, coding_polls, coding_refreshes};
pub use conversations::conversations;
pub use documents::documents;
pub use files::files;
pub use providers::providers;
pub use pulse::{PulseSubject, pulse};
pub use quotas::quotas;
pub use records::{inventory, records};
pub use retrieval::retrieval;
pub use retriever::{DocumentWriter, retriever};
pub use role_store::role_store;
pub use summaries::{SummaryStores, summaries};
pub use usage::usage;

#[cfg(test)]
mod tests;
