//! The names that most programs with jobs need: `use agent_jobs::prelude::*;`.

pub use agent_core::clock::{Clock, SystemClock};
pub use jiff::Timestamp;

pub use crate::job::{
    AttemptOutcome, ClaimRequest, CompanyQuota, Job, JobPayload, JobScope, JobStore, MemoryJobStore, NewJob,
    Step, StepOutcome,
};
pub use crate::schedule::{Schedule, ScheduleSpec};
