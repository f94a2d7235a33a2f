//! Invariants of all steps, over random schedules and outcomes.

use super::*;

/// Generated action on a job. `back` is the age of the fencing token in claims.
#[derive(Debug, Clone)]
enum TestAction {
    Wait(i64),
    Claim { ahead: i64, lease: i64 },
    Extend { back: u64, lease: i64 },
    Release { back: u64 },
    End { back: u64, outcome: AttemptOutcome, jitter: u32 },
    Cancel,
    Pause,
    Resume,
    Reschedule(Schedule),
    Redrive,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        (-100..10_000_i64).prop_map(|seconds| Schedule::At(at(seconds))),
        (1..5000_u64, -100..100_i64).prop_map(|(seconds, anchor)| every_from(anchor, seconds)),
        prop::sample::select(vec!["*/7 * * * *", "0 2 * * *", "30 2 29 2 *", "* * * * * *"]).prop_map(
            |cron| {
                Schedule::Cron(
                    CronSchedule::new(cron, "Europe/Berlin", DstPolicy::default()).expect("it fires"),
                )
            }
        ),
    ]
}

fn outcomes() -> impl Strategy<Value = AttemptOutcome> {
    let retry = prop::option::of((0..100_000_u64).prop_map(Duration::from_secs));
    let deferrals = prop::option::of((0..100_000_u64).prop_map(Duration::from_secs)).prop_map(deferred);
    prop_oneof![
        4 => Just(AttemptOutcome::Succeeded),
        4 => retry.prop_map(|retry_after| AttemptOutcome::Failed { error: "busy".to_owned(), retry_after }),
        2 => Just(rejected()),
        2 => Just(abandoned()),
        2 => deferrals,
        2 => (0..4_000_000_u64).prop_map(postponed),
        1 => Just(AttemptOutcome::Gone),
    ]
}

fn test_actions() -> impl Strategy<Value = TestAction> {
    let back = || prop_oneof![5 => Just(0_u64), 1 => 1..3_u64];
    prop_oneof![
        // The clock may be set back.
        4 => prop_oneof![5 => 0..100_i64, 2 => 0..1_000_000_i64, 1 => -1000..0_i64].prop_map(TestAction::Wait),
        8 => (0..20_i64, 1..60_i64).prop_map(|(ahead, lease)| TestAction::Claim { ahead, lease }),
        1 => (back(), 1..60_i64).prop_map(|(back, lease)| TestAction::Extend { back, lease }),
        1 => back().prop_map(|back| TestAction::Release { back }),
        8 => (back(), outcomes(), any::<u32>())
            .prop_map(|(back, outcome, jitter)| TestAction::End { back, outcome, jitter }),
        1 => prop::sample::select(vec![TestAction::Cancel, TestAction::Pause, TestAction::Pause, TestAction::Resume, TestAction::Resume]),
        1 => schedules().prop_map(TestAction::Reschedule),
        2 => Just(TestAction::Redrive),
    ]
}

fn jobs() -> impl Strategy<Value = Job> {
    let misfires =
        prop::sample::select(vec![MisfirePolicy::RunOnce, MisfirePolicy::Skip, MisfirePolicy::RunAll]);
    let overlaps = prop::sample::select(vec![OverlapPolicy::Skip, OverlapPolicy::Queue]);
    (schedules(), misfires, overlaps, 1..4_u32).prop_map(|(schedule, misfire, overlap, max_attempts)| {
        Job::new(NewJob { misfire, overlap, max_attempts, ..new(schedule) }, at(0))
    })
}

/// Checks the invariants between a job and its successor after a step.
fn check_invariants(before: &Job, after: &Job) {
    let open = !after.state().is_final();
    assert_eq!(
        open,
        after.next_run_at().is_some() || after.paused,
        "an open job has a next run or is paused: {after:?}"
    );
    assert_eq!(open, after.ended_at().is_none());
    assert!(open || after.next_position.is_none(), "a final job has no next position: {after:?}");
    assert!(after.fence >= before.fence, "fences do not decrease");
    assert!(after.attempt <= after.max_attempts);
    assert!(after.attempts.len() <= MAX_RECORDED_ATTEMPTS && after.dead_letters.len() <= MAX_DEAD_LETTERS);
    assert_eq!(after.is_delivering(), after.attempt > 0 && matches!(after.phase, Phase::Running { .. }));
    let json = serde_json::to_string(after).expect("JSON");
    assert_eq!(serde_json::from_str::<Job>(&json).expect("a job"), *after, "a job is equal to its JSON");
}

proptest! {
    #[test]
    fn any_sequence_of_steps_keeps_the_invariants(job in jobs(), actions in prop::collection::vec(test_actions(), 0..80)) {
        let mut job = job;
        let mut now = 0;
        // Scheduled time of each delivered occurrence, and the fencing token of its first claim.
        let mut delivered: BTreeMap<u64, (Timestamp, u64)> = BTreeMap::new();
        for action in actions {
            let fence_before = |back: u64| job.fence.saturating_sub(back);
            let step = match action {
                TestAction::Wait(seconds) => {
                    now += seconds;
                    continue;
                }
                TestAction::Claim { ahead, lease } => Step::Claim { until: at(now + ahead), lease: at(now + ahead + lease) },
                TestAction::Extend { back, lease } => Step::Extend { fence: fence_before(back), lease: at(now + lease) },
                TestAction::Release { back } => Step::Release { fence: fence_before(back) },
                TestAction::End { back, outcome, jitter } => {
                    let duration = Duration::from_secs(1);
                    Step::End { fence: fence_before(back), outcome, duration, status: None, jitter }
                }
                TestAction::Cancel => Step::Cancel,
                TestAction::Pause => Step::Pause,
                TestAction::Resume => Step::Resume,
                TestAction::Reschedule(schedule) => Step::Reschedule(schedule),
                TestAction::Redrive => Step::Redrive,
            };
            let result = match job.clone().step(step.clone(), at(now)) {
                Ok(result) => result,
                Err(_) => continue,
            };
            let after = result.job;
            check_invariants(&job, &after);
            match step {
                Step::End { fence, .. } | Step::Extend { fence, .. } => {
                    prop_assert!(fence == job.fence && job.is_delivering(), "only the current claim is accepted");
                }
                // A released delivery never began, so its number may take another scheduled time.
                Step::Release { fence } => delivered.retain(|_, (_, first)| *first != fence),
                Step::Claim { until, .. } if after.is_delivering() => {
                    prop_assert_eq!(after.fence, job.fence + 1);
                    prop_assert!(after.due <= until, "no job is claimed before it is due");
                    let SchedulePosition { occurrence, scheduled_for } = after.position;
                    let (first_scheduled_for, _) = *delivered.entry(occurrence).or_insert((scheduled_for, after.fence));
                    prop_assert_eq!(first_scheduled_for, scheduled_for, "an occurrence keeps its scheduled time");
                }
                _ => {}
            }
            job = after;
        }
    }
}
