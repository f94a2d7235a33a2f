//! Tests of deliveries that a busy receiver or a spent budget postpones.

use super::*;

#[test]
fn a_busy_receiver_uses_up_no_attempt_for_an_hour() {
    let mut job = Job { max_attempts: 2, ..once(10) };
    let mut now = 10;
    while now < 10 + 3600 {
        let claimed = take(&job, claim(now), now);
        assert_eq!((claimed.position.occurrence, claimed.attempt), (1, 1));
        job = take(&claimed, end(&claimed, deferred(Some(Duration::from_secs(100)))), now);
        assert_eq!((job.state(), job.attempt, job.attempts.len()), (JobState::Retryable, 0, 0));
        assert_eq!(job.next_run_at(), Some(at(now + 60)), "the requested delay has a limit");
        now += 60;
    }
    let claimed = take(&job, claim(now), now);
    job = take(&claimed, end(&claimed, deferred(None)), now);
    assert_eq!((job.attempt, job.attempts.len()), (1, 1), "after an hour the delivery counts as an attempt");
    let claimed = take(&job, claim(now + 100), now + 100);
    let discarded = take(&claimed, end(&claimed, deferred(None)), now + 100);
    assert_eq!(discarded.state(), JobState::Discarded);
}

#[test]
fn a_spent_budget_uses_up_no_attempt_for_a_month_and_some_days() {
    let day = 24 * 3600;
    let abandoned = Job { abandoned: MAX_ABANDONED, ..every(10) };
    let failed_before = take(&claim_for_ten_seconds(&abandoned, 10), claim(20), 20);
    assert_eq!((failed_before.attempt, failed_before.max_attempts), (2, 2), "this is the last attempt");
    let mut job = take(&failed_before, end(&failed_before, postponed(1)), 20);
    assert_eq!(job.next_run_at(), Some(at(80)), "a postponement lasts at least a minute");
    let mut now = 80;
    while now < 10 + 35 * day {
        let claimed = take(&job, claim(now), now);
        assert_eq!((claimed.position, claimed.attempt), (failed_before.position, 2));
        job = take(&claimed, end(&claimed, postponed(40 * day as u64)), now);
        assert_eq!((job.state(), job.attempt), (JobState::Retryable, 1));
        // One record represents all of them, in addition to the record of the failed attempt.
        assert_eq!((job.attempts.len(), job.last_error()), (2, Some("spent")));
        assert_eq!(job.next_run_at(), Some(at(now + day)), "the budget may have been raised meanwhile");
        now += day;
    }
    let claimed = take(&job, claim(now), now);
    let advanced = take(&claimed, end(&claimed, postponed(40 * day as u64)), now);
    // The second occurrence passed before the expired lease was found, so that it was missed.
    assert_eq!(line(&advanced), format!("scheduled #2@20 wakes {now} dead #1"), "the schedule goes on");
    // An occurrence that still has attempts fails as others do.
    let job_with_attempt = Job { max_attempts: 3, ..job };
    let claimed = take(&job_with_attempt, claim(now), now);
    let failed = take(&claimed, end(&claimed, postponed(100)), now);
    assert_eq!((failed.attempt, failed.next_run_at()), (2, Some(at(now + 100))));
    let released =
        take(&claim_for_ten_seconds(&failed, now + 100), Step::Release { fence: failed.fence + 1 }, now);
    assert_eq!((released.attempt, released.position), (2, failed.position));
}

#[test]
fn a_busy_receiver_uses_up_no_attempt_for_an_hour_after_each_postponement() {
    let mut job = Job { max_attempts: 1, ..once(10) };
    let mut now = 10;
    for _ in 0..3 {
        let claimed = take(&job, claim(now), now);
        job = take(&claimed, end(&claimed, postponed(7200)), now);
        assert_eq!(job.next_run_at(), Some(at(now + 7200)));
        // The claim is late, as after a pause.
        let first_claim = now + 7200 + 9000;
        now = first_claim;
        while now < first_claim + 3600 {
            let claimed = take(&job, claim(now), now);
            job = take(&claimed, end(&claimed, deferred(Some(Duration::from_secs(60)))), now);
            assert_eq!((job.state(), job.attempt), (JobState::Retryable, 0), "{now}");
            assert_eq!((job.attempts.len(), job.last_error()), (1, Some("spent")));
            now += 60;
        }
    }
    let claimed = take(&job, claim(now), now);
    let discarded = take(&claimed, end(&claimed, deferred(None)), now);
    assert_eq!((discarded.state(), discarded.last_error()), (JobState::Discarded, Some("in progress")));
    // The month of postponements is counted from the first claim, and a redriven occurrence begins again.
    let late = 10 + 35 * 24 * 3600;
    let claimed = take(&job, claim(late), late);
    assert_eq!(take(&claimed, end(&claimed, postponed(100)), late).state(), JobState::Discarded);
    let redriven = take(&discarded, Step::Redrive, now);
    let decision = redriven.misfire_decision.expect("a redriven occurrence has a decision");
    assert_eq!((decision.at, decision.postponed, decision.deferrals_from), (at(now), false, None));
}

#[test]
fn a_job_of_a_version_without_postponements_is_read() {
    let claimed = claim_for_ten_seconds(&once(10), 10);
    let postponed_job = take(&claimed, end(&claimed, postponed(100)), 12);
    let reclaimed = claim_for_ten_seconds(&postponed_job, 200);
    let mut json = serde_json::to_value(&reclaimed).expect("JSON");
    let decision = json["begun"].as_object_mut().expect("a decision");
    assert!(decision.remove("deferralsFrom").is_some(), "{decision:?}");
    assert_eq!(decision.remove("postponed"), None, "a claim resets the flag");
    let parsed: Job = serde_json::from_value(json).expect("a job");
    let deferred_at = |job: &Job, now| {
        let job = Job { max_attempts: 1, ..job.clone() };
        take(&job, end(&job, deferred(None)), now).state()
    };
    let [retryable, discarded] = [JobState::Retryable, JobState::Discarded];
    assert_eq!(
        [3609, 3610].map(|now| deferred_at(&parsed, now)),
        [retryable, discarded],
        "without the field, the hour is counted from the first claim"
    );
    assert_eq!([3799, 3800].map(|now| deferred_at(&reclaimed, now)), [retryable, discarded]);
}

#[test]
fn a_postponed_occurrence_can_be_moved_cancelled_and_released() {
    let claimed = claim_for_ten_seconds(&once(10), 10);
    let postponed_job = take(&claimed, end(&claimed, postponed(100)), 12);
    assert_eq!(line(&postponed_job), "retryable #1@10 wakes 112");
    assert_eq!(
        line(&take(&postponed_job, Step::Reschedule(Schedule::At(at(40))), 13)),
        "scheduled #2@40 wakes 40"
    );
    assert_eq!(take(&postponed_job, Step::Cancel, 13).state(), JobState::Cancelled);
    let reclaimed = claim_for_ten_seconds(&postponed_job, 200);
    let released = take(&reclaimed, Step::Release { fence: reclaimed.fence }, 200);
    assert_eq!(line(&claim_for_ten_seconds(&released, 201)), "running #1@10 wakes 211 attempt 1");
    let moved = take(&claimed, Step::Reschedule(Schedule::At(at(40))), 11);
    assert_eq!(line(&take(&moved, end(&moved, postponed(100)), 12)), "scheduled #2@40 wakes 40");
}
