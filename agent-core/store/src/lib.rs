//! Persistent stores in SQLite and PostgreSQL: implementations of [`Records`](agent_platform::records::Records),
//! [`Inventory`](agent_platform::records::Inventory), [`JobStore`](agent_jobs::job::JobStore) and
//! [`Conversations`](agent_platform::conversation::Conversations). The only crate that contains SQL.
//!
//! - [`sqlite`], by the feature of that name (a default): one file on this machine, nothing to install.
//! - `copy`, with both features: copies a whole installation from one database to another.
//! - [`postgres`], by the feature of that name: records and jobs in one database, for several machines.
//!
//! [`agent_platform::records`] and [`agent_jobs::job`] state the guarantees of a store, and their conformance suites check
//! them. The modules here add each database's own: when a write is durable, and how recent the data of a read is.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod conversation_row;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
pub mod copy;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod copy_rows;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod counters;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod job_row;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod owner;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod read_cache;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod round_robin;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod slots;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod usage_row;
