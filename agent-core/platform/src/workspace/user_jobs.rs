//! Jobs of deleted users.
//!
//! The deletion of a user does not wait for the scheduler, which may be away: it leaves a record, and the application
//! cancels the user's jobs at its next maintenance.

use agent_core::ids::{CompanyId, UserId};
use agent_jobs::job::{JobFilter, JobOrder, JobScope};
use jiff::Timestamp;
use serde_json::json;

use crate::pulse::{Pulse, PulseError};
use crate::records::{Key, MAX_PAGE_RECORDS, Precondition, Records, RecordsExt, StoreError};

/// Collection of a record for each deleted user whose jobs have not been cancelled yet, by the user's id. The time of its
/// last write is that of the deletion.
pub const DELETED_USER_COLLECTION: &str = "deletedUsers";

/// Stores that the user's jobs have to be cancelled.
pub(super) async fn request_cancellation(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<(), StoreError> {
    let key = Key::new(company_id, DELETED_USER_COLLECTION, user_id.as_str())?;
    records.put_as(&key, &json!({}), Precondition::Any).await.map(drop)
}

/// Returns true for a deleted user whose jobs may not all be cancelled yet.
///
/// # Errors
/// Errors of the store.
pub async fn is_deleted_user(
    records: &dyn Records,
    company_id: &CompanyId,
    user_id: &UserId,
) -> Result<bool, StoreError> {
    // A user with an invalid id has no records.
    let Ok(key) = Key::new(company_id, DELETED_USER_COLLECTION, user_id.as_str()) else { return Ok(false) };
    Ok(records.get(&key).await?.is_some())
}

/// Cancels the open jobs of a user that were created until a time, and returns their number. Later ones belong to a person
/// to whom the id was given again.
///
/// # Errors
/// Errors of the scheduler; some jobs may have been cancelled, and the call can be repeated.
pub async fn cancel_user_jobs(
    pulse: &dyn Pulse,
    scope: &JobScope,
    created_until: Timestamp,
) -> Result<u64, PulseError> {
    let filter = JobFilter { scope: scope.clone(), open: true, ..JobFilter::default() };
    let (mut cancelled, mut cursor) = (0, None::<String>);
    loop {
        let order = JobOrder::OldestFirst;
        let page = pulse.list_jobs(&filter, order, cursor.as_deref(), MAX_PAGE_RECORDS).await?;
        for job in page.jobs {
            if job.created_at > created_until {
                return Ok(cancelled);
            }
            match pulse.cancel_job(scope, &job.job_id).await {
                Ok(_) => cancelled += 1,
                Err(PulseError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use agent_core::testing::ManualClock;
    use agent_jobs::job::JobPayload;
    use agent_jobs::schedule::ScheduleSpec;

    use super::*;
    use crate::pulse::{JobRequest, user_scope};
    use crate::testing::MemoryPulse;

    fn request(user: &str) -> JobRequest {
        let payload = JobPayload::for_tool("c", user, "a", "createTodo");
        JobRequest::new(payload, ScheduleSpec { every_ms: Some(60_000), ..ScheduleSpec::default() })
    }

    #[tokio::test]
    async fn the_jobs_of_a_deleted_user_until_the_deletion_are_cancelled() {
        let clock = ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_000));
        let pulse = MemoryPulse::new(Arc::new(clock.clone()));
        for user in ["ada", "bob", "ada"] {
            pulse.schedule_job(&request(user)).await.expect("scheduled");
        }
        let deleted_at = Timestamp::from_second(1_000).expect("a time");
        clock.advance(Duration::from_secs(1));
        let later = pulse.schedule_job(&request("ada")).await.expect("scheduled");
        let scope = user_scope(&"c".into(), &"ada".into());
        pulse.set_available(false);
        assert!(cancel_user_jobs(&pulse, &scope, deleted_at).await.is_err());
        pulse.set_available(true);
        for expected in [2, 0] {
            assert_eq!(cancel_user_jobs(&pulse, &scope, deleted_at).await.expect("cancelled"), expected);
        }
        let of_company = JobScope { company: Some("c".into()), user: None };
        let open = JobFilter { scope: of_company, open: true, ..JobFilter::default() };
        let left = pulse.list_jobs(&open, JobOrder::OldestFirst, None, 10).await.expect("listed").jobs;
        let users: Vec<_> = left.iter().map(|job| job.payload.user_id.as_str()).collect();
        assert_eq!(users, ["bob", "ada"]);
        assert_eq!(left[1].job_id, later.job_id);
    }
}
