//! Stores that survive the process: implementations of [`Records`](agent_platform::records::Records),
//! [`Inventory`](agent_platform::records::Inventory) and [`JobStore`](agent_jobs::job::JobStore), and the only place of
//! SQL.
//!
//! - [`sqlite`], by the feature of that name (a default): one file on this machine, nothing to install.
//! - [`postgres`], by the feature of that name: jobs in one database, for several machines.
//!
//! What a store promises is stated by [`agent_platform::records`] and [`agent_jobs::job`] and held by their conformance
//! suites; what is said here is what lies beneath: when a write is on the disk, and how fresh a read is.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod job_row;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
