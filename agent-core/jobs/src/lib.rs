//! Jobs and schedules of an agent chat platform, as plain data with pure functions; no transport, no async runtime
//! and no database.
//!
//! A [`schedule`] gives the times at which a job is due, a [`job`] is the state machine of its occurrences, and a
//! [`JobStore`](job::JobStore) persists jobs for one or more workers:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # futures_executor::block_on(async {
//! use std::time::Duration;
//!
//! use agent_jobs::prelude::*;
//!
//! let payload = JobPayload::for_agent("acme", "ada", "guide", "Good morning!");
//! let spec: ScheduleSpec = serde_json::from_str(r#"{"delayMs": 1000}"#)?;
//! let now: Timestamp = "2026-03-01T12:00:00Z".parse()?;
//! let jobs = MemoryJobStore::default();
//! jobs.insert(vec![Job::new(NewJob::new(payload, spec.resolve(now)?), now)]).await?;
//!
//! let now = jobs.next_run_at().await?.ok_or("the job is due in a second")?;
//! let lease_until = now.checked_add(Duration::from_secs(30))?;
//! let claim = ClaimRequest { now, due_until: now, lease_until, limit: 10, quota: CompanyQuota::new(10) };
//! let claimed = jobs.claim_due(claim).await?;
//! assert_eq!(claimed[0].payload.message.as_deref(), Some("Good morning!"));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Modules, lowest layer first
//!
//! - [`schedule`]: one-off times, intervals and cron expressions in time zones; misfire and overlap policies.
//! - [`job`]: job states and their transitions, leases, retries, and the trait of a job store.
//! - [`prelude`]: the names that most programs with jobs need.
//! - `conformance` (feature `conformance`): the test suite that every job store passes.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod job;
pub mod prelude;
pub mod schedule;
