//! Stores that survive the process: implementations of [`Records`](agent_core::records::Records) and
//! [`Inventory`](agent_core::records::Inventory), and the only place of SQL.
//!
//! - [`sqlite`], by the feature of that name (a default): one file on this machine, nothing to install.
//!
//! What a store promises is stated by [`agent_core::records`] and held by its conformance suite; what is
//! said here is what lies beneath: when a write is on the disk, and how fresh a read is.

#[cfg(feature = "sqlite")]
pub mod sqlite;
