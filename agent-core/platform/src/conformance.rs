//! The contracts of this crate's traits as suites that every implementation runs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use crate::conformance;
//! use crate::memory::MemoryRecords;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! conformance::records(async || Arc::new(MemoryRecords::default()) as _).await;
//! # }
//! ```

mod records;
mod role_store;

pub use records::{inventory, records};
pub use role_store::role_store;

#[cfg(test)]
mod tests;
