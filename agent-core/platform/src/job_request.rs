//! Validation of job requests, the same in a scheduler and in an application that stores its jobs itself.

use agent_jobs::job::{IdempotencyKey, Job, MAX_ATTEMPTS_LIMIT, MAX_IDEMPOTENCY_KEY_BYTES, NewJob};
use agent_jobs::schedule::ScheduleError;
use jiff::Timestamp;

use crate::ids::check_id;
use crate::pulse::JobRequest;
use crate::records::MAX_KEY_ID_BYTES;

/// Validation error of a [`JobRequest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobRequestError {
    /// A member is invalid.
    #[error("{member} {fault}")]
    Member {
        /// Name of the member.
        member: &'static str,
        /// Fault, worded to follow the name.
        fault: String,
    },
    /// The schedule is invalid or never fires.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

fn invalid(member: &'static str, fault: impl ToString) -> JobRequestError {
    JobRequestError::Member { member, fault: fault.to_string() }
}

impl JobRequest {
    /// Creates the requested job, with its schedule resolved at `now`. The fingerprint is that of an idempotency key; it must
    /// be the same for the same request in every version of the store's owner.
    ///
    /// # Errors
    /// The first invalid member.
    pub fn job(
        &self,
        now: Timestamp,
        fingerprint: impl FnOnce(&Self) -> String,
    ) -> Result<Job, JobRequestError> {
        self.payload.validate().map_err(|error| invalid("payload:", error))?;
        self.check_ids()?;
        let schedule = self.schedule.resolve(now)?;
        if self.max_attempts.is_some_and(|attempts| !(1..=MAX_ATTEMPTS_LIMIT).contains(&attempts)) {
            let fault = format!("must be a whole number from 1 to {MAX_ATTEMPTS_LIMIT}");
            return Err(invalid("maxAttempts", fault));
        }
        if self.idempotency_key.as_deref().is_some_and(|key| !is_idempotency_key(key)) {
            let fault = format!("must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes and no control character");
            return Err(invalid("idempotencyKey", fault));
        }
        let key = self.idempotency_key.clone();
        let defaults = NewJob::new(self.payload.clone(), schedule);
        let new_job = NewJob {
            misfire: self.misfire.unwrap_or(defaults.misfire),
            overlap: self.overlap.unwrap_or(defaults.overlap),
            max_attempts: self.max_attempts.unwrap_or(defaults.max_attempts),
            idempotency: key.map(|key| IdempotencyKey { key, fingerprint: fingerprint(self) }),
            ..defaults
        };
        Ok(Job::new(new_job, now))
    }

    fn check_ids(&self) -> Result<(), JobRequestError> {
        let payload = &self.payload;
        let ids = [
            ("payload.userId", Some(payload.user_id.as_str())),
            ("payload.companyId", Some(payload.company_id.as_str())),
            ("payload.agentId", Some(payload.agent_id.as_str())),
            ("payload.assignmentId", payload.assignment_id.as_deref()),
            ("payload.todoListId", payload.todo_list_id.as_deref()),
        ];
        for (member, id) in ids {
            id.map_or(Ok(()), |id| check_id(id, MAX_KEY_ID_BYTES)).map_err(|error| invalid(member, error))?;
        }
        Ok(())
    }
}

fn is_idempotency_key(key: &str) -> bool {
    (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) && !key.chars().any(char::is_control)
}
