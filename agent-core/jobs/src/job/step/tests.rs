mod postponements;
mod properties;

use std::collections::BTreeMap;
use std::fmt::Write;

use expect_test::{ExpectFile, expect_file};
use proptest::prelude::*;

use super::*;
use crate::job::{JobPayload, NewJob};
use crate::schedule::{CronSchedule, DstPolicy, MisfirePolicy, OverlapPolicy};

/// Returns the time `seconds` after the tests' epoch.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).expect("a time")
}

fn new(schedule: Schedule) -> NewJob {
    let payload = JobPayload {
        arguments: serde_json::json!({"text": "Hello"}).as_object().cloned(),
        ..JobPayload::for_tool("acme", "ada", "agent", "remind")
    };
    NewJob { max_attempts: 2, ..NewJob::new(payload, schedule) }
}

fn once(seconds: i64) -> Job {
    Job::new(new(Schedule::At(at(seconds))), at(0))
}

/// Returns a job that runs every `seconds` seconds.
fn every(seconds: u64) -> Job {
    Job::new(new(every_from(0, seconds)), at(0))
}

fn every_from(anchor: i64, seconds: u64) -> Schedule {
    Schedule::Every { every: Duration::from_secs(seconds), anchor: at(anchor) }
}

fn take(job: &Job, step: Step, now: i64) -> Job {
    job.clone().step(step, at(now)).unwrap_or_else(|error| panic!("{error}: {job:?}")).job
}

/// Claims the job for ten seconds.
fn claim_for_ten_seconds(job: &Job, now: i64) -> Job {
    let claimed = take(job, claim(now), now);
    assert!(claimed.is_delivering(), "{claimed:?}");
    claimed
}

fn claim(now: i64) -> Step {
    Step::Claim { until: at(now), lease: at(now + 10) }
}

fn end(job: &Job, outcome: AttemptOutcome) -> Step {
    let duration = Duration::from_millis(1500);
    Step::End { fence: job.fence, outcome, duration, status: Some(200), jitter: 0 }
}

fn failed() -> AttemptOutcome {
    AttemptOutcome::Failed { error: "busy".to_owned(), retry_after: None }
}

fn rejected() -> AttemptOutcome {
    AttemptOutcome::Rejected { error: "unknown".to_owned() }
}

/// Formats a job on one line: state, occurrence and scheduled time, wake-up time, attempt, next position, dead
/// letters.
fn line(job: &Job) -> String {
    let seconds = |time: Timestamp| time.duration_since(at(0)).as_secs_f64();
    let SchedulePosition { occurrence, scheduled_for } = job.position;
    let mut line = format!("{} #{occurrence}@{}", job.state().as_str(), seconds(scheduled_for));
    if let Some(next_run_at) = job.next_run_at() {
        write!(line, " wakes {}", seconds(next_run_at)).expect("a string");
    }
    if job.attempt > 0 {
        write!(line, " attempt {}", job.attempt).expect("a string");
    }
    match job.next_position {
        Some(NextPosition::Moved { position }) => {
            write!(line, " then moved to #{}@{}", position.occurrence, seconds(position.scheduled_for))
        }
        Some(NextPosition::Back { position }) => {
            write!(line, " then back to #{}@{}", position.occurrence, seconds(position.scheduled_for))
        }
        None => Ok(()),
    }
    .expect("a string");
    for dead_letter in &job.dead_letters {
        write!(line, " dead #{}", dead_letter.occurrence).expect("a string");
    }
    line
}

fn deferred(retry_after: Option<Duration>) -> AttemptOutcome {
    AttemptOutcome::Deferred { error: "in progress".to_owned(), retry_after }
}

fn postponed(seconds: u64) -> AttemptOutcome {
    AttemptOutcome::Postponed { error: "spent".to_owned(), retry_after: Duration::from_secs(seconds) }
}

/// Derives from `job` one job in each reachable phase at second 10, by name.
fn job_in_each_phase(job: Job) -> Vec<(&'static str, Job)> {
    let running = claim_for_ten_seconds(&job, 10);
    let retryable = take(&running, end(&running, failed()), 10);
    let discarded = take(&running, end(&running, rejected()), 10);
    let mut jobs = vec![
        ("running, paused", take(&running, Step::Pause, 10)),
        ("running, moved", take(&running, Step::Reschedule(every_from(0, 7)), 10)),
        ("retryable, paused", take(&retryable, Step::Pause, 10)),
        ("redriven", take(&discarded, Step::Redrive, 10)),
        ("retryable", retryable),
        ("discarded", discarded),
        ("succeeded", take(&running, end(&running, AttemptOutcome::Succeeded), 10)),
        ("gone", take(&running, end(&running, AttemptOutcome::Gone), 10)),
        ("running", running),
        ("scheduled, paused", take(&job, Step::Pause, 10)),
        ("cancelled", take(&job, Step::Cancel, 10)),
        ("scheduled", job),
    ];
    jobs.reverse();
    jobs
}

/// Applies every step in every phase, at second 15 or, where a lease must have expired, later.
fn check_steps(job: Job, expected: &ExpectFile) {
    let mut lines = String::new();
    for (name, job) in job_in_each_phase(job) {
        writeln!(lines, "{name}: {}", line(&job)).expect("a string");
        let fence = job.fence;
        let steps = [
            ("claim", claim(15), 15),
            ("claim late", claim(20), 20),
            ("extend", Step::Extend { fence, lease: at(30) }, 15),
            ("extend stale", Step::Extend { fence: fence + 1, lease: at(30) }, 15),
            ("release", Step::Release { fence }, 15),
            ("succeed", end(&job, AttemptOutcome::Succeeded), 15),
            ("fail", end(&job, failed()), 15),
            ("abandon", end(&job, abandoned()), 15),
            ("reject", end(&job, rejected()), 15),
            ("defer", end(&job, deferred(None)), 15),
            ("postpone", end(&job, postponed(100)), 15),
            ("gone", end(&job, AttemptOutcome::Gone), 15),
            ("cancel", Step::Cancel, 15),
            ("pause", Step::Pause, 15),
            ("resume", Step::Resume, 15),
            ("move", Step::Reschedule(Schedule::At(at(40))), 15),
            ("redrive", Step::Redrive, 15),
        ];
        for (step_name, step, now) in steps {
            let text = match job.clone().step(step, at(now)) {
                Err(error) => format!("{error:?}"),
                Ok(result) if !result.changed => "as it is".to_owned(),
                Ok(result) => line(&result.job),
            };
            writeln!(lines, "  {step_name}: {text}").expect("a string");
        }
    }
    expected.assert_eq(&lines);
}

#[test]
fn every_step_of_a_job_that_is_due_once() {
    check_steps(once(10), &expect_file!["tests/once.txt"]);
}

#[test]
fn every_step_of_a_periodic_job() {
    check_steps(every(10), &expect_file!["tests/periodic.txt"]);
}

#[test]
fn a_step_reports_a_delivery_in_progress() {
    let (job, running) = (every(10), claim_for_ten_seconds(&every(10), 10));
    for step in [Step::Cancel, Step::Pause, Step::Reschedule(Schedule::At(at(40)))] {
        let delivering =
            |job: &Job| job.clone().step(step.clone(), at(11)).expect("the job is open").delivering;
        assert_eq!((delivering(&job), delivering(&running)), (false, true), "{step:?}");
    }
    let cancelled = take(&running, Step::Cancel, 11);
    let again = cancelled.clone().step(Step::Cancel, at(12)).expect("a cancelled job can be cancelled again");
    assert!(!again.changed && !again.delivering);
    assert_eq!(cancelled.step(end(&running, AttemptOutcome::Succeeded), at(12)), Err(StepError::Stale));
}

fn abandoned() -> AttemptOutcome {
    AttemptOutcome::Abandoned { error: "the connection was reset".to_owned() }
}

#[test]
fn a_few_deliveries_that_are_abandoned_use_no_attempt() {
    let mut job = Job { max_attempts: 1, ..once(10) };
    let mut now = 10;
    for number in 1..=MAX_ABANDONED {
        let claimed = claim_for_ten_seconds(&job, now);
        assert_eq!((claimed.attempt, claimed.occurrence_key()), (1, job.occurrence_key()));
        now += 10;
        // Of the application's process, or of the scheduler's.
        job = if number % 2 == 1 { take(&claimed, end(&claimed, abandoned()), now) } else { claimed };
        if number % 2 == 1 {
            assert_eq!((job.state(), job.attempt, job.abandoned), (JobState::Retryable, 0, number));
            assert!(job.due > at(now), "the job waits, since the receiver may be starting");
            now += 60;
        }
    }
    let last = claim_for_ten_seconds(&job, now);
    assert_eq!(last.abandoned, MAX_ABANDONED);
    let discarded = take(&last, end(&last, abandoned()), now + 1);
    assert_eq!(discarded.state(), JobState::Discarded, "a job that kills its process ends");
    assert_eq!(discarded.attempts.len(), 6, "each delivery is recorded");
    // Each occurrence has its own deliveries, and a redriven one has them again.
    assert_eq!(take(&discarded, Step::Redrive, now + 2).abandoned, 0);
    let periodic = claim_for_ten_seconds(&Job { abandoned: MAX_ABANDONED, ..every(10) }, 10);
    assert_eq!(take(&periodic, end(&periodic, AttemptOutcome::Succeeded), 11).abandoned, 0);
}

#[test]
fn a_released_delivery_keeps_the_occurrence_of_one_that_was_abandoned() {
    let job = Job { misfire: MisfirePolicy::Skip, ..every(10) };
    let claimed = claim_for_ten_seconds(&job, 10);
    let waiting = take(&claimed, end(&claimed, abandoned()), 11);
    let claimed = claim_for_ten_seconds(&waiting, 500);
    let released = take(&claimed, Step::Release { fence: claimed.fence }, 501);
    // The receiver may know the occurrence.
    assert_eq!(line(&claim_for_ten_seconds(&released, 502)), "running #1@10 wakes 512 attempt 1");
}

#[test]
fn a_lease_that_expires_in_the_last_attempt_is_a_permanent_failure() {
    let once = |seconds| Job { abandoned: MAX_ABANDONED, ..once(seconds) };
    let every = |seconds| Job { abandoned: MAX_ABANDONED, ..every(seconds) };
    let first = claim_for_ten_seconds(&once(10), 10);
    let second = claim_for_ten_seconds(&first, 20);
    assert_eq!((second.attempt, second.fence), (2, 2));
    let lost = take(&second, claim(30), 30);
    assert_eq!(lost.state(), JobState::Discarded);
    assert!(lost.last_error().is_some_and(|error| error.contains("lease")), "{lost:?}");
    // A periodic job continues, and an occurrence that is due is claimed in the same step.
    for overlap in [OverlapPolicy::Skip, OverlapPolicy::Queue] {
        let second = claim_for_ten_seconds(&claim_for_ten_seconds(&Job { overlap, ..every(10) }, 10), 20);
        let third = take(&second, claim(30), 30);
        assert_eq!(line(&third), "running #2@20 wakes 40 attempt 1 dead #1", "{overlap:?}");
    }
}

/// While no scheduler is there, the receiver runs the next occurrence by itself, under its number.
#[test]
fn occurrences_that_pass_while_a_lease_expires_are_missed_and_do_not_overlap() {
    let lost = claim_for_ten_seconds(&every(10), 10);
    let again = claim_for_ten_seconds(&lost, 35);
    assert_eq!(line(&again), "running #1@10 wakes 45 attempt 1");
    let next = take(&again, end(&again, AttemptOutcome::Succeeded), 36);
    assert_eq!(line(&next), "scheduled #2@20 wakes 36", "the number stays with its time");
    let next = claim_for_ten_seconds(&next, 36);
    assert_eq!(line(&take(&next, end(&next, AttemptOutcome::Succeeded), 36)), "scheduled #3@40 wakes 40");
    // Those that come due during the new delivery overlap.
    let again = claim_for_ten_seconds(&claim_for_ten_seconds(&every(100), 100), 120);
    let next = take(&again, end(&again, AttemptOutcome::Succeeded), 250);
    assert_eq!(line(&next), "scheduled #2@300 wakes 300");
}

#[test]
fn a_job_claimed_ahead_keeps_its_scheduled_time() {
    let ahead = Step::Claim { until: at(10), lease: at(19) };
    let claimed = take(&every(10), ahead, 9);
    assert_eq!(line(&claimed), "running #1@10 wakes 19 attempt 1");
    let next = take(&claimed, end(&claimed, AttemptOutcome::Succeeded), 10);
    assert_eq!(line(&next), "scheduled #2@20 wakes 20");
    let released = take(&claimed, Step::Release { fence: claimed.fence }, 9);
    assert_eq!(line(&released), "scheduled #1@10 wakes 10", "a release undoes the claim");
}

#[test]
fn missed_occurrences_follow_the_misfire_policy() {
    // The schedule is 10, 20, …; the claim is at second 1,005, and a delivery takes two seconds.
    let cases = [
        (MisfirePolicy::RunOnce, "running #1@10 wakes 1015 attempt 1", "scheduled #2@1010 wakes 1010"),
        (MisfirePolicy::Skip, "running #2@950 wakes 1015 attempt 1", "scheduled #3@1010 wakes 1010"),
        (MisfirePolicy::RunAll, "running #1@10 wakes 1015 attempt 1", "scheduled #2@20 wakes 1007"),
    ];
    for (misfire, claimed, next) in cases {
        let job = claim_for_ten_seconds(&Job { misfire, ..every(10) }, 1005);
        let first = line(&job);
        // The grace period of a minute selects the missed occurrence that still runs.
        assert_eq!(first, claimed, "{misfire:?}");
        assert_eq!(line(&take(&job, end(&job, AttemptOutcome::Succeeded), 1007)), next, "{misfire:?}");
    }
    let skipped = take(&Job { misfire: MisfirePolicy::Skip, ..every(1000) }, claim(1500), 1500);
    assert_eq!(
        line(&skipped),
        "scheduled #2@2000 wakes 2000",
        "the receiver may have run the skipped occurrence by itself, under its number"
    );
}

#[test]
fn occurrences_during_a_delivery_follow_the_overlap_policy() {
    for (overlap, next) in [
        (OverlapPolicy::Skip, "scheduled #2@50 wakes 50"),
        (OverlapPolicy::Queue, "scheduled #2@20 wakes 45"),
    ] {
        let claimed = claim_for_ten_seconds(&Job { overlap, ..every(10) }, 10);
        let claimed = take(&claimed, Step::Extend { fence: claimed.fence, lease: at(60) }, 15);
        assert_eq!(line(&take(&claimed, end(&claimed, AttemptOutcome::Succeeded), 45)), next, "{overlap:?}");
    }
}

#[test]
fn a_delivery_is_not_retried_after_a_reschedule() {
    let claimed = claim_for_ten_seconds(&once(10), 10);
    let moved = take(&claimed, Step::Reschedule(Schedule::At(at(40))), 11);
    assert_eq!(line(&moved), "running #1@10 wakes 20 attempt 1 then moved to #2@40");
    for outcome in [AttemptOutcome::Succeeded, failed(), rejected()] {
        let next = take(&moved, end(&moved, outcome.clone()), 12);
        assert_eq!(line(&next), "scheduled #2@40 wakes 40", "{outcome:?}");
    }
    assert_eq!(line(&take(&moved, claim(20), 20)), "scheduled #2@40 wakes 40", "the lease expires");
    assert_eq!(line(&take(&moved, Step::Release { fence: 1 }, 12)), "scheduled #2@40 wakes 40");
    let again = take(&moved, Step::Reschedule(Schedule::At(at(50))), 12);
    assert_eq!(line(&again), "running #1@10 wakes 20 attempt 1 then moved to #2@50");
}

#[test]
fn a_delivered_occurrence_number_is_not_used_for_another_time() {
    let claimed = claim_for_ten_seconds(&once(10), 10);
    let retryable = take(&claimed, end(&claimed, failed()), 11);
    let moved = take(&retryable, Step::Reschedule(Schedule::At(at(40))), 12);
    assert_eq!(line(&moved), "scheduled #2@40 wakes 40");
    let redriven = take(&take(&claimed, end(&claimed, rejected()), 11), Step::Redrive, 12);
    assert_eq!(line(&redriven), "scheduled #1@10 wakes 12");
    let moved = take(&redriven, Step::Reschedule(Schedule::At(at(40))), 13);
    assert_eq!(line(&moved), "scheduled #2@40 wakes 40");
    let unclaimed = take(&once(10), Step::Reschedule(Schedule::At(at(40))), 5);
    assert_eq!(
        line(&unclaimed),
        "scheduled #1@40 wakes 40",
        "an occurrence whose time has not come keeps its number"
    );
    let overdue = take(&once(10), Step::Reschedule(Schedule::At(at(40))), 10);
    assert_eq!(line(&overdue), "scheduled #2@40 wakes 40", "the receiver may have run it by itself");
}

#[test]
fn a_redriven_dead_letter_runs_and_the_job_returns_to_its_position() {
    let claimed = claim_for_ten_seconds(&Job { misfire: MisfirePolicy::Skip, ..every(1000) }, 1000);
    let job = take(&claimed, end(&claimed, rejected()), 1001);
    assert_eq!(line(&job), "scheduled #2@2000 wakes 2000 dead #1");
    let redriven = take(&job, Step::Redrive, 1500);
    assert_eq!(line(&redriven), "scheduled #1@1000 wakes 1500 then back to #2@2000");
    assert_eq!(redriven.clone().step(Step::Redrive, at(1500)), Err(StepError::Busy));
    let claimed = claim_for_ten_seconds(&redriven, 1500);
    assert_eq!(claimed.occurrence_key(), format!("{}:1", job.id), "the misfire policy does not apply");
    let back = take(&claimed, end(&claimed, AttemptOutcome::Succeeded), 1501);
    assert_eq!(line(&back), "scheduled #2@2000 wakes 2000");
    assert_eq!(back.step(Step::Redrive, at(1501)), Err(StepError::NothingDiscarded));
    // Rescheduled during the redrive, the dead letter still runs.
    let moved = take(&claimed, Step::Reschedule(Schedule::At(at(5000))), 1501);
    assert_eq!(line(&moved), "running #1@1000 wakes 1510 attempt 1 then back to #2@5000");
    let again = take(&moved, end(&moved, rejected()), 1502);
    assert_eq!(
        line(&again),
        "scheduled #2@5000 wakes 5000 dead #1",
        "a dead letter that fails again is kept"
    );
    // Released, the dead letter still runs at the next claim.
    let released = take(&claimed, Step::Release { fence: claimed.fence }, 1501);
    assert_eq!(
        line(&claim_for_ten_seconds(&released, 1600)),
        "running #1@1000 wakes 1610 attempt 1 then back to #2@2000"
    );
}

#[test]
fn a_redriven_job_runs_under_any_misfire_policy() {
    // An interval of four thousand years: the calendar has no second occurrence.
    let seconds = 126_000_000_000;
    let claimed =
        claim_for_ten_seconds(&Job { misfire: MisfirePolicy::Skip, ..every(seconds) }, seconds as i64);
    let discarded = take(&claimed, end(&claimed, rejected()), seconds as i64);
    assert_eq!(discarded.state(), JobState::Discarded, "the schedule has no further occurrence");
    let late = seconds as i64 + 100_000;
    let again = claim_for_ten_seconds(&take(&discarded, Step::Redrive, late), late);
    assert_eq!((again.position, again.attempt), (claimed.position, 1));
    assert_eq!(take(&again, end(&again, AttemptOutcome::Succeeded), late).state(), JobState::Completed);
}

#[test]
fn a_pause_keeps_the_position() {
    let claimed = claim_for_ten_seconds(&every(10), 10);
    let paused = take(&claimed, Step::Pause, 11);
    assert_eq!(paused.clone().step(claim(30), at(30)), Err(StepError::NotDue), "a paused job is not claimed");
    let ended = take(&paused, end(&paused, AttemptOutcome::Succeeded), 12);
    assert_eq!(line(&ended), "paused #2@20");
    let resumed = take(&ended, Step::Resume, 500);
    assert_eq!(line(&resumed), "scheduled #2@20 wakes 500");
    assert_eq!(resumed.lag(at(500)), Duration::ZERO, "a pause does not count as lag");
    assert_eq!(
        line(&claim_for_ten_seconds(&take(&paused, Step::Resume, 30), 30)),
        "running #1@10 wakes 40 attempt 1"
    );
    let last = take(&claim_for_ten_seconds(&once(10), 10), Step::Pause, 11);
    let discarded = take(&last, end(&last, rejected()), 12);
    assert!(!discarded.paused, "a final job is not paused");
}

#[test]
fn a_schedule_without_an_occurrence_is_rejected() {
    let never = Schedule::Every { every: Duration::ZERO, anchor: at(0) };
    assert_eq!(once(10).step(Step::Reschedule(never.clone()), at(0)), Err(StepError::NeverFires));
    assert_eq!(Job::new(new(never), at(0)).state(), JobState::Completed);
}

#[test]
fn the_history_of_a_job_is_bounded() {
    let mut job = Job { max_attempts: 1, ..every(1) };
    for now in 1..100 {
        let claimed = claim_for_ten_seconds(&job, now);
        let error = "ü".repeat(10_000);
        job = take(&claimed, end(&claimed, AttemptOutcome::Failed { error, retry_after: None }), now);
    }
    assert_eq!((job.attempts.len(), job.dead_letters.len()), (MAX_RECORDED_ATTEMPTS, MAX_DEAD_LETTERS));
    assert_eq!(job.last_error().map(str::len), Some(MAX_ERROR_BYTES));
    assert_eq!(job.dead_letters.last().map(|dead| dead.occurrence), Some(99), "the newest are kept");
}
